"""Listings of fsspec file systems that are complete, or raise an error.

fsspec's own ``find`` and ``walk`` leave out folders that cannot be listed. Its ``isdir`` and
``exists`` take any error for absence. A single failed request would silently cost rows.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, TypeAlias

import pyarrow.fs as pafs

from intarsia.errors import PathError
from intarsia.process_state import SharedState, abandon

Ask: TypeAlias = Callable[[Callable[[], Any]], Any]
"""Makes a request, and returns its answer."""


class ListingHandler(pafs.FSSpecHandler):  # type: ignore[misc]  # pyarrow is not typed
    """pyarrow's handler, with complete and uncached listings.

    In a forked child, ``fs`` is a copy: the parent's may wait for threads that the child lacks.
    """

    def __init__(self, fs: Any) -> None:
        self._fs, self._process = fs, None if _was_made_before_fork(fs) else os.getpid()

    @property
    def fs(self) -> Any:
        """The fsspec file system."""
        if self._process != os.getpid():
            self._fs, self._process = _forked.own(self._fs), os.getpid()
        return self._fs

    def __reduce__(self) -> tuple[Any, ...]:
        return ListingHandler, (self.fs,)

    def get_file_info(self, paths: list[str]) -> list[pafs.FileInfo]:
        """Returns type, size and time of each path. Raises ``OSError`` if a request fails."""
        return [self.info(path, _once) for path in paths]

    def get_file_info_selector(self, selector: pafs.FileSelector) -> list[pafs.FileInfo]:
        """Returns all in a folder. Raises ``OSError`` if a part is unlisted."""
        return self.listed(selector, _once)

    def info(self, path: str, ask: Ask) -> pafs.FileInfo:
        """Does what ``get_file_info`` does for one path. ``ask`` may repeat the request."""
        try:
            return self._create_file_info(path, ask(partial(_answer, self.fs.info, path)))
        except FileNotFoundError:
            return pafs.FileInfo(path, pafs.FileType.NotFound)

    def listed(self, selector: pafs.FileSelector, ask: Ask) -> list[pafs.FileInfo]:
        """Does what ``get_file_info_selector`` does. ``ask`` may repeat each request."""
        self.fs.invalidate_cache()  # a listing may be cached
        try:
            info = ask(partial(_answer, self.fs.info, selector.base_dir))
        except FileNotFoundError:
            if selector.allow_not_found:
                return []
            raise
        if info["type"] != "directory":
            raise NotADirectoryError(selector.base_dir)
        by_path = infos_in(self.fs, selector.base_dir, ask, recursive=selector.recursive)
        return [self._create_file_info(path, info) for path, info in by_path.items()]


def wrapped(filesystem: Any) -> pafs.FileSystem:
    """Returns pyarrow's or fsspec's file system as pyarrow's. Raises ``TypeError`` for others."""
    if isinstance(filesystem, pafs.FileSystem):
        if not is_fsspec(filesystem):
            return filesystem
        filesystem = filesystem.handler.fs
    elif not hasattr(filesystem, "_strip_protocol"):
        raise TypeError(f"a file system is pyarrow's or fsspec's, not {type(filesystem).__name__}")
    return pafs.PyFileSystem(ListingHandler(filesystem))


def _was_made_before_fork(filesystem: Any) -> bool:
    """True if an fsspec file system, or one below it, was made before this process was forked."""
    while filesystem is not None:
        if vars(filesystem).get("_pid", os.getpid()) != os.getpid():
            return True
        filesystem = getattr(filesystem, "fs", None)
    return False


def check_not_forked(filesystem: pafs.FileSystem | str) -> None:
    """Raises ``PathError`` for pyarrow's own remote file systems if the parent process used one.

    ``filesystem`` may be a URI scheme. A forked child would share connections with its parent, and
    new connections hang.
    """
    if not isinstance(filesystem, str):
        while isinstance(filesystem, pafs.SubTreeFileSystem):
            filesystem = filesystem.base_fs
        if isinstance(filesystem, pafs.LocalFileSystem | pafs.PyFileSystem):
            return
        filesystem = type(filesystem).__name__
    if _forked.was_used:
        raise PathError(
            f"{filesystem}: this process was forked from one that used pyarrow's remote file "
            "systems, which would hang here: start it with multiprocessing's 'spawn' or "
            "'forkserver', or use a file system of fsspec"
        )
    _forked.is_used = True


class _ForkedFileSystems(SharedState):
    """State of the remote file systems of the parent that a forked child needs."""

    def __init__(self) -> None:
        self._copies: dict[int, Any] = {}
        self.is_used = self.was_used = False
        """Whether this process, or its parent, used a remote file system of pyarrow's own."""
        super().__init__()

    def own(self, filesystem: Any) -> Any:
        """Returns this process's copy of a file system of the parent, the same one at each call."""
        copy = self._copies.get(id(filesystem))
        if copy is None:
            abandon(filesystem)
            try:
                copy = pickle.loads(pickle.dumps(filesystem))  # pickled here, so safe to load
            except Exception:  # noqa: BLE001 # pickling a foreign object may raise anything
                copy = filesystem
            copy = self._copies.setdefault(id(filesystem), copy)
        return copy

    def clear(self) -> None:
        """Drops nothing, as file systems are no cache."""

    def after_fork(self) -> None:
        if (asyn := sys.modules.get("fsspec.asyn")) is not None:
            asyn.reset_lock()  # older versions use the loop of a thread that the child lacks
        self._copies.clear()
        self.was_used = self.was_used or self.is_used


_forked = _ForkedFileSystems()


def is_fsspec(filesystem: pafs.FileSystem) -> bool:
    """True if pyarrow wraps an fsspec file system with a handler that opens files as it does."""
    return isinstance(filesystem, pafs.PyFileSystem) and type(filesystem.handler) in (
        pafs.FSSpecHandler,
        ListingHandler,
    )


def infos_in(filesystem: Any, folder: str, ask: Ask, *, recursive: bool) -> dict[str, Any]:
    """Returns what fsspec reports about all files and folders in a folder, sorted by path.

    ``ask`` makes each request. Raises ``OSError`` if any of them cannot be listed. A folder that is
    removed meanwhile counts as empty.
    """
    base = filesystem._strip_protocol(folder).rstrip("/")
    if recursive and not _lists_by_folder(filesystem):
        by_path = ask(partial(_answer, filesystem.find, base, withdirs=True, detail=True))
        return {path: info for path, info in by_path.items() if path.strip("/") != base.strip("/")}
    by_path, pending = {}, [base]
    while pending:
        at = pending.pop()
        try:
            entries = ask(partial(_answer, filesystem.ls, at, detail=True))
        except FileNotFoundError:
            continue
        for info in entries:
            path = info["name"].rstrip("/")
            if path.strip("/") == at.strip("/"):  # object stores may list the folder itself
                continue
            by_path[path] = info
            if recursive and info["type"] == "directory":
                pending.append(path)
    return dict(sorted(by_path.items()))


def _once(request: Callable[[], Any]) -> Any:
    return request()


def _answer(request: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    with as_os_errors():
        return request(*arguments, **options)


def _lists_by_folder(filesystem: Any) -> bool:
    """True if ``find`` lists folder by folder. Stores that list all at once leave nothing out."""
    from fsspec import AbstractFileSystem  # installed, as the caller passed an object of it
    from fsspec.asyn import AsyncFileSystem

    inner = getattr(filesystem, "fs", None)
    if isinstance(inner, AbstractFileSystem):
        return _lists_by_folder(inner)
    is_async = isinstance(filesystem, AsyncFileSystem)
    name, own = ("_find", AsyncFileSystem) if is_async else ("find", AbstractFileSystem)
    return getattr(type(filesystem), name, None) is getattr(own, name)


@contextlib.contextmanager
def as_os_errors() -> Iterator[None]:
    """Turns all errors of fsspec file systems into ``OSError``: each raises errors of its own."""
    try:
        yield
    except (OSError, MemoryError):
        raise
    except Exception as error:
        raise OSError(str(error) or type(error).__name__) from error
