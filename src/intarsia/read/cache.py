"""Opened files, kept for later queries for as long as they are the same files."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable

import pyarrow.fs as pafs

from intarsia.parallel import begin
from intarsia.read.file import open_source
from intarsia.read.opened import Lease, OpenedFile, lease_of
from intarsia.read.profile import UNWATCHED, Unwatched
from intarsia.storage import FileSource, Version, version_of

_KEPT = 128


class FileCache:
    """The most recently used files of one file system, 128 at most, as each is an open handle.

    ``gap`` is that of ``FileSource``.
    """

    def __init__(
        self,
        filesystem: pafs.FileSystem,
        *,
        page_checksum_verification: bool = False,
        gap: int | None = None,
    ) -> None:
        self._filesystem, self._gap = filesystem, gap
        self._page_checksum_verification = page_checksum_verification
        self._is_local = isinstance(filesystem, pafs.LocalFileSystem)
        self._kept: OrderedDict[str, tuple[Version, OpenedFile]] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, path: str) -> OpenedFile:
        """The file at ``path``; opened anew where it was replaced since, as far as that shows."""
        lease = self.lease(path)
        return lease.file if lease.is_current() else self.get(path)

    def lease(self, path: str) -> Lease:
        """As ``get``, without waiting to hear whether the file was replaced."""
        if self._is_local:
            version = version_of(path, self._filesystem)
            return lease_of(self._known(path, version) or self._open(path, version))
        found = self._kept.get(path)
        if found is None:
            asked = begin(lambda: version_of(path, self._filesystem))
            return lease_of(self._open(path, asked.result))
        known, file = found
        asked = begin(lambda: version_of(path, self._filesystem))

        def is_current() -> bool:
            if known is not None and asked.result() == known:
                return True
            with self._lock:
                if self._kept.get(path) == found:
                    del self._kept[path]
            return False

        return Lease(file, is_current)

    def _known(self, path: str, version: Version) -> OpenedFile | None:
        with self._lock:
            known, file = self._kept.get(path, (None, None))
            if file is None or version is None or known != version:
                return None
            self._kept.move_to_end(path)
            return file

    def open_unshared(
        self, path: str, profile: Unwatched = UNWATCHED
    ) -> tuple[FileSource, OpenedFile]:
        """The file opened for one use, and its source, which counts what is read of it."""
        source = FileSource(self._filesystem, path, self._gap)
        checked = self._page_checksum_verification
        return source, open_source(source, page_checksum_verification=checked, profile=profile)

    def _open(self, path: str, version: Version | Callable[[], Version]) -> OpenedFile:
        _, file = self.open_unshared(path)
        with self._lock:
            self._kept[path] = (version() if callable(version) else version), file
            while len(self._kept) > _KEPT:
                self._kept.popitem(last=False)
        return file
