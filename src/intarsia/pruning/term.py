"""Terms: what tests are about. A field, or a function of fields that always gives the same value.

A function's meaning may change between versions of pyarrow, as Unicode's tables do; a term's
*meaning* names it, so that an index over other values is not mistaken for one over these.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc
import sqlglot
import xxhash
from sqlglot import exp

from intarsia.errors import PredicateError
from intarsia.expr.casts import is_in_utc
from intarsia.expr.tree import Call, FieldRef, Literal, Node, Opaque, field_paths, read_expression
from intarsia.pruning.term_sql import FUNCTIONS, quoted, rebuilt, written
from intarsia.sql.where_clause import ODD, parse_where

_MEANING = 1
"""Raised when a function of the list is given another meaning here."""


@dataclass(frozen=True, slots=True)
class Term:
    """A field or a function of fields.

    ``sql`` is its one text: terms are equal where their texts are. ``path`` is the field's path; it
    is empty for a function.
    """

    sql: str
    path: tuple[str, ...]
    node: Node = field(compare=False, repr=False)

    def __str__(self) -> str:
        return ".".join(self.path) if self.path else self.sql

    @property
    def fields(self) -> frozenset[tuple[str, ...]]:
        """The paths of the fields it is made of."""
        return frozenset(field_paths(self.node) or ())

    @property
    def expression(self) -> pc.Expression:
        """The term as pyarrow evaluates it."""
        return _expression(self.node)

    @property
    def given(self) -> frozenset[tuple[str, ...]]:
        """The paths of fields that a function is given as they are.

        Others are put in UTC first: of moments, the zone that they are told in decides what a
        function makes of them.
        """
        return frozenset(_given(self.node))

    @property
    def meaning(self) -> str:
        """Names what its functions mean here; terms of other meanings may have other values.

        Empty for a field. Case is as the Unicode tables have it, conversions as pyarrow does them.
        """
        functions = _functions(self.node)
        if not functions:
            return ""
        found = [str(_MEANING)]
        if functions & {"utf8_lower", "utf8_upper"}:
            found.append(f"case {_case_tables()}")
        if "cast" in functions:
            found.append(f"cast {pa.__version__.partition('.')[0]}")
        return ", ".join(found)


def field_term(*path: str) -> Term:
    """The term of a field."""
    return Term(quoted(path), path, FieldRef(path))


def term_of(node: Node) -> Term | None:
    """The term that a tree is; None for anything whose value is not certain to stay the same.

    Besides fields that is what ``term_text`` has a text for, and ``struct_field``.
    """
    node = _plain(node)
    if isinstance(node, FieldRef):
        return field_term(*node.path)
    if not isinstance(node, Call) or not field_paths(node):
        return None
    sql = written(node)
    return None if sql is None else Term(sql, (), node)


def parse_term(text: str, schema: pa.Schema) -> Term:
    """The term of SQL text over ``schema``'s fields. Raises ``PredicateError`` for any other."""
    condition = parse_where(f"({text}) IS NULL", schema, now=None, knows_fractions=False)
    node = read_expression(condition)
    if isinstance(node, Call) and node.function == "is_null":
        term = term_of(node.arguments[0])
        if term is not None:
            return term
    raise PredicateError(
        f"{text!r} is no function that values can be computed by once for all: {FUNCTIONS}"
    )


@functools.lru_cache(maxsize=256)
def columns_named(text: str) -> frozenset[str]:
    """The columns that the text of a term names; none where it is no such text."""
    try:
        found = sqlglot.parse_one(text, dialect="duckdb").find_all(exp.Column)
        return frozenset(column.parts[0].name for column in found)
    except (*ODD, RecursionError):
        return frozenset()


def _plain(node: Node) -> Node:
    """``node`` with fields of structs as paths."""
    if not isinstance(node, Call):
        return node
    arguments = tuple(_plain(argument) for argument in node.arguments)
    if node.function == "struct_field" and len(arguments) == 1:
        given, inner = node.options.get("field_ref"), arguments[0]
        name = re.fullmatch(r"\.([^.\[\]\\]+)", str(given))
        if name and isinstance(inner, FieldRef):
            return FieldRef((*inner.path, name.group(1)))
    return Call(node.function, arguments, node.options)


def _functions(node: Node) -> set[str]:
    match node:
        case Call(function, arguments):
            return {function}.union(*(_functions(argument) for argument in arguments))
        case _:
            return set()


def _given(node: Node) -> Iterator[tuple[str, ...]]:
    if not isinstance(node, Call):
        return
    target = node.options.get("to_type") if node.function == "cast" else None
    for argument in node.arguments:
        if isinstance(argument, FieldRef) and not (target and is_in_utc(target.type)):
            yield argument.path
        yield from _given(argument)


def _expression(node: Node) -> pc.Expression:
    match node:
        case FieldRef(path):
            return pc.field(*path)
        case Literal(value):
            return pc.scalar(value)
        case Call(arguments=arguments):
            return rebuilt(node, [_expression(argument) for argument in arguments])
        case Opaque():
            raise AssertionError("a term has no such part")


@functools.cache
def _case_tables() -> str:
    """Names the tables that upper and lower case come from, by what they make of every character.

    Takes some 50 ms, once a process. 8 hex digits.
    """
    codes = [*range(0xD800), *range(0xE000, 0x110000)]
    texts = ["".join(map(chr, codes[at : at + 4096])) for at in range(0, len(codes), 4096)]
    digest = xxhash.xxh64()
    for change in (pc.utf8_lower, pc.utf8_upper):
        for text in change(pa.array(texts)):
            digest.update(text.as_py().encode())
    return digest.hexdigest()[:8]
