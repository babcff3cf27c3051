"""The SQL text of functions that always give the same value, and pyarrow's calls of them.

``parse_where`` reads each text back as the call it was written for.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc
from sqlglot.dialects.duckdb import DuckDB

from intarsia.expr.map_lookup import is_first
from intarsia.expr.tree import Call, FieldRef, Literal, Node

FUNCTIONS = (
    "these are lower, upper, length, abs, floor, ceil, +, -, *, CAST and coalesce, quarter, month, "
    "week, day, hour, minute, second, dayofweek, isodow and dayofyear of moments, and values of "
    "maps, attrs['key']; of columns and constants"
)
"""What there is a text for, as messages tell."""
_CALLED = {
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
_DAY_OPTIONS = ("count_from_zero", "week_start")
_DAYS_OF_WEEK = {(True, 7): "dayofweek", (False, 1): "isodow"}
_OPERATORS = {"add_checked": "+", "subtract_checked": "-", "multiply_checked": "*"}
_CASTS = {
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
    "cast": True,
    **dict.fromkeys([*_CALLED, *_OPERATORS], True),
}
"""The functions that have a text: True if the value is NULL wherever one argument is NULL."""
_KEYWORDS = {*DuckDB.Tokenizer.KEYWORDS, "LOCALTIME", "LOCALTIMESTAMP"}


def written(node: Node) -> str | None:
    """The one text of a field, a constant or a function; None of what there is no text for."""
    match node:
        case FieldRef(path):
            return quoted(path)
        case Literal(value):
            return _number(value)
        case Call(function, arguments) if function in PROPAGATES_NULL:
            write = _written_beside if function == "coalesce" else written
            texts = [write(argument) for argument in arguments]
            known = [text for text in texts if text is not None]
            return _call(node, known) if len(known) == len(texts) else None
        case _:
            return None


def _call(call: Call, texts: Sequence[str]) -> str | None:
    """A function of what has these texts."""
    options = call.options
    match call.function, texts:
        case "coalesce", _:
            return f"coalesce({', '.join(texts)})"
        case function, [text] if function in _CALLED:
            return f"{_CALLED[function]}({text})"
        case function, [one, other] if function in _OPERATORS:
            return f"({one} {_OPERATORS[function]} {other})"
        case "negate_checked", [text]:
            return f"(-{text})"
        case "day_of_week", [text]:
            given = tuple(options[name].as_py() for name in _DAY_OPTIONS if name in options)
            return f"{_DAYS_OF_WEEK[given]}({text})" if given in _DAYS_OF_WEEK else None
        case "map_lookup", [text]:
            key = _text(options["query_key"])
            return f"{text}[{key}]" if key and is_first(options) else None
        case "cast", [text]:
            target = options.get("to_type")
            name = None if target is None else _CASTS.get(target.type)
            loose = any(options[n].as_py() for n in options if n.startswith("allow"))
            return f"CAST({text} AS {name})" if name and not loose else None
    return None


def rebuilt(call: Call, arguments: Sequence[pc.Expression]) -> pc.Expression:
    """A call that has a text, of other arguments."""
    options = call.options
    match call.function:
        case "cast":
            return arguments[0].cast(options["to_type"].type)
        case "day_of_week":
            given = {option: options[option].as_py() for option in _DAY_OPTIONS}
            return pc.day_of_week(*arguments, **given)
        case "map_lookup":
            return pc.map_lookup(*arguments, options["query_key"], "first")
    return getattr(pc, call.function)(*arguments)


def quoted(path: tuple[str, ...]) -> str:
    """A field's path as SQL text."""
    return ".".join(map(_identifier, path))


def _number(value: pa.Scalar) -> str | None:
    """A number as SQL text, of the types that text gives."""
    if value.is_valid and value.type == pa.int64() and value.as_py() > -(2**63):
        return str(value.as_py())
    if value.is_valid and value.type == pa.float64() and math.isfinite(value.as_py()):
        return repr(value.as_py())
    return None


def _written_beside(node: Node) -> str | None:
    """The text of what has the type of what is beside it, constants of other types among that."""
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
    return _text(value)


def _text(value: pa.Scalar) -> str | None:
    is_text = pa.types.is_string(value.type) or pa.types.is_large_string(value.type)
    if not is_text or not value.is_valid:
        return None
    text: str = value.as_py()
    return "'" + text.replace("'", "''") + "'"


def _identifier(name: str) -> str:
    """A name in SQL text: in quotes where it would not be read as one without."""
    if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name) and name.upper() not in _KEYWORDS:
        return name
    return '"' + name.replace('"', '""') + '"'
