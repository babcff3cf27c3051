"""Passing over pages whose bytes do not hold a text that every matching value contains.

Decompressing a page and looking for a few bytes in it takes less than decoding it: for a rare text
most pages need no more than that.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from intarsia.decode.page_data import check_size
from intarsia.errors import FormatError
from intarsia.file.open_file import OpenedFile
from intarsia.io.source import AheadSource
from intarsia.parquet.metadata import (
    DICTIONARY_ENCODINGS,
    CompressionCodec,
    Encoding,
    PageHeader,
    PageType,
)
from intarsia.parquet.page_header import num_values, read_page_header
from intarsia.plan.page_ranges import WHOLE_CHUNK_SHARE
from intarsia.row_ranges import Int64Array, RowRanges
from intarsia.scan.filter.substring import Contained, is_text
from intarsia.scan.page_selection import groups_of
from intarsia.strings.byte_search import contains

_TOGETHER = (Encoding.PLAIN, Encoding.DELTA_LENGTH_BYTE_ARRAY)
"""Encodings that leave the bytes of a value next to each other."""
_CODECS: dict[int, str] = {
    CompressionCodec.SNAPPY: "snappy",
    CompressionCodec.GZIP: "gzip",
    CompressionCodec.BROTLI: "brotli",
    CompressionCodec.ZSTD: "zstd",
    CompressionCodec.LZ4_RAW: "lz4_raw",
}
_TRIED, _TRIED_LIKELY, _WORTHWHILE = 16, 2, 0.6
"""After so many pages, at least so large a share of them has to have been passed over: fewer where
they are likely to hold the text.
"""


@dataclass(slots=True)
class Tally:
    """How many pages were looked into, and how many of them did not hold the text."""

    tried: int = 0
    passed_over: int = 0

    @property
    def pays(self) -> bool:
        return self.passed_over >= _WORTHWHILE * self.tried


class Sieve:
    """Looks for a text in the pages of one column of a file, as long as that pays.

    Units of a file in several threads may share it.
    """

    def __init__(
        self, file: OpenedFile, wanted: Contained, tally: Tally, *, are_likely: bool = False
    ) -> None:
        """``tally`` is of all files of a scan.

        ``are_likely``: an index said that most of the pages hold the text.
        """
        self._file, self._wanted = file, wanted
        self._limit = file.options.page_size_limit
        least = _TRIED if tally.pays else _TRIED - tally.tried
        self._least = _TRIED_LIKELY if are_likely else max(least, _TRIED_LIKELY)
        root = file.schema.root(wanted.column)
        is_stored = root is not None and is_text(file.arrow_type(root))
        is_used = is_stored and not file.options.page_checksum_verification
        self._leaf = root.leaves[0] if root is not None and is_used else None
        self._own, self._all = Tally(), tally

    def rows_left(self, rows: RowRanges, source: AheadSource) -> RowRanges:
        """``rows`` without those of pages that do not hold the text.

        Pages that are not as their index says are left to whoever decodes them. ``source`` keeps
        the pages that are left, to be read once more.
        """
        if self._leaf is None:
            return rows
        parts = [
            self._left_in(group, self._leaf, rows, source) for group in groups_of(self._file, rows)
        ]
        return RowRanges.union(parts)

    def _left_in(self, group: int, leaf: int, rows: RowRanges, source: AheadSource) -> RowRanges:
        first, stop = self._file.row_group_starts[group : group + 2].tolist()
        wanted = rows.clip(first, stop)
        index = self._file.page_indexes.offsets(group, leaf)
        if index is None or not len(index) or not self._pays():
            return wanted
        starts, stops = index.row_bounds(stop - first)
        pages = np.flatnonzero(wanted.covers(starts + first, stops + first))
        offsets, sizes = index.offset[pages].tolist(), index.compressed_page_size[pages].tolist()
        chunk = self._file.chunk(group, leaf)
        dictionary = (chunk.start, int(index.offset[0]) - chunk.start)
        read = source.read([dictionary, *zip(offsets, sizes, strict=True)])
        might = self._might_hold(read[0], read[1:], (stops - starts)[pages], chunk.codec)
        left = sum(sizes[i] for i in might)
        is_whole = left >= WHOLE_CHUNK_SHARE * chunk.total_compressed_size
        again = range(len(pages)) if is_whole else might
        source.keep({(offsets[i], sizes[i]): read[1 + i] for i in again})
        if might and dictionary[1]:
            source.keep({dictionary: read[0]})
        kept = pages[might]
        return wanted & RowRanges(starts[kept] + first, stops[kept] + first)

    def _might_hold(
        self, dictionary: memoryview, pages: list[memoryview], counts: Int64Array, codec: int
    ) -> list[int]:
        """Which of ``pages``, of ``counts`` values, might hold the text."""
        coded: bool | None = None
        found: list[int] = []
        for number, (read, count) in enumerate(zip(pages, counts.tolist(), strict=True)):
            if not self._pays():
                return [*found, *range(number, len(pages))]
            page = _page(read)
            encoding = _encoding_of(page, count)
            if encoding in DICTIONARY_ENCODINGS:
                coded = self._holds(_page(dictionary), codec) if coded is None else coded
                might = coded
            else:
                might = encoding not in _TOGETHER or self._holds(page, codec)
            for tally in (self._own, self._all):
                tally.tried += 1
                tally.passed_over += not might
            if might:
                found.append(number)
        return found

    def _pays(self) -> bool:
        return self._own.tried < self._least or self._own.pays

    def _holds(self, page: _Page | None, codec: int) -> bool:
        """Is the text among the bytes of a page? True where these are not to be had."""
        if page is None:
            return True
        try:
            check_size(page.header, codec)
            if self._limit is not None and page.header.uncompressed_page_size > self._limit:
                return True
            if codec == CompressionCodec.UNCOMPRESSED:
                data = page.body
            else:
                data = memoryview(_decompressed(*page, codec))
            found = np.frombuffer(data, np.uint8)
            return contains(found, self._wanted.text, any_case=self._wanted.any_case)
        except (FormatError, pa.ArrowException, OSError):
            return True


class _Page(NamedTuple):
    header: PageHeader
    body: memoryview


def _page(read: memoryview) -> _Page | None:
    """A page by all its bytes; None where they do not begin with a header."""
    try:
        header, length = read_page_header(read)
    except FormatError:
        return None
    return _Page(header, read[length:])


def _encoding_of(page: _Page | None, count: int) -> int | None:
    """The encoding of the values; None where it is not one data page of ``count`` values."""
    if page is None:
        return None
    header = page.header
    data = header.data_page_header or header.data_page_header_v2
    is_whole = header.compressed_page_size == page.body.nbytes
    return data.encoding if data and is_whole and num_values(header) == count else None


def _decompressed(header: PageHeader, body: memoryview, codec: int) -> bytes:
    """A page's levels and values, or its values where levels are not compressed."""
    size = header.uncompressed_page_size
    v2 = header.data_page_header_v2
    if header.type == PageType.DATA_PAGE_V2 and v2 is not None:
        if v2.is_compressed is False:
            return bytes(body)
        levels = v2.definition_levels_byte_length + v2.repetition_levels_byte_length
        body, size = body[levels:], size - levels
    name = _CODECS.get(codec)
    if name is None or size < 0:
        raise FormatError("not to be decompressed here")
    return bytes(pa.Codec(name).decompress(body, size, asbytes=True)) if size else b""
