"""Whether the footers that pyarrow keeps for its own scans are still those of the files."""

from __future__ import annotations

import os
from collections.abc import Sequence

import pyarrow.fs as pafs

from intarsia.io.file_handle import version_of
from intarsia.io.fsspec_listing import check_not_forked


class Footers:
    """The footers that pyarrow keeps from its first scan on, whatever becomes of the files."""

    def __init__(self) -> None:
        self._kept: object = None
        self._process: int | None = None
        self.agree = False
        """True once all of them were compared with the values of the files' folders."""

    def are_of(self, files: Sequence[str], filesystem: pafs.FileSystem) -> bool:
        """Are they of the files as they are now? Of far ones only the first scan's surely are.

        Not of files that are not there.
        """
        check_not_forked(filesystem)
        now: object = object()
        process = os.getpid()  # the parent's threads may have been reading them when it forked
        if isinstance(filesystem, pafs.LocalFileSystem):
            versions = [version_of(file, filesystem) for file in files]
            if None in versions:
                return False
            now = process, versions
        elif self._process not in (None, process):
            return False
        self._process = process
        self._kept = now if self._kept is None else self._kept
        return self._kept == now
