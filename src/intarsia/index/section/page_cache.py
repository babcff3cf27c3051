"""Decoded pages of inverted sections: the last ones used, of all files, within a bound."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from intarsia.index.key_formula import FingerprintArray, Granules
from intarsia.process_state import ForkLock, SharedState


class Entries(NamedTuple):
    """Entries of a page, or of several: keys, ascending, and a granule for each.

    Of a page that is held, as it is stored: there may be steps instead of granules.
    """

    keys: FingerprintArray
    granules: Granules

    @property
    def num_bytes(self) -> int:
        return self.keys.nbytes + self.granules.nbytes


class HeldPages(SharedState):
    """Pages by the section they are of and their number in it; threads may share it.

    A section is any object that stands for the bytes there were when it was opened.
    """

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes, self._num_bytes = most_bytes, 0
        self._pages: OrderedDict[tuple[object, int], Entries] = OrderedDict()
        self._lock = ForkLock()
        super().__init__()

    def clear(self) -> None:
        with self._lock:
            self._num_bytes = 0
            self._pages.clear()

    def get(self, section: object, pages: Iterable[int]) -> dict[int, Entries]:
        """Those of ``pages`` that are held."""
        found = {}
        with self._lock:
            for page in pages:
                entries = self._pages.get((section, page))
                if entries is not None:
                    self._pages.move_to_end((section, page))
                    found[page] = entries
        return found

    def put(self, section: object, pages: Mapping[int, Entries]) -> None:
        """Hold ``pages``, and let go of what was used longest ago where that is too much."""
        with self._lock:
            for page, entries in pages.items():
                before = self._pages.pop((section, page), None)
                self._num_bytes += entries.num_bytes - (before.num_bytes if before else 0)
                self._pages[section, page] = entries
            while self._num_bytes > self._most_bytes:
                _, gone = self._pages.popitem(last=False)
                self._num_bytes -= gone.num_bytes


HELD_PAGES = HeldPages(16 * 1024 * 1024)
"""Those of this process."""
