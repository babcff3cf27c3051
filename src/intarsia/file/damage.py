"""The damage of one file that reads have shown so far."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from intarsia.errors import Where
from intarsia.file.corrupt_rows import CorruptData
from intarsia.file.health import Health
from intarsia.process_state import ForkLock
from intarsia.row_ranges import RowRanges


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
