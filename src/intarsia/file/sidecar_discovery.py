"""Finds the sidecars of files. One listing of a sidecar folder covers all files of its parent.

::

    lake/day=1/a.parquet
    lake/day=1/_intarsia/a.parquet.1f0c9a3e.intarsia

Each write of a sidecar draws new random digits, so the content under a name never changes. In a
separate sidecar folder, a sidecar lies under the whole path of its file.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any

import pyarrow.fs as pafs

from intarsia.errors import FormatError, PathError
from intarsia.index.directory import StaleError
from intarsia.index.sidecar import Owner, Sidecar
from intarsia.io.fsspec_listing import check_not_forked
from intarsia.io.glob import HIDDEN
from intarsia.io.retry import infos_of
from intarsia.io.storage import (
    SIDECAR_FOLDER,
    FileSource,
    IOCount,
    PathLike,
    as_list,
    is_uri,
    resolve,
)
from intarsia.process_state import ForkLock, SharedState
from intarsia.threads import begin, result_of

_NAME = re.compile(r"(.+)\.[0-9a-f]{8}\.intarsia", re.DOTALL)
_MAX_NAME_BYTES = 200
"""Longer file names are hashed: with the digits, most file systems allow 255 bytes."""

_TICK_NS = 1_000_000_000
"""Nanoseconds by which modification times of a file system may be coarse or late."""

SidecarOption = str | bool
"""Where an index is, as in ``sidecar=``: False for the file itself, True or a folder for the
sidecar."""
Listing = Mapping[str, list[str]]
"""The paths of the sidecars in a folder, by ``sidecar_stem``; the newest comes last."""


def sidecar_stem(name: str) -> str:
    """Returns the first part of the sidecars' names: the file's name, or a hash of a long one."""
    return name if len(os.fsencode(name)) <= _MAX_NAME_BYTES else _hashed(name)


def _hashed(text: str) -> str:
    return hashlib.blake2b(os.fsencode(text), digest_size=16).hexdigest()


class Sidecars(SharedState):
    """The places of sidecars of one file system: beside files, or under the path ``folder``."""

    def __init__(self, filesystem: pafs.FileSystem, folder: PathLike | None = None) -> None:
        self.filesystem, self._folder = filesystem, None
        if folder is not None:
            is_local = isinstance(filesystem, pafs.LocalFileSystem)
            on = None if is_uri(folder) or is_local else filesystem
            self.filesystem, at = resolve(folder, on)
            self._folder = at.rstrip("/")
        self._is_local = isinstance(self.filesystem, pafs.LocalFileSystem)
        self._lock = ForkLock()
        self._listings: dict[str, Future[Listing]] = {}
        self._local: dict[str, tuple[int, Listing]] = {}
        self.folder = None if folder is None else os.fspath(folder)
        super().__init__()

    @classmethod
    def of_option(cls, filesystem: pafs.FileSystem, sidecar: bool | PathLike) -> Sidecars | None:
        """Returns the places that a writer's ``sidecar`` names, or None if it is False."""
        return None if sidecar is False else cls(filesystem, None if sidecar is True else sidecar)

    def clear(self) -> None:
        with self._lock:
            self._listings.clear()
            self._local.clear()

    def check(self) -> None:
        """Raises ``PathError`` if the folder is local and does not exist."""
        if self._folder and self._is_local and not os.path.isdir(self._folder):
            raise PathError(f"{self._folder}: there is no such folder of sidecars")

    def check_apart(self, paths: PathLike | Sequence[PathLike], filesystem: Any) -> None:
        """Raises ``PathError`` if a reader of the ``paths`` would take sidecars for data files."""
        if self._folder is not None:
            for path in as_list(paths):
                self._check_apart(*resolve(path, filesystem))

    def _check_apart(self, filesystem: pafs.FileSystem, folder: str) -> None:
        if self._folder is None or not self.filesystem.equals(filesystem):
            return
        base = folder.rstrip("/")
        parts = self._folder.removeprefix(base).split("/")
        is_below = f"{self._folder}/".startswith(f"{base}/")
        if is_below and not any(part.startswith(HIDDEN) for part in parts):
            raise PathError(
                f"{self._folder}: sidecars there would be read as data of {folder}: its name has "
                "to begin with _, or it has to be elsewhere"
            )

    def folder_of(self, path: str) -> str:
        """Returns the folder that the sidecar of the file at ``path`` is in."""
        parent = path.rpartition("/")[0]
        if self._folder is None:
            return f"{parent}/{SIDECAR_FOLDER}"
        if not {".", ".."}.isdisjoint(parent.split("/")):  # possible in keys of object stores
            parent = _hashed(parent)
        return f"{self._folder}/{parent.lstrip('/')}" if parent else self._folder

    def know(self, listings: Mapping[str, Iterable[pafs.FileInfo]]) -> None:
        """Stores listings of sidecar folders that a listing of the data files included."""
        if self._folder is None and not self._is_local:
            for folder, infos in listings.items():
                done: Future[Listing] = Future()
                done.set_result(_by_name(infos))
                self._listings[folder] = done

    def expect(self, path: str) -> None:
        """Starts to list the sidecar folder of ``path`` if the storage is remote."""
        if not self._is_local:
            self._listing(self.folder_of(path))

    def paths(self, path: str) -> list[str]:
        """Returns the sidecars of a file, the newest last; [] if their folder is unlisted."""
        try:
            listing = self._listing_of(self.folder_of(path))
        except OSError:
            return []
        return listing.get(sidecar_stem(path.rpartition("/")[2]), [])

    def check_listed(self, path: str) -> None:
        """Raises ``PathError`` if storage fails: a writer would leave old sidecars."""
        folder = self.folder_of(path)
        try:
            self._listing_of(folder)
        except OSError as error:
            message = f"{folder}: the folder of sidecars cannot be listed: {error}"
            raise PathError(message) from error

    def forget(self, path: str) -> None:
        """Has the sidecar folder of ``path`` listed again when it is next needed."""
        with self._lock:
            self._listings.pop(self.folder_of(path), None)
            self._local.pop(self.folder_of(path), None)

    def _listing_of(self, folder: str) -> Listing:
        """Returns the listing of a folder. Raises ``OSError`` if it cannot be listed."""
        return self._local_listing(folder) if self._is_local else result_of(self._listing(folder))

    def _listing(self, folder: str) -> Future[Listing]:
        with self._lock:
            if folder not in self._listings:
                self._listings[folder] = begin(partial(_listed, self.filesystem, folder))
            return self._listings[folder]

    def _local_listing(self, folder: str) -> Listing:
        """Returns the listing of a local folder, made again if the folder has changed."""
        try:
            changed = os.stat(folder).st_mtime_ns
        except (FileNotFoundError, NotADirectoryError):
            return {}
        known = self._local.get(folder)
        if known is not None and known[0] == changed:
            return known[1]
        now = time.time_ns()
        listing = _listed(self.filesystem, folder)
        if now - changed > _TICK_NS:  # else the next change may have the same time
            self._local[folder] = changed, listing
        return listing


def _listed(filesystem: pafs.FileSystem, folder: str) -> Listing:
    check_not_forked(filesystem)
    selector = pafs.FileSelector(folder, allow_not_found=True)
    try:
        return _by_name(infos_of(filesystem, selector))
    except NotADirectoryError:
        return {}


def _by_name(infos: Iterable[pafs.FileInfo]) -> Listing:
    listing: dict[str, list[str]] = {}
    for info in sorted(infos, key=lambda info: (info.mtime_ns or 0, info.path)):
        match = _NAME.fullmatch(info.base_name)
        if match and info.type == pafs.FileType.File:
            listing.setdefault(match[1], []).append(info.path)
    return listing


class SidecarFinder:
    """Finds and opens the sidecar of one file."""

    def __init__(self, source: FileSource, places: Sidecars) -> None:
        self._source, self._places = source, places
        self._opened: FileSource | None = None
        self._sidecar: Sidecar | None = None
        self.count = IOCount()
        """The reads of the sidecar so far."""
        self._opened_paths: list[str] | None = None
        places.expect(source.path)

    @property
    def paths(self) -> list[str]:
        """The paths of the sidecar and of leftover older ones; the newest comes last."""
        return self._places.paths(self._source.path)

    @property
    def option(self) -> SidecarOption:
        """The value of ``sidecar=`` that stands for its place: the sidecar folder, or True."""
        return self._places.folder or True

    @property
    def opened_paths(self) -> list[str]:
        """The ``paths`` at the time when it was opened."""
        return self._opened_paths or []

    def forget(self) -> None:
        """Has ``paths`` make a new listing."""
        self._places.forget(self._source.path)

    def check_listed(self) -> None:
        """Raises ``PathError`` if the sidecar's folder cannot be listed."""
        self._places.check_listed(self._source.path)

    def owner(self, footer: bytes) -> Owner:
        """Returns the record of this file that its sidecar has; ``footer`` are the thrift bytes."""
        return Owner.of(self._source.size, self._source.stamp, footer)

    def opened(self, footer: bytes) -> Sidecar | None:
        """Returns the sidecar, or None if there is none.

        Raises ``StaleError`` and ``FormatError`` as ``Sidecar`` does. Raises ``PathError`` if it
        has been removed since the folder was listed.
        """
        self._opened_paths = paths = self.paths
        if not paths:
            return None
        try:
            return self._open(paths[-1], footer)
        except StaleError:  # if both were written in one second, the other may be the newer one
            if len(paths) > 1:
                with contextlib.suppress(FormatError, PathError):
                    return self._open(paths[-2], footer)
            raise

    def _open(self, path: str, footer: bytes) -> Sidecar:
        opened = FileSource(self._places.filesystem, path)
        opened.count = self.count
        sidecar = Sidecar(opened, self.owner(footer))
        self._opened, self._sidecar = opened, sidecar
        return sidecar

    @property
    def is_current(self) -> bool:
        """True unless the file has other sidecars than when its sidecar was opened."""
        return self._opened_paths is None or self._opened_paths == self.paths

    @property
    def held_bytes(self) -> int:
        """Bytes of the sidecar that are cached in memory."""
        return 0 if self._sidecar is None else self._sidecar.source.held_bytes

    def suspend(self) -> None:
        """Frees the sidecar's cached bytes and its handle until it is read again."""
        if self._opened is not None:
            self._opened.suspend()
        if self._sidecar is not None:
            self._sidecar.source.release()


def places_of(filesystem: Any, sidecar: PathLike | Sidecars | None) -> Sidecars:
    """Returns ``sidecar`` as ``Sidecars``. Raises ``PathError`` for a missing local folder."""
    if isinstance(sidecar, Sidecars):
        return sidecar
    places = Sidecars(filesystem, sidecar)
    places.check()
    return places
