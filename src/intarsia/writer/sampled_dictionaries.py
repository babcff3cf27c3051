"""Wraps pyarrow's writer and chooses dictionaries by the rows that are written first.

Later rows are not known yet; for them another choice may have been better.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from intarsia.file.open_file import OpenedFile
from intarsia.writer.arrow_writer import ArrowWriter
from intarsia.writer.defaults import DEFAULT_ROW_GROUP_ROWS
from intarsia.writer.dictionary_choice import with_dictionary_settings


class SampledDictionaryWriter:
    """An ``ArrowWriter`` with dictionaries that pay in the rows that are written first.

    The file is begun with these rows. Tables without rows before them make no row group.
    ``settings`` are the keywords of ``ArrowWriter``. ``file`` has the same columns and no rows.
    """

    def __init__(
        self, sink: Any, schema: pa.Schema, file: OpenedFile, settings: Mapping[str, Any]
    ) -> None:
        self.schema = schema
        self._sink, self._file, self._settings = sink, file, settings
        self._writer: ArrowWriter | None = None
        self._key_values: dict[str, str] = {}

    def write_table(self, table: pa.Table, row_group_size: int | None = None) -> None:
        """Writes a table, as pyarrow's method does."""
        writer = self._writer
        if writer is None:
            if not table.num_rows:
                return
            has_size = row_group_size is not None and row_group_size > 0
            first = table.slice(0, row_group_size if has_size else DEFAULT_ROW_GROUP_ROWS)
            writer = self._begin(with_dictionary_settings(first, self._file, self._settings))
        writer.write_table(table, row_group_size)

    def write_batch(self, batch: pa.RecordBatch, row_group_size: int | None = None) -> None:
        """Writes a record batch, as pyarrow's method does."""
        self.write_table(pa.Table.from_batches([batch], batch.schema), row_group_size)

    def add_key_value_metadata(self, key_value_metadata: Mapping[str, str]) -> None:
        """Adds entries to the footer, as pyarrow's method does."""
        if self._writer is None:
            self._key_values |= key_value_metadata
        else:
            self._writer.add_key_value_metadata(key_value_metadata)

    def close(self) -> None:
        """Finishes the file."""
        (self._writer or self._begin(self._settings)).close()

    def __enter__(self) -> SampledDictionaryWriter:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _begin(self, settings: Mapping[str, Any]) -> ArrowWriter:
        writer = ArrowWriter(self._sink, self.schema, **settings)
        if self._key_values:
            writer.add_key_value_metadata(self._key_values)
        self._writer = writer
        return writer
