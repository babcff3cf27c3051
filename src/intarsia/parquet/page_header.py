"""Page headers of a column chunk: decoding them, and walking from page to page.

A chunk is a sequence of pages without gaps: at most one dictionary page, then data pages. Index
pages and pages of unknown types are skipped by their size.

Source: sections "Data Pages" and "Checksumming" of the specification; ``PageHeader`` in
``parquet.thrift``.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass

from intarsia.errors import FormatError, Where
from intarsia.io.source import Source
from intarsia.parquet.metadata import ColumnMetaData, PageHeader, PageType
from intarsia.parquet.thrift import decode

_USUAL_HEADER_BYTES = 256
"""Bytes in which most headers end. Longer headers hold long statistics."""
_WALK_READ_BYTES = 4096
"""Bytes first read to decode a header."""
_READ_GROWTH = 32
"""Factor by which the read grows while the header is incomplete."""


def read_page_header(page: memoryview) -> tuple[PageHeader, int]:
    """Returns a page's header and its bytes. Raises ``FormatError`` if it is none."""
    try:
        header, length = decode(PageHeader, page[:_USUAL_HEADER_BYTES])
    except FormatError:
        if page.nbytes <= _USUAL_HEADER_BYTES:
            raise
        header, length = decode(PageHeader, page)
    if header.compressed_page_size < 0 or header.uncompressed_page_size < 0:
        raise FormatError("a page header claims a negative size")
    return header, length


def num_values(header: PageHeader) -> int | None:
    """Returns the number of values in a data page, with NULLs. None for other page types."""
    if header.type == PageType.DATA_PAGE and header.data_page_header:
        return header.data_page_header.num_values
    if header.type == PageType.DATA_PAGE_V2 and header.data_page_header_v2:
        return header.data_page_header_v2.num_values
    return None


@dataclass(frozen=True, slots=True)
class PageAt:
    """A page and its position. Offsets are in bytes from the start of the file."""

    number: int
    """Position among all pages of the chunk, including the dictionary page."""
    offset: int
    header: PageHeader
    header_size: int

    @property
    def num_values(self) -> int | None:
        """The number of values in a data page, with NULLs. None for other page types."""
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
        """Bytes of header and body."""
        return self.header_size + self.header.compressed_page_size


def walk_pages(source: Source, chunk: ColumnMetaData) -> Iterator[PageAt]:
    """Yields the pages of a chunk until all of its values are seen or the chunk ends.

    Reads about 4 KiB per page. Raises ``FormatError`` with the page and its offset if a header
    cannot be decoded or a page is longer than its chunk.
    """
    at = chunk.start
    stop = min(at + chunk.total_compressed_size, source.size)
    buffer = ReadAhead(source, stop, _WALK_READ_BYTES)
    num_values_seen = number = 0
    while at < stop and num_values_seen < chunk.num_values:
        where = Where(page=number, offset=at)
        if at < 0:
            raise FormatError("a chunk starts before its file", where)
        try:
            page = _page_at(buffer, number, at, stop)
        except FormatError as error:
            raise FormatError(error.message, where) from error
        if at + page.size > stop:
            raise FormatError(
                f"a page of {page.size:,} bytes, where its chunk has {stop - at:,} left", where
            )
        yield page
        if (page.num_values or 0) < 0:
            raise FormatError("a negative number of values", where)
        num_values_seen += page.num_values or 0
        at += page.size
        number += 1


def _page_at(buffer: ReadAhead, number: int, at: int, stop: int) -> PageAt:
    length = _WALK_READ_BYTES
    while True:
        length = min(length, stop - at)
        try:
            header, header_size = read_page_header(buffer.read(at, length))
        except FormatError:
            if length == stop - at:
                raise
            length *= _READ_GROWTH
            continue
        return PageAt(number, at, header, header_size)


class ReadAhead:
    """Serves short, ascending ranges from reads of ``length`` bytes, which end at ``stop``."""

    def __init__(self, source: Source, stop: int, length: int) -> None:
        self._source, self._stop, self._length = source, stop, length
        self._start, self._data = 0, memoryview(b"")

    def read(self, offset: int, length: int) -> memoryview:
        at = offset - self._start
        if at < 0 or at + length > self._data.nbytes:
            read_length = min(max(length, self._length), self._stop - offset)
            (self._data,), self._start, at = self._source.read([(offset, read_length)]), offset, 0
        return self._data[at : at + length]


def checksum_problem(header: PageHeader, body: memoryview) -> str | None:
    """Describes how a page's body contradicts the checksum in its header.

    Returns None if they agree or there is no checksum. The checksum is a CRC-32 over the stored
    body, kept as a signed integer; 0 is a valid checksum.
    """
    if header.crc is None:
        return None
    stored, computed = header.crc & 0xFFFFFFFF, zlib.crc32(body)
    if stored == computed:
        return None
    return f"checksum {stored:08x} in the header, {computed:08x} of the bytes"
