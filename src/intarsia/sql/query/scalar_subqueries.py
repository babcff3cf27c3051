"""Subqueries of a WHERE that give one value: ``ts > (SELECT max(ts) - INTERVAL 1 HOUR FROM t)``.

They are queries of their own, which an engine can answer first; to compare with their value is
something to plan by.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import pyarrow as pa
import sqlglot
from sqlglot import Token, TokenType, exp

from intarsia.sql.scope import has_only, joins_of
from intarsia.sql.where_clause import ODD

_SUBQUERY = re.compile(r"\(\s*(select|from)\b", re.IGNORECASE)
_BEGINNINGS = (TokenType.SELECT, TokenType.FROM)
_PARAMETERS = {TokenType.PLACEHOLDER, TokenType.PARAMETER}
_COMPARED = (exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.Between)
_COMPUTED = (exp.Add, exp.Sub, exp.Mul, exp.Div, exp.Paren, exp.Subquery)
_OF_ALL_ROWS = ("expressions", "from_", "where")
_OF_THE_FIRST = (*_OF_ALL_ROWS, "order", "limit")


class Subquery(NamedTuple):
    """Text from ``start`` to ``stop`` of a query, parentheses and all, and what is within."""

    start: int
    stop: int
    text: str


def scalar_subqueries(query: str, tables: Mapping[str, pa.Schema], dialect: str) -> list[Subquery]:
    """The subqueries in conditions of ``query`` that one of ``tables`` answers by one row.

    As they follow in the text; none where a name may mean something else there than by itself.
    """
    if not _SUBQUERY.search(query):
        return []
    try:
        tree = sqlglot.parse_one(query, dialect=dialect)
        if not isinstance(tree, exp.Query) or tree.find(exp.With):
            return []
        columns = {name.lower(): _lower(schema.names) for name, schema in tables.items()}
        wanted = list(_wanted(tree, columns))
        written = list(_in_parentheses(query, sqlglot.tokenize(query, read=dialect)))
        parsed = [sqlglot.parse_one(found.text, dialect=dialect) for found in written]
    except (RecursionError, *ODD):
        return []
    # One that is written elsewhere as well, as a column perhaps, is left.
    return [
        found
        for found, select in zip(written, parsed, strict=True)
        if 0 < wanted.count(select) == parsed.count(select)
    ]


def _lower(names: Iterable[str]) -> set[str]:
    return {name.lower() for name in names}


def _wanted(tree: exp.Query, tables: Mapping[str, set[str]]) -> Iterator[exp.Expr]:
    """The SELECTs; ``tables`` have the columns of each, all in lower case."""
    for select in _selects(tree):
        where = select.args.get("where")
        for subquery in where.find_all(exp.Subquery) if where else ():
            is_plain = has_only(subquery, ("this",)) and _is_compared(subquery)
            if is_plain and _is_of_one_row(subquery.this, tables):
                yield subquery.this


def _selects(node: exp.Expr) -> Iterator[exp.Select]:
    """A query and those that it selects from: none by whose text a column is called."""
    if isinstance(node, exp.Subquery):
        yield from _selects(node.this)
    elif isinstance(node, exp.SetOperation):
        yield from itertools.chain(_selects(node.this), _selects(node.expression))
    elif isinstance(node, exp.Select):
        yield node
        first = node.args.get("from_")
        for source in [*([first] if first else []), *joins_of(node)]:
            yield from _selects(source.this)


def _is_compared(node: exp.Expr) -> bool:
    while isinstance(node.parent, _COMPUTED):
        node = node.parent
    return isinstance(node.parent, _COMPARED)


def _is_of_one_row(select: exp.Expr, tables: Mapping[str, set[str]]) -> bool:
    """Does a query give one row of one value, or at most one, of a table and nothing else?"""
    if not isinstance(select, exp.Select) or len(select.expressions) != 1:
        return False
    source = select.args.get("from_")
    if source is None or len(list(select.find_all(exp.Table, exp.Query))) != 2:
        return False
    table = source.this
    is_known = isinstance(table, exp.Table) and has_only(table, ("this", "alias"))
    if not is_known or table.name.lower() not in tables:
        return False
    known = {*tables[table.name.lower()], table.alias_or_name.lower()}
    if any(column.parts[0].name.lower() not in known for column in select.find_all(exp.Column)):
        return False  # it is of the query around it, perhaps
    if has_only(select, _OF_ALL_ROWS):
        return _is_of_all_rows(select.expressions[0])
    limit = select.args.get("limit")
    is_first = type(limit) is exp.Limit and limit.expression == exp.Literal.number(1)
    return is_first and has_only(select, _OF_THE_FIRST)


def _is_of_all_rows(output: exp.Expr) -> bool:
    """Is it an aggregate, or computed of some?"""
    aggregates = list(output.find_all(exp.AggFunc))
    within = {id(node) for aggregate in aggregates for node in aggregate.walk()}
    stars = [star for star in output.find_all(exp.Star) if not isinstance(star.parent, exp.Count)]
    is_plain = not stars and output.find(exp.Window, exp.Columns, exp.Collate) is None
    return (
        is_plain
        and bool(aggregates)
        and all(id(column) in within for column in output.find_all(exp.Column))
    )


def _in_parentheses(query: str, tokens: Sequence[Token]) -> Iterator[Subquery]:
    """What begins as a query does, in parentheses, and has no parameters."""
    opened: list[int] = []
    for at, token in enumerate(tokens):
        if token.token_type is TokenType.L_PAREN:
            opened.append(at)
        elif token.token_type is TokenType.R_PAREN:
            first, *others = tokens[opened.pop() : at]
            kinds = [other.token_type for other in others]
            if kinds and kinds[0] in _BEGINNINGS and not _PARAMETERS.intersection(kinds):
                text = query[first.end + 1 : token.start]
                yield Subquery(first.start, token.end + 1, text)
