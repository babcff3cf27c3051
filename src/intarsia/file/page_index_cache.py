"""The page indexes of an opened file: fetched together, decoded once, cached.

An index that is damaged, or contradicts its chunk or its pages, is ignored with a warning.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

from intarsia.errors import FormatError, Where
from intarsia.file.column_chunks import ColumnBounds, ColumnChunks
from intarsia.file.file_footer import ChunkId, FileFooter
from intarsia.file.file_warnings import FileWarnings
from intarsia.index.directory import Checksums, page_index_places
from intarsia.io.source import ByteRange, Source
from intarsia.parquet.metadata import FileMetaData
from intarsia.parquet.page_index import (
    ColumnIndex,
    OffsetIndex,
    read_column_index,
    read_offset_index,
)
from intarsia.parquet.statistics import Bounds, without_false_nulls
from intarsia.row_ranges import Int64Array

T = TypeVar("T")
_OFFSETS, _COLUMNS = "offset_index", "column_index"


class PageIndexes:
    """The offset and column indexes of one file, by row group and leaf."""

    def __init__(
        self,
        footer: FileFooter,
        source: Source,
        chunks: ColumnChunks,
        bounds: ColumnBounds,
        warnings: FileWarnings,
        checksums: Checksums | None,
    ) -> None:
        """Takes ``checksums`` of the page indexes, None if the file has none."""
        self._footer, self._source = footer, source
        self._chunks, self._column_bounds = chunks, bounds
        self._warnings = warnings
        self._checksums = _checksums_by_index(footer.metadata, checksums)
        self._offsets: dict[ChunkId, OffsetIndex | None] = {}
        self._columns: dict[ChunkId, ColumnIndex | None] = {}
        self._bounds: dict[ChunkId, Bounds] = {}
        self.walked: set[ChunkId] = set()
        """Chunks whose page headers were walked to find the pages, even if without success."""
        self.confirmed: set[ChunkId] = set()
        """Chunks that were read whole, and have the pages that their index states."""
        self.num_bytes = 0
        """Stored size in bytes of all indexes that were fetched."""
        self.distrusted = 0
        """Number of indexes or chunks that proved wrong. Plans made before a change are too."""

    def load(self, offsets: Iterable[ChunkId], columns: Iterable[ChunkId]) -> None:
        """Fetches the offset and column indexes of these chunks that are not cached, at once."""
        missing = self._missing(offsets, columns)
        if not missing:
            return
        ranges = [self._range_of(id_, kind) for kind, id_ in missing]
        stored = [range_ for range_ in ranges if range_[1]]
        parts = [memoryview(b"")] * len(stored)
        try:
            if stored:
                parts = self._source.read(stored)
            self.num_bytes += sum(map(len, parts))
        except FormatError as error:
            self._warnings.warn(f"page indexes are ignored: {error}")
        fetched = iter(parts)
        for (kind, id_), (_, length) in zip(missing, ranges, strict=True):
            data = next(fetched) if length else memoryview(b"")
            if kind == _COLUMNS:
                self._columns[id_] = self._checked(id_, data, self._column_index)
            else:
                self._offsets[id_] = self._checked(id_, data, self._offset_index)

    def ranges(self, offsets: Iterable[ChunkId], columns: Iterable[ChunkId]) -> list[ByteRange]:
        """Returns the byte ranges that ``load`` would read."""
        return [self._range_of(id_, kind) for kind, id_ in self._missing(offsets, columns)]

    def _missing(
        self, offsets: Iterable[ChunkId], columns: Iterable[ChunkId]
    ) -> list[tuple[str, ChunkId]]:
        missing = [(_OFFSETS, id_) for id_ in dict.fromkeys(offsets) if id_ not in self._offsets]
        missing += [(_COLUMNS, id_) for id_ in dict.fromkeys(columns) if id_ not in self._columns]
        return missing

    def _range_of(self, id_: ChunkId, kind: str) -> ByteRange:
        """Returns where an index is, ``(0, 0)`` if there is none."""
        column = self._chunks.column_chunk(*id_)
        offset, length = getattr(column, f"{kind}_offset"), getattr(column, f"{kind}_length")
        return (offset, length) if offset is not None and length else (0, 0)

    def _checked(
        self, id_: ChunkId, data: memoryview, decode: Callable[[ChunkId, memoryview], T | None]
    ) -> T | None:
        """Returns the decoded index, or None if there is none or it is damaged."""
        try:
            return decode(id_, data) if data else None
        except FormatError as error:
            self._warnings.warn(f"a page index is ignored: {error.at(self._where(*id_))}")
            return None

    def _column_index(self, id_: ChunkId, data: memoryview) -> ColumnIndex | None:
        is_trusted = self._has_checksum(_COLUMNS, id_, data)
        is_trusted = is_trusted or not self._footer.options.looks_for_damage
        return read_column_index(data) if is_trusted else None

    def _offset_index(self, id_: ChunkId, data: memoryview) -> OffsetIndex:
        self._has_checksum(_OFFSETS, id_, data)
        index = read_offset_index(data)
        chunk = self._chunks.chunk(*id_)
        stop = min(chunk.start + chunk.total_compressed_size, self._footer.source_size)
        problem = index.problem(self._footer.num_rows_in(id_[0]), chunk.start, stop)
        if problem:
            raise FormatError(problem)
        return index

    def _has_checksum(self, kind: str, id_: ChunkId, data: memoryview) -> bool:
        """True if an index has a checksum. Raises ``FormatError`` if it does not match."""
        known = self._checksums.get((*id_, kind))
        if known is not None and zlib.crc32(data) != known:
            raise FormatError("it does not match its checksum")
        return known is not None

    def learn(self, id_: ChunkId, data: bytes) -> None:
        """Stores an OffsetIndex, given in its encoded form, that is about to be added."""
        self._offsets[id_] = self._checked(id_, memoryview(data), self._offset_index)

    def take(self, row_group: int, leaf: int, index: OffsetIndex) -> None:
        """Stores an index that was made from a chunk's pages."""
        self._offsets[row_group, leaf] = index

    def offsets(self, row_group: int, leaf: int) -> OffsetIndex | None:
        """Returns the chunk's OffsetIndex, or None if it has none that is consistent."""
        return self._loaded(self._offsets, (row_group, leaf), [])

    def columns(self, row_group: int, leaf: int) -> ColumnIndex | None:
        """Returns the chunk's ColumnIndex, or None if it has none that fits its OffsetIndex."""
        id_ = (row_group, leaf)
        index = self._loaded(self._columns, id_, [id_])
        offsets = self.offsets(row_group, leaf)
        if offsets is None or index is None or len(index) != len(offsets):
            return None
        return index

    def _loaded(
        self, known: Mapping[ChunkId, T | None], id_: ChunkId, columns: Sequence[ChunkId]
    ) -> T | None:
        """Returns the index in ``known``, loading it until no thread removes it."""
        while True:
            try:
                return known[id_]
            except KeyError:
                self.load([id_], columns)

    def bounds(self, row_group: int, leaf: int) -> Bounds | None:
        """Returns the bounds of a chunk's pages, or None if it has no page index."""
        index = self.columns(row_group, leaf)
        if index is None:
            return None
        id_ = (row_group, leaf)
        if id_ not in self._bounds:
            values = self._values_in(id_, len(index))
            corrected = without_false_nulls(index, values, self._chunks.chunk(*id_))
            self._bounds[id_] = self._column_bounds.of(leaf, corrected)
        return self._bounds[id_]

    def _values_in(self, id_: ChunkId, pages: int) -> Int64Array | None:
        """Returns the number of values in each of a chunk's ``pages``.

        Returns None for a repeated column, or if the OffsetIndex has another number of pages:
        another thread may have replaced it.
        """
        offsets, leaf = self.offsets(*id_), self._footer.schema.leaves[id_[1]]
        if offsets is None or len(offsets) != pages or leaf.max_repetition_level:
            return None
        starts, stops = offsets.row_bounds(self._footer.num_rows_in(id_[0]))
        return stops - starts

    def known_offsets(self, row_group: int, leaf: int) -> OffsetIndex | None:
        """Returns the chunk's OffsetIndex if it is cached, and None otherwise."""
        return self._offsets.get((row_group, leaf))

    def num_pages(self, row_group: int, leaf: int) -> int:
        """Returns the number of data pages of a chunk, or 1 if no OffsetIndex is cached."""
        index = self.known_offsets(row_group, leaf)
        return 1 if index is None else len(index)

    def distrust(self, row_group: int, leaf: int, reason: str) -> None:
        """Drops an OffsetIndex that the pages contradict, and warns."""
        self._offsets[row_group, leaf] = None
        self.confirmed.discard((row_group, leaf))
        self.distrusted += 1
        is_walked = (row_group, leaf) in self.walked
        name = "a page index made from page headers" if is_walked else "a page index"
        self._warnings.warn(f"{name} is ignored: {self._where(row_group, leaf)}: {reason}")

    def forget(self, row_group: int, leaf: int) -> None:
        """Removes a chunk's OffsetIndex, so that it is checked against the repaired chunk."""
        self._offsets.pop((row_group, leaf), None)
        self.confirmed.discard((row_group, leaf))
        self.distrusted += 1  # plans are made anew

    def _where(self, row_group: int, leaf: int) -> Where:
        return Where(row_group=row_group, column=self._footer.schema.leaves[leaf].name)


def _checksums_by_index(
    metadata: FileMetaData, checksums: Checksums | None
) -> dict[tuple[int, int, str], int]:
    """Returns CRC-32s by row group, leaf and index; none if their count is wrong."""
    if checksums is None:
        return {}
    names = [name for name, _ in page_index_places(metadata)]
    known = checksums.page_indexes
    return dict(zip(names, known, strict=True)) if len(names) == len(known) else {}
