"""Pages of a chunk: their headers, and walking from one to the next.

Source: the specification's data pages. A chunk is pages without gaps: at most one dictionary page,
then data pages; index pages and pages of types nobody knows yet are skipped by their size.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass

from intarsia.errors import FormatError, Where
from intarsia.io.source import Source
from intarsia.parquet.metadata import ColumnMetaData, PageHeader, PageType
from intarsia.parquet.thrift import decode

_USUAL_BYTES = 256
_WALK_BYTES = 4096
_LONGER = 32


def read_page_header(page: memoryview) -> tuple[PageHeader, int]:
    """The header at the start of ``page`` and its length in bytes.

    Raises ``FormatError`` for bytes that are no header, or that claim a negative size.
    """
    try:
        header, length = decode(PageHeader, page[:_USUAL_BYTES])
    except FormatError:
        if page.nbytes <= _USUAL_BYTES:
            raise
        header, length = decode(PageHeader, page)
    if header.compressed_page_size < 0 or header.uncompressed_page_size < 0:
        raise FormatError("a page header claims a negative size")
    return header, length


def num_values(header: PageHeader) -> int | None:
    """Values in a data page, NULLs included; None for a page of another type."""
    if header.type == PageType.DATA_PAGE and header.data_page_header:
        return header.data_page_header.num_values
    if header.type == PageType.DATA_PAGE_V2 and header.data_page_header_v2:
        return header.data_page_header_v2.num_values
    return None


@dataclass(frozen=True, slots=True)
class PageAt:
    """A page, and where it is. Offsets and sizes are in bytes, offsets from the file's start."""

    number: int
    """Position among all pages of the chunk, the dictionary included."""
    offset: int
    header: PageHeader
    header_size: int

    @property
    def num_values(self) -> int | None:
        """Values in a data page, NULLs included; None for a page of another type."""
        return num_values(self.header)

    @property
    def is_data(self) -> bool:
        return self.num_values is not None

    @property
    def is_dictionary(self) -> bool:
        return self.header.type == PageType.DICTIONARY_PAGE

    @property
    def body_offset(self) -> int:
        return self.offset + self.header_size

    @property
    def size(self) -> int:
        """Header and body."""
        return self.header_size + self.header.compressed_page_size


def walk_pages(source: Source, chunk: ColumnMetaData, read_ahead: int = 0) -> Iterator[PageAt]:
    """The pages of a chunk, by their headers, until all its values were seen or it ends.

    Reads about 4 KiB a page; with ``read_ahead`` that many bytes at once. Raises ``FormatError``,
    with page and offset, where a header cannot be decoded or a page is longer than its chunk.
    """
    at = chunk.start
    stop = min(at + chunk.total_compressed_size, source.size)
    window = _Window(source, stop, max(read_ahead, _WALK_BYTES))
    values = number = 0
    while at < stop and values < chunk.num_values:
        where = Where(page=number, offset=at)
        if at < 0:
            raise FormatError("a chunk starts before its file", where)
        try:
            page = _page_at(window, number, at, stop)
        except FormatError as error:
            raise FormatError(error.message, where) from error
        if at + page.size > stop:
            raise FormatError(
                f"a page of {page.size:,} bytes, where its chunk has {stop - at:,} left", where
            )
        yield page
        if (page.num_values or 0) < 0:
            raise FormatError("a negative number of values", where)
        values += page.num_values or 0
        at += page.size
        number += 1


def _page_at(window: _Window, number: int, at: int, stop: int) -> PageAt:
    length = _WALK_BYTES
    while True:
        length = min(length, stop - at)
        try:
            header, header_size = read_page_header(window.read(at, length))
        except FormatError:
            if length == stop - at:
                raise
            length *= _LONGER
            continue
        return PageAt(number, at, header, header_size)


class _Window:
    """Reads of short, ascending ranges, served from longer ones that end at ``stop``."""

    def __init__(self, source: Source, stop: int, length: int) -> None:
        self._source, self._stop, self._length = source, stop, length
        self._start, self._data = 0, memoryview(b"")

    def read(self, offset: int, length: int) -> memoryview:
        at = offset - self._start
        if at < 0 or at + length > self._data.nbytes:
            ahead = min(max(length, self._length), self._stop - offset)
            (self._data,), self._start, at = self._source.read([(offset, ahead)]), offset, 0
        return self._data[at : at + length]


def checksum_problem(header: PageHeader, body: memoryview) -> str | None:
    """How a page's body contradicts the checksum in its header; None where it has none, or fits.

    The checksum is a CRC-32 over the body as stored, kept as a signed number; 0 is a valid one.
    """
    if header.crc is None:
        return None
    stored, computed = header.crc & 0xFFFFFFFF, zlib.crc32(body)
    if stored == computed:
        return None
    return f"checksum {stored:08x} in the header, {computed:08x} of the bytes"
