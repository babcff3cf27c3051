"""Columns that sqlglot takes for something else, by their names.

DuckDB and Spark look among the columns first: to whoever has a column ``current_date``, that is no
today. So is ``list`` in ``list[0]``, and ``unit`` in ``date_trunc(unit, ts)``.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence

import pyarrow as pa
import sqlglot
from sqlglot import Token, TokenType, exp

_CONSTRUCTORS = exp.Any, exp.Array, exp.Interval, exp.List, exp.Map, exp.Struct
_TRUNCATIONS = exp.DateTrunc, exp.TimestampTrunc
"""To these, ``unit`` is as ``'unit'``."""
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
