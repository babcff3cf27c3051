"""A cache of opened catalogs of local folders, for later queries in this process.

A query that opens its data set anew, as Spark's queries do, would decode the same tables each
time. Cached tables are used while a listing shows the same files of the catalog. This is safe
because names of tables are random and a table is never changed.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from intarsia.catalog.segment_reader import SegmentReader
from intarsia.file.read_options import ReadOptions
from intarsia.process_state import ForkLock, SharedState

Files = Mapping[str, tuple[int, int | None]]
"""A catalog's files by name: size in bytes, and time of change in nanoseconds."""

_Key = tuple[str, ReadOptions]
MAX_BYTES = 8 * 1024 * 1024
"""Stored bytes of the cached tables of all catalogs together, so that memory stays bounded."""


@dataclass(frozen=True, slots=True, eq=False)
class _CachedCatalog:
    files: Files
    segments: Sequence[SegmentReader]
    num_bytes: int


class CatalogCache(SharedState):
    """Cache of the catalogs used last. Only the last one keeps its file handles open."""

    def __init__(self, most_bytes: int = MAX_BYTES) -> None:
        self._max_bytes = most_bytes
        self._catalogs: OrderedDict[_Key, _CachedCatalog] = OrderedDict()
        self._lock = ForkLock()
        super().__init__()

    def clear(self) -> None:
        with self._lock:
            self._catalogs.clear()

    def find(self, root: str, options: ReadOptions, files: Files) -> Sequence[SegmentReader] | None:
        """Returns the cached segments of the catalog in ``root``, or None if ``files`` differ."""
        with self._lock:
            catalog = self._catalogs.get((root, options))
            if catalog is None or catalog.files != files:
                return None
            self._use((root, options))
            return catalog.segments

    def keep(
        self, root: str, options: ReadOptions, files: Files, segments: Sequence[SegmentReader]
    ) -> None:
        """Caches the segments of the catalog in ``root``, unless they are too large."""
        num_bytes = sum(segment.kept_bytes for segment in segments)
        with self._lock:
            self._catalogs.pop((root, options), None)
            if num_bytes > self._max_bytes:
                return
            self._catalogs[root, options] = _CachedCatalog(dict(files), segments, num_bytes)
            self._use((root, options))
            while sum(catalog.num_bytes for catalog in self._catalogs.values()) > self._max_bytes:
                self._catalogs.popitem(last=False)

    def _use(self, key: _Key) -> None:
        self._catalogs.move_to_end(key)
        for other, catalog in self._catalogs.items():
            for segment in catalog.segments if other != key else ():
                segment.suspend()

    def forget(self, root: str) -> None:
        """Removes the catalog in ``root`` from the cache."""
        with self._lock:
            for key in [key for key in self._catalogs if key[0] == root]:
                del self._catalogs[key]
