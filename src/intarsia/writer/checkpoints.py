"""Files that are valid Parquet up to every checkpoint while they are still written.

::

    PAR1 footer₀ │ row group │ row group │ page indexes │ footer₁ │ row group │ … │ all │ footer │
                 └ none yet  └────────── N of them ──────────────┘ └ next checkpoint

Each footer is complete and cumulative: it lists every row group before it, so that the file cut
behind any of them is a Parquet file. The first one lists none; it keeps the schema from the first
bytes on. Readers look at the last one only, for which all page indexes are written once more, side
by side: DataFusion fetches them as one range, with all that lies between. pyarrow encodes each row
group as a file of its own; its pages are moved here with their offsets, page indexes and bloom
filters.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, BinaryIO

import pyarrow as pa

from intarsia.file.open_file import OpenedFile
from intarsia.io.source import BufferSource
from intarsia.parquet.compact_protocol import Span, list_span, replace_fields, spans, zigzag
from intarsia.parquet.footer import MAGIC, framed, read_footer, with_key_values
from intarsia.parquet.metadata import ColumnChunk, OffsetIndexStruct, PageLocation, RowGroup
from intarsia.parquet.thrift import amended, decode, encode
from intarsia.scan.request import without_rows
from intarsia.writer.arrow_writer import ArrowWriter
from intarsia.writer.defaults import USUAL_ROW_GROUP
from intarsia.writer.dictionary_choice import fitted

_LONGEST_ROW_GROUP = 64 * 1024 * 1024
_ORDINALS = 1 << 15
"""What the field holds; row groups beyond go without."""
_I64 = 6
OF_ONE_WRITER = ("encryption_properties", "metadata_collector")
"""Keywords of pyarrow that need one writer for the whole file."""


@dataclass(slots=True)
class _Waiting:
    """A row group whose pages are written and whose indexes are not."""

    group: RowGroup
    shift: int
    file: memoryview
    """The file it came in."""


class CheckpointWriter:
    """Writes row groups to ``out``, and a footer with a sync after every ``every`` of them.

    Has the methods of ``pyarrow.parquet.ParquetWriter`` that write; ``settings`` are its keywords.
    A table without rows makes no row group. ``close`` writes the last footer and leaves ``out``
    open. Holds one encoded row group in memory, and the page indexes since the last checkpoint.
    """

    def __init__(
        self,
        out: BinaryIO,
        schema: pa.Schema,
        every: int,
        settings: Mapping[str, Any],
        *,
        fits: bool = False,
    ) -> None:
        """With ``fits``, each row group has the dictionaries that pay in it."""
        if every < 1:
            raise ValueError(f"checkpoint_row_groups must be at least 1, not {every}")
        for name in OF_ONE_WRITER:
            if settings.get(name) is not None:
                raise ValueError(f"checkpoint_row_groups does not go with {name}")
        self.schema = schema
        self._out, self._every, self._settings, self._fits = out, every, settings, fits
        self._columns = OpenedFile(BufferSource(self._encoded(without_rows(schema), 0)), out.name)
        self._footer = self._columns.footer
        self._groups: list[bytes] = []
        self._waiting: list[_Waiting] = []
        self._rows = self._at = self._checkpoints = 0
        self._is_new = True
        self._append(MAGIC)
        self._checkpoint()

    def write_table(self, table: pa.Table, row_group_size: int | None = None) -> None:
        """Write ``table`` in row groups of at most ``row_group_size`` rows, 1,048,576 by default.

        Raises ``ValueError`` for a table of another schema.
        """
        size = USUAL_ROW_GROUP if row_group_size in (None, -1) else row_group_size
        if not size or size < 1:
            raise ValueError(f"row_group_size must be at least 1, not {row_group_size}")
        size = min(size, _LONGEST_ROW_GROUP)
        for start in range(0, table.num_rows, size):
            self._write_group(table.slice(start, size))

    def write_batch(self, batch: pa.RecordBatch, row_group_size: int | None = None) -> None:
        """As ``write_table``."""
        self.write_table(pa.Table.from_batches([batch], batch.schema), row_group_size)

    def add_key_value_metadata(self, key_value_metadata: Mapping[str, str]) -> None:
        """Add entries to all footers from now on."""
        self._footer = with_key_values(self._footer, key_value_metadata)
        self._is_new = True

    def close(self) -> None:
        """Write the last footer, where something was written since the last one, or page indexes
        are to be put together.
        """
        is_scattered = self._checkpoints + bool(self._waiting) > 1
        if self._waiting or self._is_new or is_scattered:
            self._checkpoint(is_last=is_scattered)

    def _encoded(self, table: pa.Table, row_group_size: int) -> memoryview:
        """A file of one row group; of none for a ``row_group_size`` of 0."""
        sink = pa.BufferOutputStream()
        settings = self._settings
        if row_group_size and self._fits:
            settings = fitted(table, self._columns, settings)
        with ArrowWriter(sink, self.schema, **settings) as writer:
            if row_group_size:
                writer.write_table(table, row_group_size)
        return memoryview(sink.getvalue())

    def _write_group(self, table: pa.Table) -> None:
        file = self._encoded(table, table.num_rows)
        (group,) = read_footer(BufferSource(file)).metadata.row_groups
        stop = max(data.start + data.total_compressed_size for data in map(_data, group.columns))
        self._waiting.append(_Waiting(group, self._at - len(MAGIC), file))
        self._append(file[len(MAGIC) : stop])
        self._out.flush()
        self._rows += group.num_rows
        if len(self._waiting) >= self._every:
            self._checkpoint()

    def _checkpoint(self, *, is_last: bool = False) -> None:
        """Write the indexes that wait and a footer of all row groups so far, and sync them."""
        moved = [
            [self._moved(c, waiting) for c in waiting.group.columns] for waiting in self._waiting
        ]
        if is_last:
            self._put_together()
        for waiting, columns in zip(self._waiting, moved, strict=True):
            ordinal = len(self._groups)
            first = waiting.group.file_offset
            group = amended(
                waiting.group,
                columns=[self._indexed(chunk, waiting) for chunk in columns],
                file_offset=None if first is None else first + waiting.shift,
                ordinal=ordinal if ordinal < _ORDINALS else None,
            )
            self._groups.append(encode(group))
        self._checkpoints += bool(self._waiting)
        self._waiting.clear()
        self._append(framed(footer_of(self._footer, self._rows, self._groups)))
        self._out.flush()
        os.fsync(self._out.fileno())
        self._is_new = False

    def _moved(self, chunk: ColumnChunk, waiting: _Waiting) -> ColumnChunk:
        """The chunk at its new place, its bloom filter written."""
        data, shift = _data(chunk), waiting.shift
        inner: dict[str, Any] = {
            name: offset + shift
            for name in ("data_page_offset", "dictionary_page_offset", "index_page_offset")
            if (offset := getattr(data, name))
        }
        inner |= self._placed("bloom_filter", data, waiting.file)
        changes: dict[str, Any] = {"meta_data": inner}
        if chunk.file_offset:
            changes["file_offset"] = chunk.file_offset + shift
        return amended(chunk, **changes)

    def _indexed(self, chunk: ColumnChunk, waiting: _Waiting) -> ColumnChunk:
        """The chunk with its page indexes written."""
        changes = self._placed("column_index", chunk, waiting.file)
        shifted = partial(_moved_index, shift=waiting.shift)
        changes |= self._placed("offset_index", chunk, waiting.file, shifted)
        return amended(chunk, **changes)

    def _placed(
        self,
        name: str,
        holder: Any,
        file: memoryview,
        made: Callable[[memoryview], bytes] = bytes,
    ) -> dict[str, Any]:
        """Write what ``holder`` says is in ``file``, if it does; the fields that say where."""
        offset, length = _place(holder, name)
        if offset is None or length is None:
            return {}
        body = made(file[offset : offset + length])
        fields = {f"{name}_offset": self._at, f"{name}_length": len(body)}
        self._append(body)
        return fields

    def _put_together(self) -> None:
        """Write the page indexes of all row groups before once more, side by side."""
        with open(self._out.name, "rb") as written:
            for number, raw in enumerate(self._groups):
                group, _ = decode(RowGroup, raw)
                columns = []
                for chunk in group.columns:
                    changes = {}
                    for name in ("column_index", "offset_index"):
                        offset, length = _place(chunk, name)
                        if offset is not None and length is not None:
                            written.seek(offset)
                            changes[f"{name}_offset"] = self._at
                            self._append(written.read(length))
                    columns.append(amended(chunk, **changes))
                self._groups[number] = encode(amended(group, columns=columns))

    def _append(self, data: bytes | memoryview) -> None:
        self._out.write(data)
        self._at += len(data)


def footer_of(
    template: bytes, num_rows: int, row_groups: Sequence[bytes], drop: Sequence[int] = ()
) -> bytes:
    """The footer ``template`` with these encoded row groups in place of its own.

    Fields whose numbers are in ``drop`` are left out; all others keep their bytes.
    """
    kept = [span for span in spans(template)[0] if span.number not in drop]
    new = [Span(3, _I64, zigzag(num_rows)), list_span(4, list(row_groups))]
    return replace_fields(kept, new)


def _place(holder: Any, name: str) -> tuple[int | None, int | None]:
    return getattr(holder, f"{name}_offset"), getattr(holder, f"{name}_length")


def _data(chunk: ColumnChunk) -> Any:
    """The metadata of a chunk that pyarrow has just written."""
    assert chunk.meta_data is not None
    return chunk.meta_data


def _moved_index(raw: memoryview, shift: int) -> bytes:
    """An OffsetIndex of pages that lie ``shift`` bytes further on."""
    index, _ = decode(OffsetIndexStruct, raw)
    places = [
        PageLocation(
            offset=page.offset + shift,
            compressed_page_size=page.compressed_page_size,
            first_row_index=page.first_row_index,
        )
        for page in index.page_locations
    ]
    return encode(amended(index, page_locations=places))
