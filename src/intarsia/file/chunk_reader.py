"""One column chunk, page by page: headers, levels, physical values."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

import intarsia.deadline as deadline
import intarsia.memory as memory
from intarsia.decode.page_data import check_size, page_levels
from intarsia.decode.page_size_limit import check_limit, value_bytes
from intarsia.decode.splice import ChunkBytes, RowGroupBytes, decode_root, leaf_batches
from intarsia.decode.synthetic_footer import RootTemplate
from intarsia.errors import FormatError, Where, placed
from intarsia.file.open_file import OpenedFile
from intarsia.io.source import CachedRangeSource, Source
from intarsia.limits import MAX_DECODED_CHUNK_BYTES, check_claim
from intarsia.parquet.levels import PageLevels
from intarsia.parquet.metadata import (
    ColumnMetaData,
    DataPageHeader,
    Encoding,
    PageHeader,
    PageType,
    Type,
)
from intarsia.parquet.page_header import PageAt, walk_pages
from intarsia.parquet.schema import Leaf
from intarsia.parquet.thrift import encode

RUN_BYTES = 32 * 1024 * 1024
"""Bytes of pages, and of values, that are decoded at a time."""
_MAX_BATCH_ROWS = 1024 * 1024
_DELTA_BATCH_ROWS = 1024
"""Rows of DELTA_BYTE_ARRAY values that are decoded at a time. They share prefixes, so a decoded
page may be many times its stored size."""
_MAX_CACHED_RUNS = 4
"""A chunk of up to this many runs of ``RUN_BYTES`` is read at once, a longer one page by page."""


def run_bytes() -> int:
    """Returns the bytes of pages, and of values, that are decoded at a time."""
    return memory.share(RUN_BYTES, 16)


@dataclass(slots=True)
class _Run:
    """Data pages that are decoded together, and their decompressed size in bytes."""

    pages: list[PageAt] = field(default_factory=list)
    size: int = 0
    num_rows: int = 0
    num_values: int = 0


class Chunk:
    """The pages of one chunk. Every error names file, row group, column, page and offset."""

    def __init__(self, file: OpenedFile, row_group: int, leaf: int) -> None:
        """Raises ``FormatError`` if the footer's entry of the chunk is damaged."""
        self.file, self.row_group = file, row_group
        self.leaf: Leaf = file.schema.leaves[leaf]
        self.metadata: ColumnMetaData = file.chunk(row_group, leaf)
        self._source: Source = file.source
        self._decoded: tuple[Sequence[PageAt], pa.Array] | None = None
        """The pages and their values, if they were decoded together with other chunks."""

    @property
    def where(self) -> Where:
        return Where(self.file.name, self.row_group, self.leaf.name)

    @property
    def num_rows(self) -> int:
        return self.file.num_rows_in(self.row_group)

    def load(self) -> None:
        """Reads the whole chunk into memory, unless it is longer than ``_MAX_CACHED_RUNS`` runs."""
        if self._source is not self.file.source:
            return
        start = self.metadata.start
        length = min(self.metadata.total_compressed_size, self.file.source.size - start)
        if length > _MAX_CACHED_RUNS * run_bytes():
            return
        with placed(self.where):
            data = self.file.source.read([(start, length)])[0]
        self._source = CachedRangeSource(self.file.source, start, data)

    def pages(self) -> Iterator[PageAt]:
        """Yields all pages with headers. Raises ``FormatError`` at one that cannot be decoded."""
        if self._decoded is not None:
            yield from self._decoded[0]
            return
        with placed(self.where):
            for page in walk_pages(self._source, self.metadata):
                deadline.check()
                yield page

    def hold(self, pages: Sequence[PageAt], values: pa.Array) -> None:
        """Stores all pages of the chunk and their decoded values, which later calls return."""
        self._decoded = pages, values

    def check(self, pages: Sequence[PageAt]) -> None:
        """Raises ``FormatError`` if a page claims more than it can hold, or than is allowed."""
        for page in pages:
            check_size(page.header, self.metadata.codec)
            self._check_limit(page)

    def bytes_of(self, pages: Sequence[PageAt]) -> memoryview:
        """Returns the bytes of consecutive pages, headers included."""
        return self._bytes(pages[0], pages[-1])

    def body(self, page: PageAt) -> memoryview:
        """Returns the page's bytes as stored, without its header."""
        return self._source.read([(page.body_offset, page.header.compressed_page_size)])[0]

    def levels(self, page: PageAt) -> PageLevels:
        """Returns the levels of a data page. Raises ``FormatError`` if they cannot be decoded."""
        with placed(self.at(page)):
            self._check_limit(page)
            return page_levels(page.header, self.body(page), self.leaf, self.metadata.codec)

    def arrays(
        self, pages: Sequence[PageAt], levels: Sequence[PageLevels] | None = None
    ) -> Iterator[pa.Array]:
        """Yields the physical values of all ``pages`` of the chunk, about ``RUN_BYTES`` at a time.

        NULLs are included unless the column is repeated. ``levels`` are the ``row_levels`` of the
        data pages, if the caller has them. A page or a value larger than ``RUN_BYTES`` is decoded
        by itself. Raises ``FormatError`` if pyarrow cannot decode the values, or the pages do not
        hold the chunk's rows. The same if the values exceed ``MAX_DECODED_CHUNK_BYTES``.
        """
        with placed(self.where):
            if self._decoded is not None:
                known = levels or [self.row_levels(page) for page in pages if page.is_data]
                self._check_rows(sum(page.num_rows() for page in known))
                yield self._decoded[1]
                return
            self.check(pages)
            template = self.file.templates.physical(self.file.schema, self.leaf)
            dictionary, batch_rows = None, self._batch_rows(pages)
            if pages and pages[0].is_dictionary:
                dictionary = self._bytes(pages[0], pages[0])
            rows = size = 0

            def checked(values: pa.Array) -> pa.Array:
                nonlocal size
                size += values.nbytes
                check_claim("the values of a chunk", size, MAX_DECODED_CHUNK_BYTES)
                return values

            for run in self._runs(pages, levels):
                rows += run.num_rows
                batches = leaf_batches(template, self._spliced(run, dictionary), batch_rows)
                yield from map(checked, batches)  # a loop's variable would keep values
            self._check_rows(rows)

    def _check_rows(self, rows: int) -> None:
        if rows != self.num_rows:
            raise FormatError(f"pages hold {rows:,} rows where {self.num_rows:,} were expected")

    def _runs(self, pages: Sequence[PageAt], levels: Sequence[PageLevels] | None) -> Iterator[_Run]:
        """Yields consecutive pages, up to ``RUN_BYTES`` or one page. Each run begins a row.

        Skips pages without values: pyarrow takes one for the end of the chunk.
        """
        known = None if levels is None else iter(levels)
        run, most = _Run(), run_bytes()
        for page in pages:
            if not page.is_data:
                continue
            level = next(known) if known is not None else self.row_levels(page)
            if not level.num_values:
                continue
            size = max(page.size, page.header.uncompressed_page_size)
            if run.pages and run.size + size > most and level.begins_a_row:
                yield run
                run = _Run()
            run.pages.append(page)
            run.size += size
            run.num_rows += level.num_rows()
            run.num_values += level.num_values
        if run.pages:
            yield run

    def _spliced(self, run: _Run, dictionary: memoryview | None) -> RowGroupBytes:
        start = run.pages[0].offset
        data = self._bytes(run.pages[0], run.pages[-1])
        parts = [data[at - start : at - start + p.size] for p in run.pages for at in (p.offset,)]
        chunk = ChunkBytes(self.metadata, dictionary, parts, run.num_values)
        return RowGroupBytes(run.num_rows, [chunk])

    def _bytes(self, first: PageAt, last: PageAt) -> memoryview:
        """Returns the bytes from the first to the last page, headers included."""
        stop = last.offset + last.size
        return self._source.read([(first.offset, stop - first.offset)])[0]

    def _batch_rows(self, pages: Sequence[PageAt]) -> int:
        """Returns how many decoded rows take at most ``RUN_BYTES``, by the size of pages."""
        width = value_bytes(self.leaf.element)
        if self.metadata.type == Type.BYTE_ARRAY:
            if pages and pages[0].header.dictionary_page_header is not None:
                template = self.file.templates.required(self.leaf, physical=True)
                lengths = pc.binary_length(self._entries(pages[0], template))
                width += pc.max(lengths).as_py() or 0
            elif Encoding.DELTA_BYTE_ARRAY in self.metadata.encodings:
                return _DELTA_BATCH_ROWS
        return min(max(run_bytes() // max(width, 1), 1), _MAX_BATCH_ROWS)

    def row_levels(self, page: PageAt) -> PageLevels:
        """Returns the levels that rows are counted by; reads none unless the column repeats."""
        if self.leaf.max_repetition_level:
            return self.levels(page)
        return PageLevels(page.num_values or 0, None, None)

    def dictionary(self) -> pa.Array | None:
        """Returns the entries of the chunk's dictionary, or None if it has none.

        They have the Arrow type of the column's Parquet type, without a time zone. Raises
        ``FormatError`` if they cannot be decoded.
        """
        first = next(self.pages(), None)
        if first is None or first.header.dictionary_page_header is None:
            return None
        return self._entries(first, self.file.templates.required(self.leaf))

    def _entries(self, page: PageAt, template: RootTemplate) -> pa.Array:
        """Returns the entries of a dictionary page."""
        header = page.header.dictionary_page_header
        assert header is not None
        with placed(self.at(page)):
            check_size(page.header, self.metadata.codec)
            self._check_limit(page)
            # A dictionary holds PLAIN values, just as a data page of a required column does.
            values = DataPageHeader(
                num_values=header.num_values,
                encoding=Encoding.PLAIN,
                definition_level_encoding=Encoding.RLE,
                repetition_level_encoding=Encoding.RLE,
            )
            as_data = PageHeader(
                type=PageType.DATA_PAGE,
                uncompressed_page_size=page.header.uncompressed_page_size,
                compressed_page_size=page.header.compressed_page_size,
                data_page_header=values,
            )
            data = memoryview(encode(as_data) + bytes(self.body(page)))
            chunk = ChunkBytes(self.metadata, None, [data], header.num_values)
            group = RowGroupBytes(header.num_values, [chunk])
            return decode_root(template, [group]).combine_chunks()

    def _check_limit(self, page: PageAt) -> None:
        with placed(self.at(page)):
            check_limit(page.header, self.leaf, self.file.options.page_size_limit)
            memory.AllocationBudget().take(
                2 * (page.size + page.header.uncompressed_page_size), "a page"
            )

    def at(self, page: PageAt) -> Where:
        """Returns the place of one of the chunk's pages."""
        return Where(self.file.name, self.row_group, self.leaf.name, page.number, page.offset)
