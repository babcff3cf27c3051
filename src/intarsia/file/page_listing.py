"""Describes every page of a chunk by its header, levels and page indexes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from intarsia.file.chunk_reader import Chunk
from intarsia.file.open_file import OpenedFile
from intarsia.parquet.metadata import Encoding, PageType
from intarsia.parquet.page_header import PageAt
from intarsia.parquet.page_index import ColumnIndex
from intarsia.parquet.value_display import name_of, readable


@dataclass(frozen=True, slots=True)
class PageInfo:
    """One page. Offsets and sizes are in bytes. Fields that do not apply to its type are None."""

    row_group: int
    column: str
    number: int
    """Position in its chunk, counted from 0 and including the dictionary."""
    type: str
    """``DATA_PAGE``, ``DICTIONARY_PAGE``, …; the number of a type that is not known here."""
    encoding: str | None
    offset: int
    header_size: int
    compressed_size: int
    """Size of the body as stored, in bytes."""
    uncompressed_size: int
    first_row: int | None
    """Counted from the start of the row group."""
    num_rows: int | None
    """Rows that begin in this page."""
    num_values: int | None
    """Values including NULLs. Entries, if the page is a dictionary."""
    null_count: int | None
    min: Any
    """Lower bound by the ColumnIndex, or by the page's own statistics if there is none."""
    max: Any
    crc: int | None
    """CRC-32, unsigned; None if the page has none."""


def describe_pages(file: OpenedFile, row_group: int, leaf: int) -> Iterator[PageInfo]:
    """Yields the pages of one chunk. Raises ``FormatError`` if one cannot be decoded."""
    chunk = Chunk(file, row_group, leaf)
    index = file.page_indexes.columns(row_group, leaf)
    row = data_pages = 0
    for page in chunk.pages():
        rows = nulls = None
        bounds: tuple[Any, Any] = (None, None)
        if page.is_data:
            levels = chunk.levels(page)
            rows = levels.num_rows()
            nulls = levels.num_values - levels.num_present(chunk.leaf.max_definition_level)
            bounds = _bounds(chunk, page, index, data_pages)
        yield _info(chunk, page, row, rows, nulls, bounds)
        row += rows or 0
        data_pages += page.is_data


def _info(
    chunk: Chunk,
    page: PageAt,
    row: int,
    rows: int | None,
    nulls: int | None,
    bounds: tuple[Any, Any],
) -> PageInfo:
    header = page.header
    dictionary = header.dictionary_page_header
    values = header.data_page_header or header.data_page_header_v2 or dictionary
    return PageInfo(
        chunk.row_group,
        chunk.leaf.name,
        page.number,
        name_of(PageType, header.type),
        None if values is None else name_of(Encoding, values.encoding),
        page.offset,
        page.header_size,
        header.compressed_page_size,
        header.uncompressed_page_size,
        None if rows is None else row,
        rows,
        None if values is None else values.num_values,
        nulls,
        *bounds,
        None if header.crc is None else header.crc & 0xFFFFFFFF,
    )


def _bounds(chunk: Chunk, page: PageAt, index: ColumnIndex | None, number: int) -> tuple[Any, Any]:
    low = high = None
    if index is not None and number < len(index):
        if index.null_pages[number]:
            return None, None
        low, high = index.min_values[number], index.max_values[number]
    else:
        header = page.header.data_page_header or page.header.data_page_header_v2
        stats = header.statistics if header else None
        if stats is not None:
            low = stats.min if stats.min_value is None else stats.min_value
            high = stats.max if stats.max_value is None else stats.max_value
    return readable(chunk.leaf.element, low), readable(chunk.leaf.element, high)
