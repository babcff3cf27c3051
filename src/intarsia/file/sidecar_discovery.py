"""Finding the sidecars of files: one listing of a folder tells of all files in the one above it.

::

    lake/day=1/a.parquet
    lake/day=1/_intarsia/a.parquet.1f0c9a3e.intarsia

The digits are drawn anew whenever a sidecar is written, so that what a name stands for never
changes while it is read. In a folder of its own, sidecars lie at the whole path of their files.
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
from intarsia.io.storage import SIDECAR_FOLDER, FileSource, PathLike, is_uri, resolve, several
from intarsia.process_state import ForkLock, SharedState
from intarsia.threads import begin, result_of

_NAME = re.compile(r"(.+)\.[0-9a-f]{8}\.intarsia", re.DOTALL)
_LONGEST = 200
"""Bytes of a name; of most file systems 255 are the most."""

_TICK_NS = 1_000_000_000
"""What clocks of file systems may be coarser by, or behind."""

Listing = Mapping[str, list[str]]
"""The sidecars in a folder by the names they are kept under; the newest comes last."""


def kept_under(name: str) -> str:
    """What sidecars of a file of this name are kept under: the name, or a hash of a long one."""
    return name if len(os.fsencode(name)) <= _LONGEST else _hashed(name)


def _hashed(text: str) -> str:
    return hashlib.blake2b(os.fsencode(text), digest_size=16).hexdigest()


class Sidecars(SharedState):
    """Where sidecars are of the files of one file system: beside them, or under ``folder``.

    ``folder`` is a path on the same file system, or a URI.
    """

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

    def clear(self) -> None:
        with self._lock:
            self._listings.clear()
            self._local.clear()

    def check(self) -> None:
        """Raise ``PathError`` where the folder is local, and not there."""
        if self._folder and self._is_local and not os.path.isdir(self._folder):
            raise PathError(f"{self._folder}: there is no such folder of sidecars")

    def check_apart(self, paths: PathLike | Sequence[PathLike], filesystem: Any) -> None:
        """Raise ``PathError`` where readers of the ``paths`` would take sidecars for data."""
        if self._folder is not None:
            for path in several(paths):
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
        """The folder that the sidecar of the file at ``path`` is in."""
        parent = path.rpartition("/")[0]
        if self._folder is None:
            return f"{parent}/{SIDECAR_FOLDER}"
        if not {".", ".."}.isdisjoint(parent.split("/")):  # keys of objects may hold them as names
            parent = _hashed(parent)
        return f"{self._folder}/{parent.lstrip('/')}" if parent else self._folder

    def know(self, listings: Mapping[str, Iterable[pafs.FileInfo]]) -> None:
        """Take what a listing of the files' own folders showed already."""
        if self._folder is None and not self._is_local:
            for folder, infos in listings.items():
                done: Future[Listing] = Future()
                done.set_result(_by_name(infos))
                self._listings[folder] = done

    def expect(self, path: str) -> None:
        """Where storage is far, begin to list the folder that ``path`` has its sidecar in."""
        if not self._is_local:
            self._listing(self.folder_of(path))

    def paths(self, path: str) -> list[str]:
        """The sidecars of the file at ``path``; the newest comes last.

        There are none where their folder cannot be listed: indexes only ever save work.
        """
        try:
            listing = self._found_in(self.folder_of(path))
        except OSError:
            return []
        return listing.get(kept_under(path.rpartition("/")[2]), [])

    def check_listed(self, path: str) -> None:
        """Raise ``PathError`` where it could not be told which sidecars the file at ``path`` has.

        Who goes on to write would leave them behind.
        """
        folder = self.folder_of(path)
        try:
            self._found_in(folder)
        except OSError as error:
            message = f"{folder}: the folder of sidecars cannot be listed: {error}"
            raise PathError(message) from error

    def forget(self, path: str) -> None:
        """List the folder anew when it is next asked for."""
        with self._lock:
            self._listings.pop(self.folder_of(path), None)
            self._local.pop(self.folder_of(path), None)

    def _found_in(self, folder: str) -> Listing:
        """Raises ``OSError`` where the folder cannot be listed."""
        return self._now(folder) if self._is_local else result_of(self._listing(folder))

    def _listing(self, folder: str) -> Future[Listing]:
        with self._lock:
            if folder not in self._listings:
                self._listings[folder] = begin(partial(_listed, self.filesystem, folder))
            return self._listings[folder]

    def _now(self, folder: str) -> Listing:
        """A local folder is listed again whenever it has changed."""
        try:
            changed = os.stat(folder).st_mtime_ns
        except (FileNotFoundError, NotADirectoryError):
            return {}
        known = self._local.get(folder)
        if known is not None and known[0] == changed:
            return known[1]
        now = time.time_ns()
        listing = _listed(self.filesystem, folder)
        if now - changed > _TICK_NS:  # else a change to come may have the same time
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
    found: dict[str, list[str]] = {}
    for info in sorted(infos, key=lambda info: (info.mtime_ns or 0, info.path)):
        match = _NAME.fullmatch(info.base_name)
        if match and info.type == pafs.FileType.File:
            found.setdefault(match[1], []).append(info.path)
    return found


class Beside:
    """The sidecar of one file, wherever it is."""

    def __init__(self, source: FileSource, places: Sidecars) -> None:
        self._source, self._places = source, places
        self._opened: FileSource | None = None
        self._sidecar: Sidecar | None = None
        self._found: list[str] | None = None
        places.expect(source.path)

    @property
    def paths(self) -> list[str]:
        """Where it is, and where older ones are that were left; the newest comes last."""
        return self._places.paths(self._source.path)

    @property
    def home(self) -> str | bool:
        """What says as ``sidecar=`` where it is: the folder of all, or True."""
        return self._places.folder or True

    @property
    def found(self) -> list[str]:
        """As ``paths``, when it was opened."""
        return self._found or []

    def forget(self) -> None:
        """Have ``paths`` be told by a new listing."""
        self._places.forget(self._source.path)

    def check_listed(self) -> None:
        """Raise ``PathError`` where it could not be told whether there is one."""
        self._places.check_listed(self._source.path)

    def owner(self, footer: bytes) -> Owner:
        """What a sidecar of this file says of it; ``footer`` are the thrift bytes."""
        return Owner.of(self._source.size, self._source.stamp, footer)

    def opened(self, footer: bytes) -> Sidecar | None:
        """The sidecar; None where there is none.

        Raises ``StaleError``, ``FormatError`` as ``Sidecar`` does, ``PathError`` where it is gone.
        """
        self._found = paths = self.paths
        if not paths:
            return None
        try:
            return self._open(paths[-1], footer)
        except StaleError:  # of two of one second, the other may be the newer one
            if len(paths) > 1:
                with contextlib.suppress(FormatError, PathError):
                    return self._open(paths[-2], footer)
            raise

    def _open(self, path: str, footer: bytes) -> Sidecar:
        opened = FileSource(self._places.filesystem, path)
        sidecar = Sidecar(opened, self.owner(footer))
        self._opened, self._sidecar = opened, sidecar
        return sidecar

    @property
    def is_current(self) -> bool:
        """Is what was found still what there is? True where nothing was looked for."""
        return self._found is None or self._found == self.paths

    @property
    def held_bytes(self) -> int:
        """Bytes of it that are held in memory."""
        return 0 if self._sidecar is None else self._sidecar.source.held_bytes

    def rest(self) -> None:
        """Hold neither bytes of it nor a handle until it is read again."""
        if self._opened is not None:
            self._opened.rest()
        if self._sidecar is not None:
            self._sidecar.source.release()


def places_of(filesystem: Any, sidecar: PathLike | Sidecars | None) -> Sidecars:
    """Where sidecars are that there may be: given, or told by a folder.

    Raises ``PathError`` for a local folder that is not there.
    """
    if isinstance(sidecar, Sidecars):
        return sidecar
    places = Sidecars(filesystem, sidecar)
    places.check()
    return places
