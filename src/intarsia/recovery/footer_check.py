"""Checks whether a footer belongs to the pages before it: it does if it accounts for all of them.

Row groups of such a footer are lost if their pages are damaged, and saved otherwise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from intarsia.errors import FormatError
from intarsia.parquet.metadata import ColumnChunk, ColumnMetaData, RowGroup
from intarsia.parquet.schema import Leaf
from intarsia.parquet.thrift import encode
from intarsia.recovery.torn_pages import TornPages

_DICTIONARY_HEADER_BYTES = 100
"""Upper limit of a dictionary page's header, which old writers leave out of the chunk's size."""


@dataclass(frozen=True, slots=True)
class SavedGroup:
    """A row group that can be recovered: its encoded ``RowGroup``, and its bytes in the file."""

    raw: bytes
    rows: int
    start: int
    stop: int
    unchecked_pages: int
    """Number of its pages without a checksum."""
    is_rebuilt: bool = False
    """True if its metadata was made from its pages."""


@dataclass(frozen=True, slots=True)
class LostGroup:
    """A row group that was written and cannot be recovered. ``rows`` is None if unknown."""

    row_group: int
    rows: int | None
    offset: int
    bytes: int
    reason: str

    def __str__(self) -> str:
        rows = "an unknown number of rows" if self.rows is None else f"{self.rows:,} rows"
        return f"row group {self.row_group}, {rows} in {self.bytes:,} bytes: {self.reason}"


Verdicts = list[SavedGroup | LostGroup]


def check_all_groups(torn: TornPages, groups: Sequence[RowGroup], pages: int) -> Verdicts:
    """Returns a verdict on each group. Raises ``FormatError`` unless they cover ``pages``."""
    verdicts, covered = check_leading_groups(torn, groups)
    if covered != pages:
        raise FormatError(f"it accounts for {covered:,} of the {pages:,} pages before it")
    return verdicts


def check_leading_groups(torn: TornPages, groups: Sequence[RowGroup]) -> tuple[Verdicts, int]:
    """Returns verdicts and pages of a cut footer's groups. Raises ``FormatError``."""
    verdicts: Verdicts = []
    spans: list[tuple[int, int]] = []
    for number, group in enumerate(groups):
        chunks = _chunks(torn, number, group)
        spans += [(first, stop) for _, _, first, stop in chunks if stop > first]
        verdicts.append(_verdict(torn, number, group, chunks))
    covered = 0
    for first, stop in sorted(spans):
        if first != covered:
            raise FormatError(f"it leaves out page {covered}, or has it twice")
        covered = stop
    return verdicts, covered


_Chunk = tuple[Leaf, ColumnMetaData, int, int]


def _chunks(torn: TornPages, number: int, group: RowGroup) -> list[_Chunk]:
    """Returns each chunk with its pages, ``[first, stop)``."""
    leaves = torn.schema.leaves
    if len(group.columns) != len(leaves):
        raise FormatError(f"row group {number} has {len(group.columns)} of {len(leaves)} columns")
    chunks = []
    for leaf, chunk in zip(leaves, group.columns, strict=True):
        data = _metadata(chunk, leaf)
        try:
            first, stop = _pages_of(torn, data)
        except FormatError as error:
            raise FormatError(f"row group {number}, column {leaf.name}: {error}") from error
        chunks.append((leaf, data, first, stop))
    return chunks


def _metadata(chunk: ColumnChunk, leaf: Leaf) -> ColumnMetaData:
    data = chunk.meta_data
    if data is None or chunk.crypto_metadata is not None or chunk.file_path:
        raise FormatError(f"column {leaf.name} is encrypted, or in another file")
    if data.type != leaf.element.type or tuple(data.path_in_schema) != leaf.path:
        raise FormatError(f"the chunk of column {leaf.name} is of another column")
    return data


def _pages_of(torn: TornPages, data: ColumnMetaData) -> tuple[int, int]:
    pages = torn.pages
    offsets = [data.dictionary_page_offset or 0, data.data_page_offset]
    start = min((offset for offset in offsets if offset > 0), default=0)
    size = data.total_compressed_size
    if not size and not data.num_values:
        return 0, 0
    first = int(np.searchsorted(pages.offset, start))
    if first >= len(pages) or pages.offset[first] != start:
        raise FormatError(f"no page begins at offset {start:,}")
    stop = int(np.searchsorted(pages.stop, start + size))
    if stop >= len(pages) or not 0 <= pages.stop[stop] - (start + size) <= _DICTIONARY_HEADER_BYTES:
        raise FormatError(f"no page ends at offset {start + size:,}")
    stop += 1
    values = int(pages.values[first:stop][pages.is_data[first:stop]].sum())
    if values != data.num_values:
        raise FormatError(f"{data.num_values:,} values where pages hold {values:,}")
    if pages.is_dictionary[first + 1 : stop].any():
        raise FormatError("a dictionary that is not its chunk's first page")
    return first, stop


def _verdict(
    torn: TornPages, number: int, group: RowGroup, chunks: Sequence[_Chunk]
) -> SavedGroup | LostGroup:
    filled = [chunk for chunk in chunks if chunk[3] > chunk[2]]
    start = min((int(torn.pages.offset[chunk[2]]) for chunk in filled), default=0)
    stop = max((int(torn.pages.stop[chunk[3] - 1]) for chunk in filled), default=0)
    for leaf, data, first, last in chunks:
        reason = torn.chunk_problem(leaf, data, first, last)
        if not reason:
            reason = _rows_problem(torn, leaf, data, (first, last), group.num_rows)
        if reason:
            reason = f"column {leaf.name}: {reason}"
            return LostGroup(number, group.num_rows, start, stop - start, reason)
    unchecked = sum(torn.unchecked(first, last) for _, _, first, last in chunks)
    return SavedGroup(encode(group), group.num_rows, start, stop, unchecked)


def _rows_problem(
    torn: TornPages, leaf: Leaf, data: ColumnMetaData, pages: tuple[int, int], rows: int
) -> str:
    try:
        counts = [torn.rows(page, leaf, data.codec).count for page in torn.data_pages(*pages)]
    except FormatError as error:
        return str(error)
    actual = sum(counts)
    return "" if actual == rows else f"pages hold {actual:,} rows, the footer says {rows:,}"
