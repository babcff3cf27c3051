"""Opened files, kept for later queries for as long as they are the same files."""

from __future__ import annotations

import threading
from collections import OrderedDict

import pyarrow.fs as pafs

from intarsia.read.file import open_file
from intarsia.read.opened import OpenedFile
from intarsia.storage import Version, version_of

_KEPT = 128


class FileCache:
    """The most recently used files of one file system, 128 at most, as each is an open handle."""

    def __init__(
        self, filesystem: pafs.FileSystem, *, page_checksum_verification: bool = False
    ) -> None:
        self._filesystem = filesystem
        self._page_checksum_verification = page_checksum_verification
        self._kept: OrderedDict[str, tuple[Version, OpenedFile]] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, path: str) -> OpenedFile:
        """The file at ``path``; opened anew where it was replaced since, as far as that shows."""
        version = version_of(path, self._filesystem)
        with self._lock:
            known, file = self._kept.get(path, (None, None))
            if file is not None and version is not None and known == version:
                self._kept.move_to_end(path)
                return file
        file = open_file(
            path,
            self._filesystem,
            page_checksum_verification=self._page_checksum_verification,
        )
        with self._lock:
            self._kept[path] = version, file
            while len(self._kept) > _KEPT:
                self._kept.popitem(last=False)
        return file
