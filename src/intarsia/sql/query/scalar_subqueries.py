"""Subqueries of a WHERE that give one value: ``ts > (SELECT max(ts) - INTERVAL 1 HOUR FROM t)``.

They are queries of their own, which an engine can answer first. The planner can then use the
comparison with their value.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import pyarrow as pa
import sqlglot
from sqlglot import Token, TokenType, exp

from intarsia.sql.dialect import parsed_as
from intarsia.sql.scope import has_only, joins_of
from intarsia.sql.where_clause import SQL_ERRORS

_SUBQUERY = re.compile(r"\(\s*(select|from)\b", re.IGNORECASE)
_FIRST_TOKENS = (TokenType.SELECT, TokenType.FROM)
_PARAMETERS = {TokenType.PLACEHOLDER, TokenType.PARAMETER}
_COMPARISONS = (exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.Between)
_ARITHMETIC = (exp.Add, exp.Sub, exp.Mul, exp.Div, exp.Paren, exp.Subquery)
_AGGREGATE_CLAUSES = ("expressions", "from_", "where")
_FIRST_ROW_CLAUSES = (*_AGGREGATE_CLAUSES, "order", "limit")


class Subquery(NamedTuple):
    """The text of a subquery, and its range in the query, parentheses included."""

    start: int
    stop: int
    text: str


def scalar_subqueries(query: str, tables: Mapping[str, pa.Schema], dialect: str) -> list[Subquery]:
    """Returns the subqueries in conditions of ``query`` that have one row, from one of ``tables``.

    They are in the order of the text. Returns an empty list if a name may mean something else
    inside a subquery than on its own.
    """
    if not _SUBQUERY.search(query):
        return []
    try:
        tree = sqlglot.parse_one(query, dialect=parsed_as(dialect))
        if not isinstance(tree, exp.Query) or tree.find(exp.With):
            return []
        columns = {name.lower(): _lower(schema.names) for name, schema in tables.items()}
        in_conditions = list(_one_row_selects(tree, columns))
        subqueries = list(_in_parentheses(query, sqlglot.tokenize(query, read=dialect)))
        parsed = [
            sqlglot.parse_one(subquery.text, dialect=parsed_as(dialect)) for subquery in subqueries
        ]
    except (RecursionError, *SQL_ERRORS):
        return []
    # One that also occurs elsewhere, for example as a column, is left.
    return [
        subquery
        for subquery, select in zip(subqueries, parsed, strict=True)
        if 0 < in_conditions.count(select) == parsed.count(select)
    ]


def _lower(names: Iterable[str]) -> set[str]:
    return {name.lower() for name in names}


def _one_row_selects(tree: exp.Query, tables: Mapping[str, set[str]]) -> Iterator[exp.Expr]:
    """Yields the SELECTs that have one row and are compared in a WHERE.

    ``tables`` has the columns of each table. All names are in lower case.
    """
    for select in _selects(tree):
        where = select.args.get("where")
        for subquery in where.find_all(exp.Subquery) if where else ():
            is_plain = has_only(subquery, ("this",)) and _is_compared(subquery)
            if is_plain and _has_one_row(subquery.this, tables):
                yield subquery.this


def _selects(node: exp.Expr) -> Iterator[exp.Select]:
    """Yields a query and the queries that it selects from.

    The text of these names no column.
    """
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
    while isinstance(node.parent, _ARITHMETIC):
        node = node.parent
    return isinstance(node.parent, _COMPARISONS)


def _has_one_row(select: exp.Expr, tables: Mapping[str, set[str]]) -> bool:
    """True if a query gives one value in at most one row, from one table and nothing else."""
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
        return False  # it may belong to the outer query
    if has_only(select, _AGGREGATE_CLAUSES):
        return _is_aggregate(select.expressions[0])
    limit = select.args.get("limit")
    is_first = type(limit) is exp.Limit and limit.expression == exp.Literal.number(1)
    return is_first and has_only(select, _FIRST_ROW_CLAUSES)


def _is_aggregate(output: exp.Expr) -> bool:
    """True if an output is computed from aggregates only."""
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
    """Yields each part in parentheses that begins like a query and has no parameters."""
    open_positions: list[int] = []
    for position, token in enumerate(tokens):
        if token.token_type is TokenType.L_PAREN:
            open_positions.append(position)
        elif token.token_type is TokenType.R_PAREN:
            first, *others = tokens[open_positions.pop() : position]
            kinds = [other.token_type for other in others]
            if kinds and kinds[0] in _FIRST_TOKENS and not _PARAMETERS.intersection(kinds):
                text = query[first.end + 1 : token.start]
                yield Subquery(first.start, token.end + 1, text)
