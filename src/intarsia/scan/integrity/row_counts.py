"""Compares pages with their offset index: wrong row numbers would give wrong answers."""

from __future__ import annotations

from collections.abc import Sequence

from intarsia.decode.page_data import num_rows
from intarsia.errors import FormatError
from intarsia.file.open_file import OpenedFile
from intarsia.parquet.metadata import ColumnMetaData, PageType
from intarsia.parquet.page_header import num_values, read_page_header
from intarsia.parquet.page_index import OffsetIndex
from intarsia.parquet.schema import Leaf
from intarsia.plan.page_ranges import ChunkSelection
from intarsia.scan.integrity.page_guard import PageIndexMistrust, record_problem


def checked_values(
    file: OpenedFile,
    group: int,
    leaf: int,
    chunk: ColumnMetaData,
    selection: ChunkSelection,
    pages: Sequence[memoryview],
) -> int:
    """Returns the number of values in the selected pages, and checks each page's row count.

    If the whole row group is selected, nothing is checked. Raises ``PageIndexMistrust`` if a page
    has another number of rows than the index says.
    """
    index = file.page_indexes.known_offsets(group, leaf)
    if index is None or not len(index) or selection.is_wanted_whole:
        return chunk.num_values
    counts: Sequence[int] = selection.page_rows
    if not counts:  # a whole chunk: the index divides it into pages
        if file.schema.leaves[leaf].max_repetition_level:
            return chunk.num_values  # bounds of repeated columns never exclude rows
        starts, stops = index.row_bounds(file.num_rows_in(group))
        counts = (stops - starts).tolist()
        pages = _pages_of(pages[0], index, selection.parts[0][0])
    values = 0
    for number, (count, page) in enumerate(zip(counts, pages, strict=True)):
        num_values_found, num_rows_found = _counts(page, file.schema.leaves[leaf], chunk.codec)
        if num_rows_found != count:
            has = (
                "is no complete data page"
                if num_rows_found is None
                else f"has {num_rows_found} rows"
            )
            reason = f"page {number} of those read {has}, but the offset index says {count} rows"
            if file.options.looks_for_damage:
                raise record_problem(file, group, leaf, selection, reason)
            file.page_indexes.distrust(group, leaf, reason)
            raise PageIndexMistrust
        values += num_values_found
    return values


def _counts(page: memoryview, leaf: Leaf, codec: int) -> tuple[int, int | None]:
    """Returns the values and rows of a page; rows are None unless it is a complete data page."""
    try:
        header, length = read_page_header(page)
        values = num_values(header)
        if values is None or length + header.compressed_page_size != page.nbytes:
            return 0, None
        if not leaf.max_repetition_level:
            return values, values
        return values, num_rows(header, page[length:], leaf, codec)
    except FormatError:
        return 0, None


def check_dictionary(file: OpenedFile, group: int, leaf: int, data: memoryview) -> None:
    """Raises ``PageIndexMistrust`` unless ``data`` is exactly one dictionary page."""
    if file.page_indexes.known_offsets(group, leaf) is None:
        return
    try:
        header, length = read_page_header(data)
        is_complete = length + header.compressed_page_size == data.nbytes
        is_dictionary = header.type == PageType.DICTIONARY_PAGE and is_complete
    except FormatError:
        is_dictionary = False
    if not is_dictionary:
        reason = "there is more than a dictionary before its first page"
        file.page_indexes.distrust(group, leaf, reason)
        raise PageIndexMistrust


def _pages_of(chunk: memoryview, index: OffsetIndex, start: int) -> list[memoryview]:
    """Divides a chunk's data, which starts at ``start``, into pages by the offset index."""
    offsets = (index.offset - start).tolist()
    sizes = index.compressed_page_size.tolist()
    return [chunk[at : at + size] for at, size in zip(offsets, sizes, strict=True)]
