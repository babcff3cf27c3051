"""Files: sources over ``pyarrow.fs`` and fsspec, listing, and counting.

Everything above asks for a ``FileSource``, everything below is given one.
"""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.fs as pafs

from intarsia import deadline
from intarsia.errors import PathError, Where, placed
from intarsia.io.coalesce import coalesce
from intarsia.io.file_handle import Handle, Stamp, Version, open_handle
from intarsia.io.fsspec_listing import check_not_forked, is_fsspec, wrapped
from intarsia.io.glob import HIDDEN, is_glob, matching
from intarsia.io.retry import infos_of, retried
from intarsia.io.source import ByteRange, check_range
from intarsia.io.table_format import Tables, is_deletion_vector, tables_in
from intarsia.process_state import ForkLock, SharedState, abandon
from intarsia.threads import all_awaited

PathLike = str | os.PathLike[str]
SIDECAR_FOLDER = "_intarsia"

LOCAL_GAP_BYTES = 16 * 1024
REMOTE_GAP_BYTES = 1024 * 1024
"""Bytes that cost about as much to read as one more request: latency × bandwidth."""
LOCAL_TAIL_BYTES = 16 * 1024
REMOTE_TAIL_BYTES = 256 * 1024


class NoDataError(PathError):
    """There is no data file at a path."""


class FileReplaced(PathError):  # noqa: N818 # a signal to plan again, while that is possible
    """The file at a path is another one than was opened: what was read may belong to either."""

    def __init__(self, path: str) -> None:
        super().__init__(f"{path}: the file was replaced while it was read")
        self._path = path

    def __reduce__(self) -> tuple[type[FileReplaced], tuple[str]]:
        return type(self), (self._path,)


class _CutOffError(ConnectionError):
    """A read gave fewer bytes than it was asked for."""

    def __init__(self, data: memoryview) -> None:
        super().__init__("the read was cut off")
        self.data = data


@dataclass(slots=True)
class IOCount:
    """What was asked of storage so far: requests, and bytes received."""

    requests: int = 0
    bytes: int = 0


class FileSource:
    """A ``Source`` over one file of a ``pyarrow.fs`` file system. Counts what it reads.

    Ranges that lie no more than ``gap`` bytes apart are fetched in one request, by default as far
    apart as suits the kind of storage; requests to remote storage are made at the same time. The
    file is opened on first use and stays open until ``rest``: on a local disk, a file replaced
    meanwhile is read on as it was, and one that is written to in place raises ``FileReplaced``.
    """

    def __init__(self, filesystem: pafs.FileSystem, path: str, gap: int | None = None) -> None:
        self.filesystem, self.path = filesystem, path
        self.count = IOCount()
        self.is_local = isinstance(filesystem, pafs.LocalFileSystem)
        self.gap = gap_bytes(filesystem) if gap is None else gap
        self._lock = ForkLock()
        self._handle: Handle | None = None
        self._pinned: Callable[[], Handle | None] = _nothing
        """Gives the handle that was let go of, if somebody has pinned it."""
        self._size: int | None = None
        self._process = os.getpid()
        self._rested: Version = None
        self._is_current: Callable[[], bool] | None = None
        self.opened_again: Callable[[], None] | None = None
        """Called when the file is opened after a ``rest``."""
        self.was_rested: Callable[[], None] | None = None
        """Called when the handle was closed because the process has too many."""

    @property
    def tail_bytes(self) -> int:
        """How much of the end to read in the hope that it holds the footer."""
        return LOCAL_TAIL_BYTES if self.is_local else REMOTE_TAIL_BYTES

    @property
    def size(self) -> int:
        if self._size is None:
            self._size = self._open().size
        return self._size

    @property
    def version(self) -> Version:
        """The version that is read; asked for before anything is read, it is no newer than that."""
        return self._open().version

    @property
    def stamp(self) -> Stamp:
        """What a sidecar knows the version by that is read."""
        return self._open().stamp

    def read(self, ranges: Sequence[ByteRange]) -> list[memoryview]:
        deadline.check()
        for range_ in ranges:
            check_range(range_, self.size)
        groups = coalesce(ranges, self.gap)
        try:
            with placed(Where(self.path)):
                found = self._fetch([(group.offset, group.length) for group in groups])
        finally:  # what another file has there, or has not, is neither an answer nor an error
            if groups and self._is_current is not None and not self._is_current():
                raise FileReplaced(self.path)
            if groups and self._was_written_to():
                raise FileReplaced(self.path)
        out: list[memoryview] = [memoryview(b"")] * len(ranges)
        for group, whole in zip(groups, found, strict=True):
            for member in group.members:
                offset, length = ranges[member]
                out[member] = whole[offset - group.offset : offset - group.offset + length]
        return out

    def _was_written_to(self) -> bool:
        handle = self._handle or self._pinned()
        try:
            return handle is not None and handle.was_changed()
        except OSError as error:
            if error.errno == errno.ESTALE:  # of a network's disk: the file is gone
                return True
            raise PathError(f"{self.path}: cannot be looked at: {error}") from error

    def confirm(self, is_current: Callable[[], bool]) -> None:
        """Have what is read from now on wait for this answer, and raise ``FileReplaced`` on False.

        That is for storage where reads of an opened file may find another one's bytes.
        """
        self._is_current = is_current

    def _fetch(self, ranges: Sequence[ByteRange]) -> list[memoryview]:
        tasks = [partial(self._read_at, *range_) for range_ in ranges]
        return [task() for task in tasks] if self.is_local else all_awaited(tasks)

    def close(self) -> None:
        with self._lock:
            if self._handle is not None:
                self._handle.close()
                self._handle = None

    def rest(self) -> None:
        """Let go of a local file's handle until something is read again.

        That then raises ``FileReplaced`` where another file is at the path. Elsewhere handles are
        none of the operating system's, and opening a file again would take a request. Nor does it
        do anything while another thread opens the file.
        """
        if not self.is_local or not self._lock.acquire_now():
            return
        try:
            if self._handle is not None:
                self._rested = self._handle.version
                self._pinned = weakref.ref(self._handle)
                self._handle = None  # closed once reads and pins of other threads have ended
        finally:
            self._lock.release()

    def pin(self) -> object:
        """Returns what keeps a local file's handle open, in spite of ``rest``, as long as it lives.

        Raises ``FileReplaced`` if the handle was closed, and the file replaced since.
        """
        return self._open() if self.is_local else None

    def _open(self) -> Handle:
        with self._lock:
            handle = self._handle or self._pinned()
            if handle is not None and (self.is_local or self._process == os.getpid()):
                return handle
            if handle is not None:
                abandon(handle)
                self._rested = handle.version
            handle = open_handle(self.filesystem, self.path)
            if self._rested is not None and handle.version != self._rested:
                raise FileReplaced(self.path)
            self._handle, self._process = handle, os.getpid()
        if self.is_local:
            open_sources.add(self)
        if self._rested is not None and self.opened_again is not None:
            self.opened_again()
        return handle

    def _read_at(self, offset: int, length: int) -> memoryview:
        handle = self._open()

        def request() -> memoryview:
            with self._lock:
                self.count.requests += 1
            data = handle.read_at(length, offset)
            if 0 < len(data) < length and not self.is_local:
                raise _CutOffError(data)
            return data

        try:
            data = retried(self.filesystem, request)
        except _CutOffError as error:
            data = error.data
        except OSError as error:
            raise PathError(f"{self.path}: cannot be read: {error}") from error
        with self._lock:
            self.count.bytes += length
        if len(data) != length:
            message = f"of {length:,} bytes asked for {len(data):,} came: it is shorter by now"
            raise PathError(f"{self.path}: {message}, or a read was cut off")
        return data


def _nothing() -> None:
    return None


_MOST_OPEN, _SHARE = 128, 8
"""The most local files that stay open, and the share of the process's handles that they may take:
one in so many. Scans under way hold some more."""


class _OpenSources(SharedState):
    """The local files that this process has open, in the order in which they were opened."""

    def __init__(self) -> None:
        self._lock = ForkLock()
        self._opened: OrderedDict[int, weakref.ref[FileSource]] = OrderedDict()
        super().__init__()

    def add(self, source: FileSource) -> None:
        """Count ``source`` among them. If they are too many, close those that were opened first."""
        too_many, most = [], most_open()
        with self._lock:
            self._opened[id(source)] = weakref.ref(source)
            self._opened.move_to_end(id(source))
            if len(self._opened) > most:
                for key in [key for key, known in self._opened.items() if known() is None]:
                    del self._opened[key]
            while len(self._opened) > most:
                too_many.append(self._opened.popitem(last=False)[1]())
        for other in too_many:
            if other is not None:
                other.rest()
                if other.was_rested is not None:
                    other.was_rested()

    def clear(self) -> None:
        with self._lock:
            self._opened.clear()

    def release_handles(self) -> None:
        with self._lock:
            known = [opened() for opened in self._opened.values()]
            self._opened.clear()
        for source in known:
            if source is not None:
                source.rest()


def most_open() -> int:
    """How many local files are open at a time."""
    allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    is_unlimited = allowed == resource.RLIM_INFINITY
    return _MOST_OPEN if is_unlimited else max(1, min(_MOST_OPEN, allowed // _SHARE))


open_sources = _OpenSources()


def gap_bytes(filesystem: pafs.FileSystem) -> int:
    """How many bytes apart two ranges may be and still be read in one request."""
    is_local = isinstance(filesystem, pafs.LocalFileSystem)
    return LOCAL_GAP_BYTES if is_local else REMOTE_GAP_BYTES


def resolve(path: PathLike, filesystem: Any = None) -> tuple[pafs.FileSystem, str]:
    """The file system and the path on it of a path or URI.

    ``filesystem`` may be a ``pyarrow.fs.FileSystem`` or an fsspec file system; paths on the latter
    are as its listings call them.
    """
    text = os.fspath(path)
    if not text:
        raise PathError("the path is empty: the current folder is '.'")
    _check_name(text)
    if filesystem is not None:
        filesystem = wrapped(filesystem)
        check_not_forked(filesystem)
        if is_fsspec(filesystem):
            text = str(filesystem.handler.fs._strip_protocol(text)) or "/"
        elif "://" in text and not isinstance(filesystem, pafs.PyFileSystem):
            raise PathError(f"{text}: with a file system, a path on it is needed, not a URI")
        return filesystem, text
    if is_uri(text):
        scheme = text.partition("://")[0]
        if "://" in text and scheme != "file":
            check_not_forked(scheme)
        try:
            found, at = pafs.FileSystem.from_uri(text)
            return found, at
        except (pa.ArrowInvalid, OSError) as error:
            hint = (
                f"; if fsspec knows it, filesystem=fsspec.filesystem({scheme!r}) does"
                if "Unrecognized filesystem type" in str(error)
                else ""
            )
            raise PathError(f"{text}: cannot be resolved: {error}{hint}") from error
    return pafs.LocalFileSystem(), os.path.abspath(os.path.expanduser(text))


def _check_name(text: str) -> None:
    """Raise ``PathError`` for a text that no file can be called."""
    try:
        is_name = b"\0" not in os.fsencode(text)
    except UnicodeEncodeError:  # half a character
        is_name = False
    if not is_name:
        raise PathError(f"{text!a}: no file can be called so")


def several(paths: PathLike | Sequence[PathLike]) -> list[PathLike]:
    """One path or several, as several. Raises ``TypeError`` for anything else."""
    if isinstance(paths, str | os.PathLike):
        return [paths]
    # Open files are iterated by lines, data frames by their columns' names.
    is_other = hasattr(paths, "read") or hasattr(paths, "__dataframe__")
    is_one = isinstance(paths, bytes) or is_other or not isinstance(paths, Iterable)
    found: list[Any] = [paths] if is_one else list(paths)
    for path in found:
        if not isinstance(path, str | os.PathLike):
            raise TypeError(f"a path or several of them are needed, not {type(path).__name__}")
    return found


def is_uri(path: PathLike) -> bool:
    """Does ``resolve`` take ``path`` for a URI, where no file system is given?"""
    text = os.fspath(path)
    return "://" in text or text.startswith("file:")


def list_files(
    paths: PathLike | Sequence[PathLike],
    filesystem: Any = None,
    sidecars: dict[str, list[pafs.FileInfo]] | None = None,
    seen: dict[str, pafs.FileInfo] | None = None,
    tables: Tables | None = None,
) -> tuple[pafs.FileSystem, list[str]]:
    """The data files under a file, folder, glob or URI, or a list of these; sorted in each folder.

    Names that start with ``_`` or ``.`` are left out, as Spark and pyarrow do, unless named
    themselves. ``sidecars`` is told what the listing of a folder showed of folders of sidecars, by
    their paths; of the folders that were listed and hold none as well. ``seen`` is told all that
    was listed, by its path: folders are as they were just before they were listed themselves.
    ``tables`` receives the tables of other formats that the listings show: only
    ``data.table_files`` says whether these may be read as plain files. Deletion vectors are left
    out. Raises ``NoDataError`` where there is none, ``PathError`` where that cannot be told.
    """
    given = several(paths)
    if not given:
        raise PathError("no path was given")
    files: list[str] = []
    found_on: pafs.FileSystem | None = None
    for path in given:
        on, at = resolve(path, filesystem)
        if found_on is not None and not found_on.equals(on):
            raise PathError("all paths of a data set must be on one file system")
        found_on = on
        try:
            files += _expand(on, at, sidecars, seen, tables)
        except PathError:
            raise
        except (OSError, UnicodeError) as error:  # pyarrow takes names in UTF-8 only
            shown = os.fsencode(path).decode(errors="backslashreplace")
            raise PathError(f"{shown}: cannot be looked at: {error}") from error
    assert found_on is not None
    data = [file for file in files if not is_deletion_vector(file)]
    if not data:
        raise NoDataError(f"{files[0]}: it holds the numbers of deleted rows, and no data")
    return found_on, data


def _expand(
    filesystem: pafs.FileSystem,
    path: str,
    sidecars: dict[str, list[pafs.FileInfo]] | None,
    seen: dict[str, pafs.FileInfo] | None,
    tables: Tables | None,
) -> list[str]:
    info = infos_of(filesystem, path)
    if info.type == pafs.FileType.File:
        return [path]
    if info.type == pafs.FileType.Directory:
        files = _files_under(filesystem, path, sidecars, seen, tables)
        if files:
            return files
        raise NoDataError(f"{path}: there is no data file in this folder")
    if is_glob(path):
        listed: list[pafs.FileInfo] = []
        matches = matching(filesystem, path, listed)
        if tables is not None:
            tables.update(tables_in(listed))
        files = _in_matches(filesystem, matches, sidecars, seen, tables)
        if files:
            return files
        raise NoDataError(
            f"{path}: there is no such file or folder: nothing matches"
            if not matches
            else f"{path}: there is no data file in the folders that match"
        )
    raise NoDataError(f"{path}: there is no such file or folder")


def _in_matches(
    filesystem: pafs.FileSystem,
    matches: Sequence[str],
    sidecars: dict[str, list[pafs.FileInfo]] | None,
    seen: dict[str, pafs.FileInfo] | None,
    tables: Tables | None,
) -> list[str]:
    """The files that a glob matches, and those in folders that it does; each once."""
    files: dict[str, None] = {}
    for info in infos_of(filesystem, list(matches)):
        if info.type == pafs.FileType.Directory:
            under = _files_under(filesystem, info.path, sidecars, seen, tables)
            files |= dict.fromkeys(under)
        elif info.type == pafs.FileType.File:
            files[info.path] = None
    return list(files)


def infos_under(filesystem: pafs.FileSystem, folder: str) -> list[pafs.FileInfo]:
    """All that is below a folder. Folders below that go away meanwhile, as those of jobs do, are
    passed over. Raises ``OSError`` where it cannot be listed.
    """
    check_not_forked(filesystem)
    try:
        everything = pafs.FileSelector(folder, recursive=True)
        return list(infos_of(filesystem, everything))
    except FileNotFoundError:  # it, or one below
        below = pafs.FileSelector(folder)
        found = list(infos_of(filesystem, below))
    pending = [info.path for info in found if info.type == pafs.FileType.Directory]
    while pending:
        with contextlib.suppress(FileNotFoundError):
            below = pafs.FileSelector(pending.pop())
            infos = infos_of(filesystem, below)
            found += infos
            pending += [info.path for info in infos if info.type == pafs.FileType.Directory]
    return found


def _files_under(
    filesystem: pafs.FileSystem,
    folder: str,
    sidecars: dict[str, list[pafs.FileInfo]] | None,
    seen: dict[str, pafs.FileInfo] | None,
    tables: Tables | None,
) -> list[str]:
    infos = infos_under(filesystem, folder)
    if tables is not None:
        tables.update(tables_in(infos))
    base = folder.rstrip("/") + "/"
    by_path = {info.path: info for info in infos if info.type == pafs.FileType.File}
    shown: dict[str, bool] = {}
    found = []
    for path in sorted(by_path):
        parent, _, name = path.rpartition("/")
        if parent not in shown:
            below = f"{parent}/".removeprefix(base).split("/")
            shown[parent] = not any(part.startswith(HIDDEN) for part in below)
        if shown[parent] and not name.startswith(HIDDEN):
            found.append(path)
    if seen is not None:
        seen.update((info.path, info) for info in infos)
    if sidecars is not None:
        for path in found:
            sidecars.setdefault(f"{path.rpartition('/')[0]}/{SIDECAR_FOLDER}", [])
        for path, info in by_path.items():
            parent = path.rpartition("/")[0]
            if parent in sidecars:
                sidecars[parent].append(info)
    return found
