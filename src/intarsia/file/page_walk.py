"""Offset indexes made of the pages of chunks; and where headers tell of those that have none.

Where few rows are wanted, that takes far less than decoding the chunk: a header a page.
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

_MOST_PAGES = 1000
_TRIED = 20
"""Pages of a chunk, about: where the first ones hold so few values that there are more, walking
through them would take longer than decoding it.
"""


def walk_through(file: OpenedFile, group: int, leaves: Iterable[int]) -> None:
    """Have chunks of a local file go by an offset index, as far as their headers tell of rows.

    That is where nothing is repeated. Not where damage is looked for, which whole chunks are.
    """
    if file.request_bytes or file.options.looks_for_damage:
        return
    known = file.page_indexes
    for leaf in leaves:
        has_none = file.column_chunk(group, leaf).offset_index_offset is None
        if has_none and (group, leaf) not in known.walked:
            known.walked.add((group, leaf))
            found = _index_of(file, group, leaf)
            if found is not None:
                known.take(group, leaf, found)


def learn_pages(file: OpenedFile, group: int, leaf: int) -> None:
    """Have a chunk go by an offset index made of all its pages, unless one begins within a row.

    That reads the levels of a repeated column. Not where damage is looked for.
    """
    known = file.page_indexes
    if file.options.looks_for_damage or (group, leaf) in known.walked:
        return
    known.walked.add((group, leaf))
    try:
        chunk = Chunk(file, group, leaf)
        data = [page for page in chunk.pages() if page.is_data]
        found = offset_index_of(chunk, data, [chunk.row_levels(page) for page in data])
    except FormatError:  # the decoder reports it
        return
    if found is not None:
        known.take(group, leaf, found)


def _index_of(file: OpenedFile, group: int, leaf: int) -> OffsetIndex | None:
    if file.schema.leaves[leaf].max_repetition_level:
        return None
    try:
        chunk = Chunk(file, group, leaf)
        data = _data_pages(chunk)
        return offset_index_of(chunk, data, [chunk.row_levels(page) for page in data])
    except FormatError:  # whoever decodes the chunk tells of it
        return None


def _data_pages(chunk: Chunk) -> list[PageAt]:
    """A chunk's data pages; none where there are too many, or others that nobody asks for."""
    found: list[PageAt] = []
    values = 0
    for page in chunk.pages():
        if page.is_data:
            found.append(page)
            values += page.num_values or 0
        elif page.number or not page.is_dictionary:
            return []
        if len(found) == _TRIED and chunk.metadata.num_values > values * (_MOST_PAGES // _TRIED):
            return []
    return found


def offset_index_of(
    chunk: Chunk, pages: Sequence[PageAt], levels: Sequence[PageLevels]
) -> OffsetIndex | None:
    """The OffsetIndex of a chunk's data pages; None where a page begins within a row, or has none.

    Raises ``FormatError`` where the pages do not hold the chunk's rows.
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
