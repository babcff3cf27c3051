"""Which bytes of a column chunk hold the rows that are wanted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from intarsia.io.source import ByteRange
from intarsia.parquet.metadata import ColumnMetaData
from intarsia.parquet.page_index import OffsetIndex
from intarsia.row_ranges import Int64Array, RowRanges

WHOLE_CHUNK_SHARE = 0.8
"""From this share of a chunk's bytes on, the whole chunk is read: it is simpler and as quick."""


@dataclass(frozen=True, slots=True)
class ChunkSelection:
    """The parts of one chunk to read.

    ``rows`` are the rows they hold, counted from the start of the row group. ``page_rows`` gives
    the number of rows of each part where parts are single pages; it is empty for a whole chunk.
    ``is_wanted_whole``: no row of its row group is to be left out.
    """

    dictionary: ByteRange | None
    parts: tuple[ByteRange, ...]
    rows: RowRanges
    page_rows: tuple[int, ...] = ()
    is_wanted_whole: bool = False

    @property
    def byte_ranges(self) -> list[ByteRange]:
        return [*([self.dictionary] if self.dictionary else []), *self.parts]

    @property
    def num_bytes(self) -> int:
        return sum(length for _, length in self.byte_ranges)


def whole_chunk(
    chunk: ColumnMetaData, rows: RowRanges, *, is_wanted: bool = False
) -> ChunkSelection:
    """All of a chunk; ``rows`` are those of its row group. ``is_wanted``: each of them.

    Its dictionary page is told apart, where the footer says sensibly where the others begin.
    """
    start, stop = chunk.start, chunk.start + chunk.total_compressed_size
    data = chunk.data_page_offset if start <= chunk.data_page_offset < stop else start
    dictionary = (start, data - start) if data > start else None
    return ChunkSelection(dictionary, ((data, stop - data),), rows, is_wanted_whole=is_wanted)


class PageSelector:
    """Selects the pages that hold given rows, in the chunks of one row group."""

    def __init__(self, rows: RowRanges, num_rows: int, *, by_page: bool = False) -> None:
        """``rows`` count from the start of the row group, which has ``num_rows``.

        ``by_page`` selects no page that holds none of them, however few these are.
        """
        self._rows, self._num_rows, self._by_page = rows, num_rows, by_page
        self._all = RowRanges.all(num_rows)
        self._known: dict[bytes, _Held] = {}

    def select(self, chunk: ColumnMetaData, index: OffsetIndex | None) -> ChunkSelection:
        """The pages of a chunk that hold the rows.

        Without a trusted ``index``, or where most of the chunk is wanted, the whole chunk.
        """
        if index is None or not len(index):
            return whole_chunk(chunk, self._all)
        held, sizes = self._held(index.first_row_index), index.compressed_page_size
        size = int(sizes[held.pages].sum())
        if not self._by_page and size >= WHOLE_CHUNK_SHARE * chunk.total_compressed_size:
            return whole_chunk(chunk, self._all)
        first = int(index.offset[0])
        dictionary = (chunk.start, first - chunk.start) if first > chunk.start else None
        offsets = index.offset[held.pages].tolist()
        parts = tuple(zip(offsets, sizes[held.pages].tolist(), strict=True))
        return ChunkSelection(dictionary if parts else None, parts, held.rows, held.page_rows)

    def _held(self, first_rows: Int64Array) -> _Held:
        """The same for all chunks whose pages begin at the same rows."""
        key = first_rows.tobytes()
        known = self._known.get(key)
        if known is None:
            pages = _pages_with(self._rows, first_rows, self._num_rows)
            starts, stops = first_rows[pages], np.append(first_rows[1:], self._num_rows)[pages]
            counts = tuple((stops - starts).tolist())
            known = self._known[key] = _Held(pages, RowRanges(starts, stops), counts)
        return known


class _Held(NamedTuple):
    """Pages by their numbers, the rows they hold, and how many each of them has."""

    pages: slice | Int64Array
    rows: RowRanges
    page_rows: tuple[int, ...]


def _pages_with(rows: RowRanges, first_rows: Int64Array, num_rows: int) -> slice | Int64Array:
    """Which pages hold any of ``rows``."""
    if len(rows) != 1:
        return np.flatnonzero(rows.covers(first_rows, np.append(first_rows[1:], num_rows)))
    edges = (rows.starts[0], rows.stops[0] - 1)
    first, last = first_rows.searchsorted(edges, side="right").tolist()
    return slice(first - 1, last)
