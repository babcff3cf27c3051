"""Which columns have to hold one of another table's values, for a row to count in a SQL query.

Of ``logs JOIN users ON logs.user = users.id``, no row of either table counts whose key the other
lacks. Such a condition travels as any other on that column does: as a call of a name that no query
can spell, with the columns of tables that have the values.
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

_AMONG = " among "


def join_keys(
    scopes: Scopes, select: exp.Select, sources: Sources
) -> Iterator[tuple[str, exp.Expr]]:
    """Conditions on sources of ``select``, by alias, for their rows to meet any other's."""
    pairs: list[tuple[Place, Place]] = []
    for group in equal_columns(scopes, select, sources, _are_keys):
        pairs += itertools.permutations(sorted(group), 2)
    for at, join in enumerate(joins_of(select), start=1):
        for mine, theirs in _of_outer_join(join, at, sources):
            kinds = (scopes.type_of(column_at(place), sources) for place in (mine, theirs))
            if _are_keys(*kinds):
                pairs.append((mine, theirs))
    for mine, theirs in pairs:
        origins = scopes.origins_of(column_at(theirs), sources)
        yield mine[0], _among(column_at(mine), origins)


def member_keys(scopes: Scopes, select: exp.Select, sources: Sources) -> Iterator[exp.Expr]:
    """Conditions of ``x IN (SELECT …)`` in ``select``'s WHERE."""
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
    """What ``condition`` says of columns that hold one of other columns' values, by name."""
    for part in conjuncts(condition):
        if isinstance(part, exp.Anonymous) and part.this == _AMONG:
            column, *rest = part.expressions
            if isinstance(column, exp.Column) and len(column.parts) == 1:
                texts = [literal.this for literal in rest]
                tables = map(int, texts[::2])
                yield column.name.lower(), tuple(zip(tables, texts[1::2], strict=True))


def _of_outer_join(join: exp.Join, at: int, sources: Sources) -> Iterator[tuple[Place, Place]]:
    """The columns of a side whose rows count only where they meet one of the other's, and these.

    Where USING may mean any of several columns, none.
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
        if join.kind == "SEMI" and sources[theirs[0]].kept:
            yield theirs, mine
        if join.side == "RIGHT" and at == 1:
            yield theirs, mine


def _is_merged(join: exp.Join, mine: Place, pairs: Iterable[tuple[Place, Place]]) -> bool:
    return bool(join.args.get("using")) and sum(mine in pair for pair in pairs) > 1


def _among(column: exp.Column, origins: Iterable[Origin]) -> exp.Expr:
    texts = [text for table, name in origins for text in (str(table), name)]
    return exp.Anonymous(this=_AMONG, expressions=[column.copy(), *map(exp.Literal.string, texts)])


def _are_keys(one: pa.DataType | None, other: pa.DataType | None) -> bool:
    """Are values of these types equal to an engine just where they are equal to pyarrow?"""
    if one is None or other is None:
        return False
    types = pa.types
    one, other = filterable_type(one), filterable_type(other)
    if types.is_integer(one) and types.is_integer(other):
        return True
    if is_text(one) and is_text(other):
        return True
    is_plain = types.is_boolean(one) or types.is_date32(one) or types.is_decimal128(one)
    is_moment = types.is_timestamp(one) and one.unit != "ns"
    is_bytes = types.is_binary(one) or types.is_large_binary(one)
    return bool(one == other and (is_plain or is_moment or is_bytes))
