"""Prunes the files of a data set by its catalog, before any of them is opened.

The catalog's facts of a file are used only if the listing shows the same size and time of change.
All other files are candidates and are read themselves. Only files in the listing are opened. A
damaged catalog is ignored with a warning.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import math
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import pyarrow.fs as pafs

from intarsia.catalog.cache import CatalogCache
from intarsia.catalog.located_files import LocatedFiles
from intarsia.catalog.manifest import POINTER, First, Pointer, Table, decode_pointer
from intarsia.catalog.segment_reader import BoolArray, Identity, SegmentReader
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
from intarsia.plan.plan import Figures
from intarsia.process_state import ForkLock, SharedState
from intarsia.pruning.partition_pruning import Constants
from intarsia.scan.request import Request
from intarsia.threads import await_all

F = TypeVar("F", bound=tuple[str, Constants])
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
    # Only files have a size. ``info.is_file`` takes four times as long.
    files = [info for info in infos if info.size is not None]
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


def _own_files(filesystem: pafs.FileSystem, root: str) -> dict[str, Identity]:
    """Lists the files of the catalog in ``root``."""
    listing, _ = list_folder(filesystem, f"{root}/{SIDECAR_FOLDER}")
    return {path: identity for path, identity in listing.items() if path.startswith("catalog")}


@dataclass(frozen=True, slots=True, eq=False)
class _State:
    """A catalog that was read, with a mask of the files whose facts are up to date."""

    identity: Identity
    segments: Sequence[SegmentReader]
    located: LocatedFiles
    is_current: BoolArray


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
        self._is_local = isinstance(filesystem, pafs.LocalFileSystem)
        self._listing: dict[str, Identity] | None = None
        self._listed_until = math.inf
        if listing is not None:
            with contextlib.suppress(OSError):
                self._listing = self._identities(listing.values())
        self._lock = ForkLock()
        self._state: _State | None = None
        self._pointer: tuple[Identity, Pointer] | None = None
        """The pointer that ``first`` has read, and its identity in the listing before."""
        self._ignored: Identity | None = None
        self._is_shared = True
        self.count = IOCount()
        """The reads of the catalog so far, if it was made by ``anew``."""
        super().__init__()

    def clear(self) -> None:
        with self._lock:
            self._state = self._listing = self._pointer = None

    def anew(self) -> Catalog:
        """Returns the same catalog, of which nothing is read yet. It caches for itself alone."""
        made = Catalog(self._filesystem, self.root, self._options)
        made._is_shared = False
        return made

    def _identities(self, infos: Iterable[pafs.FileInfo] | None = None) -> dict[str, Identity]:
        return list_folder(self._filesystem, self.root, infos)[0]

    def _look_up(self, files: Iterable[F]) -> tuple[Identity | None, Sequence[Identity | None]]:
        """Returns the identities of the pointer, None if there is none, and of ``files``.

        The first call reuses the listing of the opening while it is new. Later ones look up each
        file of a local folder. Other storage is listed, which takes fewer requests.
        """
        pointer = f"{SIDECAR_FOLDER}/{POINTER}"
        listing, self._listing = self._listing, None
        if listing is None or time.monotonic() >= self._listed_until:
            if self._is_local:
                paths = [f"{self.root}/{pointer}", *[path for path, _ in files]]
                infos = infos_of(self._filesystem, paths)
                first, *others = [(info.size, info.mtime_ns) for info in infos]
                return None if first[0] is None else first, others
            listing = self._identities()
        base = f"{self.root}/"
        return listing.get(pointer), [listing.get(path.removeprefix(base)) for path, _ in files]

    def opened(self) -> None:
        """Ends the opening: its listing expires, on remote storage a second later."""
        self._listed_until = time.monotonic() + (0 if self._is_local else _REMOTE_LISTING_SECONDS)

    def first(self, path: str) -> OpenedFile | None:
        """Returns the end of the data set's first file, or None if it is unknown or changed."""
        try:
            if self._listing is None:
                return None
            pointer = read_pointer(self._filesystem, self.root)
            identity = self._listing.get(f"{SIDECAR_FOLDER}/{POINTER}")
            self._pointer = None if identity is None else (identity, pointer)
            first = pointer.first
            path_below = path.removeprefix(f"{self.root}/")
            if first is None or not _is_same(first, path_below, self._listing.get(path_below)):
                return None
            source = EndSource(first.size, memoryview(first.tail))
            return OpenedFile(source, path, len(first.tail), options=self._options)
        except Exception as error:  # noqa: BLE001 # a catalog only ever saves work
            self._ignore(error, (self._listing or {}).get(f"{SIDECAR_FOLDER}/{POINTER}"))
            return None

    # --- which files ----------------------------------------------------------------------------

    def files_left(
        self, files: Sequence[F], candidates: Sequence[F], request: Request
    ) -> Sequence[F]:
        """Returns the ``candidates`` that might hold matching rows.

        ``files`` are all files of the data set with their partition values, in the same sequence
        at each call. ``candidates`` are some of them, or ``files`` itself.
        """
        try:
            identity, identities = self._look_up(candidates)
        except OSError:
            return candidates
        with self._lock:
            if identity is None or identity == self._ignored:
                self._state = None
                return candidates
            for attempt in range(_MAX_ATTEMPTS):
                try:
                    segments = self._current_segments(identity, anew=attempt > 0)
                    located = self._locate(files, segments)
                    positions = located.positions_of(candidates)
                    is_current = located.current(positions, identities)
                    self._state = _State(identity, segments, located, is_current)
                    is_left = ~located.pruned(is_current, request)[positions]
                    return list(itertools.compress(candidates, is_left.tolist()))
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

    def _current_segments(self, identity: Identity, anew: bool) -> Sequence[SegmentReader]:
        state = self._state
        is_same = state is not None and state.identity == identity and not anew
        return state.segments if state is not None and is_same else self._segments(identity, anew)

    def _segments(self, identity: Identity, anew: bool) -> Sequence[SegmentReader]:
        """Returns the cached segments of an earlier query, or opens the current ones.

        On remote storage, the tables that most queries read are opened at the same time.
        """
        known, self._pointer = self._pointer, None
        own = {}
        if self._is_local and self._is_shared and not anew:
            own = _own_files(self._filesystem, self.root)
        cached = _CATALOG_CACHE.find(self.root, self._options, own) if own else None
        if cached is not None:
            return cached
        if known is not None and known[0] == identity and not anew:
            pointer = known[1]
        else:
            pointer, _ = versioned_pointer(self._filesystem, self.root, self.count)
        segments = open_segments(self._filesystem, self.root, pointer, self._options, self.count)
        if is_remote(self._filesystem):
            await_all(
                [partial(each.open, table) for each in segments for table in each.common_tables]
            )
        if own:
            _CATALOG_CACHE.keep(self.root, self._options, own, segments)
        return segments

    def _locate(self, files: Sequence[F], segments: Sequence[SegmentReader]) -> LocatedFiles:
        """Returns the entries of ``files``, those of the query before if possible."""
        state = self._state
        if state is not None and state.segments is segments and state.located.files is files:
            return state.located
        outside = [path for segment in segments for path in segment.paths_outside]
        if outside:
            message = (
                f"{self.root}: the catalog names {outside[0]!r}, which is outside the data set's "
                "folder; this entry is ignored"
            )
            warn(message)
        return LocatedFiles(f"{self.root}/", files, segments)

    def figures(self, files: Iterable[F]) -> Figures:
        """Returns how many row groups, rows and bytes the files have that ``files_left`` pruned."""
        state = self._state
        return Figures() if state is None else state.located.figures(path for path, _ in files)

    # --- ends of files --------------------------------------------------------------------------

    def tail(self, source: FileSource) -> memoryview | None:
        """Returns the end of an opened file; None if the catalog does not have this version."""
        state = self._state
        position = None if state is None else state.located.positions.get(source.path)
        if state is None or position is None or not state.is_current[position]:
            return None
        entry = state.located.entries[position]
        if entry is None:
            return None
        try:
            segment, number = entry
            stamp, size = segment.listed.stamps[number], segment.listed.sizes[number]
            if stamp is None or source.size != size or source.stamp != stamp:
                return None
            return memoryview(segment.tail(number)) or None
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
