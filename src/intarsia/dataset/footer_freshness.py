"""Whether the footers that pyarrow caches for its own scans are still those of the files."""

from __future__ import annotations

import os
from collections.abc import Sequence

import pyarrow.fs as pafs

from intarsia.io.file_handle import version_of
from intarsia.io.fsspec_listing import check_not_forked


class Footers:
    """The footers that pyarrow caches from its first scan on, even if the files change."""

    def __init__(self) -> None:
        self._version: object = None  # of the files when pyarrow first read their footers
        self._process: int | None = None
        self.agree = False
        """True once all footers were compared with the values of the files' folders."""

    def are_current(self, files: Sequence[str], filesystem: pafs.FileSystem) -> bool:
        """True if the footers are those of the files as they are now, or are not cached yet.

        For remote files, True only in the first call. False if a local file is missing.
        """
        check_not_forked(filesystem)
        now: object = object()
        # The parent's threads may have been reading the footers when it forked.
        process = os.getpid()
        if isinstance(filesystem, pafs.LocalFileSystem):
            versions = [version_of(file, filesystem) for file in files]
            if None in versions:
                return False
            now = process, versions
        elif self._process not in (None, process):
            return False
        self._process = process
        self._version = now if self._version is None else self._version
        return self._version == now
