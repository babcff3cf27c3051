"""One column chunk, page by page: headers, levels, physical values."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from intarsia.decode.page_body import check_size, page_levels
from intarsia.decode.page_limit import check_limit
from intarsia.decode.splice import ChunkBytes, RowGroupBytes, decode_root, leaf_values
from intarsia.errors import FormatError, Where
from intarsia.format.levels import PageLevels
from intarsia.format.metadata import (
    ColumnMetaData,
    DataPageHeader,
    Encoding,
    PageHeader,
    PageType,
)
from intarsia.format.page_header import PageAt, walk_pages
from intarsia.format.schema import Leaf
from intarsia.format.thrift import encode
from intarsia.read.opened import OpenedFile
from intarsia.source import HeldSource, Source


class Chunk:
    """The pages of one chunk. Every error names file, row group, column, page and offset."""

    def __init__(self, file: OpenedFile, row_group: int, leaf: int) -> None:
        """Raises ``FormatError`` where the footer's account of the chunk is no use."""
        self.file, self.row_group = file, row_group
        self.leaf: Leaf = file.schema.leaves[leaf]
        self.metadata: ColumnMetaData = file.chunk(row_group, leaf)
        self._source: Source = file.source

    @property
    def where(self) -> Where:
        return Where(self.file.name, self.row_group, self.leaf.name)

    @property
    def num_rows(self) -> int:
        return self.file.num_rows_in(self.row_group)

    def load(self) -> None:
        """Hold all of its bytes from now on: pages then cost no request each."""
        start = self.metadata.start
        length = min(self.metadata.total_compressed_size, self.file.source.size - start)
        try:
            data = self.file.source.read([(start, length)])[0]
        except FormatError as error:
            raise error.at(self.where) from error
        self._source = HeldSource(self.file.source, start, data)

    def pages(self) -> Iterator[PageAt]:
        """Its pages by their headers, dictionary and unknown ones included.

        Raises ``FormatError`` at the first header that cannot be decoded.
        """
        try:
            yield from walk_pages(self._source, self.metadata)
        except FormatError as error:
            raise error.at(self.where) from error

    def body(self, page: PageAt) -> memoryview:
        """The page's bytes as stored, without its header."""
        return self._source.read([(page.body_offset, page.header.compressed_page_size)])[0]

    def levels(self, page: PageAt) -> PageLevels:
        """The levels of a data page. Raises ``FormatError`` where they cannot be decoded."""
        try:
            self._check_limit(page)
            return page_levels(page.header, self.body(page), self.leaf, self.metadata.codec)
        except FormatError as error:
            raise error.at(self.at(page)) from error

    def values(self, pages: list[PageAt]) -> pa.Array:
        """The physical values of all ``pages`` of the chunk, NULLs left out.

        Raises ``FormatError`` where pyarrow cannot decode them.
        """
        try:
            for page in pages:
                check_size(page.header, self.metadata.codec)
                self._check_limit(page)
            start = self.metadata.start
            stop = pages[-1].offset + pages[-1].size if pages else start
            data = self._source.read([(start, stop - start)])[0]
            chunk = ChunkBytes(self.metadata, None, [data], self.metadata.num_values)
            template = self.file.templates.physical(self.file.schema, self.leaf)
            return leaf_values(decode_root(template, [RowGroupBytes(self.num_rows, [chunk])]))
        except FormatError as error:
            raise error.at(self.where) from error

    def dictionary(self) -> pa.Array | None:
        """The entries of its dictionary; None where it has none.

        They have the Arrow type of the column's Parquet type, which knows no time zones.

        Raises ``FormatError`` where they cannot be decoded.
        """
        first = next(self.pages(), None)
        if first is None or first.header.dictionary_page_header is None:
            return None
        try:
            check_size(first.header, self.metadata.codec)
            self._check_limit(first)
            # A dictionary is PLAIN values, as a data page of a required column holds them.
            count = first.header.dictionary_page_header.num_values
            values = DataPageHeader(
                num_values=count,
                encoding=Encoding.PLAIN,
                definition_level_encoding=Encoding.RLE,
                repetition_level_encoding=Encoding.RLE,
            )
            header = PageHeader(
                type=PageType.DATA_PAGE,
                uncompressed_page_size=first.header.uncompressed_page_size,
                compressed_page_size=first.header.compressed_page_size,
                data_page_header=values,
            )
            page = memoryview(encode(header) + bytes(self.body(first)))
            chunk = ChunkBytes(self.metadata, None, [page], count)
            template = self.file.templates.required(self.leaf)
            return decode_root(template, [RowGroupBytes(count, [chunk])]).combine_chunks()
        except FormatError as error:
            raise error.at(self.at(first)) from error

    def _check_limit(self, page: PageAt) -> None:
        try:
            check_limit(page.header, self.leaf, self.file.options.page_size_limit)
        except FormatError as error:
            raise error.at(self.at(page)) from error

    def at(self, page: PageAt) -> Where:
        """The place of one of its pages."""
        return Where(self.file.name, self.row_group, self.leaf.name, page.number, page.offset)
