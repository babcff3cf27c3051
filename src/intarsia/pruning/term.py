"""Terms: the subjects of predicates. A term is a field, or a deterministic function of fields.

The canonical SQL of a function stands for one call: ``parse_where`` reads it back as that call.

A function's results may change between versions of pyarrow, as Unicode's tables do. A term's
*meaning* identifies them, so that an index over other values is not used by mistake.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc
import sqlglot
import xxhash
from sqlglot import exp
from sqlglot.dialects.duckdb import DuckDB

from intarsia.errors import PredicateError
from intarsia.expr.casts import is_in_utc
from intarsia.expr.functions import JSON_EXTRACT_STRING
from intarsia.expr.json_text import json_version
from intarsia.expr.map_lookup import is_first
from intarsia.expr.tree import (
    Call,
    FieldRef,
    Literal,
    Node,
    calls_in,
    field_paths,
    read_expression,
    replaced,
    to_expression,
)
from intarsia.sql.dialect import DUCKDB, parsed_as
from intarsia.sql.where_clause import SQL_ERRORS, parse_where

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


_MEANING = 1
"""Incremented when a supported function gets another meaning here."""


@dataclass(frozen=True, slots=True)
class Term:
    """A field or a function of fields.

    ``sql`` is its canonical SQL: terms are equal if their SQL is. ``path`` is the field's path; it
    is empty for a function.
    """

    sql: str
    path: tuple[str, ...]
    node: Node = field(compare=False, repr=False)

    def __str__(self) -> str:
        return ".".join(self.path) if self.path else self.sql

    @property
    def fields(self) -> frozenset[tuple[str, ...]]:
        """The paths of the fields in the term."""
        return frozenset(field_paths(self.node) or ())

    @property
    def expression(self) -> pc.Expression:
        """The term as pyarrow evaluates it."""
        return to_expression(self.node)

    @property
    def given(self) -> frozenset[tuple[str, ...]]:
        """The paths of fields that a function receives without a conversion to UTC.

        Other fields are converted to UTC first. The time zone of a timestamp decides the result of
        a function on it.
        """
        return frozenset(_given(self.node))

    @property
    def meaning(self) -> str:
        """A string that identifies the results of the term's functions; empty for a field.

        Terms of other meanings may have other values. Upper and lower case depend on Unicode's
        tables, casts on pyarrow's version, values in JSON on DuckDB's.
        """
        functions = {call.function for call in calls_in(self.node)}
        if not functions:
            return ""
        parts = [str(_MEANING)]
        if functions & {"utf8_lower", "utf8_upper"}:
            parts.append(f"case {_case_tables()}")
        if JSON_EXTRACT_STRING in functions:
            parts.append(f"json {json_version()}")
        if "cast" in functions:
            parts.append(f"cast {pa.__version__.partition('.')[0]}")
        return ", ".join(parts)


@functools.lru_cache(maxsize=256)
def field_term(*path: str) -> Term:
    """Returns the term of a field."""
    return Term(quoted(path), path, FieldRef(path))


def term_of(node: Node) -> Term | None:
    """Returns the term of a tree, or None if its value may change between versions or runs.

    Supported are fields, functions with canonical SQL (``written``), and ``struct_field``.
    """
    node = replaced(node, _with_paths)
    if isinstance(node, FieldRef):
        return field_term(*node.path)
    if not isinstance(node, Call) or not field_paths(node):
        return None
    sql = written(node)
    return None if sql is None else Term(sql, (), node)


def parse_term(text: str, schema: pa.Schema) -> Term:
    """Returns the term of a SQL string over ``schema``'s fields.

    Raises ``PredicateError`` for a string that is no supported term.
    """
    condition = parse_where(f"({text}) IS NULL", schema, now=None, knows_fractions=False)
    node = read_expression(condition)
    if isinstance(node, Call) and node.function == "is_null":
        term = term_of(node.arguments[0])
        if term is not None:
            return term
    raise PredicateError(f"{text!r} is not a function that can be indexed: {FUNCTIONS}")


@functools.lru_cache(maxsize=256)
def columns_named(text: str) -> frozenset[str]:
    """Returns the columns that the SQL of a term names; none if it is not such SQL."""
    try:
        columns = sqlglot.parse_one(text, dialect=parsed_as(DUCKDB)).find_all(exp.Column)
        return frozenset(column.parts[0].name for column in columns)
    except (*SQL_ERRORS, RecursionError):
        return frozenset()


def _with_paths(node: Node) -> Node:
    """Returns a field of a struct as the field's path; other trees unchanged."""
    match node:
        case Call("struct_field", (FieldRef(path),)) if name := field_name(node):
            return FieldRef((*path, name))
    return node


def _given(node: Node) -> Iterator[tuple[str, ...]]:
    if not isinstance(node, Call):
        return
    target = node.options.get("to_type") if node.function == "cast" else None
    for argument in node.arguments:
        if isinstance(argument, FieldRef) and not (target and is_in_utc(target.type)):
            yield argument.path
        yield from _given(argument)


@functools.cache
def _case_tables() -> str:
    """Returns 8 hexadecimal digits that identify pyarrow's tables of upper and lower case.

    They are a hash of the results for every character. This takes about 50 ms, once per process.
    """
    code_points = [*range(0xD800), *range(0xE000, 0x110000)]
    blocks = [
        "".join(map(chr, code_points[at : at + 4096])) for at in range(0, len(code_points), 4096)
    ]
    digest = xxhash.xxh64()
    for change in (pc.utf8_lower, pc.utf8_upper):
        for block in change(pa.array(blocks)):
            digest.update(block.as_py().encode())
    return digest.hexdigest()[:8]
