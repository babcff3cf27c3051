"""Opened files, kept for later queries for as long as they are the same files."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict

import pyarrow.fs as pafs

from intarsia.errors import PathError
from intarsia.read.opened import OpenedFile
from intarsia.storage import FileSource

_KEPT = 512
_Identity = tuple[int, int, int] | None


class FileCache:
    """The most recently used files of one file system; may be shared by threads."""

    def __init__(self, filesystem: pafs.FileSystem) -> None:
        self._filesystem = filesystem
        self._kept: OrderedDict[str, tuple[_Identity, OpenedFile]] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, path: str) -> OpenedFile:
        """The file at ``path``; opened anew where a local file was replaced since."""
        identity = self._identity(path)
        with self._lock:
            known, file = self._kept.get(path, (None, None))
            if file is not None and known == identity:
                self._kept.move_to_end(path)
                return file
        source = FileSource(self._filesystem, path)
        file = OpenedFile(source, path, source.tail_bytes)
        with self._lock:
            self._kept[path] = identity, file
            while len(self._kept) > _KEPT:
                self._kept.popitem(last=False)
        return file

    def _identity(self, path: str) -> _Identity:
        """What tells one version of a local file from the next; nothing, elsewhere."""
        if not isinstance(self._filesystem, pafs.LocalFileSystem):
            return None
        try:
            stat = os.stat(path)
        except OSError as error:
            raise PathError(f"{path}: the file is gone") from error
        return stat.st_ino, stat.st_size, stat.st_mtime_ns
