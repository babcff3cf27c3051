"""Evaluates a pruning tree from what is known about its predicates."""

from __future__ import annotations

from collections.abc import Callable

from intarsia.pruning.predicate_tree import And, Maybe, Never, Or, Pruning
from intarsia.pruning.predicates import Comparison, Predicate, SearchPredicate
from intarsia.row_ranges import RowRanges

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
