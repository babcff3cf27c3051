"""Which bytes of a column chunk hold the rows that are wanted."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from intarsia.format.metadata import ColumnMetaData
from intarsia.format.page_index import OffsetIndex
from intarsia.ranges import RowRanges
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
    whole = whole_chunk(chunk, num_rows)
    if index is None or not len(index):
        return whole
    starts, stops = index.row_bounds(num_rows)
    wanted = np.flatnonzero(rows.covers(starts, stops))
    size = int(index.compressed_page_size[wanted].sum())
    if size >= WHOLE_CHUNK_SHARE * chunk.total_compressed_size:
        return whole
    first = int(index.offset[0])
    dictionary = (chunk.start, first - chunk.start) if first > chunk.start else None
    parts = zip(
        index.offset[wanted].tolist(), index.compressed_page_size[wanted].tolist(), strict=True
    )
    return ChunkSelection(
        dictionary if len(wanted) else None,
        tuple(parts),
        RowRanges(starts[wanted], stops[wanted]),
        tuple((stops[wanted] - starts[wanted]).tolist()),
    )
