"""Terms: what tests are about. A field, or a function of fields that always gives the same value.

A function's meaning may change between versions of pyarrow, as Unicode's tables do; a term's
*meaning* names it, so that an index over other values is not mistaken for one over these.
"""

from __future__ import annotations

import functools
import math
import re
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc
import xxhash
from sqlglot.dialects.duckdb import DuckDB

from intarsia.errors import PredicateError
from intarsia.predicate.expression import (
    Call,
    FieldRef,
    Literal,
    Node,
    Opaque,
    field_paths,
    read_expression,
)
from intarsia.predicate.sql import parse_where

_FUNCTIONS = {
    "utf8_lower": "lower",
    "utf8_upper": "upper",
    "utf8_length": "length",
    "abs": "abs",
}
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
_KEYWORDS = {*DuckDB.Tokenizer.KEYWORDS, "LOCALTIME", "LOCALTIMESTAMP"}
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
    def casts(self) -> bool:
        """Does it convert values between types?"""
        return "cast" in _functions(self.node)

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
    return Term(_quoted(path), path, FieldRef(path))


def term_of(node: Node) -> Term | None:
    """The term that a tree is; None for anything whose value is not certain to stay the same.

    Besides fields that is ``utf8_lower``, ``utf8_upper``, ``utf8_length``, ``abs``, ``+``, ``-``,
    ``*``, safe casts to the types SQL text can name, and ``struct_field``, of fields and numbers.
    """
    node = _plain(node)
    if isinstance(node, FieldRef):
        return field_term(*node.path)
    if not isinstance(node, Call) or not field_paths(node):
        return None
    sql = _sql(node)
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
        f"{text!r} is no function that values can be computed by once for all: these are lower, "
        "upper, length, abs, +, -, * and CAST, of columns and numbers"
    )


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


def _sql(node: Node) -> str | None:
    match node:
        case FieldRef(path):
            return _quoted(path)
        case Literal(value):
            return _number(value)
        case Call(function, (argument,)) if function in _FUNCTIONS:
            inner = _sql(argument)
            return None if inner is None else f"{_FUNCTIONS[function]}({inner})"
        case Call(function, (left, right)) if function in _OPERATORS:
            one, other = _sql(left), _sql(right)
            if one is None or other is None:
                return None
            return f"({one} {_OPERATORS[function]} {other})"
        case Call("cast", (argument,), options):
            target = options.get("to_type")
            name = None if target is None else _CASTS.get(target.type)
            inner = _sql(argument)
            loose = any(options[n].as_py() for n in options if n.startswith("allow"))
            if name is None or inner is None or loose:
                return None
            return f"CAST({inner} AS {name})"
        case _:
            return None


def _number(value: pa.Scalar) -> str | None:
    """A number as SQL text, of the types that text gives."""
    if value.is_valid and value.type == pa.int64() and value.as_py() > -(2**63):
        return str(value.as_py())
    if value.is_valid and value.type == pa.float64() and math.isfinite(value.as_py()):
        return repr(value.as_py())
    return None


def _quoted(path: tuple[str, ...]) -> str:
    return ".".join(map(_identifier, path))


def _identifier(name: str) -> str:
    """A name in SQL text: in quotes where it would not be read as one without."""
    if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name) and name.upper() not in _KEYWORDS:
        return name
    return '"' + name.replace('"', '""') + '"'


def _functions(node: Node) -> set[str]:
    match node:
        case Call(function, arguments):
            return {function}.union(*(_functions(argument) for argument in arguments))
        case _:
            return set()


def _expression(node: Node) -> pc.Expression:
    match node:
        case FieldRef(path):
            return pc.field(*path)
        case Literal(value):
            return pc.scalar(value)
        case Call("cast", (argument,), options):
            return _expression(argument).cast(options["to_type"].type)
        case Call(function, arguments):
            return getattr(pc, function)(*(_expression(argument) for argument in arguments))
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
