"""Lays out the rows of a file from left to right: row groups and the numbers on the axis."""

from __future__ import annotations

from dataclasses import dataclass

from intarsia.row_ranges import Int64Array

_MAX_GROUPS = 60
"""The most row groups that are drawn."""
_LABEL_SHARE = 0.035
"""Share of the width below which a row group has no label."""
_STEPS = (1, 2, 5, 10)
"""Factors of round numbers."""
_TICKS = 5
"""Approximate count of numbers on the axis."""


@dataclass(frozen=True, slots=True)
class Mark:
    """A row group, or a number on the axis. ``at`` and ``width`` are shares of the picture."""

    at: float
    label: str
    width: float = 0.0


@dataclass(frozen=True, slots=True)
class RowAxis:
    """The axis of a file's rows. ``groups`` is empty if there are too many to draw."""

    num_rows: int
    count: int
    groups: tuple[Mark, ...]
    ticks: tuple[Mark, ...]

    @property
    def edges(self) -> tuple[float, ...]:
        """The positions where row groups meet, as shares."""
        return tuple(mark.at for mark in self.groups[1:])


def axis_of(starts: Int64Array) -> RowAxis:
    """Returns the axis for row groups with these ``starts``, followed by the number of rows."""
    *firsts, rows = starts.tolist()
    groups = []
    if rows and len(firsts) <= _MAX_GROUPS:
        for i, start in enumerate(firsts):
            width = (int(starts[i + 1]) - start) / rows
            groups.append(Mark(start / rows, str(i) if width >= _LABEL_SHARE else "", width))
    ticks = [Mark(row / rows, f"{row:,}") for row in range(0, rows, _step(rows))]
    return RowAxis(rows, len(firsts), tuple(groups), tuple(ticks))


def _step(rows: int) -> int:
    """Returns a round number that divides ``rows`` into about five parts."""
    least = max(rows / _TICKS, 1)
    power = int("1".ljust(len(str(int(least))), "0"))
    return next(factor * power for factor in _STEPS if factor * power >= least)
