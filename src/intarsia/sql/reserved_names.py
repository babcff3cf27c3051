"""Columns whose names sqlglot reads as something else.

DuckDB and Spark look for a column first: if there is a column ``current_date``, that name is not
today's date. The same holds for ``list`` in ``list[0]``, and ``unit`` in ``date_trunc(unit, ts)``.
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
"""sqlglot reads the argument ``unit`` of these as ``'unit'``."""
_MISREAD = exp.DataType, exp.Func, *_CONSTRUCTORS
"""Nodes that may have been a column."""
_ASCII_LOWER = {code: code + 32 for code in range(ord("A"), ord("Z") + 1)}
_NO_COLUMN_BEFORE = TokenType.L_PAREN, TokenType.STRING, TokenType.NUMBER
"""Tokens that follow the name of a function or type: ``interval('1 day')``, ``interval 1 day``."""


def misread_columns(
    tree: exp.Expr, schemas: Iterable[pa.Schema], text: str, dialect: str
) -> set[str]:
    """Returns names of columns, in lower case, that sqlglot may have read as something else.

    ``tree`` is sqlglot's tree of ``text``.
    """
    columns = {name.lower() for schema in schemas for name in schema.names}
    nodes = [node for node in tree.walk() if isinstance(node, _MISREAD)]
    misread = {name for node in nodes for name in columns.intersection(_names_of(node))}
    truncations = (node for node in nodes if isinstance(node, _TRUNCATIONS))
    units = columns & {call.text("unit").lower() for call in truncations}
    anonymous = (node for node in nodes if isinstance(node, exp.Anonymous))
    calls = [call for call in anonymous if call.name.lower() == "identifier"]
    taken = columns & {name.name.lower() for call in calls for name in call.find_all(exp.Literal)}
    if misread or units:
        tokens = sqlglot.tokenize(text, read=dialect)
        written_names = Counter(_possible_columns(tokens))
        read_as_names = Counter(node.name.lower() for node in tree.find_all(exp.Identifier))
        taken |= {name for name in misread if written_names[name] > read_as_names[name]}
        taken |= units.intersection(_plain_arguments(tokens))
    return taken


def _possible_columns(tokens: Sequence[Token]) -> Iterator[str]:
    """Yields the words that stand where a column may stand, in lower case."""
    for token, following in itertools.zip_longest(tokens, tokens[1:]):
        is_function = following is not None and following.token_type in _NO_COLUMN_BEFORE
        if token.token_type is not TokenType.STRING and not is_function:
            yield token.text.lower()


def _plain_arguments(tokens: Sequence[Token]) -> Iterator[str]:
    """Yields arguments of calls that are a single token and no string, in lower case."""
    for before, token, after in zip(tokens, tokens[1:], tokens[2:], strict=False):
        begins = before.token_type in (TokenType.L_PAREN, TokenType.COMMA)
        ends = after.token_type in (TokenType.R_PAREN, TokenType.COMMA)
        if begins and ends and token.token_type is not TokenType.STRING:
            yield token.text.lower()


def _names_of(node: exp.Expr) -> Collection[str]:
    """Returns the names of columns, in lower case, that sqlglot would read as ``node``."""
    if isinstance(node, exp.DataType):  # sqlglot's reading of ``list[1]``
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
    """Returns a name as DuckDB compares it: with ASCII letters in lower case."""
    return name.translate(_ASCII_LOWER)


def differ_beyond_ascii(tree: exp.Expr, tables: Mapping[str, pa.Schema], text: str) -> bool:
    """True if two names differ only in the case of letters beyond ASCII, which DuckDB tells apart.

    ``tree`` is sqlglot's tree of ``text``, a query over ``tables``.
    """
    names = {*tables, *itertools.chain.from_iterable(map(_names_in, tables.values()))}
    if text.isascii() and all(map(str.isascii, names)):
        return False
    names.update(name.name for name in tree.find_all(exp.Identifier))
    odd = {name.lower() for name in names if not name.isascii()}
    return len({as_duckdb_folds(name) for name in names if name.lower() in odd}) > len(odd)


def _names_in(fields: Iterable[pa.Field]) -> Iterator[str]:
    """Yields the names of columns, and of all fields within structs."""
    for field in fields:
        yield field.name
        if pa.types.is_struct(field.type):
            yield from _names_in(field.type)
