"""A data set as Spark's side of the house sees it: its files opened, and what their folders say."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from intarsia.dataset.dataset import Dataset
from intarsia.file.open_file import Lease, OpenedFile
from intarsia.process_state import cached_property


@dataclass(frozen=True)
class Source:
    """A data set, and the folder that its folders of values are below; None where unknown."""

    data: Dataset
    base: str | None

    @property
    def files(self) -> tuple[str, ...]:
        """The paths of all files."""
        return tuple(file.path for file in self.data.scan_source.files)

    def opened(self, path: str) -> OpenedFile:
        """One of its files; opened once for whatever is asked of it."""
        return self.data.scan_source.cache.get(path)

    def lease(self, path: str) -> Lease:
        """As ``opened``, without waiting to hear whether the file was replaced."""
        return self.data.scan_source.cache.lease(path)

    @property
    def is_far(self) -> bool:
        """Are its files not on a local disk?"""
        return not self.data.scan_source.cache.is_local

    def constants(self, path: str) -> dict[str, pa.Scalar]:
        """The columns that the folder of a file fixes."""
        return self._constants[path]

    @cached_property
    def _constants(self) -> dict[str, dict[str, pa.Scalar]]:
        return {file.path: dict(file.constants) for file in self.data.scan_source.files}
