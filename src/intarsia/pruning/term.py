"""Terms: the subjects of predicates. A term is a field, or a deterministic function of fields.

A function's results may change between versions of pyarrow, as Unicode's tables do. A term's
*meaning* identifies them, so that an index over other values is not used by mistake.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc
import sqlglot
import xxhash
from sqlglot import exp

from intarsia.errors import PredicateError
from intarsia.expr.casts import is_in_utc
from intarsia.expr.functions import JSON_EXTRACT_STRING
from intarsia.expr.json_text import json_version
from intarsia.expr.tree import (
    Call,
    FieldRef,
    Node,
    calls_in,
    field_paths,
    read_expression,
    replaced,
    to_expression,
)
from intarsia.pruning.term_sql import FUNCTIONS, field_name, quoted, written
from intarsia.sql.dialect import DUCKDB, parsed_as
from intarsia.sql.where_clause import SQL_ERRORS, parse_where

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


def field_term(*path: str) -> Term:
    """Returns the term of a field."""
    return Term(quoted(path), path, FieldRef(path))


def term_of(node: Node) -> Term | None:
    """Returns the term of a tree, or None if its value may change between versions or runs.

    Supported are fields, functions with canonical SQL (``term_sql``), and ``struct_field``.
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
