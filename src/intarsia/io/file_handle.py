"""One file of a file system, opened: its length, its version, and reads at a place.

Reads may be made from several threads at once. Nothing here is kept or counted; that is for
``storage``.
"""

from __future__ import annotations

import datetime
import errno
import os
import time
from collections.abc import Callable
from stat import S_ISDIR, S_ISFIFO
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.fs as pafs

from intarsia.errors import PathError
from intarsia.io.fsspec_listing import check_not_forked, infos_in, is_fsspec, own_errors
from intarsia.io.glob import is_glob
from intarsia.io.retry import retried
from intarsia.process_state import release_handles

Stamp = str | None
"""What tells one version of a file from the next wherever it is asked for: an entity tag, or the
time of the last change in milliseconds; None where a file system tells neither."""
Version = tuple[object, ...] | None
"""What tells one version of a file from the next; None where nothing does, or there is none."""


_TRIES, _NAP_SECONDS = 50, 0.02
"""How often to open a file while the process has too many open, and the seconds between tries."""


class Handle(Protocol):
    """A file as it was when it was opened, which took one request at most."""

    size: int

    @property
    def version(self) -> Version:
        """The version that was opened."""

    @property
    def stamp(self) -> Stamp:
        """The stamp of what was opened."""

    def read_at(self, length: int, offset: int) -> memoryview:
        """``length`` bytes from ``offset`` on; fewer where the file ends before."""

    def was_changed(self) -> bool:
        """Was the file written to since it was opened, as far as that can be told at no cost?"""

    def close(self) -> None: ...


_NO_FILE = FileNotFoundError, IsADirectoryError, NotADirectoryError


def open_handle(filesystem: pafs.FileSystem, path: str) -> Handle:
    """Open ``path`` for reading. Raises ``PathError`` where that fails."""
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
    """The version of the file at ``path`` now.

    ``None`` where there is no file, and where storage cannot be asked; with ``is_sure``, that is a
    ``PathError``.
    """
    if isinstance(filesystem, pafs.LocalFileSystem):
        try:
            return _version(os.stat(path))
        except OSError as error:
            if is_sure and not isinstance(error, _NO_FILE):
                raise PathError(f"{path}: cannot be looked at: {error}") from error
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


def version_of_open(number: int) -> Version:
    """The version of a local file that is open by this number."""
    return _version(os.fstat(number))


def _version(stat: os.stat_result) -> Version:
    return stat.st_ino, stat.st_size, stat.st_mtime_ns


class _LocalHandle:
    """A file of the local disk, read without a file position: a tenth of what pyarrow's takes."""

    def __init__(self, path: str) -> None:
        self._number = -1
        # Of a pipe, opening would wait for one who writes.
        self._number = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        stat = os.fstat(self._number)
        if S_ISDIR(stat.st_mode):
            raise IsADirectoryError(path)
        if S_ISFIFO(stat.st_mode):
            raise OSError("it is a pipe")
        self.size, self.version = stat.st_size, _version(stat)
        self.stamp: Stamp = _changed_at(stat.st_mtime_ns / 1e6)

    def read_at(self, length: int, offset: int) -> memoryview:
        data = os.pread(self._number, length, offset)
        if len(data) == length:
            return memoryview(data)
        parts = [data]  # the system gives 2 GB at a time, and nothing at the end
        while data and (got := sum(map(len, parts))) < length:
            data = os.pread(self._number, length - got, offset + got)
            parts.append(data)
        return memoryview(b"".join(parts))

    def was_changed(self) -> bool:
        return version_of_open(self._number) != self.version

    def close(self, close: Callable[[int], None] = os.close) -> None:
        """As of ``Handle``. The module ``os`` may be gone before the last handle is, at exit."""
        number, self._number = self._number, -1
        if number >= 0:
            close(number)

    def __del__(self) -> None:
        self.close()


def _local_handle(path: str) -> _LocalHandle:
    """Opens a local file. Where the process has too many open, others are closed first."""
    for _ in range(_TRIES):
        try:
            return _LocalHandle(path)
        except OSError as error:
            if error.errno not in (errno.EMFILE, errno.ENFILE):
                raise
        release_handles()
        time.sleep(_NAP_SECONDS)  # other threads close theirs once they have read
    return _LocalHandle(path)


class _ArrowHandle:
    """A file of a ``pyarrow.fs`` file system."""

    def __init__(self, filesystem: pafs.FileSystem, path: str) -> None:
        self._file: pa.NativeFile = filesystem.open_input_file(path)
        self.size = int(self._file.size())
        known = {name.lower(): value for name, value in self._file.metadata().items()}
        self._tag = known.get("etag")
        # Asked for now: once the file is replaced, it would be another's.
        self._changed = None if self._tag else filesystem.get_file_info(path).mtime_ns

    @property
    def version(self) -> Version:
        """Size, and the entity tag that came with opening; the time of last change elsewhere."""
        telling = self._tag or self._changed
        return None if telling is None else (self.size, telling)

    @property
    def stamp(self) -> Stamp:
        """The entity tag that came with opening; the time of the last change elsewhere."""
        if self._tag:
            return _tag(self._tag.decode() if isinstance(self._tag, bytes) else str(self._tag))
        return None if self._changed is None else _changed_at(self._changed / 1e6)

    def read_at(self, length: int, offset: int) -> memoryview:
        return memoryview(self._file.read_at(length, offset))

    def was_changed(self) -> bool:
        return False

    def close(self) -> None:
        self._file.close()


class _FsspecHandle:
    """A file of an fsspec file system, asked for its ranges directly.

    Through ``pyarrow.fs`` reads would wait for each other, and fetch more than they are asked for.
    """

    def __init__(self, filesystem: Any, path: str) -> None:
        self._filesystem, self._path = filesystem, path
        with own_errors():
            filesystem.invalidate_cache(path)  # a listing from before may tell an old length
            self._info = filesystem.info(path)
        if self._info["type"] == "directory":
            raise IsADirectoryError(path)
        self.size = _length_in(self._info)

    @property
    def version(self) -> Version:
        """The size, and all properties that change with the content, however they are called."""
        known = _told(self._info)
        telling = sorted(_CHANGING & known.keys())
        return (self.size, *(str(known[name]) for name in telling)) if telling else None

    @property
    def stamp(self) -> Stamp:
        """Of the properties that a file system tells, the one that says most."""
        return _stamp_in(self._info)

    def read_at(self, length: int, offset: int) -> memoryview:
        with own_errors():
            stop = offset + length
            data = memoryview(self._filesystem.cat_file(self._path, start=offset, end=stop))
        if len(data) > length:
            raise OSError(f"of {length:,} bytes asked for {len(data):,} came: it serves no ranges")
        return data

    def was_changed(self) -> bool:
        return False

    def close(self) -> None: ...


def _length_in(info: Any) -> int:
    if info["size"] is None:
        raise OSError("its length is not told")
    return int(info["size"])


_CHANGING = {"etag", "generation", "ino", "mtime", "lastmodified", "updated", "created", "md5hash"}


def _told(info: Any) -> dict[str, Any]:
    """What a file system tells, however it writes the names."""
    return {name.lower().replace("_", ""): value for name, value in info.items() if value}


def _stamp_in(info: Any) -> Stamp:
    known = _told(info)
    for name in _TAGS:
        if name in known:
            return _tag(str(known[name]))
    for name in _TIMES:
        value = known.get(name)
        if isinstance(value, datetime.datetime):
            return _changed_at(value.timestamp() * 1e3)
        if isinstance(value, int | float):
            return _changed_at(value * 1e3)
        if isinstance(value, str):
            return _tag(value)
    return None


def stamps_below(filesystem: pafs.FileSystem, folder: str) -> dict[str, tuple[int, Stamp]] | None:
    """All files below a folder of an fsspec file system, by path: their lengths and stamps.

    None for other file systems, whose listings tell times of change. ``pyarrow.fs`` would not hand
    on what fsspec knows. Raises ``OSError`` where it cannot be listed.
    """
    if not is_fsspec(filesystem):
        return None
    inner = filesystem.handler.fs

    def listed() -> dict[str, Any]:
        with own_errors():
            inner.invalidate_cache()  # a listing from before may be kept
            return infos_in(inner, folder, recursive=True)

    found = retried(filesystem, listed).items()
    files = (item for item in found if item[1]["type"] != "directory")
    return {path: (_length_in(info), _stamp_in(info)) for path, info in files}


_TAGS = ("etag", "md5hash", "generation")
_TIMES = ("mtime", "lastmodified", "updated", "created")


def _tag(text: str) -> Stamp:
    return f"tag {text.strip().removeprefix('W/').strip(chr(34))}"


def _changed_at(milliseconds: float) -> Stamp:
    return f"time {round(milliseconds)}"


def check_may_write(filesystem: pafs.FileSystem, path: str) -> None:
    """Raise ``PathError`` where writing to ``path`` might change something else.

    fsspec takes some names for patterns, and moves or removes what they match; its file systems
    that keep copies read these, whatever has become of the files. Either may lie below others.
    """
    whole = path
    while isinstance(filesystem, pafs.SubTreeFileSystem):
        whole, filesystem = filesystem.base_path + whole, filesystem.base_fs
    own = filesystem.handler.fs if is_fsspec(filesystem) else None
    while own is not None:
        if any(kind.__name__ == "CachingFileSystem" for kind in type(own).__mro__):
            raise PathError(
                f"{path}: {type(own).__name__} reads its own copies of files, so none can be "
                "replaced: give the file system below it, its fs"
            )
        if is_glob(whole):
            raise PathError(
                f"{whole}: to fsspec this is a pattern, for other names too: not written to"
            )
        whole = own._join(whole) if type(own).__name__ == "DirFileSystem" else whole
        own = getattr(own, "fs", None)
