"""Opens, reads, counts and lists files of ``pyarrow.fs`` and fsspec file systems.

Packages above ``io`` open a file as a ``FileSource``, and pass it on as a ``Source``.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import resource
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.dataset as pads
import pyarrow.fs as pafs

import intarsia.deadline as deadline
from intarsia.errors import PathError, Where, placed
from intarsia.io.file_handle import Handle, Stamp, Version, open_handle
from intarsia.io.fsspec_listing import check_not_forked, is_fsspec, wrapped
from intarsia.io.glob import HIDDEN, is_glob, matching
from intarsia.io.retry import infos_of, is_remote, retried
from intarsia.io.source import ByteRange, check_range, coalesce
from intarsia.io.table_format import Tables, is_deletion_vector, tables_in
from intarsia.process_state import ForkLock, SharedState, abandon
from intarsia.threads import await_all

PathLike = str | os.PathLike[str]
SIDECAR_FOLDER = "_intarsia"
"""Name of the folder beside data files that has their sidecars."""
POLICY_NAME = "policy.json"
"""Name of the policy in that folder of a data set."""
_SCHEME = re.compile("[A-Za-z][A-Za-z0-9+.-]*://")
"""The start of a URI. A path may have ``://`` further behind, below a folder ``a:``."""

LOCAL_GAP_BYTES = 16 * 1024
"""As ``REMOTE_GAP_BYTES``, on the local disk."""
REMOTE_GAP_BYTES = 1024 * 1024
"""Ranges at most this many bytes apart are read in one request. Another request would cost as much
as these bytes: latency × bandwidth.
"""
LOCAL_TAIL_BYTES = 16 * 1024
"""As ``REMOTE_TAIL_BYTES``, on the local disk."""
REMOTE_TAIL_BYTES = 256 * 1024
"""Bytes at the end that are read first, as they contain most footers."""


class NoDataError(PathError):
    """There is no data file at a path."""


class FileReplaced(PathError):  # noqa: N818 # a signal to plan again
    """The file was replaced after it was opened. Bytes read may be of either version."""

    def __init__(self, path: str) -> None:
        super().__init__(f"{path}: the file was replaced while it was read")
        self._path = path

    def __reduce__(self) -> tuple[type[FileReplaced], tuple[str]]:
        return type(self), (self._path,)


class _CutOffError(ConnectionError):
    """A read returned fewer bytes than requested."""

    def __init__(self, data: memoryview) -> None:
        super().__init__("the read was cut off")
        self.data = data


@dataclass(slots=True)
class IOCount:
    """The requests made so far, and the bytes received."""

    requests: int = 0
    bytes: int = 0


class FileSource:
    """A ``Source`` over one file of a file system. Counts requests and bytes.

    Ranges at most ``gap`` bytes apart are fetched in one request; the default depends on the
    storage. Requests to remote storage run concurrently. The file is opened on first use and stays
    open until ``suspend``. If a local file is replaced meanwhile, reads still return the old
    version. If it is written to in place, they raise ``FileReplaced``.
    """

    def __init__(self, filesystem: pafs.FileSystem, path: str, gap: int | None = None) -> None:
        self.filesystem, self.path = filesystem, path
        self.count = IOCount()
        self.is_local = isinstance(filesystem, pafs.LocalFileSystem)
        self.gap = gap_bytes(filesystem) if gap is None else gap
        self._lock = ForkLock()
        self._handle: Handle | None = None
        self._pinned: Callable[[], Handle | None] = _no_handle
        """Returns the handle that ``suspend`` gave up, if a pin keeps it open."""
        self._size: int | None = None
        self._process = os.getpid()
        self._suspended_version: Version = None
        self._is_current: Callable[[], bool] | None = None
        self.on_reopen: Callable[[], None] | None = None
        """Called when the file is opened after a ``suspend``."""
        self.on_suspend: Callable[[], None] | None = None
        """Called when ``suspend`` has given up the handle."""

    @property
    def tail_bytes(self) -> int:
        """Bytes at the end to read first, as they probably contain the footer."""
        return LOCAL_TAIL_BYTES if self.is_local else REMOTE_TAIL_BYTES

    @property
    def size(self) -> int:
        if self._size is None:
            self._size = self._open().size
        return self._size

    @property
    def version(self) -> Version:
        """The version that is read. Before the first read, no newer than what is read."""
        return self._open().version

    @property
    def stamp(self) -> Stamp:
        """The stamp by which a sidecar identifies the version that is read."""
        return self._open().stamp

    def read(self, ranges: Sequence[ByteRange]) -> list[memoryview]:
        deadline.check()
        size = self.size
        for range_ in ranges:
            check_range(range_, size)
        groups = coalesce(ranges, self.gap)
        try:
            with placed(Where(self.path)):
                blocks = self._fetch([(group.offset, group.length) for group in groups])
        finally:  # bytes or errors of another version must not be reported
            if groups and self._is_current is not None and not self._is_current():
                raise FileReplaced(self.path)
            if groups and self._was_written_to():
                raise FileReplaced(self.path)
        result: list[memoryview] = [memoryview(b"")] * len(ranges)
        for group, block in zip(groups, blocks, strict=True):
            for member in group.members:
                offset, length = ranges[member]
                result[member] = block[offset - group.offset : offset - group.offset + length]
        return result

    def _was_written_to(self) -> bool:
        handle = self._handle or self._pinned()
        try:
            return handle is not None and handle.was_changed()
        except OSError as error:
            if error.errno == errno.ESTALE:  # the file was deleted on a network disk
                return True
            raise PathError(f"{self.path}: cannot be accessed: {error}") from error

    def confirm(self, is_current: Callable[[], bool]) -> None:
        """Calls ``is_current`` after each later read; raises ``FileReplaced`` if it is false."""
        self._is_current = is_current

    def _fetch(self, ranges: Sequence[ByteRange]) -> list[memoryview]:
        if self.is_local:
            blocks = [self._read_at(*range_) for range_ in ranges]
        else:
            blocks = await_all([partial(self._read_at, *range_) for range_ in ranges])
        with self._lock:
            self.count.requests += len(ranges) if self.is_local else 0
            self.count.bytes += sum([length for _, length in ranges])
        return blocks

    def close(self) -> None:
        with self._lock:
            if self._handle is not None:
                self._handle.close()
                self._handle = None

    def suspend(self) -> None:
        """Closes a local file's handle until the next read.

        That read raises ``FileReplaced`` if another file is at the path then. Remote files stay
        open: they use no handle of the operating system, and opening them again would take a
        request. Does nothing while another thread opens the file.
        """
        if not self.is_local or not self._lock.acquire_now():
            return
        try:
            handle, self._handle = self._handle, None  # closed once no thread reads or pins it
            if handle is None:
                return
            self._suspended_version = handle.version
            self._pinned = weakref.ref(handle)
        finally:
            self._lock.release()
        if self.on_suspend is not None:
            self.on_suspend()

    def pin(self) -> object:
        """Returns what keeps a local handle open. Raises ``FileReplaced`` if that is too late."""
        return self._open() if self.is_local else None

    def _open(self) -> Handle:
        handle = self._handle
        if handle is not None and self.is_local:
            return handle
        with self._lock:
            handle = self._handle or self._pinned()
            if handle is not None and (self.is_local or self._process == os.getpid()):
                return handle
            if handle is not None:
                abandon(handle)
                self._suspended_version = handle.version
            handle = open_handle(self.filesystem, self.path)
            if self._suspended_version is not None and handle.version != self._suspended_version:
                raise FileReplaced(self.path)
            self._handle, self._process = handle, os.getpid()
        if self.is_local:
            open_sources.add(self)
        if self._suspended_version is not None and self.on_reopen is not None:
            self.on_reopen()
        return handle

    def _read_at(self, offset: int, length: int) -> memoryview:
        handle = self._open()

        def request() -> memoryview:
            with self._lock:
                self.count.requests += 1
            data = handle.read_at(length, offset)
            if 0 < len(data) < length:
                raise _CutOffError(data)
            return data

        try:
            if self.is_local:
                data = handle.read_at(length, offset)
            else:
                data = retried(self.filesystem, request)
        except _CutOffError as error:
            data = error.data
        except OSError as error:
            raise PathError(f"{self.path}: cannot be read: {error}") from error
        if len(data) != length:
            message = f"of {length:,} bytes requested {len(data):,} came: the file is shorter now"
            raise PathError(f"{self.path}: {message}, or the read was cut off")
        return data


def _no_handle() -> None:
    return None


_MAX_OPEN, _HANDLE_FRACTION = 128, 8
"""Most local files that stay open. They use at most one in ``_HANDLE_FRACTION`` of the file
descriptors that the process may have. Running scans use further ones.
"""


class _OpenSources(SharedState):
    """The local files that this process has open, in the order of opening."""

    def __init__(self) -> None:
        self._lock = ForkLock()
        self._opened: OrderedDict[int, weakref.ref[FileSource]] = OrderedDict()
        super().__init__()

    def add(self, source: FileSource) -> None:
        """Registers ``source``. If there are too many, closes those that were opened first."""
        too_many, limit, key = [], max_open_local_files(), id(source)
        with self._lock:
            self._opened[key] = weakref.ref(source, partial(self._forget, key))
            self._opened.move_to_end(key)
            while len(self._opened) > limit:
                too_many.append(self._opened.popitem(last=False)[1]())
        for closing in too_many:
            if closing is not None:
                closing.suspend()

    def _forget(self, key: int, reference: weakref.ref[FileSource]) -> None:
        """Drops a source that no longer exists. Takes no lock: its thread may hold it already."""
        if self._opened.get(key) is reference:
            self._opened.pop(key, None)

    def clear(self) -> None:
        with self._lock:
            self._opened.clear()

    def release_handles(self) -> None:
        with self._lock:
            references = list(self._opened.values())
            self._opened.clear()
        sources = [reference() for reference in references]
        for source in sources:
            if source is not None:
                source.suspend()


def max_open_local_files() -> int:
    """Returns the limit of local files that are open at a time."""
    allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    is_unlimited = allowed == resource.RLIM_INFINITY
    return _MAX_OPEN if is_unlimited else max(1, min(_MAX_OPEN, allowed // _HANDLE_FRACTION))


open_sources = _OpenSources()


def gap_bytes(filesystem: pafs.FileSystem) -> int:
    """Returns how many bytes apart two ranges may be to share one request."""
    is_local = isinstance(filesystem, pafs.LocalFileSystem)
    return LOCAL_GAP_BYTES if is_local else REMOTE_GAP_BYTES


def resolve(path: PathLike, filesystem: Any = None) -> tuple[pafs.FileSystem, str]:
    """Returns the file system and path of a path or URI. Raises ``PathError`` if that fails."""
    if isinstance(path, pads.Dataset):
        raise TypeError("expected a path: this function takes no data sets, nor tables of a log")
    text = os.fspath(path)
    if not text:
        raise PathError("the path is empty: the current folder is '.'")
    _check_name(text)
    if filesystem is not None:
        filesystem = wrapped(filesystem)
        check_not_forked(filesystem)
        if is_fsspec(filesystem):
            text = str(filesystem.handler.fs._strip_protocol(text)) or "/"
        elif _SCHEME.match(text) and not isinstance(filesystem, pafs.PyFileSystem):
            raise PathError(f"{text}: with a file system, a path on it is needed, not a URI")
        return filesystem, text
    if is_uri(text):
        scheme = text.partition(":")[0]
        if scheme != "file":
            check_not_forked(scheme)
        try:
            resolved, resolved_path = pafs.FileSystem.from_uri(text)
            return resolved, resolved_path
        except (pa.ArrowInvalid, OSError) as error:
            hint = (
                f"; if fsspec knows it, give filesystem=fsspec.filesystem({scheme!r})"
                if "Unrecognized filesystem type" in str(error)
                else ""
            )
            raise PathError(f"{text}: cannot be resolved: {error}{hint}") from error
    return pafs.LocalFileSystem(), os.path.abspath(os.path.expanduser(text))


def _check_name(text: str) -> None:
    """Raises ``PathError`` for a string that cannot be a file name."""
    try:
        is_name = b"\0" not in os.fsencode(text)
    except UnicodeEncodeError:  # an unpaired surrogate
        is_name = False
    if not is_name:
        raise PathError(f"{text!a}: this is not a valid path")


def folders_above(folder: str) -> Iterator[str]:
    """Yields ``folder`` and, above ``key=value`` folders, those that hold them."""
    yield folder
    parent, _, name = folder.rstrip("/").rpartition("/")
    if "=" in name and parent:
        yield from folders_above(parent)


def as_list(paths: PathLike | Sequence[PathLike]) -> list[PathLike]:
    """Returns a list of one path or several. Raises ``TypeError`` for anything else."""
    if isinstance(paths, str | os.PathLike):
        return [paths]
    # Iterating over an open file gives lines, over a data frame its column names.
    is_other = hasattr(paths, "read") or hasattr(paths, "__dataframe__")
    is_one = isinstance(paths, bytes) or is_other or not isinstance(paths, Iterable)
    path_list: list[Any] = [paths] if is_one else list(paths)
    for path in path_list:
        if not isinstance(path, str | os.PathLike):
            raise TypeError(f"expected a path or a list of paths, not {type(path).__name__}")
    return path_list


def is_uri(path: PathLike) -> bool:
    """True if ``resolve`` takes ``path`` as a URI when no file system is given."""
    text = os.fspath(path)
    return bool(_SCHEME.match(text)) or text.startswith("file:")


def list_files(
    paths: PathLike | Sequence[PathLike],
    filesystem: Any = None,
    sidecars: dict[str, list[pafs.FileInfo]] | None = None,
    seen: dict[str, pafs.FileInfo] | None = None,
    tables: Tables | None = None,
) -> tuple[pafs.FileSystem, list[str]]:
    """Returns the data files under a file, folder, glob or URI, or a list of these.

    Files are sorted within each folder. Names that start with ``_`` or ``.`` are skipped unless
    they are given explicitly, as in Spark and pyarrow. Deletion vectors are skipped.

    The optional arguments are filled from the same listings:

    - ``sidecars``: the files in each sidecar folder, by the folder's path. The value is empty for
      data folders that were listed and have no sidecars.
    - ``seen``: all entries that were listed, by path. Folders have the state from just before they
      were listed themselves.
    - ``tables``: the tables of other formats. Only ``tables.data_files`` decides whether these
      may be read as plain files.

    Raises ``NoDataError`` if there is no data file, and ``PathError`` if a listing fails.
    """
    path_list = as_list(paths)
    if not path_list:
        raise PathError("no path was given")
    listing = _Listing(sidecars, seen, tables)
    files: list[str] = []
    common: pafs.FileSystem | None = None
    for path in path_list:
        resolved, resolved_path = resolve(path, filesystem)
        if common is not None and not common.equals(resolved):
            raise PathError("all paths of a data set must be on one file system")
        common = resolved
        try:
            files += _expand(resolved, resolved_path, listing)
        except PathError:
            raise
        except (OSError, UnicodeError) as error:  # pyarrow takes names in UTF-8 only
            shown = os.fsencode(path).decode(errors="backslashreplace")
            raise PathError(f"{shown}: cannot be accessed: {error}") from error
    assert common is not None
    data = [file for file in files if not is_deletion_vector(file)]
    if not data:
        raise NoDataError(
            f"{files[0]}: it is a deletion vector, which lists deleted rows and has no data"
        )
    return common, data


class _Listing(NamedTuple):
    """The optional arguments of ``list_files``, which listings fill."""

    sidecars: dict[str, list[pafs.FileInfo]] | None
    seen: dict[str, pafs.FileInfo] | None
    tables: Tables | None


def _expand(filesystem: pafs.FileSystem, path: str, listing: _Listing) -> list[str]:
    if is_remote(filesystem) and not os.path.splitext(path)[1] and not is_glob(path):
        # S3 needs two requests to say that a path is a folder, and one to list it.
        with contextlib.suppress(OSError):
            files = _files_under(filesystem, path, listing)
            if files:
                return files
    info = infos_of(filesystem, path)
    if info.type == pafs.FileType.File:
        return [path]
    if info.type == pafs.FileType.Directory:
        files = _files_under(filesystem, path, listing)
        if files:
            return files
        raise NoDataError(f"{path}: there is no data file in this folder")
    if is_glob(path):
        listed: list[pafs.FileInfo] = []
        matches = matching(filesystem, path, listed)
        if listing.tables is not None:
            listing.tables.update(tables_in(listed))
        files = _in_matches(filesystem, matches, listing)
        if files:
            return files
        raise NoDataError(
            f"{path}: there is no such file or folder: nothing matches"
            if not matches
            else f"{path}: there is no data file in the folders that match"
        )
    raise NoDataError(f"{path}: there is no such file or folder")


def _in_matches(
    filesystem: pafs.FileSystem, matches: Sequence[str], listing: _Listing
) -> list[str]:
    """Returns the files that match a glob, and the files in matching folders, each once."""
    files: dict[str, None] = {}
    for info in infos_of(filesystem, list(matches)):
        if info.type == pafs.FileType.Directory:
            files |= dict.fromkeys(_files_under(filesystem, info.path, listing))
        elif info.type == pafs.FileType.File:
            files[info.path] = None
    return list(files)


def infos_under(filesystem: pafs.FileSystem, folder: str) -> list[pafs.FileInfo]:
    """Returns everything below a folder, without what is removed meanwhile. Raises ``OSError``."""
    check_not_forked(filesystem)
    try:
        everything = pafs.FileSelector(folder, recursive=True)
        return list(infos_of(filesystem, everything))
    except FileNotFoundError:  # it, or one below
        below = pafs.FileSelector(folder)
        all_infos = list(infos_of(filesystem, below))
    pending = [info.path for info in all_infos if info.type == pafs.FileType.Directory]
    while pending:
        with contextlib.suppress(FileNotFoundError):
            below = pafs.FileSelector(pending.pop())
            infos = infos_of(filesystem, below)
            all_infos += infos
            pending += [info.path for info in infos if info.type == pafs.FileType.Directory]
    return all_infos


def _files_under(filesystem: pafs.FileSystem, folder: str, listing: _Listing) -> list[str]:
    infos = infos_under(filesystem, folder)
    sidecars, seen, tables = listing
    if tables is not None:
        tables.update(tables_in(infos))
    base = folder.rstrip("/") + "/"
    by_path = {info.path: info for info in infos if info.type == pafs.FileType.File}
    is_visible: dict[str, bool] = {}
    files = []
    for path in sorted(by_path):
        parent, _, name = path.rpartition("/")
        if parent not in is_visible:
            below = f"{parent}/".removeprefix(base).split("/")
            is_visible[parent] = not any(part.startswith(HIDDEN) for part in below)
        if is_visible[parent] and not name.startswith(HIDDEN):
            files.append(path)
    if seen is not None:
        seen.update((info.path, info) for info in infos)
    if sidecars is not None:
        for path in files:
            sidecars.setdefault(f"{path.rpartition('/')[0]}/{SIDECAR_FOLDER}", [])
        for path, info in by_path.items():
            parent = path.rpartition("/")[0]
            if parent in sidecars:
                sidecars[parent].append(info)
    return files
