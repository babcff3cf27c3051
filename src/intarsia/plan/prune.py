"""From verdicts to row ranges: which rows of a file are left under a pruning tree."""

from __future__ import annotations

from collections.abc import Callable

from intarsia.predicate.leaves import Match, Predicate, Test
from intarsia.predicate.tree import And, Maybe, Never, Or, Pruning
from intarsia.ranges import RowRanges

Leaf = Callable[[Predicate], RowRanges]
"""The rows that might pass one test, as some source of knowledge sees it."""


def rows_left(pruning: Pruning, rows: RowRanges, leaf: Leaf) -> RowRanges:
    """The part of ``rows`` that might match ``pruning``, by what ``leaf`` says of its tests.

    The result never leaves out a row that matches, provided ``leaf`` does not.
    """
    match pruning:
        case Never():
            return RowRanges.none()
        case Maybe():
            return rows
        case Test() | Match():
            return rows & leaf(pruning)
        case And(parts):
            for part in parts:
                rows = rows_left(part, rows, leaf)
                if not rows:
                    break
            return rows
        case Or(parts):
            return RowRanges.union(rows_left(part, rows, leaf) for part in parts)
