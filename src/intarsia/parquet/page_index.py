"""ColumnIndex and OffsetIndex: the positions of a chunk's pages and bounds of their values.

Decoding is vectorised for the usual layout and falls back to plain Thrift for any other.

Source: ``PageIndex.md``; ``OffsetIndex`` and ``ColumnIndex`` in ``parquet.thrift`` (PARQUET-922).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from intarsia.errors import FormatError
from intarsia.parquet.compact_protocol import STRUCT, read_list_header
from intarsia.parquet.metadata import ColumnIndexStruct, OffsetIndexStruct, PageLocation
from intarsia.parquet.thrift import decode, encode
from intarsia.row_ranges import Int64Array


@dataclass(frozen=True, slots=True, eq=False)
class OffsetIndex:
    """The positions of one chunk's pages: int64 arrays of shape ``(pages,)``.

    ``first_row_index`` counts from the start of the row group. ``offset`` is in bytes from the
    start of the file. ``compressed_page_size`` is in bytes and includes the page's header.
    """

    offset: Int64Array
    compressed_page_size: Int64Array
    first_row_index: Int64Array

    def __len__(self) -> int:
        return len(self.offset)

    def row_bounds(self, num_rows: int) -> tuple[Int64Array, Int64Array]:
        """Returns the first row of each page, and the row after it; ``(pages,)`` each."""
        return self.first_row_index, np.append(self.first_row_index[1:], num_rows)

    def problem(self, num_rows: int, start: int, stop: int) -> str | None:
        """Describes why a chunk of ``num_rows``, in bytes ``[start, stop)``, cannot use this index.

        Returns None if the pages are in order, disjoint, inside the chunk, start at row 0, and each
        has rows. Only the page headers can confirm how many rows a page holds.
        """
        if not len(self):
            return None if num_rows == 0 else "no pages for a chunk that has rows"
        rows = self.first_row_index
        if rows[0] != 0:
            return f"the first page starts at row {rows[0]}, not 0"
        if rows[-1] >= num_rows or (rows[1:] <= rows[:-1]).any():  # differences might not fit
            return "first_row_index does not ascend within the row group"
        if not 0 <= start <= stop < 2**63:
            return "the chunk lies outside of any file"
        outside = (self.offset < start) | (self.offset > stop)
        if (outside | (self.compressed_page_size > stop - self.offset)).any():
            return "pages lie outside their chunk"
        ends = self.offset + self.compressed_page_size
        if (self.compressed_page_size <= 0).any() or (ends[:-1] > self.offset[1:]).any():
            return "pages overlap or are empty"
        return None


@dataclass(frozen=True, slots=True, eq=False)
class ColumnIndex:
    """Bounds and counts of one chunk's pages: lists and arrays of length ``pages``.

    Bounds are encoded as in the file. ``value_order.ValueOrder`` turns them into comparable keys.
    """

    null_pages: NDArray[np.bool_]
    min_values: list[bytes]
    max_values: list[bytes]
    boundary_order: int
    null_counts: Int64Array | None
    nan_counts: Int64Array | None
    repetition_level_histograms: Int64Array | None = None
    """The histograms of all pages, concatenated. Each has ``max_repetition_level + 1`` counts."""
    definition_level_histograms: Int64Array | None = None
    """The same with ``max_definition_level + 1`` counts."""

    def __len__(self) -> int:
        return len(self.null_pages)


def read_offset_index(data: memoryview) -> OffsetIndex:
    """Decodes an OffsetIndex. Raises ``FormatError`` if ``data`` is not one."""
    return _short_offset_index(data) or _regular_offset_index(data) or _thrift_offset_index(data)


def read_column_index(data: memoryview) -> ColumnIndex:
    """Decodes a ColumnIndex. Raises ``FormatError`` if its lists differ in length."""
    stored, _ = decode(ColumnIndexStruct, data)
    pages = len(stored.null_pages)
    lists = (stored.min_values, stored.max_values, stored.null_counts, stored.nan_counts)
    if any(values is not None and len(values) != pages for values in lists):
        raise FormatError(f"the lists of a column index of {pages} pages differ in length")
    return ColumnIndex(
        np.array(stored.null_pages, dtype=np.bool_),
        stored.min_values,
        stored.max_values,
        stored.boundary_order,
        _to_array(stored.null_counts),
        _to_array(stored.nan_counts),
        _to_array(stored.repetition_level_histograms),
        _to_array(stored.definition_level_histograms),
    )


def encode_offset_index(index: OffsetIndex) -> bytes:
    """Encodes an OffsetIndex."""
    columns = (index.offset, index.compressed_page_size, index.first_row_index)
    locations = [
        PageLocation(offset=offset, compressed_page_size=size, first_row_index=row)
        for offset, size, row in zip(*(column.tolist() for column in columns), strict=True)
    ]
    return encode(OffsetIndexStruct(page_locations=locations))


def encode_column_index(index: ColumnIndex) -> bytes:
    """Encodes a ColumnIndex."""
    stored = ColumnIndexStruct(
        null_pages=index.null_pages.tolist(),
        min_values=index.min_values,
        max_values=index.max_values,
        boundary_order=index.boundary_order,
        null_counts=_to_list(index.null_counts),
        repetition_level_histograms=_to_list(index.repetition_level_histograms),
        definition_level_histograms=_to_list(index.definition_level_histograms),
        nan_counts=_to_list(index.nan_counts),
    )
    return encode(stored)


def _to_list(values: Int64Array | None) -> list[int] | None:
    return None if values is None else [int(value) for value in values]


def _to_array(values: list[int] | None) -> Int64Array | None:
    return None if values is None else np.array(values, dtype=np.int64)


def _thrift_offset_index(data: memoryview) -> OffsetIndex:
    locations = decode(OffsetIndexStruct, data)[0].page_locations
    return OffsetIndex(
        np.array([page.offset for page in locations], dtype=np.int64),
        np.array([page.compressed_page_size for page in locations], dtype=np.int64),
        np.array([page.first_row_index for page in locations], dtype=np.int64),
    )


_TOKENS_PER_PAGE = 7
_FIRST_LIST = 0x19
"""Header of a list field whose number is one more than that of the field before."""
_I64 = 6
_MAX_VARINT_BYTES = 9
"""A longer varint is left to plain Thrift decoding."""
_FIELD_HEADERS = (0x16, 0x15, 0x16, 0x00)
"""Headers of the fields 1 (i64), 2 (i32) and 3 (i64) of a PageLocation, and the struct's end."""


_MAX_SHORT_INDEX_BYTES = 3 + 14 * (3 * (1 + _MAX_VARINT_BYTES) + 1)
"""Most bytes of an index of up to 14 pages in the usual layout."""


def _short_offset_index(data: memoryview) -> OffsetIndex | None:
    """Decodes an index of fewer than 15 pages in the usual layout, with no other field.

    Returns None for any other index. For this few bytes a loop is faster than NumPy.
    """
    if len(data) < 2 or data[0] != 0x19 or data[1] & 0x0F != 0x0C or not 0x10 <= data[1] < 0xF0:
        return None
    raw, size, at = bytes(data[:_MAX_SHORT_INDEX_BYTES]), data[1] >> 4, 2
    values: list[int] = []
    try:
        for _ in range(size):
            for header in _FIELD_HEADERS[:-1]:
                if raw[at] != header:
                    return None
                value, shift, at = 0, 0, at + 1
                while raw[at] >= 0x80:
                    value |= (raw[at] & 0x7F) << shift
                    shift, at = shift + 7, at + 1
                    if shift >= 7 * _MAX_VARINT_BYTES:
                        return None
                value |= raw[at] << shift
                values.append(value >> 1 ^ -(value & 1))
                at += 1
            if raw[at] != _FIELD_HEADERS[-1]:
                return None
            at += 1
        if raw[at] != 0:
            return None
    except IndexError:
        return None
    pages = np.array(values, dtype=np.int64).reshape(-1, 3)
    return OffsetIndex(*(np.ascontiguousarray(pages[:, i]) for i in range(3)))


def _regular_offset_index(data: memoryview) -> OffsetIndex | None:
    """Decodes all entries at once if each PageLocation has the usual layout, else returns None.

    Each byte below 0x80 ends a token, which is a field header or a varint. An entry is then seven
    tokens: header, offset, header, size, header, row, end.
    """
    raw = np.frombuffer(data, dtype=np.uint8)
    (ends,) = (raw < 0x80).nonzero()
    try:
        size, kind, first = read_list_header(data, 1)
        count = size * _TOKENS_PER_PAGE
        ends = ends[ends.searchsorted(first) :]
        if raw[0] != _FIRST_LIST or kind != STRUCT or not 0 < count <= len(ends):
            return None
        if not _is_valid_end(data, ends[count:], int(ends[count - 1]) + 1):
            return None
    except FormatError:
        return None
    stops = ends[:count] - first
    starts = np.empty_like(stops)
    starts[0], starts[1:] = 0, stops[:-1] + 1
    lengths = (stops - starts + 1).reshape(-1, _TOKENS_PER_PAGE)
    if lengths.max() > _MAX_VARINT_BYTES or (lengths[:, ::2] > 1).any():
        return None
    tokens = raw[first : first + stops[-1] + 1]
    shifts = 7 * (np.arange(len(tokens)) - starts.repeat(lengths.ravel()))
    decoded = np.add.reduceat((tokens & 0x7F).astype(np.int64) << shifts, starts)
    decoded = decoded.reshape(lengths.shape)
    if (decoded[:, ::2] != _FIELD_HEADERS).any():
        return None
    values = decoded[:, 1::2].T
    return OffsetIndex(*((values >> 1) ^ -(values & 1)).copy())


def _is_valid_end(data: memoryview, ends: Int64Array, at: int) -> bool:
    """True if the bytes from ``at`` on are an optional list of i64 and the struct's end.

    ``ends`` has the positions of those of the bytes that are below 0x80. Raises ``FormatError``.
    """
    if at < len(data) and data[at] == _FIRST_LIST:
        size, kind, at = read_list_header(data, at + 1)
        ends = ends[ends.searchsorted(at) :]
        if kind != _I64 or size > len(ends):
            return False
        at = int(ends[size - 1]) + 1 if size else at
    return at < len(data) and data[at] == 0
