"""What is damaged in a file, as far as that was found: the places, and the rows they take along."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from intarsia.errors import Where
from intarsia.file.health import Health
from intarsia.process_state import ForkLock
from intarsia.row_ranges import RowRanges

OnCorrupt = Literal["raise", "skip"]
"""What to do about damaged pages: say where they are, or leave out their rows."""


def check_on_corrupt(value: object) -> None:
    """Raise ``ValueError`` for what is none of the ways to treat damage."""
    if value not in (None, "raise", "skip"):
        raise ValueError(f'on_corrupt is "raise" or "skip", not {value!r}')


@dataclass(frozen=True, slots=True)
class CorruptData:
    """One damaged place, and the rows that cannot be read for it, numbered as the file's are.

    They are lost to reads of the place's column; others read them. ``where.page`` counts the
    dictionary as the first page; it is None where a chunk is damaged as a whole.
    """

    where: Where
    message: str
    rows: RowRanges

    @property
    def num_rows(self) -> int:
        """How many rows are lost."""
        return self.rows.num_rows

    def __str__(self) -> str:
        return f"{self.where}: {self.message}; {self.num_rows:,} rows lost"


class Damage:
    """The damage of one file. Threads may share it."""

    def __init__(self, path: str, health: Health | None) -> None:
        """``health`` is told of what is found."""
        self._path, self._health = path, health
        self._lock = ForkLock()
        self._lost: dict[tuple[int, int], RowRanges] = {}
        self.found: dict[Where, CorruptData] = {}

    def knows(self, row_group: int, leaf: int) -> bool:
        """Is it known where the chunk is damaged?"""
        return (row_group, leaf) in self._lost

    def is_lost(self, row_group: int, leaf: int, rows: RowRanges) -> bool:
        """Is any of ``rows``, of the file, known to be lost in a chunk?"""
        with self._lock:
            return bool(rows & self._lost.get((row_group, leaf), RowRanges.none()))

    def rows_of(self, leaves: Iterable[int]) -> RowRanges:
        """The rows of the file that are lost to whoever reads ``leaves``."""
        wanted = set(leaves)
        with self._lock:
            lost = [rows for (_, leaf), rows in self._lost.items() if leaf in wanted]
        return RowRanges.union(lost)

    def add(self, row_group: int, leaf: int, found: Sequence[CorruptData]) -> list[CorruptData]:
        """Take note of a chunk's damage. Gives what was not known before."""
        with self._lock:
            new = [one for one in found if one.where not in self.found]
            self.found.update((one.where, one) for one in new)
            before = self._lost.get((row_group, leaf), RowRanges.none())
            self._lost[row_group, leaf] = RowRanges.union([before, *(one.rows for one in found)])
        if self._health is not None:
            self._health.note_corrupt(self._path, new)
        return new
