"""Offset indexes of chunks that have none, made of the headers of their pages.

Where few rows are wanted, that takes far less than decoding the chunk: a header a page.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from intarsia.errors import FormatError
from intarsia.format.page_header import walk_pages
from intarsia.format.page_index import OffsetIndex
from intarsia.read.opened import OpenedFile

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


def _index_of(file: OpenedFile, group: int, leaf: int) -> OffsetIndex | None:
    if file.schema.leaves[leaf].max_repetition_level:
        return None
    chunk, places, row = file.chunk(group, leaf), [], 0
    try:
        for page in walk_pages(file.source, chunk):
            if page.is_data:
                places.append((page.offset, page.size, row))
                row += page.num_values or 0
            elif page.number or not page.is_dictionary:
                return None  # of which readers by page know nothing
            if len(places) == _TRIED and chunk.num_values > row * (_MOST_PAGES // _TRIED):
                return None
    except FormatError:  # whoever decodes the chunk tells of it
        return None
    if not places or row != file.num_rows_in(group):
        return None
    offset, size, first_row = np.array(places, dtype=np.int64).T
    return OffsetIndex(*map(np.ascontiguousarray, (offset, size, first_row)))
