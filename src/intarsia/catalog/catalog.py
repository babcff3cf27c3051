"""Prunes the files of a data set by its catalog, before any of them is opened.

The catalog's facts of a file are used only if the listing shows the same size and time of change.
All other files are candidates and are read themselves. Only files in the listing are opened. A
damaged catalog is ignored with a warning.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import pyarrow.fs as pafs

from intarsia.catalog.cache import CatalogCache
from intarsia.catalog.manifest import POINTER, First, Pointer, Table, decode_pointer
from intarsia.catalog.segment_reader import SegmentReader, in_order
from intarsia.errors import PathError, warn
from intarsia.file.open_file import OpenedFile
from intarsia.file.read_options import ReadOptions
from intarsia.io.file_handle import Stamp, Version, stamps_under
from intarsia.io.fsspec_listing import is_fsspec
from intarsia.io.retry import infos_of, is_remote
from intarsia.io.source import BufferSource, EndSource, Source
from intarsia.io.storage import (
    SIDECAR_FOLDER,
    FileSource,
    IOCount,
    gap_bytes,
    infos_under,
    is_uri,
    resolve,
)
from intarsia.limits import MAX_CATALOG_POINTER_BYTES, check_claim
from intarsia.plan.plan import Amount, Figures
from intarsia.process_state import ForkLock, SharedState
from intarsia.pruning.partition_pruning import Constants
from intarsia.scan.request import Request
from intarsia.threads import await_all

F = TypeVar("F", bound=tuple[str, Constants])
Identity = tuple[int, int | None]
"""Identity of a file in a listing: its size in bytes, and its time of change in nanoseconds.

Storage that lists entity tags has a hash of the tag instead of the time.
"""
_MAX_ATTEMPTS = 3
"""Attempts to read a catalog that other processes replace meanwhile."""
_REMOTE_LISTING_SECONDS = 1.0
"""A listing of remote storage is reused for this long, because listing again takes as long."""
_CATALOG_CACHE = CatalogCache()
_TIME_PREFIX = "time "
"""Stamps that are times in milliseconds begin with this."""


def pointer_path(root: str) -> str:
    """Returns the path of the catalog's pointer for the data set in the folder ``root``."""
    return f"{root}/{SIDECAR_FOLDER}/{POINTER}"


def list_folder(
    filesystem: pafs.FileSystem, root: str, infos: Iterable[pafs.FileInfo] | None = None
) -> tuple[dict[str, Identity], dict[str, int]]:
    """Lists all files below a folder: their identities, and their times of change.

    Both are by path relative to the folder. Times are in nanoseconds, 0 if unknown. ``infos`` is
    a listing that the caller has already. Raises ``OSError`` if the folder cannot be listed.
    """
    base = f"{root}/"
    stamps = stamps_under(filesystem, root)
    if stamps is not None:
        stamped = {
            path.removeprefix(base): (size, _identity_hash(s)) for path, (size, s) in stamps.items()
        }
        times = {path.removeprefix(base): _time_in(s) for path, (_, s) in stamps.items()}
        return stamped, times
    if infos is None:
        infos = infos_under(filesystem, root)
    files = [info for info in infos if info.is_file]
    identities = {info.path.removeprefix(base): (info.size, info.mtime_ns) for info in files}
    return identities, {path: changed or 0 for path, (_, changed) in identities.items()}


def _identity_hash(stamp: Stamp) -> int | None:
    if stamp is None:
        return None
    return int.from_bytes(hashlib.blake2b(stamp.encode(), digest_size=7).digest())


def _time_in(stamp: Stamp) -> int:
    is_time = stamp is not None and stamp.startswith(_TIME_PREFIX)
    return int(stamp.removeprefix(_TIME_PREFIX)) * 1_000_000 if is_time and stamp else 0


def read_pointer(filesystem: pafs.FileSystem, root: str) -> Pointer:
    """Reads the pointer. Raises ``PathError`` if it is missing, ``FormatError`` if damaged."""
    return versioned_pointer(filesystem, root)[0]


def versioned_pointer(
    filesystem: pafs.FileSystem, root: str, count: IOCount | None = None
) -> tuple[Pointer, Version]:
    """Reads the pointer and the version of its file. Raises the errors of ``read_pointer``."""
    source = FileSource(filesystem, pointer_path(root))
    source.count = count or source.count
    try:
        version = source.version
        check_claim("the catalog's pointer", source.size, MAX_CATALOG_POINTER_BYTES)
        return decode_pointer(bytes(source.read([(0, source.size)])[0])), version
    finally:
        source.close()


def open_segments(
    filesystem: pafs.FileSystem,
    root: str,
    pointer: Pointer,
    options: ReadOptions,
    count: IOCount | None = None,
) -> list[SegmentReader]:
    """Returns readers of a catalog's segments. Nothing is read yet. ``count`` counts the reads."""
    source_of = partial(_source_of, filesystem, root, count)
    return [SegmentReader(segment, source_of, options) for segment in pointer.segments]


def _source_of(
    filesystem: pafs.FileSystem, root: str, count: IOCount | None, table: Table
) -> Source:
    """Returns the source of a table. A small table is read at once."""
    source = FileSource(filesystem, f"{root}/{SIDECAR_FOLDER}/{table.name}")
    source.count = count or source.count
    if source.size != table.size or table.size > gap_bytes(filesystem):
        return source
    data = source.read([(0, table.size)])[0]
    source.close()
    return BufferSource(data)


def _own_files(listing: Mapping[str, Identity]) -> dict[str, Identity]:
    """Returns the files of a listing that belong to a catalog."""
    start = f"{SIDECAR_FOLDER}/catalog"
    return {path: identity for path, identity in listing.items() if path.startswith(start)}


def is_inside(path: str) -> bool:
    """True if the path is relative and stays in the folder that it is relative to."""
    return not {"", ".", ".."} & set(path.split("/")) and "\0" not in path


@dataclass(frozen=True, slots=True, eq=False)
class _State:
    """A catalog that was read, and the files whose facts are up to date."""

    identity: Identity
    segments: Sequence[SegmentReader]
    places: dict[str, tuple[int, int]]
    """The segment and the file's number in it, by path relative to the data set's folder."""


class Catalog(SharedState):
    """The catalog of an opened data set, as of the last listing."""

    def __init__(
        self,
        filesystem: pafs.FileSystem,
        root: str,
        options: ReadOptions,
        listing: Mapping[str, pafs.FileInfo] | None = None,
    ) -> None:
        """Takes the data set's folder and, if the caller has it, a new listing by path."""
        self.root = root.rstrip("/")
        self._filesystem, self._options = filesystem, options
        self._listing: dict[str, Identity] | None = None
        self._listed_until = math.inf
        if listing is not None:
            with contextlib.suppress(OSError):
                self._listing = self._identities(listing.values())
        self._lock = ForkLock()
        self._state: _State | None = None
        self._ignored: Identity | None = None
        self._is_shared = True
        self.count = IOCount()
        """The reads of the catalog so far, if it was made by ``anew``."""
        super().__init__()

    def clear(self) -> None:
        with self._lock:
            self._state = self._listing = None

    def anew(self) -> Catalog:
        """Returns the same catalog, of which nothing is read yet. It caches for itself alone."""
        made = Catalog(self._filesystem, self.root, self._options)
        made._is_shared = False
        return made

    def _identities(self, infos: Iterable[pafs.FileInfo] | None = None) -> dict[str, Identity]:
        return list_folder(self._filesystem, self.root, infos)[0]

    def _list(self) -> dict[str, Identity]:
        """Lists the folder. The first call reuses the listing of the opening while it is new."""
        listing, self._listing = self._listing, None
        is_new = time.monotonic() < self._listed_until
        return listing if listing is not None and is_new else self._identities()

    def opened(self) -> None:
        """Ends the opening: its listing expires, on remote storage a second later."""
        is_local = isinstance(self._filesystem, pafs.LocalFileSystem)
        self._listed_until = time.monotonic() + (0 if is_local else _REMOTE_LISTING_SECONDS)

    def first(self, path: str) -> OpenedFile | None:
        """Returns the end of the data set's first file, or None if it is unknown or changed."""
        try:
            if self._listing is None:
                return None
            first = read_pointer(self._filesystem, self.root).first
            path_below = path.removeprefix(f"{self.root}/")
            if first is None or not _is_same(first, path_below, self._listing.get(path_below)):
                return None
            source = EndSource(first.size, memoryview(first.tail))
            return OpenedFile(source, path, len(first.tail), options=self._options)
        except Exception as error:  # noqa: BLE001 # a catalog only ever saves work
            self._ignore(error, (self._listing or {}).get(f"{SIDECAR_FOLDER}/{POINTER}"))
            return None

    # --- which files ----------------------------------------------------------------------------

    def files_left(self, files: Iterable[F], request: Request) -> list[F]:
        """Returns the ``files``, paths with partition values, that might hold matching rows."""
        candidates = list(files)
        try:
            listing = self._list()
        except OSError:
            return candidates
        with self._lock:
            identity = listing.get(f"{SIDECAR_FOLDER}/{POINTER}")
            if identity is None or identity == self._ignored:
                self._state = None
                return candidates
            for attempt in range(_MAX_ATTEMPTS):
                try:
                    self._state = self._current_state(listing, identity, anew=attempt > 0)
                    return self._prune(self._state, candidates, request)
                except PathError as error:  # another generation may have replaced it meanwhile
                    problem: Exception = error
                except Exception as error:  # noqa: BLE001 # a catalog only ever saves work
                    problem = error
                    break
            self._state = None
            _CATALOG_CACHE.forget(self.root)
            self._ignore(problem, identity)
            return candidates

    def _ignore(self, problem: Exception, identity: Identity | None) -> None:
        if identity is None or identity != self._ignored:
            message = f"{self.root}: the catalog is ignored: {problem}"
            warn(message)
        self._ignored = identity

    def _current_state(
        self, listing: dict[str, Identity], identity: Identity, anew: bool
    ) -> _State:
        state = self._state
        if state is not None and state.identity == identity and not anew:
            segments = state.segments
        else:
            segments = self._segments(listing, anew)
        return _State(identity, segments, self._locate_files(segments, listing))

    def _segments(self, listing: dict[str, Identity], anew: bool) -> Sequence[SegmentReader]:
        """Returns the cached segments of an earlier query, or opens the current ones.

        On remote storage, the tables that most queries read are opened at the same time.
        """
        is_local = isinstance(self._filesystem, pafs.LocalFileSystem)
        own = _own_files(listing) if is_local and self._is_shared and not anew else {}
        cached = _CATALOG_CACHE.find(self.root, self._options, own) if own else None
        if cached is not None:
            return cached
        pointer, _ = versioned_pointer(self._filesystem, self.root, self.count)
        segments = open_segments(self._filesystem, self.root, pointer, self._options, self.count)
        if is_remote(self._filesystem):
            await_all(
                [partial(each.open, table) for each in segments for table in each.common_tables]
            )
        if own:
            _CATALOG_CACHE.keep(self.root, self._options, own, segments)
        return segments

    def _locate_files(
        self, segments: Sequence[SegmentReader], listing: dict[str, Identity]
    ) -> dict[str, tuple[int, int]]:
        places: dict[str, tuple[int, int]] = {}
        outside: list[str] = []
        for segment_number, segment in enumerate(segments):
            listed = segment.listed
            identities = zip(listed.sizes.tolist(), listed.mtimes.tolist(), strict=True)
            for number, (path, identity) in enumerate(zip(listed.paths, identities, strict=True)):
                if listing.get(path) == identity:
                    places[path] = segment_number, number
                elif not is_inside(path):
                    outside.append(path)
        if outside:
            message = (
                f"{self.root}: the catalog names {outside[0]!r}, which is outside the data set's "
                "folder; this entry is ignored"
            )
            warn(message)
        return places

    def _prune(self, state: _State, candidates: list[F], request: Request) -> list[F]:
        base = f"{self.root}/"
        groups: dict[tuple[int, int, tuple[str, ...]], list[tuple[int, int]]] = {}
        schema_groups = [segment.listed.schema_groups.tolist() for segment in state.segments]
        for position, (path, constants) in enumerate(candidates):
            location = state.places.get(path.removeprefix(base))
            if location is not None:
                schema_group = schema_groups[location[0]][location[1]]
                groups.setdefault((location[0], schema_group, tuple(constants)), []).append(
                    (location[1], position)
                )
        pruned_positions: set[int] = set()
        for (segment, schema_group, _), members in groups.items():
            by_number = dict(members)
            numbers, constants = in_order([*by_number]), candidates[members[0][1]][1]
            matching = state.segments[segment].might_match(
                numbers, schema_group, constants, request
            )
            pruned_positions.update(
                by_number[number] for number in by_number.keys() - {*matching.tolist()}
            )
        return [
            file for position, file in enumerate(candidates) if position not in pruned_positions
        ]

    def figures(self, files: Iterable[F]) -> Figures:
        """Returns how many row groups, rows and bytes the files have that ``files_left`` pruned."""
        state, base = self._state, f"{self.root}/"
        paths = [path.removeprefix(base) for path, _ in files]
        total = Figures()
        for segment_number, segment in enumerate(state.segments if state else ()):
            locations = (state.places.get(path) for path in paths) if state else ()
            numbers = [
                location[1]
                for location in locations
                if location is not None and location[0] == segment_number
            ]
            listed = segment.listed
            groups, rows, sizes = (
                Amount(0, int(column[numbers].sum()))
                for column in (listed.row_groups, listed.rows, listed.sizes)
            )
            pruned_files = Amount(0, len(numbers))
            total += Figures(files=pruned_files, row_groups=groups, rows=rows, bytes=sizes)
        return total

    # --- ends of files --------------------------------------------------------------------------

    def tail(self, source: FileSource) -> memoryview | None:
        """Returns the end of an opened file; None if the catalog does not have this version."""
        state = self._state
        location = state and state.places.get(source.path.removeprefix(f"{self.root}/"))
        if state is None or not location:
            return None
        try:
            segment = state.segments[location[0]]
            stamp, size = segment.listed.stamps[location[1]], segment.listed.sizes[location[1]]
            if stamp is None or source.size != size or source.stamp != stamp:
                return None
            return memoryview(segment.tail(location[1])) or None
        except PathError:
            return None
        except Exception as error:  # noqa: BLE001 # a catalog only ever saves work
            self._ignore(error, state.identity)
            return None


def catalog_root(filesystem: pafs.FileSystem, path: Any, files: Sequence[str]) -> str | None:
    """Returns the folder at ``path`` if it has a catalog and all ``files``, else None."""
    root = root_of(filesystem, path, files)
    infos = [] if root is None else infos_of(filesystem, [pointer_path(root)])
    return root if any(info.is_file for info in infos) else None


def root_of(filesystem: pafs.FileSystem, path: Any, files: Sequence[str]) -> str | None:
    """Returns the folder at ``path`` if ``files`` are all in it, else None."""
    if not isinstance(path, str | os.PathLike):
        return None
    by_uri = is_uri(path) and not is_fsspec(filesystem)
    root = resolve(path, None if by_uri else filesystem)[1].rstrip("/")
    # All strings between two strings with a common prefix have that prefix as well.
    return root if all(one.startswith(f"{root}/") for one in (min(files), max(files))) else None


def _is_same(first: First, path: str, identity: Identity | None) -> bool:
    return first.path == path and identity == (first.size, first.mtime)


def catalog_of(
    filesystem: pafs.FileSystem,
    root: str | None,
    options: ReadOptions,
    listing: Mapping[str, pafs.FileInfo],
    catalog: Any,
) -> Catalog | None:
    """Returns the catalog in ``root``, unless the option is False. Raises ``PathError`` if True."""
    if catalog not in (True, False, "auto"):
        raise ValueError(f"catalog is True, False or 'auto', not {catalog!r}")
    if catalog is False:
        return None
    if root is not None and pointer_path(root.rstrip("/")) in listing:
        return Catalog(filesystem, root, options, listing)
    if catalog is True:
        raise PathError(f"{root or 'this data set'}: there is no catalog; build_catalog makes one")
    return None
