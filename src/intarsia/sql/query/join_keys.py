"""Columns whose value must occur in a column of another table for a row to count in a SQL query.

In ``logs JOIN users ON logs.user = users.id``, a row of either table counts only if the other table
has its key. This condition is pushed down like any other condition on the column. It is written as
a call of a function that no query can name. Its arguments are the columns of tables that have the
values.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator

import pyarrow as pa
from sqlglot import exp

from intarsia.expr.casts import is_text
from intarsia.expr.filterable_types import filterable_type
from intarsia.sql.query.equivalence import Place, column_at, equal_columns, is_inner, pairs_of_join
from intarsia.sql.scope import Origin, Scopes, Sources, conjuncts, joins_of, wheres

_AMONG_CALL = " among "
"""The function's name. The spaces keep it from being a name in a query."""


def join_keys(
    scopes: Scopes, select: exp.Select, sources: Sources
) -> Iterator[tuple[str, exp.Expr]]:
    """Yields conditions on sources of ``select``, with the alias, for a row to have a match."""
    pairs: list[tuple[Place, Place]] = []
    for group in equal_columns(scopes, select, sources, _are_keys):
        pairs += itertools.permutations(sorted(group), 2)
    for at, join in enumerate(joins_of(select), start=1):
        for mine, theirs in _outer_join_pairs(join, at, sources):
            kinds = (scopes.type_of(column_at(place), sources) for place in (mine, theirs))
            if _are_keys(*kinds):
                pairs.append((mine, theirs))
    for mine, theirs in pairs:
        origins = scopes.origins_of(column_at(theirs), sources)
        yield mine[0], _among(column_at(mine), origins)


def member_keys(scopes: Scopes, select: exp.Select, sources: Sources) -> Iterator[exp.Expr]:
    """Yields the conditions of ``x IN (SELECT …)`` in the WHERE of ``select``."""
    for part in wheres(select):
        query = part.args.get("query") if isinstance(part, exp.In) else None
        body = None if query is None else scopes.body_of(query)
        column = part.this
        if body is None or not isinstance(column, exp.Column):
            continue
        origins = scopes.output_origins(body, 0)
        if _are_keys(scopes.type_of(column, sources), scopes.common_type(origins)):
            yield _among(column, origins)


def keys_in(condition: exp.Expr) -> Iterator[tuple[str, tuple[Origin, ...]]]:
    """Yields each column whose values ``condition`` takes from other columns, and these columns."""
    for part in conjuncts(condition):
        if isinstance(part, exp.Anonymous) and part.this == _AMONG_CALL:
            column, *rest = part.expressions
            if isinstance(column, exp.Column) and len(column.parts) == 1:
                arguments = [literal.this for literal in rest]
                tables = map(int, arguments[::2])
                yield column.name.lower(), tuple(zip(tables, arguments[1::2], strict=True))


def _outer_join_pairs(join: exp.Join, at: int, sources: Sources) -> Iterator[tuple[Place, Place]]:
    """Yields pairs of columns. A row counts only if its value in the first occurs in the second.

    Yields nothing for a USING column that several sources have.
    """
    if is_inner(join) or join.method:
        return
    pairs = list(pairs_of_join(join, at, sources))
    own = list(sources)[at]
    for one, other in pairs:
        mine, theirs = (one, other) if one[0] == own else (other, one)
        if mine[0] != own or theirs[0] == own or _is_merged(join, mine, pairs):
            continue
        if join.kind in ("SEMI", "ANTI") or join.side == "LEFT":
            yield mine, theirs
        if join.kind == "SEMI" and sources[theirs[0]].is_preserved:
            yield theirs, mine
        if join.side == "RIGHT" and at == 1:
            yield theirs, mine


def _is_merged(join: exp.Join, mine: Place, pairs: Iterable[tuple[Place, Place]]) -> bool:
    return bool(join.args.get("using")) and sum(mine in pair for pair in pairs) > 1


def _among(column: exp.Column, origins: Iterable[Origin]) -> exp.Expr:
    arguments = [argument for table, name in origins for argument in (str(table), name)]
    return exp.Anonymous(
        this=_AMONG_CALL, expressions=[column.copy(), *map(exp.Literal.string, arguments)]
    )


def _are_keys(one: pa.DataType | None, other: pa.DataType | None) -> bool:
    """True if an engine and pyarrow agree which values of the two types are equal."""
    if one is None or other is None:
        return False
    types = pa.types
    one, other = filterable_type(one), filterable_type(other)
    if types.is_integer(one) and types.is_integer(other):
        return True
    if is_text(one) and is_text(other):
        return True
    is_plain = types.is_boolean(one) or types.is_date32(one) or types.is_decimal128(one)
    is_exact_timestamp = types.is_timestamp(one) and one.unit != "ns"
    is_bytes = types.is_binary(one) or types.is_large_binary(one)
    return bool(one == other and (is_plain or is_exact_timestamp or is_bytes))
