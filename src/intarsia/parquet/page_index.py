"""ColumnIndex and OffsetIndex: where a chunk's pages are, and what they hold at most.

Source: the specification's page index (PARQUET-922). Decoding is vectorised for the regular case
and falls back to plain thrift for anything unusual.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from intarsia.errors import FormatError
from intarsia.parquet.metadata import ColumnIndexStruct, OffsetIndexStruct, PageLocation
from intarsia.parquet.thrift import decode, encode

Int64Array = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class OffsetIndex:
    """Pages of one chunk: int64 arrays of shape ``(pages,)``.

    ``first_row_index`` counts from the start of the row group; ``offset`` is in bytes from the
    start of the file; ``compressed_page_size`` includes the page's header.
    """

    offset: Int64Array
    compressed_page_size: Int64Array
    first_row_index: Int64Array

    def __len__(self) -> int:
        return len(self.offset)

    def row_bounds(self, num_rows: int) -> tuple[Int64Array, Int64Array]:
        """Starts and stops of the pages' rows in a row group of ``num_rows``."""
        return self.first_row_index, np.append(self.first_row_index[1:], num_rows)

    def problem(self, num_rows: int, start: int, stop: int) -> str | None:
        """Why this index cannot be trusted for a chunk of ``num_rows`` in bytes ``[start, stop)``.

        None where it is consistent in itself: pages in order, disjoint, inside the chunk, from row
        0 on, none without rows. Whether a page holds as many values is for its header to say.
        """
        if not len(self):
            return None if num_rows == 0 else "no pages for a chunk that has rows"
        rows = np.append(self.first_row_index, num_rows)
        if rows[0] != 0:
            return f"the first page starts at row {rows[0]}, not 0"
        if (rows[1:] <= rows[:-1]).any():  # differences might not fit 64 bits
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
    """What each page holds at most: lists and arrays of length ``pages``.

    Bounds are the encoded values of the file; ``order.ValueOrder`` makes them comparable.
    """

    null_pages: NDArray[np.bool_]
    min_values: list[bytes]
    max_values: list[bytes]
    boundary_order: int
    null_counts: Int64Array | None
    nan_counts: Int64Array | None
    repetition_level_histograms: Int64Array | None = None
    """One page's after the other's, each of ``max_repetition_level + 1`` counts."""
    definition_level_histograms: Int64Array | None = None

    def __len__(self) -> int:
        return len(self.null_pages)


def read_offset_index(data: memoryview) -> OffsetIndex:
    """Decode an OffsetIndex. Raises ``FormatError`` where it is none."""
    return _short_offset_index(data) or _regular_offset_index(data) or _any_offset_index(data)


def read_column_index(data: memoryview) -> ColumnIndex:
    """Decode a ColumnIndex. Raises ``FormatError`` where its lists differ in length."""
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
        _counts(stored.null_counts),
        _counts(stored.nan_counts),
        _counts(stored.repetition_level_histograms),
        _counts(stored.definition_level_histograms),
    )


def encode_offset_index(index: OffsetIndex) -> bytes:
    """The bytes of an OffsetIndex."""
    columns = (index.offset, index.compressed_page_size, index.first_row_index)
    locations = [
        PageLocation(offset=offset, compressed_page_size=size, first_row_index=row)
        for offset, size, row in zip(*(column.tolist() for column in columns), strict=True)
    ]
    return encode(OffsetIndexStruct(page_locations=locations))


def encode_column_index(index: ColumnIndex) -> bytes:
    """The bytes of a ColumnIndex."""
    stored = ColumnIndexStruct(
        null_pages=index.null_pages.tolist(),
        min_values=index.min_values,
        max_values=index.max_values,
        boundary_order=index.boundary_order,
        null_counts=_listed(index.null_counts),
        repetition_level_histograms=_listed(index.repetition_level_histograms),
        definition_level_histograms=_listed(index.definition_level_histograms),
        nan_counts=_listed(index.nan_counts),
    )
    return encode(stored)


def _listed(values: Int64Array | None) -> list[int] | None:
    return None if values is None else [int(value) for value in values]


def _counts(values: list[int] | None) -> Int64Array | None:
    return None if values is None else np.array(values, dtype=np.int64)


def _any_offset_index(data: memoryview) -> OffsetIndex:
    locations = decode(OffsetIndexStruct, data)[0].page_locations
    return OffsetIndex(
        np.array([page.offset for page in locations], dtype=np.int64),
        np.array([page.compressed_page_size for page in locations], dtype=np.int64),
        np.array([page.first_row_index for page in locations], dtype=np.int64),
    )


_TOKENS = 7
_LONGEST_VARINT = 9
"""Bytes; a longer one is left to plain decoding."""
_FIELD_HEADERS = (0x16, 0x15, 0x16, 0x00)
"""i64, i32 and i64 fields of ids 1, 2, 3, and the end of the struct: every PageLocation's shape."""


_SHORT_BYTES = 3 + 14 * (3 * (1 + _LONGEST_VARINT) + 1)
"""A short index takes no more than so many."""


def _short_offset_index(data: memoryview) -> OffsetIndex | None:
    """One of fewer than 15 entries in the usual shape, and nothing after them; else None.

    To set NumPy to work takes longer than going through so few bytes.
    """
    if len(data) < 2 or data[0] != 0x19 or data[1] & 0x0F != 0x0C or not 0x10 <= data[1] < 0xF0:
        return None
    raw, size, at = bytes(data[:_SHORT_BYTES]), data[1] >> 4, 2
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
                    if shift >= 7 * _LONGEST_VARINT:
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
    found = np.array(values, dtype=np.int64).reshape(-1, 3)
    return OffsetIndex(*(np.ascontiguousarray(found[:, i]) for i in range(3)))


def _regular_offset_index(data: memoryview) -> OffsetIndex | None:
    """All entries at once, where every PageLocation is written in the usual shape; else None.

    Every byte below 0x80 ends a token, be it a field header or a varint, so that an entry is seven
    tokens: header, offset, header, size, header, row, end.
    """
    raw = np.frombuffer(data, dtype=np.uint8)
    ends = np.flatnonzero(raw < 0x80)
    # The list's field header (0x19), then its own: size and element type, in one byte or more.
    if len(ends) < 2 or raw[0] != 0x19 or raw[1] & 0x0F != 0x0C:
        return None
    if raw[1] < 0xF0:
        first, size = 2, int(raw[1] >> 4)
    else:
        stop = int(ends[np.searchsorted(ends, 2)]) if ends[-1] >= 2 else 2
        if stop > 2 + _LONGEST_VARINT:
            return None
        first, size = stop + 1, int(_varints(raw, np.array([2]), np.array([stop]))[0])
    ends = ends[np.searchsorted(ends, first) :]
    count = int(size) * _TOKENS
    if not 0 < count <= len(ends):
        return None
    stops = ends[:count].reshape(-1, _TOKENS)
    starts = np.append(first, stops.ravel()[:-1] + 1).reshape(-1, _TOKENS)
    headers = stops[:, ::2]
    if (headers != starts[:, ::2]).any() or (raw[headers] != _FIELD_HEADERS).any():
        return None
    if (stops[:, 1::2] - starts[:, 1::2] >= _LONGEST_VARINT).any():
        return None
    if not _ends_well(raw, int(stops[-1, -1]) + 1):
        return None
    values = _varints(raw, starts[:, 1::2].ravel(), stops[:, 1::2].ravel()).reshape(-1, 3)
    values = (values >> 1) ^ -(values & 1)
    return OffsetIndex(*(np.ascontiguousarray(values[:, i]) for i in range(3)))


def _ends_well(raw: NDArray[np.uint8], at: int) -> bool:
    """Is what follows the entries, up to the struct's end, whole? A list of i64, or nothing."""
    if at + 1 < len(raw) and raw[at] == 0x19 and raw[at + 1] & 0x0F == 0x06:
        size, at = int(raw[at + 1] >> 4), at + 2
        ends = np.flatnonzero(raw[at:] < 0x80)
        if size == 15:
            if not len(ends) or ends[0] >= _LONGEST_VARINT:
                return False
            size = int(_varints(raw, np.array([at]), np.array([at + ends[0]]))[0])
            ends, at = ends[1:] - (ends[0] + 1), at + int(ends[0]) + 1
        if size > len(ends):
            return False
        at += int(ends[size - 1]) + 1 if size else 0
    return at < len(raw) and raw[at] == 0


def _varints(raw: NDArray[np.uint8], starts: Int64Array, stops: Int64Array) -> Int64Array:
    """Varints of up to nine bytes, from ``starts`` to ``stops`` inclusive; shape ``(n,)``."""
    values = np.zeros(len(starts), dtype=np.int64)
    for i in range(int((stops - starts).max(initial=0)) + 1):
        more = starts + i <= stops
        byte = raw[np.where(more, starts + i, 0)].astype(np.int64) & 0x7F
        values |= np.where(more, byte, 0) << (7 * i)
    return values
