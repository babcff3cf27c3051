"""File systems of fsspec, whose listings fail where they cannot be complete.

fsspec's own ``find`` and ``walk`` leave out folders that cannot be listed, and ``isdir`` and
``exists`` take any error for an answer: one request that fails would cost rows, and nobody knew.
"""

from __future__ import annotations

import contextlib
import os
import pickle
from collections.abc import Iterator
from typing import Any

import pyarrow.fs as pafs

from intarsia.errors import PathError
from intarsia.process_state import SharedState, abandon


class ListingHandler(pafs.FSSpecHandler):  # type: ignore[misc]  # pyarrow is not typed
    """As pyarrow's, with listings of what is there now, and all of it.

    In a forked child, ``fs`` is a copy: the parent's may wait for threads that the child lacks.
    """

    def __init__(self, fs: Any) -> None:
        self._fs, self._process = fs, None if _is_of_parent(fs) else os.getpid()

    @property
    def fs(self) -> Any:
        """The file system of fsspec."""
        if self._process != os.getpid():
            self._fs, self._process = _remote.own(self._fs), os.getpid()
        return self._fs

    def __reduce__(self) -> tuple[Any, ...]:
        return ListingHandler, (self.fs,)

    def get_file_info(self, paths: list[str]) -> list[pafs.FileInfo]:
        """What there is at paths. Raises ``OSError`` where that cannot be told."""
        with own_errors():
            found: list[pafs.FileInfo] = super().get_file_info(paths)
        return found

    def get_file_info_selector(self, selector: pafs.FileSelector) -> list[pafs.FileInfo]:
        """What there is in a folder. Raises ``OSError`` where any of it cannot be listed."""
        with own_errors():
            self.fs.invalidate_cache()  # a listing from before may be kept
            try:
                is_folder = self.fs.info(selector.base_dir)["type"] == "directory"
            except FileNotFoundError:
                if selector.allow_not_found:
                    return []
                raise
            if not is_folder:
                raise NotADirectoryError(selector.base_dir)
            found = infos_in(self.fs, selector.base_dir, recursive=selector.recursive)
        return [self._create_file_info(path, info) for path, info in found.items()]


def wrapped(filesystem: Any) -> pafs.FileSystem:
    """A file system of fsspec, or one that pyarrow has wrapped, as one of pyarrow's.

    Raises ``TypeError`` for what is neither's.
    """
    if isinstance(filesystem, pafs.FileSystem):
        if not is_fsspec(filesystem):
            return filesystem
        filesystem = filesystem.handler.fs
    elif not hasattr(filesystem, "_strip_protocol"):
        raise TypeError(f"a file system is pyarrow's or fsspec's, not {type(filesystem).__name__}")
    return pafs.PyFileSystem(ListingHandler(filesystem))


def _is_of_parent(filesystem: Any) -> bool:
    """Was a file system of fsspec, or one below it, made before this process was forked?"""
    while filesystem is not None:
        if vars(filesystem).get("_pid", os.getpid()) != os.getpid():
            return True
        filesystem = getattr(filesystem, "fs", None)
    return False


def check_not_forked(filesystem: pafs.FileSystem | str) -> None:
    """Raise ``PathError`` for a remote file system of pyarrow's own if the parent used one.

    ``filesystem`` may be the scheme of one. It would share its connections with the parent's, and
    new ones hang.
    """
    if not isinstance(filesystem, str):
        while isinstance(filesystem, pafs.SubTreeFileSystem):
            filesystem = filesystem.base_fs
        if isinstance(filesystem, pafs.LocalFileSystem | pafs.PyFileSystem):
            return
        filesystem = type(filesystem).__name__
    if _remote.was_used:
        raise PathError(
            f"{filesystem}: this process was forked from one that used pyarrow's remote file "
            "systems, which would hang here: start it by multiprocessing's 'spawn' or "
            "'forkserver', or use a file system of fsspec"
        )
    _remote.is_used = True


class _Remote(SharedState):
    """What a forked process has to know of the remote file systems of its parent."""

    def __init__(self) -> None:
        self._copies: dict[int, Any] = {}
        self.is_used = self.was_used = False
        """True if this process, or its parent, used a remote file system of pyarrow's own."""
        super().__init__()

    def own(self, filesystem: Any) -> Any:
        """Returns a copy of the parent's file system, one of fsspec; the same for each call."""
        found = self._copies.get(id(filesystem))
        if found is None:
            abandon(filesystem)
            try:
                found = pickle.loads(pickle.dumps(filesystem))  # our own bytes
            except Exception:  # noqa: BLE001 # what pickling a foreign object raises
                found = filesystem
            found = self._copies.setdefault(id(filesystem), found)
        return found

    def clear(self) -> None:
        """Keep all: file systems are no cache."""

    def after_fork(self) -> None:
        self._copies.clear()
        self.was_used = self.was_used or self.is_used


_remote = _Remote()


def is_fsspec(filesystem: pafs.FileSystem) -> bool:
    """Is it wrapped as pyarrow does it? A handler of another kind may open files in its own way."""
    return isinstance(filesystem, pafs.PyFileSystem) and type(filesystem.handler) in (
        pafs.FSSpecHandler,
        ListingHandler,
    )


def infos_in(filesystem: Any, folder: str, *, recursive: bool) -> dict[str, Any]:
    """What fsspec tells of all files and folders in a folder, by their paths, in order.

    Raises what it does, where any of them cannot be listed. A folder that is removed meanwhile
    holds nothing.
    """
    base = filesystem._strip_protocol(folder).rstrip("/")
    if recursive and not _walks(filesystem):
        found = filesystem.find(base, withdirs=True, detail=True)
        return {path: info for path, info in found.items() if path.strip("/") != base.strip("/")}
    found, left = {}, [base]
    while left:
        at = left.pop()
        try:
            listed = filesystem.ls(at, detail=True)
        except FileNotFoundError:
            continue
        for info in listed:
            path = info["name"].rstrip("/")
            if path.strip("/") == at.strip("/"):  # objects stand for folders, too
                continue
            found[path] = info
            if recursive and info["type"] == "directory":
                left.append(path)
    return dict(sorted(found.items()))


def _walks(filesystem: Any) -> bool:
    """Does it list folder by folder? Stores that list all at once do not leave any out."""
    from fsspec import AbstractFileSystem  # whoever hands one over has it
    from fsspec.asyn import AsyncFileSystem

    inner = getattr(filesystem, "fs", None)
    if isinstance(inner, AbstractFileSystem):
        return _walks(inner)
    is_async = isinstance(filesystem, AsyncFileSystem)
    name, own = ("_find", AsyncFileSystem) if is_async else ("find", AbstractFileSystem)
    return getattr(type(filesystem), name, None) is getattr(own, name)


@contextlib.contextmanager
def own_errors() -> Iterator[None]:
    """Of fsspec file systems, of which each has errors of its own, all are ``OSError``."""
    try:
        yield
    except (OSError, MemoryError):
        raise
    except Exception as error:
        raise OSError(str(error) or type(error).__name__) from error
