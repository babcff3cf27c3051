"""From verdicts on tests to one on a pruning tree: which rows it leaves, or whether one passes."""

from __future__ import annotations

from collections.abc import Callable

from intarsia.pruning.predicate_tree import And, Maybe, Never, Or, Pruning
from intarsia.pruning.predicates import Match, Predicate, Test
from intarsia.row_ranges import RowRanges

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


def might_pass(pruning: Pruning, leaf: Callable[[Predicate], bool]) -> bool:
    """As ``rows_left``, of one row: might it pass, by what ``leaf`` says of tests?"""
    match pruning:
        case Never():
            return False
        case Maybe():
            return True
        case Test() | Match():
            return leaf(pruning)
        case And(parts):
            return all(might_pass(part, leaf) for part in parts)
        case Or(parts):
            return any(might_pass(part, leaf) for part in parts)
