"""Checks the pages of a chunk: headers, checksums, levels, values."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from intarsia.errors import FormatError, Where
from intarsia.file.chunk_reader import Chunk, run_bytes
from intarsia.parquet.levels import PageLevels
from intarsia.parquet.metadata import DICTIONARY_ENCODINGS, CompressionCodec
from intarsia.parquet.page_header import PageAt, checksum_problem
from intarsia.parquet.page_statistics import PageSummaries, Summarizer, has_bounds
from intarsia.parquet.value_order import ValueOrder
from intarsia.row_ranges import Int64Array
from intarsia.verify.finding import Finding, error, finding_of, warning


@dataclass(frozen=True, slots=True, eq=False)
class ChunkFacts:
    """The actual content of a chunk's pages. Arrays have the shape ``(data pages,)``."""

    chunk: Chunk
    order: ValueOrder
    pages: list[PageAt]
    """The data pages."""
    levels: list[PageLevels]
    rows: Int64Array
    present: Int64Array
    """Values stored in each page: neither NULL nor within something NULL or empty."""
    null_counts: Int64Array
    values: ChunkValues | None
    """None if there are none, or they cannot be decoded."""
    bounds: PageSummaries | None
    """None if the type has no order, or values cannot be decoded."""

    def page(self, number: int) -> Where:
        """Returns the place of a data page."""
        return self.chunk.at(self.pages[number])


class ChunkValues:
    """The physical values of a chunk, decoded in each iteration, or cached if they are few."""

    def __init__(self, chunk: Chunk, pages: list[PageAt], levels: list[PageLevels]) -> None:
        self._arguments = chunk, pages, levels
        self._cached: list[pa.Array] | None = None

    def __iter__(self) -> Iterator[pa.Array]:
        if self._cached is not None:
            yield from self._cached
            return
        chunk, pages, levels = self._arguments
        parts: list[pa.Array] | None = []
        size = 0

        def noted(part: pa.Array) -> pa.Array:
            nonlocal parts, size
            size += part.nbytes
            if parts is not None:
                parts.append(part)
            if size > run_bytes():  # too many to cache
                parts = None
            return part

        yield from map(noted, chunk.arrays(pages, levels))  # a loop's variable would keep values
        self._cached = parts


class PageChecks:
    """The findings of one chunk's pages and, if all headers can be read, its facts."""

    def __init__(self, chunk: Chunk) -> None:
        self.chunk = chunk
        self.findings: list[Finding] = []
        self.facts: ChunkFacts | None = None
        try:
            if chunk.metadata.num_values:  # else there are no pages, even if it has a length
                chunk.load()
            pages = list(self._pages())
            self._check_chunk(pages)
            self._decode(pages)
        except FormatError as problem:
            self.findings.append(finding_of(problem, chunk.where))

    def _pages(self) -> Iterator[PageAt]:
        for page in self.chunk.pages():
            problem = checksum_problem(page.header, self.chunk.body(page))
            if problem:
                self.findings.append(error(self.chunk.at(page), problem))
            yield page

    def _check_chunk(self, pages: list[PageAt]) -> None:
        metadata, where = self.chunk.metadata, self.chunk.where
        values = sum(page.num_values or 0 for page in pages)
        if values != metadata.num_values:
            claim = f"pages hold {values:,} values, the footer says {metadata.num_values:,}"
            self.findings.append(error(where, claim))
        claimed = self.chunk.file.column_chunk(self.chunk.row_group, self.chunk.leaf.index)
        size = claimed.meta_data.total_compressed_size if claimed.meta_data else 0
        actual_size = sum(page.size for page in pages)
        if actual_size != size and values:
            claim = f"pages take {actual_size:,} bytes, the footer says {size:,}"
            self.findings.append(warning(where, claim))
        self._check_starts(pages)
        for page in pages:
            self._check_encoding(page)
            self._check_size(page)

    def _check_starts(self, pages: list[PageAt]) -> None:
        """Checks that the footer's offsets point at the first pages of their kinds."""
        metadata, where = self.chunk.metadata, self.chunk.where
        first = next((page for page in pages if page.is_data), None)
        offset = metadata.data_page_offset
        # In files of older writers it points at the dictionary, the start of the chunk.
        if first is not None and offset not in (first.offset, pages[0].offset):
            claim = f"data_page_offset is {offset}, the first data page is at {first.offset}"
            self.findings.append(error(where, claim))
        promised = (
            metadata.dictionary_page_offset and metadata.dictionary_page_offset == metadata.start
        )
        if promised and pages and not pages[0].is_dictionary:
            claim = "dictionary_page_offset points at a page that is no dictionary"
            self.findings.append(error(self.chunk.at(pages[0]), claim))
        for page in pages[1:]:
            if page.is_dictionary:
                message = "a dictionary page that is not the first page"
                self.findings.append(error(self.chunk.at(page), message))

    def _check_size(self, page: PageAt) -> None:
        stored, whole = page.header.compressed_page_size, page.header.uncompressed_page_size
        if self.chunk.metadata.codec == CompressionCodec.UNCOMPRESSED and stored != whole:
            claim = f"uncompressed_page_size is {whole:,} of {stored:,} bytes, uncompressed"
            self.findings.append(error(self.chunk.at(page), claim))

    def _check_encoding(self, page: PageAt) -> None:
        header = page.header
        data = header.data_page_header or header.data_page_header_v2
        if data is None or data.encoding in self.chunk.metadata.encodings:
            return
        same = DICTIONARY_ENCODINGS
        if data.encoding in same and not same.isdisjoint(self.chunk.metadata.encodings):
            return
        message = f"encoding {data.encoding} is not among those the footer lists"
        self.findings.append(warning(self.chunk.at(page), message))

    def _decode(self, pages: list[PageAt]) -> None:
        chunk, leaf = self.chunk, self.chunk.leaf
        data = [page for page in pages if page.is_data]
        levels = [chunk.levels(page) for page in data]
        for page, page_levels in zip(data, levels, strict=True):
            self._check_v2(page, page_levels)
        rows_of, present, num_values = (
            np.fromiter(counts, np.int64, len(levels))
            for counts in (
                (page.num_rows() for page in levels),
                (page.num_present(leaf.max_definition_level) for page in levels),
                (page.num_values for page in levels),
            )
        )
        order, nulls = chunk.file.order(leaf.index), num_values - present
        facts = ChunkFacts(chunk, order, data, levels, rows_of, present, nulls, None, None)
        self.facts = facts
        rows, num_stored = int(rows_of.sum()), int(present.sum())
        if rows != chunk.num_rows:
            claim = f"pages hold {rows:,} rows, the footer says {chunk.num_rows:,}"
            self.findings.append(error(chunk.where, claim))
            return
        if not num_stored:
            return
        values = ChunkValues(chunk, pages, levels)
        summarizer = Summarizer(order, facts.present) if has_bounds(order) else None
        num_decoded = 0
        for part in values:
            stored = part.drop_null()
            num_decoded += len(stored)
            if summarizer is not None:
                summarizer.add(stored)
            del part, stored  # frees them before the next ones are decoded
        if num_decoded != num_stored:
            claim = f"{num_decoded:,} values were decoded where levels say {num_stored:,}"
            self.findings.append(error(chunk.where, claim))
            return
        bounds = None if summarizer is None else summarizer.summaries
        self.facts = replace(facts, values=values, bounds=bounds)

    def _check_v2(self, page: PageAt, levels: PageLevels) -> None:
        header = page.header.data_page_header_v2
        if header is None:
            return
        nulls = levels.num_values - levels.num_present(self.chunk.leaf.max_definition_level)
        for name, claim, actual in (
            ("rows", header.num_rows, levels.num_rows()),
            ("nulls", header.num_nulls, nulls),
        ):
            if claim != actual:
                message = f"the header says {claim:,} {name}, levels say {actual:,}"
                self.findings.append(error(self.chunk.at(page), message))
