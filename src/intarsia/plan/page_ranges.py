"""Selects the byte ranges of a column chunk that hold given rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from intarsia.io.source import ByteRange
from intarsia.parquet.metadata import ColumnMetaData
from intarsia.parquet.page_index import OffsetIndex
from intarsia.row_ranges import Int64Array, RowRanges

WHOLE_CHUNK_SHARE = 0.8
"""From this share of a chunk's bytes, the whole chunk is read, which takes no longer."""


@dataclass(frozen=True, slots=True)
class ChunkSelection:
    """The parts of one chunk to read.

    ``rows`` are the rows in these parts, counted from the start of the row group. ``page_rows`` has
    the number of rows of each part if parts are single pages; it is empty for a whole chunk.
    ``is_wanted_whole`` is true if all rows of the row group are selected.
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
    """Selects a whole chunk. ``rows`` are all rows of its row group.

    ``is_wanted`` is true if the query needs all of them. The dictionary page is a part of its own
    if the footer has a valid offset of the first data page.
    """
    start, stop = chunk.start, chunk.start + chunk.total_compressed_size
    data = chunk.data_page_offset if start <= chunk.data_page_offset < stop else start
    dictionary = (start, data - start) if data > start else None
    return ChunkSelection(dictionary, ((data, stop - data),), rows, is_wanted_whole=is_wanted)


class PageSelector:
    """Selector of the pages that hold given rows, in the chunks of one row group."""

    def __init__(self, rows: RowRanges, num_rows: int, *, by_page: bool = False) -> None:
        """Takes rows counted from the start of the row group, which has ``num_rows`` rows.

        ``by_page`` never selects a whole chunk if it has a page without selected rows.
        """
        self._rows, self._num_rows, self._by_page = rows, num_rows, by_page
        self._pages_by_first_rows: dict[bytes, _SelectedPages] = {}

    def select(self, chunk: ColumnMetaData, index: OffsetIndex | None) -> ChunkSelection:
        """Selects the pages of a chunk that hold the rows.

        Selects the whole chunk if ``index`` is None, or if pages with most of its bytes are needed.
        """
        if index is None or not len(index):
            return whole_chunk(chunk, RowRanges.all(self._num_rows))
        selected = self._selected_pages(index.first_row_index)
        sizes = index.compressed_page_size[selected.pages].tolist()
        if not self._by_page and sum(sizes) >= WHOLE_CHUNK_SHARE * chunk.total_compressed_size:
            return whole_chunk(chunk, RowRanges.all(self._num_rows))
        start, first = chunk.start, int(index.offset[0])
        dictionary = (start, first - start) if first > start else None
        parts = tuple(zip(index.offset[selected.pages].tolist(), sizes, strict=True))
        return ChunkSelection(
            dictionary if parts else None, parts, selected.rows, selected.page_rows
        )

    def _selected_pages(self, first_rows: Int64Array) -> _SelectedPages:
        """Returns the selected pages, cached for chunks whose pages begin at the same rows."""
        key = first_rows.tobytes()
        selected = self._pages_by_first_rows.get(key)
        if selected is None:
            pages = _pages_with(self._rows, first_rows, self._num_rows)
            starts, stops = first_rows[pages], np.append(first_rows[1:], self._num_rows)[pages]
            counts = tuple((stops - starts).tolist())
            selected = self._pages_by_first_rows[key] = _SelectedPages(
                pages, RowRanges(starts, stops), counts
            )
        return selected


class _SelectedPages(NamedTuple):
    """Numbers of the selected pages, their rows, and the number of rows of each page."""

    pages: slice | Int64Array
    rows: RowRanges
    page_rows: tuple[int, ...]


def _pages_with(rows: RowRanges, first_rows: Int64Array, num_rows: int) -> slice | Int64Array:
    """Returns the numbers of the pages that hold any of ``rows``."""
    if len(rows) != 1:
        return np.flatnonzero(rows.covers(first_rows, np.append(first_rows[1:], num_rows)))
    edges = (rows.starts[0], rows.stops[0] - 1)
    first, last = first_rows.searchsorted(edges, side="right").tolist()
    return slice(first - 1, last)
