"""Splits a file that may be torn into tiles, from its first byte on, without using its footer.

::

    PAR1 │ page │ page │ … │ column index │ offset index │ footer │ page │ … │ page, cut short
         └ each tile says how long it is, and the next one begins where it ends

A tile is a page, an index or a footer. Bytes *within* a page, such as another Parquet file stored
as a value, are never taken for a tile. The walk ends at the first bytes that are no whole tile. An
index section, which begins with its own magic, ends it too.
"""

from __future__ import annotations

import zlib
from array import array
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import IntEnum
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

import intarsia.deadline as deadline
from intarsia.errors import FormatError, Where
from intarsia.io.source import Source
from intarsia.parquet.footer import MAGIC, TRAILER_BYTES, framed
from intarsia.parquet.metadata import (
    BloomFilterHeader,
    ColumnChunk,
    ColumnIndexStruct,
    ColumnMetaData,
    FileMetaData,
    OffsetIndexStruct,
    PageHeader,
    PageType,
)
from intarsia.parquet.page_header import ReadAhead, read_page_header
from intarsia.parquet.thrift import decode
from intarsia.parquet.truncated_footer import PartialFooter, read_partial_footer
from intarsia.row_ranges import Int64Array

T = TypeVar("T")
BoolArray = NDArray[np.bool_]

_WINDOW_BYTES = 4096
"""Bytes in which a struct is looked for at first. Most headers are shorter."""
_MAX_HEADER_BYTES = 16 * 1024 * 1024
"""Limit of a page header: its statistics may be long values."""
MAX_STRUCT_BYTES = 256 * 1024 * 1024
"""Limit of a footer or page index. A longer one ends the walk."""
_WINDOW_GROWTH = 16
"""Factor by which the window grows while a struct does not fit into it."""
_BLOCK_BYTES = 8 * 1024 * 1024
"""Bytes of padding or of a page that are read at a time."""
_NAMES = (
    "offset",
    "header_size",
    "stored",
    "whole",
    "kind",
    "values",
    "rows",
    "encoding",
    "checksum",
    "is_compressed",
)
_KINDS = (PageType.DATA_PAGE, PageType.DICTIONARY_PAGE, PageType.DATA_PAGE_V2)


class Checksum(IntEnum):
    """The result of comparing a page with its checksum."""

    NONE = 0
    RIGHT = 1
    WRONG = 2


@dataclass(frozen=True, slots=True, eq=False)
class Pages:
    """All pages of a file in their order: arrays of shape ``(pages,)``, sizes in bytes."""

    offset: Int64Array
    header_size: Int64Array
    stored: Int64Array
    """Size of the body as stored, in bytes."""
    whole: Int64Array
    """Size of the decompressed body, in bytes."""
    kind: Int64Array
    """A ``PageType``."""
    values: Int64Array
    """Values of a data page, including NULLs, or of a dictionary. 0 for other pages."""
    rows: Int64Array
    """Rows of a V2 page by its header. −1 for other pages."""
    encoding: Int64Array
    """An ``Encoding``. −1 for pages that have none."""
    checksum: Int64Array
    is_compressed: Int64Array
    """0 for a V2 page whose header says that it is not compressed, else 1."""

    stop: Int64Array
    """The offset at which each page ends."""
    is_data: BoolArray
    is_dictionary: BoolArray

    def __len__(self) -> int:
        return len(self.offset)


@dataclass(frozen=True, slots=True)
class FooterTile:
    """A whole footer at the beginning of a tile."""

    offset: int
    stop: int
    raw: bytes
    metadata: FileMetaData
    pages_before: int


@dataclass(slots=True)
class Tiles:
    """The tiles of a file up to ``stop``, the offset at which the walk ended for ``reason``."""

    pages: Pages
    footers: list[FooterTile] = field(default_factory=list)
    breaks: set[int] = field(default_factory=set)
    """Numbers of pages that follow the end of a row group, as the tile before them shows."""
    chunk_ends: set[int] = field(default_factory=set)
    """Numbers of pages that follow the end of a chunk, as the tile before them shows."""
    stop: int = 0
    reason: str = ""
    is_end_of_pages: bool = False
    """True if the bytes at ``stop`` show that the row group before them was finished."""
    is_page_cut: bool = False
    """True if the bytes at ``stop`` are the beginning of a page."""
    partial: PartialFooter | None = None
    """The remains of a footer at ``stop``."""


class _Walker:
    def __init__(self, source: Source) -> None:
        self.source = source
        self.size = source.size
        self.numbers = array("q")
        self.count = 0
        self.starts: set[int] = set()
        self.tiles = Tiles(_pages(array("q")))
        self._ahead = ReadAhead(source, self.size, 16 * _WINDOW_BYTES)

    def walk(self) -> Tiles:
        at = len(MAGIC)
        if bytes(self.window(0, at)) != MAGIC:
            raise FormatError("it does not begin with PAR1: this is no Parquet file", Where())
        while at < self.size:
            deadline.check()
            stop = self._tile(at)
            if stop is None:
                break
            at = stop
        else:
            self.tiles.reason = "the file ends"
        self.tiles.stop = at
        self.tiles.pages = _pages(self.numbers)
        return self.tiles

    def window(self, at: int, length: int) -> memoryview:
        """Returns ``length`` bytes from ``at`` on, or fewer if the file ends before."""
        return self._ahead.read(at, min(length, self.size - at))

    def _tile(self, at: int) -> int | None:
        """Returns the end of the tile at ``at``, or None if there is no whole one."""
        head = bytes(self.window(at, 16))
        if head[0] == 0:
            return self._zeros(at)
        if head.startswith(MAGIC):
            self._end("an embedded index, or another file, begins", self.tiles.footers != [])
            return None
        if head[0] == 0x19:  # field 1 is a list: of structs, or of Booleans
            return self._index(at)
        if head[0] == 0x26:  # no field 1, and a long in field 2
            is_known, stop = self._chunk_metadata(at, ColumnChunk)
            if is_known:
                return stop
        kinds = (self._page, self._footer, self._chunk_metadata, self._bloom_filter)
        for kind in (*kinds, self._cut_footer):
            is_known, stop = kind(at)
            if is_known:
                return stop
        self._end("these bytes are no page, no index and no footer that is whole")
        return None

    def _end(self, reason: str, is_end_of_pages: bool = False) -> None:
        self.tiles.reason, self.tiles.is_end_of_pages = reason, is_end_of_pages

    def _zeros(self, at: int) -> int | None:
        """Returns the end of padding before a row group, or None if the file ends in zeros."""
        start = at
        while at < self.size:
            data = self.source.read([(at, min(_BLOCK_BYTES, self.size - at))])[0]
            nonzero = np.flatnonzero(np.frombuffer(data, dtype=np.uint8))
            if len(nonzero):
                return at + int(nonzero[0])
            at += data.nbytes
        self._end(f"the last {self.size - start:,} bytes are zero")
        return None

    def _struct(self, at: int, read: Callable[[memoryview], tuple[T, int]], limit: int) -> T | None:
        """Returns what ``read`` decodes from up to ``limit`` bytes at ``at``, else None."""
        length = _WINDOW_BYTES
        while True:
            data = self.window(at, length)
            try:
                return read(data)[0]
            except FormatError as error:
                # If the bytes are whole and lack a field, more of them do not help.
                is_another = isinstance(error.__cause__, TypeError)
                if is_another or data.nbytes < length or length >= limit:
                    return None
            length = min(length * _WINDOW_GROWTH, limit)

    def _page(self, at: int) -> tuple[bool, int | None]:
        def read(data: memoryview) -> tuple[tuple[PageHeader, int], int]:
            sized_header = read_page_header(data)
            return sized_header, sized_header[1]

        sized_header = self._struct(at, read, _MAX_HEADER_BYTES)
        if sized_header is None:
            return False, None
        header, header_size = sized_header
        numbers = _numbers(header)
        if numbers is None:
            return False, None
        stop = at + header_size + header.compressed_page_size
        if stop > self.size:
            self._end(f"a page of {stop - at:,} bytes has {self.size - at:,} left")
            self.tiles.is_page_cut = True
            if header.type == PageType.DICTIONARY_PAGE:
                self.tiles.chunk_ends.add(self.count)
            return True, None
        checksum = self._checksum(header, at + header_size)
        self.starts.add(at)
        self.numbers.extend(
            (at, header_size, header.compressed_page_size, header.uncompressed_page_size)
        )
        kind, values, rows, encoding, is_compressed = numbers
        self.numbers.extend((kind, values, rows, encoding, checksum, is_compressed))
        self.count += 1
        return True, stop

    def _checksum(self, header: PageHeader, at: int) -> Checksum:
        if header.crc is None:
            return Checksum.NONE
        computed, remaining = 0, header.compressed_page_size
        while remaining:
            data = self.window(at, min(remaining, _BLOCK_BYTES))
            computed = zlib.crc32(data, computed)
            at, remaining = at + data.nbytes, remaining - data.nbytes
        return Checksum.RIGHT if computed == header.crc & 0xFFFFFFFF else Checksum.WRONG

    def _index(self, at: int) -> int | None:
        for kind in (OffsetIndexStruct, ColumnIndexStruct):
            sized = self._struct(at, _sized(kind), MAX_STRUCT_BYTES)
            if sized is None:
                continue
            index, length = sized
            places = getattr(index, "page_locations", None)
            if places is not None and not all(place.offset in self.starts for place in places):
                continue
            self.tiles.breaks.add(self.count)
            return at + length
        self._end("a page index is cut short, or not of this file")
        return None

    def _footer(self, at: int) -> tuple[bool, int | None]:
        sized = self._struct(at, _sized(FileMetaData), MAX_STRUCT_BYTES)
        if sized is None:
            return False, None
        metadata, length = sized
        raw = bytes(self.window(at, length))
        stop = at + length + TRAILER_BYTES
        if bytes(self.window(at, length + TRAILER_BYTES)) != framed(raw):
            self.tiles.partial = read_partial_footer(memoryview(raw))
            self._end("the end of the footer is cut off or damaged", True)
            return True, None
        self.tiles.breaks.add(self.count)
        self.tiles.footers.append(FooterTile(at, stop, raw, metadata, self.count))
        return True, stop

    def _cut_footer(self, at: int) -> tuple[bool, int | None]:
        """Reads the rest of the file as the beginning of a footer, and ends the walk if it is."""
        self.tiles.partial = read_partial_footer(self.window(at, MAX_STRUCT_BYTES))
        if self.tiles.partial is None:
            return False, None
        self._end("the footer is cut short", True)
        return True, None

    def _chunk_metadata(
        self, at: int, cls: type[ColumnChunk] | type[ColumnMetaData] = ColumnMetaData
    ) -> tuple[bool, int | None]:
        """Reads a chunk's metadata, which some writers repeat behind its pages."""
        sized = self._struct(at, _sized(cls), _MAX_HEADER_BYTES)
        if sized is None:
            return False, None
        value, length = sized
        data = value.meta_data if isinstance(value, ColumnChunk) else value
        if data is None:
            return False, None
        offsets = {data.data_page_offset, data.dictionary_page_offset}
        if data.num_values and self.starts.isdisjoint(offsets):
            return False, None
        self.tiles.chunk_ends.add(self.count)
        return True, at + length

    def _bloom_filter(self, at: int) -> tuple[bool, int | None]:
        sized = self._struct(at, _sized(BloomFilterHeader), _WINDOW_BYTES)
        if sized is None:
            return False, None
        header, length = sized
        known = (header.algorithm.BLOCK, header.hash.XXHASH, header.compression.UNCOMPRESSED)
        if None in known or header.numBytes <= 0 or header.numBytes % 32:
            return False, None
        stop = at + length + header.numBytes
        if stop > self.size:
            self._end("a bloom filter is cut short")
            return True, None
        self.tiles.breaks.add(self.count)
        return True, stop


def walk_tiles(source: Source) -> Tiles:
    """Returns the tiles of a file, read once. Raises ``FormatError`` if it is no Parquet."""
    return _Walker(source).walk()


def _sized(cls: type[T]) -> Callable[[memoryview], tuple[tuple[T, int], int]]:
    def read(data: memoryview) -> tuple[tuple[T, int], int]:
        value, length = decode(cls, data)
        return (value, length), length

    return read


def _numbers(header: PageHeader) -> tuple[int, int, int, int, int] | None:
    """Returns type, values, rows, encoding and compression, or None if this cannot be a page."""
    if header.type == PageType.DATA_PAGE and header.data_page_header:
        v1 = header.data_page_header
        numbers = (header.type, v1.num_values, -1, v1.encoding, 1)
    elif header.type == PageType.DATA_PAGE_V2 and header.data_page_header_v2:
        v2 = header.data_page_header_v2
        is_compressed = int(v2.is_compressed is not False)
        numbers = (header.type, v2.num_values, v2.num_rows, v2.encoding, is_compressed)
    elif header.type == PageType.DICTIONARY_PAGE and header.dictionary_page_header:
        entries = header.dictionary_page_header
        numbers = (header.type, entries.num_values, -1, entries.encoding, 1)
    elif header.type in _KINDS or header.type < 0:
        return None
    else:
        numbers = (header.type, 0, -1, -1, 1)  # skipped by its size, as the specification asks
    return numbers if numbers[1] >= 0 else None


def _pages(numbers: array[int]) -> Pages:
    table = np.frombuffer(numbers, dtype=np.int64).reshape(-1, len(_NAMES))
    columns = {name: np.ascontiguousarray(table[:, i]) for i, name in enumerate(_NAMES)}
    kind = columns["kind"]
    return Pages(
        **columns,
        stop=columns["offset"] + columns["header_size"] + columns["stored"],
        is_data=(kind == PageType.DATA_PAGE) | (kind == PageType.DATA_PAGE_V2),
        is_dictionary=kind == PageType.DICTIONARY_PAGE,
    )
