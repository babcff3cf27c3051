"""Writes files that are valid Parquet up to every checkpoint while they are still written.

::

    PAR1 footer₀ │ row group │ row group │ page indexes │ footer₁ │ row group │ … │ all │ footer │
                 └ none yet  └────────── N of them ──────────────┘ └ next checkpoint

Each footer is complete and lists every row group before it. The file cut behind any footer is
therefore a Parquet file. The first footer lists no row group; it keeps the schema. Readers use the
last footer only. For it, all page indexes are written again, side by side: DataFusion fetches them
as one range, with all bytes between them. pyarrow encodes each row group as a file of its own. Its
pages are copied here, and their offsets, page indexes and bloom filters are adjusted.
"""

from __future__ import annotations

import os
import sys
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
from intarsia.threads import in_order, may_use_threads
from intarsia.writer.arrow_writer import ArrowWriter
from intarsia.writer.defaults import DEFAULT_ROW_GROUP_ROWS
from intarsia.writer.dictionary_choice import with_dictionary_settings

_MAX_ROW_GROUP_ROWS = 64 * 1024 * 1024
"""Rows. pyarrow's own upper limit of a row group."""
_MAX_ORDINALS = 1 << 15
"""Row groups that get an ordinal: the field has 16 bits. Later ones go without."""
_I64 = 6
"""The number of the type i64 in the Thrift compact protocol."""
NEVER = sys.maxsize
"""The interval of a file without checkpoints: it has one footer, at its end."""
OF_ONE_WRITER = ("encryption_properties", "metadata_collector")
"""Keywords of pyarrow that need one writer for the whole file."""


@dataclass(slots=True)
class _Waiting:
    """A row group whose pages are written and whose page indexes are not."""

    group: RowGroup
    shift: int
    tail: memoryview
    """The file that pyarrow made of the row group, without its pages: indexes and footer."""
    tail_offset: int
    """The offset of ``tail`` in that file, in bytes."""


class CheckpointWriter:
    """Writes row groups to ``out``, and a synced footer after every ``every`` of them.

    It has the writing methods of ``pyarrow.parquet.ParquetWriter``; ``settings`` are the keywords
    of that class. A table without rows makes no row group. ``close`` writes the last footer and
    leaves ``out`` open. Threads encode the row groups of a table. Holds in memory an encoded row
    group for each of them, and the page indexes since the last checkpoint.
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
        """Starts a file. With ``fits``, dictionaries are chosen anew for each row group."""
        if every < 1:
            raise ValueError(f"checkpoint_row_groups must be at least 1, not {every}")
        for name in OF_ONE_WRITER:
            if settings.get(name) is not None:
                raise ValueError(f"checkpoint_row_groups cannot be combined with {name}")
        self.schema = schema
        self._out, self._every, self._settings, self._fits = out, every, settings, fits
        self._columns = OpenedFile(BufferSource(self._encoded(without_rows(schema), 0)), out.name)
        self._footer = self._columns.footer
        self._groups: list[bytes] = []
        self._waiting: list[_Waiting] = []
        self._rows = self._at = self._checkpoints = 0
        self._is_new = True
        self._append(MAGIC)
        if every != NEVER:
            self._checkpoint()

    def write_table(self, table: pa.Table, row_group_size: int | None = None) -> None:
        """Writes ``table`` in row groups of at most ``row_group_size`` rows, by default 1,048,576.

        Raises ``ValueError`` for a table of another schema.
        """
        size = DEFAULT_ROW_GROUP_ROWS if row_group_size in (None, -1) else row_group_size
        if not size or size < 1:
            raise ValueError(f"row_group_size must be at least 1, not {row_group_size}")
        size = min(size, _MAX_ROW_GROUP_ROWS)
        groups = (table.slice(start, size) for start in range(0, table.num_rows, size))
        tasks = (partial(self._encoded, group, group.num_rows) for group in groups)
        for file in in_order(tasks, pa.cpu_count() - 1 if may_use_threads() else 0):
            self._append_group(file)

    def write_batch(self, batch: pa.RecordBatch, row_group_size: int | None = None) -> None:
        """Writes a record batch, as ``write_table`` does."""
        self.write_table(pa.Table.from_batches([batch], batch.schema), row_group_size)

    def add_key_value_metadata(self, key_value_metadata: Mapping[str, str]) -> None:
        """Adds entries to all footers from now on."""
        self._footer = with_key_values(self._footer, key_value_metadata)
        self._is_new = True

    def close(self) -> None:
        """Writes the last footer, unless it is there and page indexes are in one place."""
        is_scattered = self._checkpoints + bool(self._waiting) > 1
        if self._waiting or self._is_new or is_scattered:
            self._checkpoint(is_last=is_scattered)

    def _encoded(self, table: pa.Table, row_group_size: int) -> memoryview:
        """Returns a file of one row group, or of none for a ``row_group_size`` of 0."""
        sink = pa.BufferOutputStream()
        settings = self._settings
        if row_group_size and self._fits:
            settings = with_dictionary_settings(table, self._columns, settings)
        with ArrowWriter(sink, self.schema, **settings) as writer:
            if row_group_size:
                writer.write_table(table, row_group_size)
        return memoryview(sink.getvalue())

    def _append_group(self, file: memoryview) -> None:
        (group,) = read_footer(BufferSource(file)).metadata.row_groups
        stop = max(data.start + data.total_compressed_size for data in map(_data, group.columns))
        self._waiting.append(
            _Waiting(group, self._at - len(MAGIC), memoryview(bytes(file[stop:])), stop)
        )
        self._append(file[len(MAGIC) : stop])
        self._out.flush()
        self._rows += group.num_rows
        if len(self._waiting) >= self._every:
            self._checkpoint()

    def _checkpoint(self, *, is_last: bool = False) -> None:
        """Writes the waiting indexes and a footer of all row groups so far, and syncs the file."""
        moved = [
            [self._moved(c, waiting) for c in waiting.group.columns] for waiting in self._waiting
        ]
        if is_last:
            self._gather_page_indexes()
        for waiting, columns in zip(self._waiting, moved, strict=True):
            ordinal = len(self._groups)
            first = waiting.group.file_offset
            group = amended(
                waiting.group,
                columns=[self._indexed(chunk, waiting) for chunk in columns],
                file_offset=None if first is None else first + waiting.shift,
                ordinal=ordinal if ordinal < _MAX_ORDINALS else None,
            )
            self._groups.append(encode(group))
        self._checkpoints += bool(self._waiting)
        self._waiting.clear()
        self._append(framed(footer_of(self._footer, self._rows, self._groups)))
        self._out.flush()
        os.fsync(self._out.fileno())
        self._is_new = False

    def _moved(self, chunk: ColumnChunk, waiting: _Waiting) -> ColumnChunk:
        """Returns the chunk's metadata with its new offsets, and writes its bloom filter."""
        data, shift = _data(chunk), waiting.shift
        inner: dict[str, Any] = {
            name: offset + shift
            for name in ("data_page_offset", "dictionary_page_offset", "index_page_offset")
            if (offset := getattr(data, name))
        }
        inner |= self._copy_index("bloom_filter", data, waiting)
        changes: dict[str, Any] = {"meta_data": inner}
        if chunk.file_offset:
            changes["file_offset"] = chunk.file_offset + shift
        return amended(chunk, **changes)

    def _indexed(self, chunk: ColumnChunk, waiting: _Waiting) -> ColumnChunk:
        """Returns the chunk's metadata with its page indexes, which are written."""
        changes = self._copy_index("column_index", chunk, waiting)
        shifted = partial(_moved_index, shift=waiting.shift)
        changes |= self._copy_index("offset_index", chunk, waiting, shifted)
        return amended(chunk, **changes)

    def _copy_index(
        self,
        name: str,
        holder: Any,
        waiting: _Waiting,
        adjust: Callable[[memoryview], bytes] = bytes,
    ) -> dict[str, Any]:
        """Copies an index, changed by ``adjust``, and returns where it is."""
        offset, length = _place(holder, name)
        if offset is None or length is None:
            return {}
        start = offset - waiting.tail_offset
        body = adjust(waiting.tail[start : start + length])
        fields = {f"{name}_offset": self._at, f"{name}_length": len(body)}
        self._append(body)
        return fields

    def _gather_page_indexes(self) -> None:
        """Writes the page indexes of all earlier row groups again, side by side."""
        with open(self._out.name, "rb") as file:
            for number, raw in enumerate(self._groups):
                group, _ = decode(RowGroup, raw)
                columns = []
                for chunk in group.columns:
                    changes = {}
                    for name in ("column_index", "offset_index"):
                        offset, length = _place(chunk, name)
                        if offset is not None and length is not None:
                            file.seek(offset)
                            changes[f"{name}_offset"] = self._at
                            self._append(file.read(length))
                    columns.append(amended(chunk, **changes))
                self._groups[number] = encode(amended(group, columns=columns))

    def _append(self, data: bytes | memoryview) -> None:
        self._out.write(data)
        self._at += len(data)


def footer_of(template: bytes, num_rows: int, row_groups: Sequence[bytes]) -> bytes:
    """Returns the footer ``template`` with these encoded row groups in place of its own."""
    new_fields = [Span(3, _I64, zigzag(num_rows)), list_span(4, list(row_groups))]
    return replace_fields(spans(template)[0], new_fields)


def _place(holder: Any, name: str) -> tuple[int | None, int | None]:
    return getattr(holder, f"{name}_offset"), getattr(holder, f"{name}_length")


def _data(chunk: ColumnChunk) -> Any:
    """Returns the metadata of a chunk that pyarrow has just written."""
    assert chunk.meta_data is not None
    return chunk.meta_data


def _moved_index(raw: memoryview, shift: int) -> bytes:
    """Returns an OffsetIndex whose pages lie ``shift`` bytes further on."""
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
