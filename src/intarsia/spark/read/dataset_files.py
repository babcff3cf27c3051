"""The files of a data set as Spark's readers use them, with their partition values."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from intarsia.dataset.dataset import Dataset
from intarsia.file.file_view import FileView
from intarsia.file.open_file import OpenedFile, VersionedFile
from intarsia.process_state import cached_property


@dataclass(frozen=True)
class Source:
    """A data set, and the folder below which folders name partition values; None if unknown."""

    data: Dataset
    base: str | None

    @classmethod
    def of_table(cls, data: Dataset) -> Source:
        """Returns a table that is a data set. Raises ``TypeError`` for data sets of plain files.

        Spark has other types for some columns of plain files, and for their folders.
        """
        if data.table_snapshot is None:
            raise TypeError(
                "Spark reads data sets that ia.delta or ia.iceberg opened; pass the paths of others"
            )
        return cls(data, None)

    @property
    def files(self) -> tuple[str, ...]:
        """The paths of all files."""
        return tuple(file.path for file in self.data.scan_source.files)

    def opened(self, path: str) -> OpenedFile:
        """Returns one of the data set's files, opened at most once."""
        return self.data.scan_source.cache.get(path)

    def lease(self, path: str) -> VersionedFile:
        """Returns a file like ``opened``, without first checking whether it was replaced."""
        return self.data.scan_source.cache.lease(path)

    def view(self, path: str) -> FileView:
        """Returns how one of the files is read as part of its table."""
        return self.data.scan_source.cache.view(path)

    @property
    def is_far(self) -> bool:
        """True if the files are not on a local disk."""
        return not self.data.scan_source.cache.is_local

    def constants(self, path: str) -> dict[str, pa.Scalar]:
        """Returns the columns that a file's folder fixes, with their values."""
        return self._constants[path]

    @cached_property
    def _constants(self) -> dict[str, dict[str, pa.Scalar]]:
        return {file.path: dict(file.constants) for file in self.data.scan_source.files}
