"""Opened catalogs of local folders, kept for later queries in this process.

A query that opens its data set anew, as each of Spark's does, would read and decode the same few
tables each time. They are used again as long as a listing shows the very files that they were read
from: names of tables are random, and none is ever written to.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from intarsia.catalog.segment_reader import SegmentReader
from intarsia.file.read_options import ReadOptions
from intarsia.process_state import ForkLock, SharedState

Files = Mapping[str, tuple[int, int | None]]
"""A catalog's files by name: length in bytes, and time of change in nanoseconds."""

_Key = tuple[str, ReadOptions]
MOST_BYTES = 8 * 1024 * 1024
"""Of the tables that are kept, all catalogs together, as they are stored."""


@dataclass(frozen=True, slots=True, eq=False)
class _Kept:
    files: Files
    segments: Sequence[SegmentReader]
    num_bytes: int


class KeptCatalogs(SharedState):
    """The catalogs last used whose tables take no more than ``most_bytes``.

    Only the very last one keeps its handles open.
    """

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._most_bytes = most_bytes
        self._kept: OrderedDict[_Key, _Kept] = OrderedDict()
        self._lock = ForkLock()
        super().__init__()

    def clear(self) -> None:
        with self._lock:
            self._kept.clear()

    def find(self, root: str, options: ReadOptions, files: Files) -> Sequence[SegmentReader] | None:
        """The segments of the catalog below ``root``, if its files are still ``files``."""
        with self._lock:
            found = self._kept.get((root, options))
            if found is None or found.files != files:
                return None
            self._use((root, options))
            return found.segments

    def keep(
        self, root: str, options: ReadOptions, files: Files, segments: Sequence[SegmentReader]
    ) -> None:
        """Keep the segments of the catalog that ``files`` are, unless they are too large."""
        num_bytes = sum(segment.kept_bytes for segment in segments)
        with self._lock:
            self._kept.pop((root, options), None)
            if num_bytes > self._most_bytes:
                return
            self._kept[root, options] = _Kept(dict(files), segments, num_bytes)
            self._use((root, options))
            while sum(kept.num_bytes for kept in self._kept.values()) > self._most_bytes:
                self._kept.popitem(last=False)

    def _use(self, key: _Key) -> None:
        self._kept.move_to_end(key)
        for other, kept in self._kept.items():
            for segment in kept.segments if other != key else ():
                segment.rest()

    def forget(self, root: str) -> None:
        """Keep nothing of the catalog below ``root``."""
        with self._lock:
            for key in [key for key in self._kept if key[0] == root]:
                del self._kept[key]
