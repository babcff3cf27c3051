"""A section: one inverted index as a small page-indexed Parquet file, less its last four bytes.

::

    PAR1 [pages of key][pages of granule] [column and offset indexes][footer][length] (PAR1 cut off)
                                          └──────── metadata, with a CRC of its own ───────┘

Rows are ``(key, granule)``, sorted and distinct. Because fingerprints spread evenly and are sorted,
the column index finds the one or two pages a key can be on. The footer's key/values hold where the
granules start and the ``file_id`` of the directory the section belongs to.

Everything read here is checked before it is believed; any failure is a ``FormatError``, which
callers take to mean that all rows might match.
"""

from __future__ import annotations

import base64
import json
import struct
import zlib
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from intarsia.decode.splice import (
    ChunkBytes,
    RootTemplate,
    RowGroupBytes,
    SchemaTemplates,
    decode_root,
)
from intarsia.errors import FormatError
from intarsia.format.footer import MAGIC
from intarsia.format.metadata import ColumnChunk, ColumnMetaData, FileMetaData
from intarsia.format.order import order_of
from intarsia.format.page_index import OffsetIndex, read_column_index, read_offset_index
from intarsia.format.schema import read_schema
from intarsia.format.thrift import decode
from intarsia.index.kind import KeyArray
from intarsia.ranges import Int64Array, RowRanges
from intarsia.source import Source

UInt64Array = NDArray[np.uint64]

PAGE_ROWS = 8192
"""Entries a page: few enough that a probe reads little, many enough to compress well."""
_INFO_KEY = "intarsia"
_ENTRY_SCHEMA = pa.schema([("key", pa.uint32()), ("granule", pa.uint32())])
_LENGTH_BYTES = 4


@dataclass(frozen=True, slots=True)
class BuiltSection:
    """The bytes of a section, and how many of the last ones are its metadata."""

    data: memoryview
    meta_length: int

    @property
    def meta_crc32(self) -> int:
        return zlib.crc32(self.data[-self.meta_length :])


def build_section(
    entries: Iterable[tuple[KeyArray, KeyArray]], granule_starts: Int64Array, file_id: str
) -> BuiltSection:
    """A section of all ``entries``: keys and granule numbers in any order, repeats allowed.

    ``granule_starts`` has shape ``(granules + 1,)``: the first row of each granule, counted from
    the start of the file, and the number of rows at the end.
    """
    merged = packed(entries)
    keys = (merged >> np.uint64(32)).astype(np.uint32)
    table = pa.table([pa.array(keys), pa.array(merged.astype(np.uint32))], schema=_ENTRY_SCHEMA)
    info = {"file_id": file_id, "granules": _pack_starts(granule_starts)}
    out = pa.BufferOutputStream()
    with pq.ParquetWriter(
        out,
        _ENTRY_SCHEMA,
        max_rows_per_page=PAGE_ROWS,
        write_batch_size=PAGE_ROWS,
        compression="zstd",
        use_dictionary=False,
        column_encoding={"key": "DELTA_BINARY_PACKED", "granule": "DELTA_BINARY_PACKED"},
        write_page_index=True,
        write_page_checksum=True,
        store_schema=False,
    ) as writer:
        writer.add_key_value_metadata({_INFO_KEY: json.dumps(info)})
        writer.write_table(table, row_group_size=max(len(table), 1))
    data = memoryview(out.getvalue())[: -len(MAGIC)]
    return BuiltSection(data, len(data) - _metadata_start(data))


def packed(entries: Iterable[tuple[KeyArray, KeyArray]]) -> UInt64Array:
    """Pairs of key and granule, as one number each with the key above: sorted, distinct."""
    parts = [
        _distinct(keys.astype(np.uint64) << np.uint64(32) | granules.astype(np.uint64))
        for keys, granules in entries
    ]
    return _distinct(np.concatenate(parts)) if parts else np.empty(0, np.uint64)


def _distinct(values: UInt64Array) -> UInt64Array:
    """Sorted and without repeats; ``np.unique`` hashes first, which is far slower here."""
    values = np.sort(values)
    return values[np.concatenate(([True], values[1:] != values[:-1]))] if len(values) else values


def _metadata_start(data: memoryview) -> int:
    """Where the page indexes, or else the footer, of a section begin."""
    (length,) = struct.unpack("<I", data[-_LENGTH_BYTES:])
    footer_start = len(data) - _LENGTH_BYTES - length
    metadata, _ = decode(FileMetaData, data[footer_start:-_LENGTH_BYTES])
    starts = [
        offset
        for group in metadata.row_groups
        for chunk in group.columns
        for offset in (chunk.column_index_offset, chunk.offset_index_offset)
        if offset is not None
    ]
    return min([int(footer_start), *starts])


def _pack_starts(starts: Int64Array) -> str:
    steps = np.diff(starts, prepend=np.int64(0))
    return base64.b64encode(zlib.compress(steps.astype("<i8").tobytes())).decode()


def _unpack_starts(text: str, num_rows: int) -> Int64Array:
    """Granule starts; there can be no more of them than rows, and one."""
    limit = (num_rows + 2) * 8
    try:
        unpack = zlib.decompressobj()
        raw = unpack.decompress(base64.b64decode(text, validate=True), limit)
    except (ValueError, zlib.error) as error:
        raise FormatError(f"granules cannot be unpacked: {error}") from error
    if unpack.unconsumed_tail or len(raw) % 8:
        raise FormatError("more granules than rows")
    starts = np.cumsum(np.frombuffer(raw, dtype="<i8")).astype(np.int64)
    if not len(starts) or starts[0] != 0 or starts[-1] != num_rows or (np.diff(starts) <= 0).any():
        raise FormatError("granules do not cover the rows of the file one after the other")
    return starts


@dataclass(frozen=True, slots=True, eq=False)
class _Pages:
    """One column of a section: where its pages are, and how to decode them."""

    metadata: ColumnMetaData
    pages: OffsetIndex
    template: RootTemplate


class Section:
    """An opened section: its checked metadata in memory, its pages read on demand."""

    def __init__(
        self, source: Source, meta_length: int, meta_crc32: int, file_id: str, num_rows: int
    ) -> None:
        """``source`` holds just the section; ``num_rows`` are the rows of the file it indexes.

        Raises ``FormatError`` where the metadata is damaged or belongs to another file.
        """
        if not _LENGTH_BYTES <= meta_length <= source.size:
            raise FormatError("the metadata is longer than the section")
        start = source.size - meta_length
        meta = source.read([(start, meta_length)])[0]
        if zlib.crc32(meta) != meta_crc32:
            raise FormatError("the metadata does not match its checksum")
        (length,) = struct.unpack("<I", meta[-_LENGTH_BYTES:])
        if length > meta_length - _LENGTH_BYTES:
            raise FormatError("the footer is longer than the metadata")
        raw = bytes(meta[-_LENGTH_BYTES - length : -_LENGTH_BYTES])
        metadata, _ = decode(FileMetaData, raw)
        info = _info(metadata)
        if info.get("file_id") != file_id:
            raise FormatError("the section belongs to another file")
        self.granule_starts = _unpack_starts(str(info.get("granules")), num_rows)
        self._source = source
        self.num_entries = metadata.num_rows
        if not self.num_entries:
            return
        self._load(metadata, raw, meta, start)

    def _load(self, metadata: FileMetaData, raw: bytes, meta: memoryview, start: int) -> None:
        schema = read_schema(metadata.schema)
        if [leaf.name for leaf in schema.leaves] != _ENTRY_SCHEMA.names:
            raise FormatError("the section does not have the columns of an inverted index")
        if len(metadata.row_groups) != 1 or len(metadata.row_groups[0].columns) != 2:
            raise FormatError("the section has more than one row group")
        templates = SchemaTemplates(metadata, raw)
        key, granule = metadata.row_groups[0].columns
        self._key, self._granule = (
            _Pages(
                _metadata(chunk),
                read_offset_index(
                    _part(meta, start, chunk.offset_index_offset, chunk.offset_index_length)
                ),
                templates.logical(root),
            )
            for chunk, root in zip((key, granule), schema.roots, strict=True)
        )
        for column in (self._key, self._granule):
            chunk = column.metadata
            stop = chunk.start + chunk.total_compressed_size
            problem = column.pages.problem(self.num_entries, chunk.start, min(stop, start))
            if problem:
                raise FormatError(problem)
        if not np.array_equal(self._key.pages.first_row_index, self._granule.pages.first_row_index):
            raise FormatError("pages of keys and of granules differ in rows")
        index = read_column_index(
            _part(meta, start, key.column_index_offset, key.column_index_length)
        )
        order = order_of(schema.leaves[0].element)
        low, low_usable = order.keys(index.min_values)
        high, high_usable = order.keys(index.max_values)
        if not (low_usable.all() and high_usable.all()) or len(index) != len(self._key.pages):
            raise FormatError("the column index of the keys is incomplete")
        if (low > high).any() or (high[:-1] > low[1:]).any():
            raise FormatError("the keys are not sorted")
        self._low, self._high = low, high

    def rows_of(self, keys: KeyArray) -> RowRanges:
        """The rows of all granules that hold one of ``keys``, distinct and sorted.

        Raises ``FormatError`` where a page that has to be read is damaged.
        """
        if not self.num_entries or not len(keys):
            return RowRanges.none()
        wanted = keys.astype(np.uint64)
        first = np.searchsorted(self._high, wanted, side="left")
        last = np.searchsorted(self._low, wanted, side="right")
        edges = np.zeros(len(self._low) + 1, dtype=np.int64)
        found = first < last
        np.add.at(edges, first[found], 1)
        np.add.at(edges, last[found], -1)
        pages = np.flatnonzero(np.cumsum(edges[:-1]) > 0)
        if not len(pages):
            return RowRanges.none()
        entry_keys, granules = self._read(pages)
        hits = np.unique(granules[np.isin(entry_keys, keys)])
        if len(hits) and hits[-1] >= len(self.granule_starts) - 1:
            raise FormatError(f"granule {hits[-1]} does not exist")
        return RowRanges(self.granule_starts[hits], self.granule_starts[hits + 1])

    def entries(self) -> UInt64Array:
        """All entries, as ``packed``. Raises ``FormatError`` where a page is damaged."""
        if not self.num_entries:
            return packed([])
        return packed([self._read(np.arange(len(self._key.pages)))])

    def _read(self, pages: Int64Array) -> tuple[KeyArray, KeyArray]:
        columns = (self._key, self._granule)
        ranges = [
            (int(column.pages.offset[page]), int(column.pages.compressed_page_size[page]))
            for column in columns
            for page in pages
        ]
        parts = self._source.read(ranges)
        starts, stops = self._key.pages.row_bounds(self.num_entries)
        rows = int((stops[pages] - starts[pages]).sum())
        decoded = []
        for i, column in enumerate(columns):
            mine = parts[i * len(pages) : (i + 1) * len(pages)]
            chunk = ChunkBytes(column.metadata, None, mine, rows)
            group = RowGroupBytes(rows, [chunk])
            values = decode_root(column.template, [group], verify_checksums=True)
            if values.null_count:
                raise FormatError("a section holds NULLs")
            decoded.append(values.to_numpy())
        return decoded[0], decoded[1]


def _info(metadata: FileMetaData) -> dict[str, object]:
    try:
        info = json.loads(metadata.key_value(_INFO_KEY) or "")
    except (ValueError, RecursionError) as error:
        raise FormatError("the section does not say what it belongs to") from error
    return info if isinstance(info, dict) else {}


def _part(meta: memoryview, start: int, offset: int | None, length: int | None) -> memoryview:
    """Bytes of the metadata by their place in the section."""
    if offset is None or length is None or offset < start or length < 0:
        raise FormatError("the section has no page index in its metadata")
    if offset - start + length > len(meta):
        raise FormatError("the section's page index lies outside its metadata")
    return meta[offset - start : offset - start + length]


def _metadata(chunk: ColumnChunk) -> ColumnMetaData:
    if chunk.meta_data is None:
        raise FormatError("a chunk without metadata")
    return chunk.meta_data
