"""The damage of one file, and the state of all files of a data set: damage and missing indexes.

A data set issues one warning about missing and stale indexes, and not one a file.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from intarsia.errors import Where, warn
from intarsia.file.corrupt_data import CorruptData
from intarsia.file.file_footer import ColumnTypes
from intarsia.file.index_subjects import can_have
from intarsia.file.sidecar_discovery import SidecarOption
from intarsia.index.directory import IndexEntry
from intarsia.index.registry import text_of
from intarsia.process_state import ForkLock
from intarsia.row_ranges import RowRanges


class Health:
    """The indexes and the damage of the files opened so far. Threads may share it."""

    def __init__(self) -> None:
        self._lock = ForkLock()
        self._names: dict[str, frozenset[str]] = {}
        self._columns: dict[str, ColumnTypes] = {}
        self._known: dict[str, tuple[IndexEntry, SidecarOption]] = {}
        self._stale: dict[str, Mapping[SidecarOption, Collection[IndexEntry]]] = {}
        self._has_warned = False
        self._has_news = False
        """True if files were noted since ``tell`` last looked for something to warn of."""
        self._corrupt: dict[str, dict[CorruptData, None]] = {}

    def note_corrupt(self, path: str, places: Iterable[CorruptData]) -> None:
        """Records damaged places of a file."""
        with self._lock:
            self._corrupt.setdefault(path, {}).update(dict.fromkeys(places))

    def renew(self, path: str) -> None:
        """Forgets the damage of the file at ``path``, which has been replaced."""
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
        current: Mapping[IndexEntry, SidecarOption],
        stale: Mapping[SidecarOption, Collection[IndexEntry]],
        columns: ColumnTypes,
    ) -> None:
        """Records the ``current`` and the ``stale`` indexes of a file, as far as they are known."""
        with self._lock:
            self._columns[path] = columns
            self._names[path] = frozenset(entry.name for entry in current)
            self._known |= {entry.name: (entry, sidecar) for entry, sidecar in current.items()}
            self._stale[path] = stale
            self._has_news = True

    def tell(self) -> None:
        """Issues one warning if some files lack indexes that others have, or have stale ones."""
        if not self._has_news:
            return
        with self._lock:
            self._has_news = False
            message = None if self._has_warned else self._message()
            self._has_warned = self._has_warned or message is not None
        if message:
            warn(message)

    def _message(self) -> str | None:
        stale = {path: by_sidecar for path, by_sidecar in self._stale.items() if by_sidecar}
        missing = self._missing(stale)
        faults = {f"{len(paths):,} lack {name}": paths for name, paths in missing.items()}
        if stale:
            fault = f"{len(stale):,} have indexes from before a rewrite"
            faults = {fault: [*stale], **faults}
        if not faults:
            return None
        first = min(path for paths in faults.values() for path in paths)
        lost = [self._known[name] for name in self._missing()]
        lost += [
            (entry, sidecar)
            for by_sidecar in stale.values()
            for sidecar in by_sidecar
            for entry in by_sidecar[sidecar]
        ]
        return (
            f"of {len(self._names):,} files looked into, {', and '.join(faults)}, such as {first}: "
            f"they are read without these indexes; {' and '.join(_calls(lost))} adds them"
        )

    def _missing(self, besides: Collection[str] = ()) -> dict[str, list[str]]:
        """Returns ``missing_in`` of the files that can have the index."""
        lacking = missing_in(self._names, besides)
        able = {
            name: able_to_have(self._known[name][0], {path: self._columns[path] for path in paths})
            for name, paths in lacking.items()
        }
        return {name: paths for name, paths in able.items() if paths}


def able_to_have(entry: IndexEntry, files: Mapping[str, ColumnTypes]) -> list[str]:
    """Returns the paths of ``files`` that can be given an index as ``entry`` describes it."""
    able = {columns: can_have(columns, entry) for columns in {*files.values()}}
    return [path for path, columns in files.items() if able[columns]]


def _calls(lost: Iterable[tuple[IndexEntry, SidecarOption]]) -> list[str]:
    """Returns the calls that add these indexes again, each in its former place."""
    by_sidecar: dict[SidecarOption, set[str]] = {}
    for entry, sidecar in lost:
        by_sidecar.setdefault(sidecar, set()).add(text_of(entry.kind, entry.on, entry.params))
    again = {sidecar: repr(sorted(specs)) for sidecar, specs in by_sidecar.items()}
    return [
        f"intarsia.add_indexes(path, {specs}, "
        f"{f'sidecar={sidecar!r}, ' if sidecar else ''}replace=False)"
        for sidecar, specs in (again or {False: "indexes"}).items()
    ]


def missing_in(
    names: dict[str, frozenset[str]], besides: Collection[str] = ()
) -> dict[str, list[str]]:
    """Returns the indexes that only some files have, with the files that lack each."""
    missing = {}
    for name in sorted(set().union(*names.values())):
        lacking = [path for path, own in names.items() if name not in own and path not in besides]
        if lacking:
            missing[name] = lacking
    return missing


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
