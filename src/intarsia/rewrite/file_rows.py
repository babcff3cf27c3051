"""The rows of files that are rewritten, with checksums verified, in the types of new files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa

from intarsia.commit.storage import Place
from intarsia.errors import FormatError, Where
from intarsia.rewrite.rewrite_plan import (
    FileFormat,
    OldFile,
    OvertakenError,
    changed_since,
    open_reader,
)

_BATCH_ROWS = 64 * 1024
_BATCH_BYTES = 32 * 1024 * 1024
"""Decoded bytes of a batch, as far as footers tell. Wide rows make smaller batches."""


@dataclass(frozen=True, slots=True)
class Part:
    """Row groups of a file in a folder."""

    folder: str
    file: OldFile
    groups: tuple[int, ...]


def part_batches(
    place: Place,
    file_format: FileFormat,
    part: Part,
    folder_values: Mapping[str, pa.Scalar] | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yields the rows of row groups.

    Columns that the file lacks have one of ``folder_values``, or are NULL.

    Raises ``OvertakenError`` if the file is not the one that was planned, and ``FormatError`` if it
    cannot be decoded.
    """
    if not part.groups:
        return
    with open_reader(place, part.file, file_format) as file:
        changed = changed_since(place, [part.file])  # checked after it was opened
        if changed:
            raise OvertakenError(f"{place.root}: {changed}")
        groups = [file.metadata.row_group(group) for group in part.groups]
        rows, num_bytes = (
            sum(group.num_rows for group in groups),
            sum(group.total_byte_size for group in groups),
        )
        batch_rows = min(_BATCH_ROWS, max(1, rows * _BATCH_BYTES // max(num_bytes, 1)))
        try:
            for batch in file.iter_batches(batch_rows, row_groups=list(part.groups)):
                yield _conformed(batch, file_format.read_schema, folder_values or {})
        except (OSError, pa.ArrowException) as error:
            raise FormatError(str(error), Where(place.path(part.file.path))) from error


def _conformed(
    batch: pa.RecordBatch, schema: pa.Schema, values: Mapping[str, pa.Scalar]
) -> pa.RecordBatch:
    columns = []
    for field in schema:
        at = batch.schema.get_field_index(field.name)
        if at >= 0:
            column = batch.column(at)
        elif field.name in values:
            column = pa.repeat(values[field.name], len(batch))
        else:
            column = pa.nulls(len(batch), field.type)
        columns.append(column if column.type == field.type else column.cast(field.type))
    return pa.RecordBatch.from_arrays(columns, schema=schema)
