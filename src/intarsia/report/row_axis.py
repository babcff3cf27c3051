"""The rows of a file from left to right: where row groups begin, and which numbers to write."""

from __future__ import annotations

from dataclasses import dataclass

from intarsia.row_ranges import Int64Array

_MOST_GROUPS = 60
_LABEL_SHARE = 0.035
"""Of the width; a row group with less of it has no label."""
_STEPS = (1, 2, 5, 10)
_TICKS = 5


@dataclass(frozen=True, slots=True)
class Mark:
    """A row group, or a number on the axis: a share of the width, and what is written there."""

    at: float
    label: str
    width: float = 0.0


@dataclass(frozen=True, slots=True)
class RowAxis:
    """``groups`` are empty where there are too many to be told apart; ``count`` has all."""

    num_rows: int
    count: int
    groups: tuple[Mark, ...]
    ticks: tuple[Mark, ...]

    @property
    def edges(self) -> tuple[float, ...]:
        """Where row groups meet."""
        return tuple(mark.at for mark in self.groups[1:])


def axis_of(starts: Int64Array) -> RowAxis:
    """The axis of a file whose row groups have these ``starts``, the number of rows at last."""
    *firsts, rows = starts.tolist()
    groups = []
    if rows and len(firsts) <= _MOST_GROUPS:
        for i, start in enumerate(firsts):
            width = (int(starts[i + 1]) - start) / rows
            groups.append(Mark(start / rows, str(i) if width >= _LABEL_SHARE else "", width))
    ticks = [Mark(row / rows, f"{row:,}") for row in range(0, rows, _step(rows))]
    return RowAxis(rows, len(firsts), tuple(groups), tuple(ticks))


def _step(rows: int) -> int:
    """A round number that goes into ``rows`` some five times."""
    least = max(rows / _TICKS, 1)
    power = int("1".ljust(len(str(int(least))), "0"))
    return next(factor * power for factor in _STEPS if factor * power >= least)
