"""Which bytes of a column chunk hold the rows that are wanted."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from intarsia.format.metadata import ColumnMetaData
from intarsia.format.page_index import OffsetIndex
from intarsia.ranges import Int64Array, RowRanges
from intarsia.source import ByteRange

WHOLE_CHUNK_SHARE = 0.8
"""From this share of a chunk's bytes on, the whole chunk is read: it is simpler and as quick."""


@dataclass(frozen=True, slots=True)
class ChunkSelection:
    """The parts of one chunk to read.

    ``rows`` are the rows they hold, counted from the start of the row group. ``page_rows`` gives
    the number of rows of each part where parts are single pages; it is empty for a whole chunk.
    """

    dictionary: ByteRange | None
    parts: tuple[ByteRange, ...]
    rows: RowRanges
    page_rows: tuple[int, ...] = ()

    @property
    def byte_ranges(self) -> list[ByteRange]:
        return [*([self.dictionary] if self.dictionary else []), *self.parts]

    @property
    def num_bytes(self) -> int:
        return sum(length for _, length in self.byte_ranges)


def whole_chunk(chunk: ColumnMetaData, num_rows: int) -> ChunkSelection:
    """All of a chunk, its dictionary page told apart."""
    start, stop = chunk.start, chunk.start + chunk.total_compressed_size
    data = min(max(chunk.data_page_offset, start), stop)
    dictionary = (start, data - start) if data > start else None
    return ChunkSelection(dictionary, ((data, stop - data),), RowRanges.all(num_rows))


def select_pages(
    chunk: ColumnMetaData, index: OffsetIndex | None, num_rows: int, rows: RowRanges
) -> ChunkSelection:
    """The pages of a chunk that hold ``rows``, counted from the start of the row group.

    Without a trusted ``index``, or where most of the chunk is wanted, the whole chunk.
    """
    if index is None or not len(index):
        return whole_chunk(chunk, num_rows)
    first_rows, sizes = index.first_row_index, index.compressed_page_size
    wanted = _pages_with(rows, first_rows, num_rows)
    if int(sizes[wanted].sum()) >= WHOLE_CHUNK_SHARE * chunk.total_compressed_size:
        return whole_chunk(chunk, num_rows)
    first = int(index.offset[0])
    dictionary = (chunk.start, first - chunk.start) if first > chunk.start else None
    parts = tuple(zip(index.offset[wanted].tolist(), sizes[wanted].tolist(), strict=True))
    starts, stops = first_rows[wanted], np.append(first_rows[1:], num_rows)[wanted]
    return ChunkSelection(
        dictionary if parts else None,
        parts,
        RowRanges(starts, stops),
        tuple((stops - starts).tolist()),
    )


def _pages_with(rows: RowRanges, first_rows: Int64Array, num_rows: int) -> slice | Int64Array:
    """Which pages hold any of ``rows``."""
    if len(rows) != 1:
        return np.flatnonzero(rows.covers(first_rows, np.append(first_rows[1:], num_rows)))
    edges = (rows.starts[0], rows.stops[0] - 1)
    first, last = np.searchsorted(first_rows, edges, side="right").tolist()
    return slice(first - 1, last)
