"""The catalog of a data set, asked before any of its files is opened.

What it says of a file counts where the listing of the data set shows the file with the very length
and time of change that the catalog knows; every other file is asked itself. Nothing is opened that
the listing does not show. A catalog that is damaged is ignored with a warning.
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

from intarsia.catalog.cache import KeptCatalogs
from intarsia.catalog.manifest import POINTER, First, Pointer, Table, decode_pointer
from intarsia.catalog.segment_reader import SegmentReader, in_order
from intarsia.errors import PathError, warn
from intarsia.file.open_file import OpenedFile
from intarsia.file.read_options import ReadOptions
from intarsia.io.file_handle import Stamp, Version, stamps_below
from intarsia.io.fsspec_listing import is_fsspec
from intarsia.io.retry import infos_of
from intarsia.io.source import BufferSource, EndSource, Source
from intarsia.io.storage import SIDECAR_FOLDER, FileSource, gap_bytes, infos_under, is_uri, resolve
from intarsia.limits import MAX_CATALOG_POINTER_BYTES, check_claim
from intarsia.plan.plan import Amount, Figures
from intarsia.process_state import ForkLock, SharedState
from intarsia.pruning.partition_pruning import Constants
from intarsia.scan.request import Request

F = TypeVar("F", bound=tuple[str, Constants])
Identity = tuple[int, int | None]
"""What a listing knows a file by: its length in bytes, and its time of change in nanoseconds or,
where an entity tag is listed instead, a hash of that."""
_ATTEMPTS = 3
_NEW_SECONDS = 1.0
"""Of a listing of far storage, which takes a while itself."""
_KEPT = KeptCatalogs()
_TIME = "time "


def pointer_path(root: str) -> str:
    """Where the pointer of the catalog of the data set in the folder ``root`` is."""
    return f"{root}/{SIDECAR_FOLDER}/{POINTER}"


def list_folder(
    filesystem: pafs.FileSystem, root: str, infos: Iterable[pafs.FileInfo] | None = None
) -> tuple[dict[str, Identity], dict[str, int]]:
    """All files below a folder, by their paths below it: what they are known by, and when changed.

    ``infos`` is a listing that there is already. Times are in nanoseconds, 0 where none is told.
    Raises ``OSError`` where the folder cannot be listed.
    """
    base = f"{root}/"
    stamps = stamps_below(filesystem, root)
    if stamps is not None:
        marks = {path.removeprefix(base): (size, _mark(s)) for path, (size, s) in stamps.items()}
        times = {path.removeprefix(base): _time_in(s) for path, (_, s) in stamps.items()}
        return marks, times
    if infos is None:
        infos = infos_under(filesystem, root)
    files = [info for info in infos if info.is_file]
    found = {info.path.removeprefix(base): (info.size, info.mtime_ns) for info in files}
    return found, {path: changed or 0 for path, (_, changed) in found.items()}


def _mark(stamp: Stamp) -> int | None:
    if stamp is None:
        return None
    return int.from_bytes(hashlib.blake2b(stamp.encode(), digest_size=7).digest())


def _time_in(stamp: Stamp) -> int:
    is_time = stamp is not None and stamp.startswith(_TIME)
    return int(stamp.removeprefix(_TIME)) * 1_000_000 if is_time and stamp else 0


def read_pointer(filesystem: pafs.FileSystem, root: str) -> Pointer:
    """The pointer as it is now. Raises ``PathError`` where there is none, ``FormatError``."""
    return versioned_pointer(filesystem, root)[0]


def versioned_pointer(filesystem: pafs.FileSystem, root: str) -> tuple[Pointer, Version]:
    """As ``read_pointer``, with the version of its file."""
    source = FileSource(filesystem, pointer_path(root))
    try:
        version = source.version
        check_claim("the catalog's pointer", source.size, MAX_CATALOG_POINTER_BYTES)
        return decode_pointer(bytes(source.read([(0, source.size)])[0])), version
    finally:
        source.close()


def open_segments(
    filesystem: pafs.FileSystem, root: str, pointer: Pointer, options: ReadOptions
) -> list[SegmentReader]:
    """The segments of a catalog, of which nothing is read yet."""
    source_of = partial(_source_of, filesystem, root)
    return [SegmentReader(segment, source_of, options) for segment in pointer.segments]


def _source_of(filesystem: pafs.FileSystem, root: str, table: Table) -> Source:
    """A table's bytes; those of a small one are read at once."""
    source = FileSource(filesystem, f"{root}/{SIDECAR_FOLDER}/{table.name}")
    if source.size != table.size or table.size > gap_bytes(filesystem):
        return source
    data = source.read([(0, table.size)])[0]
    source.close()
    return BufferSource(data)


def _own_files(listing: Mapping[str, Identity]) -> dict[str, Identity]:
    """Those of a listing that are a catalog's."""
    start = f"{SIDECAR_FOLDER}/catalog"
    return {path: identity for path, identity in listing.items() if path.startswith(start)}


def is_inside(path: str) -> bool:
    """Is it the path of a file below a folder, as a listing of that folder shows it?"""
    return "://" not in path and not {"", ".", ".."} & set(path.split("/")) and "\0" not in path


@dataclass(frozen=True, slots=True, eq=False)
class _State:
    """A pointer that was read, and where the files are that it is right about."""

    identity: Identity
    segments: Sequence[SegmentReader]
    places: dict[str, tuple[int, int]]
    """By path below the data set's folder: the segment, and the number in it."""


class Catalog(SharedState):
    """What a data set knows of its catalog, as of the listing that was made last."""

    def __init__(
        self,
        filesystem: pafs.FileSystem,
        root: str,
        options: ReadOptions,
        listing: Mapping[str, pafs.FileInfo] | None = None,
    ) -> None:
        """``root`` is the data set's folder; ``listing`` what was seen in it just now, by path."""
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
        super().__init__()

    def clear(self) -> None:
        with self._lock:
            self._state = self._listing = None

    def _identities(self, infos: Iterable[pafs.FileInfo] | None = None) -> dict[str, Identity]:
        return list_folder(self._filesystem, self.root, infos)[0]

    def _list(self) -> dict[str, Identity]:
        """The listing; that of the opening serves those who ask first, as long as it is new."""
        found, self._listing = self._listing, None
        is_new = time.monotonic() < self._listed_until
        return found if found is not None and is_new else self._identities()

    def opened(self) -> None:
        """Who asks from now on may do so at any time: the listing of the opening is no longer new,
        or of far storage not for long.
        """
        is_local = isinstance(self._filesystem, pafs.LocalFileSystem)
        self._listed_until = time.monotonic() + (0 if is_local else _NEW_SECONDS)

    def first(self, path: str) -> OpenedFile | None:
        """The file at ``path``, of which only the end is there, as long as it is the first one.

        For its schema. None where the catalog knows none, or another one.
        """
        try:
            if self._listing is None:
                return None
            known = read_pointer(self._filesystem, self.root).first
            below = path.removeprefix(f"{self.root}/")
            if known is None or not _is_same(known, below, self._listing.get(below)):
                return None
            source = EndSource(known.size, memoryview(known.tail))
            return OpenedFile(source, path, len(known.tail), options=self._options)
        except Exception as error:  # noqa: BLE001 # a catalog only ever saves work
            self._ignore(error, (self._listing or {}).get(f"{SIDECAR_FOLDER}/{POINTER}"))
            return None

    # --- which files ----------------------------------------------------------------------------

    def left(self, files: Iterable[F], request: Request) -> list[F]:
        """Those of ``files``, paths and what their folders fix, that might hold matching rows."""
        wanted = list(files)
        try:
            listing = self._list()
        except OSError:
            return wanted
        with self._lock:
            identity = listing.get(f"{SIDECAR_FOLDER}/{POINTER}")
            if identity is None or identity == self._ignored:
                self._state = None
                return wanted
            for attempt in range(_ATTEMPTS):
                try:
                    self._state = self._known(listing, identity, anew=attempt > 0)
                    return self._left(self._state, wanted, request)
                except PathError as error:  # another generation has taken its place meanwhile
                    problem: Exception = error
                except Exception as error:  # noqa: BLE001 # a catalog only ever saves work
                    problem = error
                    break
            self._state = None
            _KEPT.forget(self.root)
            self._ignore(problem, identity)
            return wanted

    def _ignore(self, problem: Exception, identity: Identity | None) -> None:
        if identity is None or identity != self._ignored:
            message = f"{self.root}: its catalog is ignored: {problem}"
            warn(message)
        self._ignored = identity

    def _known(self, listing: dict[str, Identity], identity: Identity, anew: bool) -> _State:
        state = self._state
        if state is not None and state.identity == identity and not anew:
            segments = state.segments
        else:
            segments = self._segments(listing, anew)
        return _State(identity, segments, self._places(segments, listing))

    def _segments(self, listing: dict[str, Identity], anew: bool) -> Sequence[SegmentReader]:
        """Those of an earlier query, or the catalog's as it is now."""
        is_local = isinstance(self._filesystem, pafs.LocalFileSystem)
        own = _own_files(listing) if is_local and not anew else {}
        found = _KEPT.find(self.root, self._options, own) if own else None
        if found is not None:
            return found
        pointer = read_pointer(self._filesystem, self.root)
        segments = open_segments(self._filesystem, self.root, pointer, self._options)
        if own:
            _KEPT.keep(self.root, self._options, own, segments)
        return segments

    def _places(
        self, segments: Sequence[SegmentReader], listing: dict[str, Identity]
    ) -> dict[str, tuple[int, int]]:
        places: dict[str, tuple[int, int]] = {}
        outside: list[str] = []
        for at, segment in enumerate(segments):
            listed = segment.listed
            identities = zip(listed.sizes.tolist(), listed.mtimes.tolist(), strict=True)
            for number, (path, known) in enumerate(zip(listed.paths, identities, strict=True)):
                if listing.get(path) == known:
                    places[path] = at, number
                elif not is_inside(path):
                    outside.append(path)
        if outside:
            message = (
                f"{self.root}: its catalog names {outside[0]!r}, which is not below the data set's "
                "folder; that is ignored"
            )
            warn(message)
        return places

    def _left(self, state: _State, wanted: list[F], request: Request) -> list[F]:
        base = f"{self.root}/"
        alike: dict[tuple[int, int, tuple[str, ...]], list[tuple[int, int]]] = {}
        forms = [segment.listed.forms.tolist() for segment in state.segments]
        for at, (path, constants) in enumerate(wanted):
            place = state.places.get(path.removeprefix(base))
            if place is not None:
                form = forms[place[0]][place[1]]
                alike.setdefault((place[0], form, tuple(constants)), []).append((place[1], at))
        cut: set[int] = set()
        for (segment, form, _), members in alike.items():
            by_number = dict(members)
            numbers, constants = in_order([*by_number]), wanted[members[0][1]][1]
            left = state.segments[segment].might_match(numbers, form, constants, request)
            cut.update(by_number[number] for number in by_number.keys() - {*left.tolist()})
        return [file for at, file in enumerate(wanted) if at not in cut]

    def figures(self, files: Iterable[F]) -> Figures:
        """What files hold that ``left`` has left out."""
        state, base = self._state, f"{self.root}/"
        paths = [path.removeprefix(base) for path, _ in files]
        total = Figures()
        for at, segment in enumerate(state.segments if state else ()):
            found = (state.places.get(path) for path in paths) if state else ()
            numbers = [place[1] for place in found if place is not None and place[0] == at]
            listed = segment.listed
            groups, rows, sizes = (
                Amount(0, int(of[numbers].sum()))
                for of in (listed.row_groups, listed.rows, listed.sizes)
            )
            files_cut = Amount(0, len(numbers))
            total += Figures(files=files_cut, row_groups=groups, rows=rows, bytes=sizes)
        return total

    # --- ends of files --------------------------------------------------------------------------

    def tail(self, source: FileSource) -> memoryview | None:
        """The end of a file that was opened; None where the catalog does not know this version."""
        state = self._state
        place = state and state.places.get(source.path.removeprefix(f"{self.root}/"))
        if state is None or not place:
            return None
        try:
            segment = state.segments[place[0]]
            stamp, size = segment.listed.stamps[place[1]], segment.listed.sizes[place[1]]
            if stamp is None or source.size != size or source.stamp != stamp:
                return None
            return memoryview(segment.tail(place[1])) or None
        except PathError:
            return None
        except Exception as error:  # noqa: BLE001 # a catalog only ever saves work
            self._ignore(error, state.identity)
            return None


def catalog_root(filesystem: pafs.FileSystem, path: Any, files: Sequence[str]) -> str | None:
    """The folder at ``path``, which ``files`` are in, if it has a catalog.

    ``path`` is as ``resolve`` takes it.
    """
    root = root_of(filesystem, path, files)
    infos = [] if root is None else infos_of(filesystem, [pointer_path(root)])
    return root if any(info.is_file for info in infos) else None


def root_of(filesystem: pafs.FileSystem, path: Any, files: Sequence[str]) -> str | None:
    """The folder at ``path``, as ``resolve`` takes it, if ``files`` are all in it."""
    if not isinstance(path, str | os.PathLike):
        return None
    by_uri = is_uri(path) and not is_fsspec(filesystem)
    root = resolve(path, None if by_uri else filesystem)[1].rstrip("/")
    # What lies between two texts that begin alike does so as well.
    return root if all(one.startswith(f"{root}/") for one in (min(files), max(files))) else None


def _is_same(known: First, path: str, identity: Identity | None) -> bool:
    return known.path == path and identity == (known.size, known.mtime)


def catalog_of(
    filesystem: pafs.FileSystem,
    root: str | None,
    options: ReadOptions,
    listing: Mapping[str, pafs.FileInfo],
    wanted: Any,
) -> Catalog | None:
    """The catalog that a listing of the folder ``root`` shows, as far as it is ``wanted``.

    Raises ``PathError`` where it has to be there and is not.
    """
    if wanted not in (True, False, "auto"):
        raise ValueError(f"catalog is True, False or 'auto', not {wanted!r}")
    if wanted is False:
        return None
    if root is not None and pointer_path(root.rstrip("/")) in listing:
        return Catalog(filesystem, root, options, listing)
    if wanted is True:
        raise PathError(f"{root or 'this data set'}: there is no catalog; build_catalog makes one")
    return None
