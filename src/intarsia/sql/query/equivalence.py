"""Which columns of a SELECT are equal in the rows that its joins and its WHERE let through."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

import pyarrow as pa
from sqlglot import exp

from intarsia.sql.scope import Scopes, Sources, conjuncts, joins_of, own_place, wheres

Place = tuple[str, str]
"""A source's alias and the name of one of its columns."""
Alike = Callable[[pa.DataType | None, pa.DataType | None], bool]
"""True if columns of these types may count as equal. None is an unknown type."""


def equal_columns(
    scopes: Scopes, select: exp.Select, sources: Sources, alike: Alike
) -> list[set[Place]]:
    """Returns groups of columns that are equal in every row that ``select`` lets through.

    Only columns of preserved sources are in the groups.
    """
    groups: list[set[Place]] = []
    pairs = [*_pairs_of(wheres(select), sources)]
    for at, join in enumerate(joins_of(select), start=1):
        if is_inner(join):
            pairs += pairs_of_join(join, at, sources)
    for pair in pairs:
        is_preserved = all(sources[alias].is_preserved for alias, _ in pair)
        if is_preserved and alike(*(scopes.type_of(column_at(place), sources) for place in pair)):
            joined = set(pair).union(*(group for group in groups if group & set(pair)))
            groups[:] = [group for group in groups if not group & joined] + [joined]
    return groups


def pairs_of_join(join: exp.Join, at: int, sources: Sources) -> Iterator[tuple[Place, Place]]:
    """Yields the pairs of columns that a join requires to be equal, by ON or USING.

    ``at`` is the position of the joined source in ``sources``.
    """
    yield from _pairs_of(conjuncts(join.args.get("on")), sources)
    aliases = list(sources)
    for name in join.args.get("using") or ():
        for alias in aliases[:at]:
            if name.name.lower() in (sources[alias].names or ()):
                yield (alias, name.name.lower()), (aliases[at], name.name.lower())


def _pairs_of(conditions: Iterable[exp.Expr], sources: Sources) -> Iterator[tuple[Place, Place]]:
    for part in conditions:
        sides = [part.this, part.expression] if type(part) is exp.EQ else []
        columns = [side for side in sides if isinstance(side, exp.Column)]
        places = [place_of(column, sources, {}) for column in columns]
        known = [place for place in places if place is not None]
        if len(known) == 2:
            yield known[0], known[1]


def is_inner(join: exp.Join) -> bool:
    """True if a join drops unmatched rows of both sides, by ON or USING."""
    return not join.side and join.kind in ("", "INNER") and not join.method


def place_of(column: exp.Column, sources: Sources, merged: Mapping[str, str]) -> Place | None:
    """Returns the source and the name of ``column``.

    ``merged`` has the source of each USING column.
    """
    name = column.name.lower()
    if len(column.parts) == 1 and name in merged:
        return merged[name], name
    return own_place(column, sources)


def column_at(place: Place) -> exp.Column:
    """Returns a column node for a source's alias and a column's name."""
    table, name = (exp.to_identifier(part, quoted=True) for part in place)
    return exp.Column(this=name, table=table)
