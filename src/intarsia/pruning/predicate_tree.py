"""Pruning trees: ANDs and ORs of predicates, and their evaluation by what is known of each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from intarsia.expr.comparison_operators import Op
from intarsia.pruning.predicates import Comparison, Predicate, SearchPredicate
from intarsia.row_ranges import RowRanges


@dataclass(frozen=True, slots=True)
class And:
    """Rows that pass every part."""

    parts: tuple[Pruning, ...]


@dataclass(frozen=True, slots=True)
class Or:
    """Rows that pass any part."""

    parts: tuple[Pruning, ...]


@dataclass(frozen=True, slots=True)
class Maybe:
    """A condition that is not understood: any row might match."""


@dataclass(frozen=True, slots=True)
class Never:
    """A condition that no row can match."""


Pruning = Comparison | SearchPredicate | And | Or | Maybe | Never


def predicates_of(pruning: Pruning) -> list[Predicate]:
    """Returns the distinct predicates of a pruning tree, in order of appearance."""
    match pruning:
        case Comparison() | SearchPredicate():
            return [pruning]
        case And(parts) | Or(parts):
            return list(dict.fromkeys(one for part in parts for one in predicates_of(part)))
        case _:
            return []


def all_of(*parts: Pruning) -> Pruning:
    """Returns the tree for rows that pass every part."""
    return _joined(parts, And, Maybe(), Never(), Op.NE, Op.NOT_IN)


def any_of(*parts: Pruning) -> Pruning:
    """Returns the tree for rows that pass any part."""
    return _joined(parts, Or, Never(), Maybe(), Op.EQ, Op.IN)


def _joined(
    parts: Sequence[Pruning],
    into: type[And] | type[Or],
    neutral: Pruning,
    decisive: Pruning,
    one: Op,
    many: Op,
) -> Pruning:
    """Returns the parts joined as one ``into``.

    The result is ``decisive`` if that is among the parts; ``neutral`` parts are dropped. Several
    ``one`` comparisons of one term become one ``many`` comparison.
    """
    if decisive in parts:
        return decisive
    flat = [p for part in parts for p in (part.parts if isinstance(part, into) else (part,))]
    merged = _merge_value_comparisons([part for part in flat if part != neutral], one, many)
    return into(tuple(merged)) if len(merged) > 1 else merged[0] if merged else neutral


def _merge_value_comparisons(parts: Sequence[Pruning], one: Op, many: Op) -> list[Pruning]:
    """Merges comparisons of one term, such as ``a = 1 OR a = 2`` to an IN."""
    other_parts: list[Pruning] = []
    by_key: dict[object, list[Comparison]] = {}
    for part in parts:
        # IN tells −0.0 from +0.0, a comparison does not.
        if (
            isinstance(part, Comparison)
            and part.op in (one, many)
            and not pa.types.is_floating(part.values.type)
        ):
            key = (part.term, part.values.type, part.nulls, part.nans)
            by_key.setdefault(key, []).append(part)
        else:
            other_parts.append(part)
    return other_parts + [_merged_comparison(comparisons, many) for comparisons in by_key.values()]


def _merged_comparison(comparisons: list[Comparison], op: Op) -> Comparison:
    if len(comparisons) == 1:
        return comparisons[0]
    return replace(
        comparisons[0], op=op, values=pa.concat_arrays([one.values for one in comparisons])
    )


Leaf = Callable[[Predicate], RowRanges]
"""Returns the rows that might pass one predicate, according to one source of information."""


def rows_left(pruning: Pruning, rows: RowRanges, leaf: Leaf) -> RowRanges:
    """Returns the part of ``rows`` that might match ``pruning``. ``leaf`` evaluates its predicates.

    The result never leaves out a row that matches, provided that ``leaf`` does not.
    """
    match pruning:
        case Never():
            return RowRanges.none()
        case Maybe():
            return rows
        case Comparison() | SearchPredicate():
            return rows & leaf(pruning)
        case And(parts):
            for part in parts:
                rows = rows_left(part, rows, leaf)
                if not rows:
                    break
            return rows
        case Or(parts):
            return RowRanges.union(rows_left(part, rows, leaf) for part in parts)


def might_pass(pruning: Pruning, leaf: Callable[[Predicate], bool]) -> bool:
    """True if one row might match ``pruning``. ``leaf`` evaluates its predicates for that row."""
    match pruning:
        case Never():
            return False
        case Maybe():
            return True
        case Comparison() | SearchPredicate():
            return leaf(pruning)
        case And(parts):
            return all(might_pass(part, leaf) for part in parts)
        case Or(parts):
            return any(might_pass(part, leaf) for part in parts)
