"""Which columns of a SELECT are equal in the rows it lets through, by its joins and its WHERE."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

import pyarrow as pa
from sqlglot import exp

from intarsia.sql.scope import Scopes, Sources, conjuncts, joins_of, own_place, wheres

Place = tuple[str, str]
"""A source's alias and the name of one of its columns."""
Alike = Callable[[pa.DataType | None, pa.DataType | None], bool]
"""May columns of these types, which have to be known, count as equal?"""


def equal_columns(
    scopes: Scopes, select: exp.Select, sources: Sources, alike: Alike
) -> list[set[Place]]:
    """Columns that are equal in every row that ``select`` lets through, as far as they are kept."""
    groups: list[set[Place]] = []
    pairs = [*_pairs_of(wheres(select), sources)]
    for at, join in enumerate(joins_of(select), start=1):
        if is_inner(join):
            pairs += pairs_of_join(join, at, sources)
    for pair in pairs:
        kept = all(sources[alias].kept for alias, _ in pair)
        if kept and alike(*(scopes.type_of(column_at(place), sources) for place in pair)):
            joined = set(pair).union(*(group for group in groups if group & set(pair)))
            groups[:] = [group for group in groups if not group & joined] + [joined]
    return groups


def pairs_of_join(join: exp.Join, at: int, sources: Sources) -> Iterator[tuple[Place, Place]]:
    """The columns that the join of the source at place ``at`` asks to be equal, by ON or USING."""
    yield from _pairs_of(conjuncts(join.args.get("on")), sources)
    aliases = list(sources)
    for name in join.args.get("using") or ():
        for one in aliases[:at]:
            if name.name.lower() in (sources[one].names or ()):
                yield (one, name.name.lower()), (aliases[at], name.name.lower())


def _pairs_of(conditions: Iterable[exp.Expr], sources: Sources) -> Iterator[tuple[Place, Place]]:
    for part in conditions:
        sides = [part.this, part.expression] if type(part) is exp.EQ else []
        columns = [side for side in sides if isinstance(side, exp.Column)]
        places = [place_of(column, sources, {}) for column in columns]
        known = [place for place in places if place is not None]
        if len(known) == 2:
            yield known[0], known[1]


def is_inner(join: exp.Join) -> bool:
    """Does it leave out what does not match, of either side, and say by what?"""
    return not join.side and join.kind in ("", "INNER") and not join.method


def place_of(column: exp.Column, sources: Sources, merged: Mapping[str, str]) -> Place | None:
    """Where ``column`` comes from; one that USING has merged, from the first source."""
    name = column.name.lower()
    if len(column.parts) == 1 and name in merged:
        return merged[name], name
    return own_place(column, sources)


def column_at(place: Place) -> exp.Column:
    """A column by its source's alias and its name."""
    table, name = (exp.to_identifier(part, quoted=True) for part in place)
    return exp.Column(this=name, table=table)
