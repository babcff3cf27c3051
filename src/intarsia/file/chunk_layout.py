"""The places that a footer gives for chunks, compared with each other. They have no checksum.

::

    PAR1 │ chunk 0 │ chunk 1 │ chunk 2 │ page indexes │ footer
                   ^ before             ^ behind          of chunk 1: its nearest neighbours
"""

from __future__ import annotations

import bisect

import numpy as np
from numpy.typing import NDArray

from intarsia.errors import FormatError
from intarsia.file.column_chunks import ColumnChunks
from intarsia.file.file_footer import ChunkId, FileFooter
from intarsia.parquet.footer import MAGIC
from intarsia.parquet.metadata import ColumnChunk, ColumnMetaData
from intarsia.row_ranges import Int64Array


class Layout:
    """The places of all chunks of a file, in the footer's order."""

    def __init__(self, footer: FileFooter, chunks: ColumnChunks) -> None:
        """Decodes the footer's entries of all chunks."""
        self._leaves, self._end = len(footer.schema.leaves), footer.offset
        groups = range(len(footer.metadata.row_groups))
        ids = [(group, leaf) for group in groups for leaf in range(self._leaves)]
        places, others = [], [self._end]
        for id_ in ids:
            column = _column(footer, id_)
            data = chunks.repaired_chunks.get(id_) or (column.meta_data if column else None)
            start, size = (data.start, data.total_compressed_size) if data else (0, 0)
            places.append((start, start + size) if self._is_within(start, size) else (0, 0))
            if column is not None:
                others += [column.offset_index_offset or 0, column.column_index_offset or 0]
                others.append(column.meta_data.bloom_filter_offset or 0 if column.meta_data else 0)
        self._places: Int64Array = np.array(places, dtype=np.int64).reshape(-1, 2)
        self._index_starts = sorted(other for other in others if 0 < other <= self._end)
        self._may_overlap = _overlapping(*self._places.T)

    def _is_within(self, start: int, size: int) -> bool:
        return len(MAGIC) <= start and 0 < size <= self._end - start

    def is_within(self, row_group: int, leaf: int) -> bool:
        """True if the chunk is between the file's magic and its footer, and not empty."""
        return bool(self._places[row_group * self._leaves + leaf, 1])

    def move(self, row_group: int, leaf: int, chunk: ColumnMetaData) -> None:
        """Replaces the place of a chunk by that of its repaired metadata."""
        number = row_group * self._leaves + leaf
        start, size = chunk.start, chunk.total_compressed_size
        stop = start + size
        self._places[number] = (start, stop) if self._is_within(start, size) else (0, 0)
        # A chunk that overlaps only the old place stays marked: ``overlapping_chunks`` compares
        # the places.
        self._may_overlap[self._overlapping_chunks(start, stop)] = True

    def overlapping_chunks(self, row_group: int, leaf: int, most: int) -> list[ChunkId]:
        """Returns the first ``most`` other chunks that overlap this one."""
        number = row_group * self._leaves + leaf
        if not self._may_overlap[number]:
            return []
        chunks = self._overlapping_chunks(*self._places[number].tolist())
        return [divmod(i, self._leaves) for i in chunks[: most + 1].tolist() if i != number][:most]

    def is_free(self, row_group: int, leaf: int, start: int, stop: int) -> bool:
        """True if no other chunk has any of the bytes ``[start, stop)``."""
        own = row_group * self._leaves + leaf
        is_inside = self._is_within(start, stop - start)
        return is_inside and bool((self._overlapping_chunks(start, stop) == own).all())

    def _overlapping_chunks(self, start: int, stop: int) -> Int64Array:
        """Returns the numbers of the chunks that have any of the bytes ``[start, stop)``."""
        starts, stops = self._places.T
        return np.flatnonzero((starts < stop) & (stops > start))

    def before(self, row_group: int, leaf: int) -> int:
        """Returns where the previous chunk with bytes ends, or the magic for the first chunk."""
        stops = self._places[: row_group * self._leaves + leaf, 1]
        filled = stops[stops > 0]
        return int(filled[-1]) if len(filled) else len(MAGIC)

    def behind(self, row_group: int, leaf: int, start: int) -> int:
        """Returns the offset at which the next chunk, index or footer behind ``start`` begins."""
        starts = self._places[row_group * self._leaves + leaf + 1 :, 0]
        filled = starts[starts > 0]
        at = bisect.bisect_right(self._index_starts, start)
        next_start = self._index_starts[at] if at < len(self._index_starts) else self._end
        return min(next_start, int(filled[0])) if len(filled) else next_start


def _overlapping(starts: Int64Array, stops: Int64Array) -> NDArray[np.bool_]:
    """Returns a mask of the ranges ``[start, stop)`` that overlap another one."""
    order = np.argsort(starts, kind="stable")
    ends = stops[order]
    mask = np.zeros(len(order), dtype=np.bool_)
    mask[order[1:]] = starts[order[1:]] < np.maximum.accumulate(ends)[:-1]
    mask[order[:-1]] |= ends[:-1] > starts[order[1:]]
    return mask


def _column(footer: FileFooter, id_: ChunkId) -> ColumnChunk | None:
    group, leaf = id_
    try:
        return footer.metadata.row_groups[group].columns[leaf]
    except FormatError:
        return None
