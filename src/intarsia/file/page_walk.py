"""Makes offset indexes for chunks that have none, by walking their page headers.

A query of few rows then reads a header a page, and decodes only the pages that it needs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from intarsia.errors import FormatError
from intarsia.file.chunk_reader import Chunk
from intarsia.file.open_file import OpenedFile
from intarsia.parquet.levels import PageLevels
from intarsia.parquet.page_header import PageAt
from intarsia.parquet.page_index import OffsetIndex

_MAX_PAGES = 1000
"""Decoding a chunk with more pages is faster than walking them."""
_SAMPLED = 20
"""The values of this many first pages give an estimate of a chunk's number of pages."""


def make_offset_indexes(file: OpenedFile, group: int, leaves: Iterable[int]) -> None:
    """Makes missing offset indexes of flat chunks, unless looking for damage."""
    if file.request_bytes or file.options.looks_for_damage:
        return
    known = file.page_indexes
    for leaf in leaves:
        has_none = file.column_chunk(group, leaf).offset_index_offset is None
        if has_none and (group, leaf) not in known.walked:
            known.walked.add((group, leaf))
            index = _index_of(file, group, leaf)
            if index is not None:
                known.take(group, leaf, index)


def make_offset_index(file: OpenedFile, group: int, leaf: int) -> None:
    """Makes a chunk's offset index, by levels if repeated, unless looking for damage."""
    known = file.page_indexes
    if file.options.looks_for_damage or (group, leaf) in known.walked:
        return
    known.walked.add((group, leaf))
    try:
        chunk = Chunk(file, group, leaf)
        data = [page for page in chunk.pages() if page.is_data]
        index = offset_index_of(chunk, data, [chunk.row_levels(page) for page in data])
    except FormatError:  # the decoder reports it
        return
    if index is not None:
        known.take(group, leaf, index)


def _index_of(file: OpenedFile, group: int, leaf: int) -> OffsetIndex | None:
    if file.schema.leaves[leaf].max_repetition_level:
        return None
    try:
        chunk = Chunk(file, group, leaf)
        data = _data_pages(chunk)
        return offset_index_of(chunk, data, [chunk.row_levels(page) for page in data])
    except FormatError:  # the decoder reports it
        return None


def _data_pages(chunk: Chunk) -> list[PageAt]:
    """Returns a chunk's data pages, or [] if there are too many of them, or unknown pages."""
    data_pages: list[PageAt] = []
    values = 0
    for page in chunk.pages():
        if page.is_data:
            data_pages.append(page)
            values += page.num_values or 0
        elif page.number or not page.is_dictionary:
            return []
        if len(data_pages) == _SAMPLED and chunk.metadata.num_values > values * (
            _MAX_PAGES // _SAMPLED
        ):
            return []
    return data_pages


def offset_index_of(
    chunk: Chunk, pages: Sequence[PageAt], levels: Sequence[PageLevels]
) -> OffsetIndex | None:
    """Returns the OffsetIndex of a chunk's data pages.

    Returns None if a page begins within a row or begins no row. Raises ``FormatError`` if the
    pages do not hold the chunk's rows.
    """
    rows = np.array([page.num_rows() for page in levels], dtype=np.int64)
    if int(rows.sum()) != chunk.num_rows:
        raise FormatError(
            f"pages hold {int(rows.sum()):,} rows, not {chunk.num_rows:,}", chunk.where
        )
    if not all(page.begins_a_row for page in levels) or (rows == 0).any():
        return None
    return OffsetIndex(
        np.array([page.offset for page in pages], dtype=np.int64),
        np.array([page.size for page in pages], dtype=np.int64),
        np.cumsum(rows) - rows,
    )
