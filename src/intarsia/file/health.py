"""What became of the files of a data set: of their indexes, told in one warning and not one a file,
and which of their pages are damaged.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from intarsia.errors import warn
from intarsia.file.column_types import ColumnTypes
from intarsia.file.corrupt_rows import CorruptData
from intarsia.file.index_subjects import can_have
from intarsia.index.directory import IndexEntry
from intarsia.index.registry import text_of
from intarsia.process_state import ForkLock

Home = str | bool
"""Where an index is, as ``sidecar=`` says it: in the file itself, False, or beside it."""


class Health:
    """Which indexes files have, of those whose indexes were looked for so far."""

    def __init__(self) -> None:
        self._lock = ForkLock()
        self._names: dict[str, frozenset[str]] = {}
        self._columns: dict[str, ColumnTypes] = {}
        self._known: dict[str, tuple[IndexEntry, Home]] = {}
        self._stale: dict[str, Mapping[Home, Collection[IndexEntry]]] = {}
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

    def note(
        self,
        path: str,
        held: Mapping[IndexEntry, Home],
        stale: Mapping[Home, Collection[IndexEntry]],
        columns: ColumnTypes,
    ) -> None:
        """A file has these indexes, and others that are ``stale``, as far as it is known which."""
        with self._lock:
            self._columns[path] = columns
            self._names[path] = frozenset(entry.name for entry in held)
            self._known |= {entry.name: (entry, home) for entry, home in held.items()}
            self._stale[path] = stale

    def tell(self) -> None:
        """Warn, once, where some files have lost what others have, or what they had is stale."""
        with self._lock:
            message = None if self._told else self._message()
            self._told = self._told or message is not None
        if message:
            warn(message)

    def _message(self) -> str | None:
        stale = {path: held for path, held in self._stale.items() if held}
        missing = self._missing(stale)
        told = {f"{len(paths):,} lack {name}": paths for name, paths in missing.items()}
        if stale:
            what = f"{len(stale):,} hold indexes of what they were before a rewrite"
            told = {what: [*stale], **told}
        if not told:
            return None
        first = min(path for paths in told.values() for path in paths)
        lost = [self._known[name] for name in self._missing()]
        lost += [(entry, home) for held in stale.values() for home in held for entry in held[home]]
        return (
            f"of {len(self._names):,} files looked into, {', and '.join(told)}, as {first}: "
            f"they are read without; {' and '.join(_calls(lost))} makes what is not there"
        )

    def _missing(self, besides: Collection[str] = ()) -> dict[str, list[str]]:
        """As ``missing_in``, without files that cannot have an index."""
        lacking = missing_in(self._names, besides)
        able = {
            name: able_to_have(self._known[name][0], {path: self._columns[path] for path in paths})
            for name, paths in lacking.items()
        }
        return {name: paths for name, paths in able.items() if paths}


def able_to_have(entry: IndexEntry, files: Mapping[str, ColumnTypes]) -> list[str]:
    """Returns those of ``files`` that can be given an index as ``entry`` describes it."""
    able = {columns: can_have(columns, entry) for columns in {*files.values()}}
    return [path for path, columns in files.items() if able[columns]]


def _calls(lost: Iterable[tuple[IndexEntry, Home]]) -> list[str]:
    """What adds these indexes again, where they were."""
    by_home: dict[Home, set[str]] = {}
    for entry, home in lost:
        by_home.setdefault(home, set()).add(text_of(entry.kind, entry.on, entry.params))
    again = {home: repr(sorted(texts)) for home, texts in by_home.items()} or {False: "indexes"}
    return [
        f"intarsia.add_indexes(path, {texts}, {f'sidecar={home!r}, ' if home else ''}replace=False)"
        for home, texts in again.items()
    ]


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
