"""A cache of decoded pages of inverted sections of all files, least recently used first out."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from intarsia.index.key_formula import FingerprintArray, Granules
from intarsia.process_state import ForkLock, SharedState


class Entries(NamedTuple):
    """Entries of one or several pages: keys, ascending, and the granule of each.

    Cached pages are as stored: they may hold steps instead of granules.
    """

    keys: FingerprintArray
    granules: Granules

    @property
    def num_bytes(self) -> int:
        return self.keys.nbytes + self.granules.nbytes


class PageCache(SharedState):
    """A cache of pages by section and page number, safe to share between threads.

    A section is any object that identifies its bytes as they were when it was opened.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes, self._num_bytes = max_bytes, 0
        self._pages: OrderedDict[tuple[object, int], Entries] = OrderedDict()
        self._lock = ForkLock()
        super().__init__()

    def clear(self) -> None:
        """Removes all pages."""
        with self._lock:
            self._num_bytes = 0
            self._pages.clear()

    def get(self, section: object, pages: Iterable[int]) -> dict[int, Entries]:
        """Returns those of ``pages`` that are cached."""
        cached_pages = {}
        with self._lock:
            for page in pages:
                entries = self._pages.get((section, page))
                if entries is not None:
                    self._pages.move_to_end((section, page))
                    cached_pages[page] = entries
        return cached_pages

    def put(self, section: object, pages: Mapping[int, Entries]) -> None:
        """Caches ``pages``. Evicts the least recently used pages beyond the limit."""
        with self._lock:
            for page, entries in pages.items():
                previous = self._pages.pop((section, page), None)
                self._num_bytes += entries.num_bytes - (previous.num_bytes if previous else 0)
                self._pages[section, page] = entries
            while self._num_bytes > self._max_bytes:
                _, evicted = self._pages.popitem(last=False)
                self._num_bytes -= evicted.num_bytes


PAGE_CACHE = PageCache(16 * 1024 * 1024)
"""The cache of this process, at most 16 MiB."""
