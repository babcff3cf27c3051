"""Where a footer says that chunks are, held against each other: what it says has no checksum.

::

    PAR1 │ chunk 0 │ chunk 1 │ chunk 2 │ page indexes │ footer
                   ^ before             ^ behind          of chunk 1: the nearest there is
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
        """Decodes what the footer says of every chunk."""
        self._leaves, self._end = len(footer.schema.leaves), footer.offset
        groups = range(len(footer.metadata.row_groups))
        ids = [(group, leaf) for group in groups for leaf in range(self._leaves)]
        places, others = [], [self._end]
        for id_ in ids:
            column = _column(footer, id_)
            data = chunks.mended.get(id_) or (column.meta_data if column else None)
            start, size = (data.start, data.total_compressed_size) if data else (0, 0)
            places.append((start, start + size) if self._is_within(start, size) else (0, 0))
            if column is not None:
                others += [column.offset_index_offset or 0, column.column_index_offset or 0]
                others.append(column.meta_data.bloom_filter_offset or 0 if column.meta_data else 0)
        self._places: Int64Array = np.array(places, dtype=np.int64).reshape(-1, 2)
        self._others = sorted(other for other in others if 0 < other <= self._end)
        self._may_be_claimed_twice = _overlapping(*self._places.T)

    def _is_within(self, start: int, size: int) -> bool:
        return len(MAGIC) <= start and 0 < size <= self._end - start

    def is_within(self, row_group: int, leaf: int) -> bool:
        """Is the chunk between the file's magic and its footer, and not empty?"""
        return bool(self._places[row_group * self._leaves + leaf, 1])

    def move(self, row_group: int, leaf: int, chunk: ColumnMetaData) -> None:
        """Go by another place of a chunk from now on."""
        number = row_group * self._leaves + leaf
        start, size = chunk.start, chunk.total_compressed_size
        stop = start + size
        self._places[number] = (start, stop) if self._is_within(start, size) else (0, 0)
        # A chunk that only the old place overlapped stays marked: ``rivals`` compares the places.
        self._may_be_claimed_twice[self._claiming(start, stop)] = True

    def rivals(self, row_group: int, leaf: int, most: int) -> list[ChunkId]:
        """The first ``most`` other chunks that claim bytes of this one."""
        number = row_group * self._leaves + leaf
        if not self._may_be_claimed_twice[number]:
            return []
        found = self._claiming(*self._places[number].tolist())
        return [divmod(i, self._leaves) for i in found[: most + 1].tolist() if i != number][:most]

    def is_free(self, row_group: int, leaf: int, start: int, stop: int) -> bool:
        """Does no chunk but this one claim any of the bytes ``[start, stop)``?"""
        own = row_group * self._leaves + leaf
        inside = self._is_within(start, stop - start)
        return inside and bool((self._claiming(start, stop) == own).all())

    def _claiming(self, start: int, stop: int) -> Int64Array:
        """The numbers of the chunks that claim any of the bytes ``[start, stop)``."""
        starts, stops = self._places.T
        return np.flatnonzero((starts < stop) & (stops > start))

    def before(self, row_group: int, leaf: int) -> int:
        """Where the chunk before ends, in the footer's order; where the magic does, for the first.

        Chunks without bytes do not count.
        """
        stops = self._places[: row_group * self._leaves + leaf, 1]
        filled = stops[stops > 0]
        return int(filled[-1]) if len(filled) else len(MAGIC)

    def behind(self, row_group: int, leaf: int, start: int) -> int:
        """Where the chunk behind begins, or what else there is first behind ``start``."""
        starts = self._places[row_group * self._leaves + leaf + 1 :, 0]
        filled = starts[starts > 0]
        at = bisect.bisect_right(self._others, start)
        found = self._others[at] if at < len(self._others) else self._end
        return min(found, int(filled[0])) if len(filled) else found


def _overlapping(starts: Int64Array, stops: Int64Array) -> NDArray[np.bool_]:
    """Which of the ranges ``[start, stop)`` overlap another one."""
    order = np.argsort(starts, kind="stable")
    ends = stops[order]
    found = np.zeros(len(order), dtype=np.bool_)
    found[order[1:]] = starts[order[1:]] < np.maximum.accumulate(ends)[:-1]
    found[order[:-1]] |= ends[:-1] > starts[order[1:]]
    return found


def _column(footer: FileFooter, id_: ChunkId) -> ColumnChunk | None:
    group, leaf = id_
    try:
        return footer.metadata.row_groups[group].columns[leaf]
    except FormatError:
        return None
