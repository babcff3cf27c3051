"""What became of the files of a data set: of their indexes, told in one warning and not one a file,
and which of their pages are damaged.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING

from intarsia.errors import warn
from intarsia.index.directory import IndexEntry
from intarsia.index.registry import text_of

if TYPE_CHECKING:  # they are told here
    from intarsia.read.damage import CorruptData


class Health:
    """Which indexes files have, of those whose indexes were looked for so far."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._names: dict[str, frozenset[str]] = {}
        self._known: dict[str, IndexEntry] = {}
        self._stale: dict[str, bool] = {}
        self._told = False
        self._corrupt: dict[str, dict[CorruptData, None]] = {}

    def note_corrupt(self, path: str, found: Iterable[CorruptData]) -> None:
        """Places of a file turned out to be damaged."""
        with self._lock:
            self._corrupt.setdefault(path, {}).update(dict.fromkeys(found))

    def renew(self, path: str) -> None:
        """Another file is at the path now."""
        with self._lock:
            self._corrupt.pop(path, None)

    @property
    def corrupt(self) -> list[CorruptData]:
        """The damaged places found so far, by file."""
        with self._lock:
            return [one for path in sorted(self._corrupt) for one in self._corrupt[path]]

    def note(self, path: str, entries: Collection[IndexEntry], problem: str | None) -> None:
        """A file has these indexes; ``problem`` says why others are stale, if any are."""
        with self._lock:
            self._names[path] = frozenset(entry.name for entry in entries)
            self._known |= {entry.name: entry for entry in entries}
            self._stale[path] = problem is not None

    def tell(self) -> None:
        """Warn, once, where some files have lost what others have, or what they had is stale."""
        with self._lock:
            message = None if self._told else self._message()
            self._told = self._told or message is not None
        if message:
            warn(message, stacklevel=4)

    def _message(self) -> str | None:
        stale = [path for path, is_stale in self._stale.items() if is_stale]
        missing = missing_in(self._names, stale)
        told = {f"{len(paths):,} lack {name}": paths for name, paths in missing.items()}
        if stale:
            what = f"{len(stale):,} hold indexes of what they were before a rewrite"
            told = {what: stale, **told}
        if not told:
            return None
        first = min(path for paths in told.values() for path in paths)
        lost = [self._known[name] for name in sorted(self._known if stale else missing)]
        again = repr([text_of(entry.kind, entry.on, entry.params) for entry in lost])
        return (
            f"of {len(self._names):,} files looked into, {', and '.join(told)}, as {first}: "
            f"they are read without; intarsia.add_indexes(path, {again if lost else 'indexes'}, "
            "replace=False) makes what is not there"
        )


def missing_in(
    names: dict[str, frozenset[str]], besides: Collection[str] = ()
) -> dict[str, list[str]]:
    """The names of indexes that some files lack and others have, and which files those are.

    ``names`` are the indexes of each file. Files ``besides`` are left out.
    """
    found = {}
    for name in sorted(set().union(*names.values())):
        lacking = [path for path, own in names.items() if name not in own and path not in besides]
        if lacking:
            found[name] = lacking
    return found
