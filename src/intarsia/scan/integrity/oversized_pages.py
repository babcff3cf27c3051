"""Rejects pages that are too large, by ``page_size_limit`` or by the memory limit.

Pages are rejected before they are decoded.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa

from intarsia.decode.page_size_limit import (
    held_bytes,
    is_within,
    mean_entry_bytes,
    over_limit,
    pages_in,
)
from intarsia.errors import FormatError, OutOfMemoryError, Where
from intarsia.file.chunk_reader import Chunk
from intarsia.file.open_file import OpenedFile
from intarsia.memory import AllocationBudget, memory_limit
from intarsia.parquet.metadata import ColumnMetaData
from intarsia.parquet.schema import Leaf
from intarsia.plan.page_ranges import ChunkSelection
from intarsia.scan.integrity.page_guard import PageIndexMistrust


def check_pages(
    file: OpenedFile,
    group: int,
    leaf: int,
    selection: ChunkSelection,
    dictionary: memoryview | None,
    pages: Sequence[memoryview],
) -> None:
    """Checks pages of a chunk against ``page_size_limit``, if it is set.

    Raises ``FormatError`` with the page if it is larger, or if its header cannot be decoded. Raises
    ``PageIndexMistrust`` if a page is not where its index says.
    """
    limit = file.options.page_size_limit
    if limit is None:
        return
    chunk, column = file.chunk(group, leaf), file.schema.leaves[leaf]
    parts = [*([dictionary] if dictionary else []), *pages]
    stored = max((part.nbytes for part in parts), default=0)
    if is_within(stored, chunk.num_values, column, chunk.codec, limit):
        return
    for (start, _), part in zip(selection.byte_ranges, parts, strict=True):
        oversized = _first_oversized(part, chunk, column, limit)
        if oversized is None:
            continue
        offset, problem = start + oversized[0], oversized[1]
        where = _page_at(file, group, leaf, offset)
        if where.page is None and selection.page_rows:
            file.page_indexes.distrust(group, leaf, f"no page begins at {offset:,}")
            raise PageIndexMistrust
        raise FormatError(problem, where)


def reserve_page_memory(
    room: AllocationBudget,
    file: OpenedFile,
    group: int,
    leaf: int,
    selection: ChunkSelection,
    parts: Sequence[memoryview],
) -> None:
    """Reserves memory for the decoded pages of a chunk.

    ``parts`` are the bytes at ``selection.byte_ranges``. Raises ``OutOfMemoryError`` with the
    largest page if they do not fit.
    """
    chunk, column = file.chunk(group, leaf), file.schema.leaves[leaf]
    mean_entry, total = 0.0, 0
    largest = (0, 0, 0)  # bytes of values, of the page, and its offset
    for (start, _), part in zip(selection.byte_ranges, parts, strict=True):
        with contextlib.suppress(FormatError):  # the decoder reports it
            for at, header in pages_in(part, chunk.num_values):
                mean_entry = mean_entry_bytes(header) or mean_entry
                size = int(held_bytes(header, column, mean_entry))
                total += size
                largest = max(largest, (size, header.uncompressed_page_size, start + at))
    try:
        room.take(total + largest[1], f"a chunk, of which a page holds {largest[0]:,} bytes,")
    except OutOfMemoryError as error:
        raise error.at(_page_at(file, group, leaf, largest[2])) from None


def fitting(tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """Yields ``tables``. Raises ``OutOfMemoryError`` beyond half the memory limit in total."""
    limit, size = memory_limit(), 0
    for table in tables:
        if limit is not None:
            size += table.nbytes
            if size > limit / 2:
                raise OutOfMemoryError(
                    f"the table takes more than {limit // 2:,} bytes, half the memory limit; read "
                    "it in batches: to_batches, or iter_batches of a file"
                )
        yield table


def _first_oversized(
    data: memoryview, chunk: ColumnMetaData, leaf: Leaf, limit: int
) -> tuple[int, str] | None:
    """Returns position and problem of the first page that is too large or cannot be parsed."""
    try:
        for at, header in pages_in(data, chunk.num_values):
            problem = over_limit(header, leaf, limit)
            if problem is not None:
                return at, problem
    except FormatError as error:
        return error.where.offset or 0, error.message
    return None


def _page_at(file: OpenedFile, group: int, leaf: int, offset: int) -> Where:
    """Returns the place of the page at ``offset``, without its number if no page begins there."""
    chunk = Chunk(file, group, leaf)
    with contextlib.suppress(FormatError):
        for page in chunk.pages():
            if page.offset == offset:
                return chunk.at(page)
    return Where(file.name, group, file.schema.leaves[leaf].name, offset=offset)
