"""The damage of one file that reads have shown so far."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from intarsia.errors import Where
from intarsia.file.corrupt_data import CorruptData
from intarsia.file.health import Health
from intarsia.process_state import ForkLock
from intarsia.row_ranges import RowRanges


class Damage:
    """The damage of one file. Threads may share it."""

    def __init__(self, path: str, health: Health | None) -> None:
        """Takes the path, and ``health``, which collects the damage of a data set's files."""
        self._path, self._health = path, health
        self._lock = ForkLock()
        self._lost: dict[tuple[int, int], RowRanges] = {}
        self.places: dict[Where, CorruptData] = {}

    def knows(self, row_group: int, leaf: int) -> bool:
        """True if damaged places of the chunk are known."""
        return (row_group, leaf) in self._lost

    def is_lost(self, row_group: int, leaf: int, rows: RowRanges) -> bool:
        """True if any of ``rows``, numbered in the file, is known to be lost in a chunk."""
        with self._lock:
            return bool(rows & self._lost.get((row_group, leaf), RowRanges.none()))

    def rows_of(self, leaves: Iterable[int]) -> RowRanges:
        """Returns the rows of the file that are lost to a read of ``leaves``."""
        columns = set(leaves)
        with self._lock:
            lost = [rows for (_, leaf), rows in self._lost.items() if leaf in columns]
        return RowRanges.union(lost)

    def add(self, row_group: int, leaf: int, places: Sequence[CorruptData]) -> list[CorruptData]:
        """Records damaged places of a chunk. Returns those that were not known before."""
        with self._lock:
            new = [place for place in places if place.where not in self.places]
            self.places.update((place.where, place) for place in new)
            before = self._lost.get((row_group, leaf), RowRanges.none())
            self._lost[row_group, leaf] = RowRanges.union(
                [before, *(place.rows for place in places)]
            )
        if self._health is not None:
            self._health.note_corrupt(self._path, new)
        return new
