"""One open file: its length, its version, and reads at an offset.

Several threads may read at once. Caching and counting are the task of ``storage``.
"""

from __future__ import annotations

import datetime
import errno
import os
import time
from collections.abc import Callable
from functools import partial
from stat import S_ISDIR, S_ISFIFO
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.fs as pafs

from intarsia.errors import PathError
from intarsia.io.fsspec_listing import as_os_errors, check_not_forked, infos_in, is_fsspec
from intarsia.io.glob import is_glob
from intarsia.io.retry import retried
from intarsia.process_state import release_handles

Stamp = str | None
"""Identifies one version of a file across processes: its entity tag, or its modification time in
milliseconds. None if the file system reports neither.
"""
Version = tuple[object, ...] | None
"""Identifies one version of a file within a process. None if nothing does, or there is no file."""


_TRIES, _PAUSE_SECONDS = 50, 0.02
"""Tries to open a file while the process has too many open files, and the pause between them."""


class Handle(Protocol):
    """A file in the version that was opened. Opening takes one request at most."""

    size: int

    @property
    def version(self) -> Version:
        """The version that was opened."""

    @property
    def stamp(self) -> Stamp:
        """The stamp of the version that was opened."""

    def read_at(self, length: int, offset: int) -> memoryview:
        """Returns ``length`` bytes from ``offset``, or fewer at the end of the file."""

    def was_changed(self) -> bool:
        """True if a local file was written to since it was opened. Elsewhere False."""

    def close(self) -> None: ...


_NO_FILE = FileNotFoundError, IsADirectoryError, NotADirectoryError


def open_handle(filesystem: pafs.FileSystem, path: str) -> Handle:
    """Opens ``path`` for reading. Raises ``PathError`` if that fails."""
    check_not_forked(filesystem)
    try:
        if isinstance(filesystem, pafs.LocalFileSystem):
            return _local_handle(path)
        if is_fsspec(filesystem):
            return retried(filesystem, lambda: _FsspecHandle(filesystem.handler.fs, path))
        return retried(filesystem, lambda: _ArrowHandle(filesystem, path))
    except FileNotFoundError as error:
        raise PathError(f"{path}: there is no such file") from error
    except IsADirectoryError as error:
        raise PathError(f"{path}: this is a folder, not a file") from error
    except OSError as error:
        raise PathError(f"{path}: cannot be opened: {error}") from error


def version_of(path: str, filesystem: pafs.FileSystem, *, is_sure: bool = False) -> Version:
    """Returns the file's version. None if unknown, or ``PathError`` of storage if ``is_sure``."""
    if isinstance(filesystem, pafs.LocalFileSystem):
        try:
            return _version(os.stat(path))
        except OSError as error:
            if is_sure and not isinstance(error, _NO_FILE):
                raise PathError(f"{path}: cannot be accessed: {error}") from error
            return None
    try:
        handle = open_handle(filesystem, path)
    except PathError as error:
        if is_sure and not isinstance(error.__cause__, _NO_FILE):
            raise
        return None
    try:
        return handle.version
    finally:
        handle.close()


def version_of_open(descriptor: int) -> Version:
    """Returns the version of an open local file, given its descriptor."""
    return _version(os.fstat(descriptor))


def _version(stat: os.stat_result) -> Version:
    return stat.st_ino, stat.st_size, stat.st_mtime_ns


class _Descriptor:
    """A file descriptor, closed when it is no longer referenced.

    ``_LocalHandle`` has no ``__del__`` of its own: weak references to an object are valid until its
    ``__del__`` ends, so another thread could get a handle that is being closed.
    """

    def __init__(self, path: str) -> None:
        self.number = -1
        # Opening a pipe would wait for a writer without O_NONBLOCK.
        self.number = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)

    def close(self, close: Callable[[int], None] = os.close) -> None:
        """Closes the file. ``os`` may be unloaded first at exit, so ``close`` is bound here."""
        number, self.number = self.number, -1
        if number >= 0:
            close(number)

    def __del__(self) -> None:
        self.close()


class _LocalHandle:
    """A file of the local disk, read with ``pread``: ten times as fast as through pyarrow."""

    def __init__(self, path: str) -> None:
        self._descriptor = _Descriptor(path)
        stat = os.fstat(self._descriptor.number)
        if S_ISDIR(stat.st_mode):
            raise IsADirectoryError(path)
        if S_ISFIFO(stat.st_mode):
            raise OSError("it is a pipe")
        self.size, self.version = stat.st_size, _version(stat)
        self.stamp: Stamp = _changed_at(stat.st_mtime_ns / 1e6)

    def read_at(self, length: int, offset: int) -> memoryview:
        data = os.pread(self._descriptor.number, length, offset)
        if len(data) == length:
            return memoryview(data)
        parts = [data]  # one read returns 2 GB at most, and nothing at the end
        while data and (read_bytes := sum(map(len, parts))) < length:
            data = os.pread(self._descriptor.number, length - read_bytes, offset + read_bytes)
            parts.append(data)
        return memoryview(b"".join(parts))

    def was_changed(self) -> bool:
        return version_of_open(self._descriptor.number) != self.version

    def close(self) -> None:
        self._descriptor.close()


def _local_handle(path: str) -> _LocalHandle:
    """Opens a local file. If the process has too many open files, cached handles are closed."""
    for _ in range(_TRIES):
        try:
            return _LocalHandle(path)
        except OSError as error:
            if error.errno not in (errno.EMFILE, errno.ENFILE):
                raise
        release_handles()
        time.sleep(_PAUSE_SECONDS)  # other threads close files once they have read
    return _LocalHandle(path)


class _ArrowHandle:
    """A file of a ``pyarrow.fs`` file system."""

    def __init__(self, filesystem: pafs.FileSystem, path: str) -> None:
        self._file: pa.NativeFile = filesystem.open_input_file(path)
        self.size = int(self._file.size())
        metadata = {name.lower(): value for name, value in self._file.metadata().items()}
        self._tag = metadata.get("etag")
        # Requested now: after a replacement this would be the time of the new file.
        self._modified_ns = None if self._tag else filesystem.get_file_info(path).mtime_ns

    @property
    def version(self) -> Version:
        """The size, with the entity tag of the open file or else its modification time."""
        identifier = self._tag or self._modified_ns
        return None if identifier is None else (self.size, identifier)

    @property
    def stamp(self) -> Stamp:
        """The entity tag of the open file, or else its modification time."""
        if self._tag:
            return _tag(self._tag.decode() if isinstance(self._tag, bytes) else str(self._tag))
        return None if self._modified_ns is None else _changed_at(self._modified_ns / 1e6)

    def read_at(self, length: int, offset: int) -> memoryview:
        return memoryview(self._file.read_at(length, offset))

    def was_changed(self) -> bool:
        return False

    def close(self) -> None:
        self._file.close()


class _FsspecHandle:
    """A file of fsspec, asked for byte ranges directly: ``pyarrow.fs`` would read more."""

    def __init__(self, filesystem: Any, path: str) -> None:
        self._filesystem, self._path = filesystem, path
        with as_os_errors():
            filesystem.invalidate_cache(path)  # a cached listing may have an old length
            self._info = filesystem.info(path)
        if self._info["type"] == "directory":
            raise IsADirectoryError(path)
        self.size = _length_in(self._info)

    @property
    def version(self) -> Version:
        """The size, and all properties that change with the content."""
        properties = _properties_in(self._info)
        names = sorted(_VERSION_PROPERTIES & properties.keys())
        return (self.size, *(str(properties[name]) for name in names)) if names else None

    @property
    def stamp(self) -> Stamp:
        """An entity tag if the file system reports one, else a modification time."""
        return _stamp_in(self._info)

    def read_at(self, length: int, offset: int) -> memoryview:
        with as_os_errors():
            stop = offset + length
            data = memoryview(self._filesystem.cat_file(self._path, start=offset, end=stop))
        if len(data) > length:
            raise OSError(
                f"of {length:,} bytes requested {len(data):,} came: byte ranges are not supported"
            )
        return data

    def was_changed(self) -> bool:
        return False

    def close(self) -> None: ...


def _length_in(info: Any) -> int:
    if info["size"] is None:
        raise OSError("the file system does not report its length")
    return int(info["size"])


_VERSION_PROPERTIES = {
    "etag",
    "generation",
    "ino",
    "mtime",
    "lastmodified",
    "updated",
    "created",
    "md5hash",
}


def _properties_in(info: Any) -> dict[str, Any]:
    """Returns the properties of a file, with names in lower case and without underscores."""
    return {name.lower().replace("_", ""): value for name, value in info.items() if value}


def _stamp_in(info: Any) -> Stamp:
    properties = _properties_in(info)
    for name in _TAG_PROPERTIES:
        if name in properties:
            return _tag(str(properties[name]))
    for name in _TIME_PROPERTIES:
        value = properties.get(name)
        if isinstance(value, datetime.datetime):
            return _changed_at(value.timestamp() * 1e3)
        if isinstance(value, int | float):
            return _changed_at(value * 1e3)
        if isinstance(value, str):
            return _tag(value)
    return None


def stamps_under(filesystem: pafs.FileSystem, folder: str) -> dict[str, tuple[int, Stamp]] | None:
    """Returns lengths and stamps of all files below a folder of an fsspec file system, by path.

    Returns None for other file systems, whose listings include modification times. ``pyarrow.fs``
    does not pass on what fsspec reports. Raises ``OSError`` if the folder cannot be listed.
    """
    if not is_fsspec(filesystem):
        return None
    inner = filesystem.handler.fs
    inner.invalidate_cache()  # a listing may be cached
    items = infos_in(inner, folder, partial(retried, filesystem), recursive=True).items()
    files = (item for item in items if item[1]["type"] != "directory")
    return {path: (_length_in(info), _stamp_in(info)) for path, info in files}


_TAG_PROPERTIES = ("etag", "md5hash", "generation")
_TIME_PROPERTIES = ("mtime", "lastmodified", "updated", "created")


def _tag(text: str) -> Stamp:
    return f"tag {text.strip().removeprefix('W/').strip(chr(34))}"


def _changed_at(milliseconds: float) -> Stamp:
    return f"time {round(milliseconds)}"


def check_may_write(filesystem: pafs.FileSystem, path: str) -> None:
    """Raises ``PathError`` if writing to ``path`` might change other files.

    fsspec takes some names as patterns, and moves or removes all files that match. Its caching file
    systems read their own copies, even if the files have changed. Either may lie below other
    wrappers.
    """
    full_path = path
    while isinstance(filesystem, pafs.SubTreeFileSystem):
        full_path, filesystem = filesystem.base_path + full_path, filesystem.base_fs
    inner = filesystem.handler.fs if is_fsspec(filesystem) else None
    while inner is not None:
        if any(kind.__name__ == "CachingFileSystem" for kind in type(inner).__mro__):
            raise PathError(
                f"{path}: {type(inner).__name__} reads its own copies of files, so none can be "
                "replaced: give the file system below it, its fs"
            )
        if is_glob(full_path):
            raise PathError(
                f"{full_path}: fsspec takes this name as a pattern, so it is not written to: "
                "use a name without *, ? and ["
            )
        full_path = inner._join(full_path) if type(inner).__name__ == "DirFileSystem" else full_path
        inner = getattr(inner, "fs", None)
