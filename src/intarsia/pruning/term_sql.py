"""The canonical SQL of deterministic functions, and the pyarrow calls that it stands for.

``parse_where`` reads each SQL string back as the call it was written for.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence

import pyarrow as pa
from sqlglot.dialects.duckdb import DuckDB

from intarsia.expr.functions import JSON_EXTRACT_STRING
from intarsia.expr.map_lookup import is_first
from intarsia.expr.tree import Call, FieldRef, Literal, Node

FUNCTIONS = (
    "these are lower, upper, length, abs, floor, ceil, +, -, *, CAST and coalesce, quarter, month, "
    "week, day, hour, minute, second, dayofweek, isodow and dayofyear of moments, and values of "
    "maps, attrs['key'], of lists, tags[1], and of JSON, payload->>'$.key'; of columns and "
    "constants"
)
"""The functions that have canonical SQL, for messages."""
_SQL_NAMES = {
    "utf8_lower": "lower",
    "utf8_upper": "upper",
    "utf8_length": "length",
    "abs": "abs",
    "floor": "floor",
    "ceil": "ceil",
    "quarter": "quarter",
    "month": "month",
    "iso_week": "week",
    "day": "day",
    "hour": "hour",
    "minute": "minute",
    "second": "second",
    "day_of_year": "dayofyear",
}
_SLICE_OPTIONS = ("start", "stop", "step", "return_fixed_size_list")
_DAY_OPTIONS = ("count_from_zero", "week_start")
_DAYS_OF_WEEK = {(True, 7): "dayofweek", (False, 1): "isodow"}
_OPERATORS = {"add_checked": "+", "subtract_checked": "-", "multiply_checked": "*"}
_SQL_TYPES = {
    pa.date32(): "DATE",
    pa.timestamp("us"): "TIMESTAMP",
    pa.timestamp("us", "UTC"): "TIMESTAMPTZ",
    pa.int64(): "BIGINT",
    pa.int32(): "INT",
    pa.float64(): "DOUBLE",
    pa.string(): "VARCHAR",
    pa.bool_(): "BOOLEAN",
}
PROPAGATES_NULL = {
    "coalesce": False,
    "day_of_week": True,
    "map_lookup": True,
    "negate_checked": True,
    "list_element": True,
    "struct_field": True,
    JSON_EXTRACT_STRING: True,
    "cast": True,
    **dict.fromkeys([*_SQL_NAMES, *_OPERATORS], True),
}
"""The functions that have canonical SQL: True if a NULL argument makes the value NULL."""
_KEYWORDS = {*DuckDB.Tokenizer.KEYWORDS, "LOCALTIME", "LOCALTIMESTAMP"}


def written(node: Node) -> str | None:
    """Returns the canonical SQL of a field, a constant or a function, or None if it has none."""
    match node:
        case FieldRef(path):
            return quoted(path)
        case Literal(value):
            return _number(value)
        case Call(function, (document, Literal(path))) if function == JSON_EXTRACT_STRING:
            document_sql, path_sql = written(document), _string_literal(path)
            has_sql = document_sql is not None and path_sql is not None
            return f"json_extract_string({document_sql}, {path_sql})" if has_sql else None
        case Call("list_element", (Call("list_slice", (items,), options), Literal(first))):
            items_sql, position = written(items), _position(options, first)
            return f"{items_sql}[{position}]" if items_sql and position else None
        case Call(function, arguments) if function in PROPAGATES_NULL:
            write = _written_coalesce_argument if function == "coalesce" else written
            arguments_sql = [write(argument) for argument in arguments]
            known_sql = [argument_sql for argument_sql in arguments_sql if argument_sql is not None]
            return _written_call(node, known_sql) if len(known_sql) == len(arguments_sql) else None
        case _:
            return None


def _written_call(call: Call, arguments: Sequence[str]) -> str | None:
    """Returns the SQL of a call of arguments with the given SQL, or None if it has none."""
    options = call.options
    match call.function, arguments:
        case "coalesce", _:
            return f"coalesce({', '.join(arguments)})"
        case function, [argument] if function in _SQL_NAMES:
            return f"{_SQL_NAMES[function]}({argument})"
        case function, [one, other] if function in _OPERATORS:
            return f"({one} {_OPERATORS[function]} {other})"
        case "negate_checked", [argument]:
            return f"(-{argument})"
        case "day_of_week", [argument]:
            options_given = tuple(options[name].as_py() for name in _DAY_OPTIONS if name in options)
            return (
                f"{_DAYS_OF_WEEK[options_given]}({argument})"
                if options_given in _DAYS_OF_WEEK
                else None
            )
        case "struct_field", [argument] if name := field_name(call):
            return f"{argument}.{_identifier(name)}"
        case "map_lookup", [argument]:
            key = _string_literal(options["query_key"])
            return f"{argument}[{key}]" if key and is_first(options) else None
        case "cast", [argument]:
            target = options.get("to_type")
            name = None if target is None else _SQL_TYPES.get(target.type)
            is_unsafe = any(options[n].as_py() for n in options if n.startswith("allow"))
            return f"CAST({argument} AS {name})" if name and not is_unsafe else None
    return None


def field_name(call: Call) -> str | None:
    """Returns the field that ``struct_field`` takes of its argument, or None if it has no name."""
    name = re.fullmatch(r"\.([^.\[\]\\]+)", str(call.options.get("field_ref")))
    return name.group(1) if name else None


def _position(slice_options: Mapping[str, pa.Scalar], index: pa.Scalar) -> int | None:
    """Returns the position, from 1, of the only item of a slice; None for any other slice."""
    values = [slice_options[name].as_py() for name in _SLICE_OPTIONS if name in slice_options]
    match values:
        case [int(start), int(stop), 1, True] if stop == start + 1 and index.as_py() == 0:
            return start + 1
    return None


def quoted(path: tuple[str, ...]) -> str:
    """Returns a field's path as SQL."""
    return ".".join(map(_identifier, path))


def _number(value: pa.Scalar) -> str | None:
    """Returns a number as SQL that is read back in the same type, or None if there is none."""
    if value.is_valid and value.type == pa.int64() and value.as_py() > -(2**63):
        return str(value.as_py())
    if value.is_valid and value.type == pa.float64() and math.isfinite(value.as_py()):
        return repr(value.as_py())
    return None


def _written_coalesce_argument(node: Node) -> str | None:
    """Returns the SQL of an argument of ``coalesce``, or None if it has none.

    Constants may be of other types, as they are read in the type of the first argument.
    """
    if not isinstance(node, Literal):
        return written(node)
    value = node.value
    if not value.is_valid:
        return None
    if pa.types.is_boolean(value.type):
        return str(value.as_py()).upper()
    if pa.types.is_integer(value.type):
        return str(value.as_py())
    if pa.types.is_floating(value.type):
        return repr(float(value.as_py())) if math.isfinite(value.as_py()) else None
    return _string_literal(value)


def _string_literal(value: pa.Scalar) -> str | None:
    is_text = pa.types.is_string(value.type) or pa.types.is_large_string(value.type)
    if not is_text or not value.is_valid:
        return None
    string: str = value.as_py()
    return "'" + string.replace("'", "''") + "'"


def _identifier(name: str) -> str:
    """Returns a name as SQL, in double quotes unless it can be read without them."""
    if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name) and name.upper() not in _KEYWORDS:
        return name
    return '"' + name.replace('"', '""') + '"'
