"""Columns that sqlglot takes for something else, by their names.

DuckDB and Spark look among the columns first: to whoever has a column ``current_date``, that is no
today. So is ``list`` in ``list[0]``, and ``unit`` in ``date_trunc(unit, ts)``.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

import pyarrow as pa
import sqlglot
from sqlglot import Token, TokenType, exp

_CONSTRUCTORS = exp.Any, exp.Array, exp.Interval, exp.List, exp.Map, exp.Struct
_TRUNCATIONS = exp.DateTrunc, exp.TimestampTrunc
"""To these, ``unit`` is as ``'unit'``."""
_IN_ASCII = {code: code + 32 for code in range(ord("A"), ord("Z") + 1)}
_NO_COLUMN_BEFORE = TokenType.L_PAREN, TokenType.STRING, TokenType.NUMBER
"""What follows the names of functions and types: ``interval('1 day')``, ``interval 1 day``."""


def columns_taken(
    tree: exp.Expr, schemas: Iterable[pa.Schema], text: str, dialect: str
) -> set[str]:
    """Names of columns, in lower case, that something may be which is no column to sqlglot.

    ``tree`` is what it made of ``text``.
    """
    columns = {name.lower() for schema in schemas for name in schema.names}
    found = {name for node in tree.walk() for name in columns.intersection(_names_of(node))}
    units = columns & {call.text("unit").lower() for call in tree.find_all(*_TRUNCATIONS)}
    calls = [call for call in tree.find_all(exp.Anonymous) if call.name.lower() == "identifier"]
    taken = columns & {name.name.lower() for call in calls for name in call.find_all(exp.Literal)}
    if found or units:
        tokens = sqlglot.tokenize(text, read=dialect)
        written = Counter(_words(tokens))
        told = Counter(node.name.lower() for node in tree.find_all(exp.Identifier))
        taken |= {name for name in found if written[name] > told[name]}
        taken |= units.intersection(_arguments(tokens))
    return taken


def _words(tokens: Sequence[Token]) -> Iterator[str]:
    """What stands where columns may, in lower case."""
    for token, following in itertools.zip_longest(tokens, tokens[1:]):
        called = following is not None and following.token_type in _NO_COLUMN_BEFORE
        if token.token_type is not TokenType.STRING and not called:
            yield token.text.lower()


def _arguments(tokens: Sequence[Token]) -> Iterator[str]:
    """Whole arguments of calls that are no texts, in lower case."""
    for before, token, after in zip(tokens, tokens[1:], tokens[2:], strict=False):
        begins = before.token_type in (TokenType.L_PAREN, TokenType.COMMA)
        ends = after.token_type in (TokenType.R_PAREN, TokenType.COMMA)
        if begins and ends and token.token_type is not TokenType.STRING:
            yield token.text.lower()


def _names_of(node: exp.Expr) -> Collection[str]:
    """What a column would be called that is taken for ``node``."""
    if isinstance(node, exp.DataType):  # to sqlglot, what ``list[1]`` says in DuckDB
        holder = node.parent
        while isinstance(holder, exp.DataType):
            holder = holder.parent
        name = str(getattr(node.this, "value", node.this)).lower()
        return () if isinstance(holder, exp.Cast) else (name,)
    if isinstance(node, _CONSTRUCTORS):
        return (node.key,)
    if isinstance(node, exp.Func) and not any(node.args.values()):
        return [name.lower() for name in node.sql_names()]
    return ()


def as_duckdb_folds(name: str) -> str:
    """A name as DuckDB compares it with others: without the case of ASCII's letters."""
    return name.translate(_IN_ASCII)


def differ_beyond_ascii(tree: exp.Expr, tables: Mapping[str, pa.Schema], text: str) -> bool:
    """Do two names differ in the case of letters beyond ASCII alone, which DuckDB tells apart?

    ``tree`` is what sqlglot made of ``text``, a query over ``tables``.
    """
    names = {*tables, *itertools.chain.from_iterable(map(_names_in, tables.values()))}
    if text.isascii() and all(map(str.isascii, names)):
        return False
    names.update(name.name for name in tree.find_all(exp.Identifier))
    odd = {name.lower() for name in names if not name.isascii()}
    return len({as_duckdb_folds(name) for name in names if name.lower() in odd}) > len(odd)


def _names_in(fields: Iterable[pa.Field]) -> Iterator[str]:
    """Of columns, and of all fields within structs."""
    for field in fields:
        yield field.name
        if pa.types.is_struct(field.type):
            yield from _names_in(field.type)
