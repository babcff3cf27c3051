"""Skips pages whose bytes do not hold a string that every matching value contains.

Decompressing a page and searching it takes less time than decoding it. For a rare string most pages
are skipped this way.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from intarsia.decode.page_data import check_size
from intarsia.errors import FormatError
from intarsia.file.open_file import OpenedFile
from intarsia.file.page_walk import make_offset_indexes
from intarsia.io.source import PrefetchSource
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
from intarsia.scan.filter.substring import SubstringSearch, is_text
from intarsia.scan.page_selection import groups_of
from intarsia.strings.byte_search import contains

_CONTIGUOUS_ENCODINGS = (Encoding.PLAIN, Encoding.DELTA_LENGTH_BYTE_ARRAY)
"""Encodings that store the bytes of each value contiguously."""
_CODECS: dict[int, str] = {
    CompressionCodec.SNAPPY: "snappy",
    CompressionCodec.GZIP: "gzip",
    CompressionCodec.BROTLI: "brotli",
    CompressionCodec.ZSTD: "zstd",
    CompressionCodec.LZ4_RAW: "lz4_raw",
}
_MIN_TRIED_PAGES, _MIN_FILE_PAGES, _MIN_SKIPPED_SHARE = 16, 2, 0.6
"""The search stops if, after ``_MIN_TRIED_PAGES`` pages, a smaller share of them was skipped.

After files in which it stopped, ``_MIN_FILE_PAGES`` are tried in each file.
"""
_USUAL_PAGE_ROWS = 20_000
"""A page counts as one page for each of these rows, which searching in vain takes as long as."""


@dataclass(slots=True)
class SearchCounts:
    """Number of pages searched, and of pages skipped because they do not hold the string."""

    searched: int = 0
    skipped: int = 0

    @property
    def pays(self) -> bool:
        return self.skipped >= _MIN_SKIPPED_SHARE * self.searched


class PageTextFilter:
    """A search for a string in the pages of one column of a file, as long as that saves time.

    Threads that read units of the file may share it.
    """

    def __init__(
        self, file: OpenedFile, search: SubstringSearch, scan_counts: SearchCounts
    ) -> None:
        """Takes the counts of all files of the scan, and updates them."""
        self._file, self._search = file, search
        self._limit = file.options.page_size_limit
        min_pages = (
            _MIN_TRIED_PAGES if scan_counts.pays else _MIN_TRIED_PAGES - scan_counts.searched
        )
        self._min_pages = max(min_pages, _MIN_FILE_PAGES)
        root = file.schema.root(search.column)
        is_stored = root is not None and is_text(file.arrow_type(root))
        is_used = is_stored and not file.options.page_checksum_verification
        self._leaf = root.leaves[0] if root is not None and is_used else None
        self._file_counts, self._scan_counts = SearchCounts(), scan_counts

    def rows_left(self, rows: RowRanges, source: PrefetchSource) -> RowRanges:
        """Returns ``rows`` without the rows of pages that do not hold the string.

        A page that contradicts its index is not skipped; the decoder reports it. ``source`` caches
        the pages that were not skipped for decoding.
        """
        if self._leaf is None:
            return rows
        parts = [
            self._matching_in(group, self._leaf, rows, source)
            for group in groups_of(self._file, rows)
        ]
        return RowRanges.union(parts)

    def _matching_in(
        self, group: int, leaf: int, rows: RowRanges, source: PrefetchSource
    ) -> RowRanges:
        first, stop = self._file.row_group_starts[group : group + 2].tolist()
        rows_in_group = rows.clip(first, stop)
        if not self._pays():
            return rows_in_group
        make_offset_indexes(self._file, group, [leaf])
        index = self._file.page_indexes.offsets(group, leaf)
        if index is None or not len(index):
            return rows_in_group
        starts, stops = index.row_bounds(stop - first)
        pages = np.flatnonzero(rows_in_group.covers(starts + first, stops + first))
        offsets, sizes = index.offset[pages].tolist(), index.compressed_page_size[pages].tolist()
        chunk = self._file.chunk(group, leaf)
        dictionary = (chunk.start, int(index.offset[0]) - chunk.start)
        data = source.read([dictionary, *zip(offsets, sizes, strict=True)])
        might_hold = self._might_hold(data[0], data[1:], (stops - starts)[pages], chunk.codec)
        bytes_left = sum(sizes[i] for i in might_hold)
        is_whole = bytes_left >= WHOLE_CHUNK_SHARE * chunk.total_compressed_size
        pages_to_cache = range(len(pages)) if is_whole else might_hold
        source.keep({(offsets[i], sizes[i]): data[1 + i] for i in pages_to_cache})
        if might_hold and dictionary[1]:
            source.keep({dictionary: data[0]})
        matching_pages = pages[might_hold]
        return rows_in_group & RowRanges(
            starts[matching_pages] + first, stops[matching_pages] + first
        )

    def _might_hold(
        self, dictionary: memoryview, pages: list[memoryview], row_counts: Int64Array, codec: int
    ) -> list[int]:
        """Returns the numbers of the ``pages`` that might hold the string.

        ``row_counts`` are the pages' numbers of values by the offset index.
        """
        dictionary_holds: bool | None = None
        numbers: list[int] = []
        for number, (data, count) in enumerate(zip(pages, row_counts.tolist(), strict=True)):
            if not self._pays():
                return [*numbers, *range(number, len(pages))]
            page = _page(data)
            encoding = _encoding_of(page, count)
            if encoding in DICTIONARY_ENCODINGS:
                dictionary_holds = (
                    self._holds(_page(dictionary), codec)
                    if dictionary_holds is None
                    else dictionary_holds
                )
                might_hold = dictionary_holds
            else:
                might_hold = encoding not in _CONTIGUOUS_ENCODINGS or self._holds(page, codec)
            usual_pages = max(count // _USUAL_PAGE_ROWS, 1)
            for page_counts in (self._file_counts, self._scan_counts):
                page_counts.searched += usual_pages
                page_counts.skipped += 0 if might_hold else usual_pages
            if might_hold:
                numbers.append(number)
        return numbers

    def _pays(self) -> bool:
        return self._file_counts.searched < self._min_pages or self._file_counts.pays

    def _holds(self, page: _Page | None, codec: int) -> bool:
        """True if a page's bytes hold the string, or cannot be decompressed."""
        if page is None:
            return True
        try:
            check_size(page.header, codec)
            if self._limit is not None and page.header.uncompressed_page_size > self._limit:
                return True
            if codec == CompressionCodec.UNCOMPRESSED:
                data = page.body
            else:
                data = _decompressed(*page, codec)
            bytes_ = np.frombuffer(data, np.uint8)
            return contains(bytes_, self._search.text, any_case=self._search.any_case)
        except (FormatError, pa.ArrowException, OSError):
            return True


class _Page(NamedTuple):
    header: PageHeader
    body: memoryview


def _page(data: memoryview) -> _Page | None:
    """Splits a page's bytes into header and body; None if there is no header."""
    try:
        header, length = read_page_header(data)
    except FormatError:
        return None
    return _Page(header, data[length:])


def _encoding_of(page: _Page | None, count: int) -> int | None:
    """Returns the encoding of the values; None unless it is a data page of ``count`` values."""
    if page is None:
        return None
    header = page.header
    data = header.data_page_header or header.data_page_header_v2
    is_whole = header.compressed_page_size == page.body.nbytes
    return data.encoding if data and is_whole and num_values(header) == count else None


def _decompressed(header: PageHeader, body: memoryview, codec: int) -> memoryview:
    """Returns a page's decompressed bytes, without levels that are not compressed."""
    size = header.uncompressed_page_size
    v2 = header.data_page_header_v2
    if header.type == PageType.DATA_PAGE_V2 and v2 is not None:
        if v2.is_compressed is False:
            return body
        levels = v2.definition_levels_byte_length + v2.repetition_levels_byte_length
        body, size = body[levels:], size - levels
    name = _CODECS.get(codec)
    if name is None or size < 0:
        raise FormatError("not to be decompressed here")
    return memoryview(pa.Codec(name).decompress(body, size) if size else b"")
