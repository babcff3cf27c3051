"""Divides the rows of a file into units. A unit is read, decoded and filtered in one step."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from functools import partial

import numpy as np
import pyarrow as pa

import intarsia.memory as memory
from intarsia.decode.page_size_limit import mean_entry_bytes
from intarsia.decode.page_validation import has_dictionary_pages_only
from intarsia.errors import FormatError
from intarsia.file.chunk_reader import Chunk
from intarsia.file.column_chunks import decoded_bytes
from intarsia.file.open_file import OpenedFile
from intarsia.file.page_walk import make_offset_index, make_offset_indexes
from intarsia.parquet.metadata import Type
from intarsia.parquet.schema import Root
from intarsia.plan.cost_model import COSTS
from intarsia.row_ranges import Int64Array, RowRanges
from intarsia.scan.page_selection import groups_of

_DICTIONARY_INDEX_BYTES = 4


def units_of(
    file: OpenedFile, rows: RowRanges, roots: Sequence[Root], *, small_first: bool = False
) -> Iterator[RowRanges]:
    """Divides ``rows`` into units, in order. ``roots`` are the columns to read.

    With ``small_first`` the first units are small. Pages without an offset index are located by
    their headers if ``small_first`` is set, or if ``rows`` are a small part of the row group.
    """
    groups = groups_of(file, rows)
    leaves = [leaf for root in roots for leaf in root.leaves]
    are_few = len(rows.starts) <= COSTS.few_ranges and len(groups) <= COSTS.few_row_groups
    if rows and rows.num_rows <= COSTS.first_unit_rows and are_few:
        for group in groups:
            _find_pages(file, group, leaves, rows)
        row_bytes = max(_row_bytes(file, group, leaves) for group in groups)
        if rows.num_rows * row_bytes <= usual_bytes():
            yield rows
            return
    limit: float = COSTS.first_unit_rows if small_first else COSTS.unit_rows
    unit_bytes = usual_bytes()
    pending: list[RowRanges] = []
    count, size = 0.0, 0.0
    for group in groups:
        _find_pages(file, group, leaves, rows, always=small_first)
        row_bytes, scale = _row_bytes(file, group, leaves), 1.0
        if not small_first and not memory.has_limit():
            scale = _scale(file, group, leaves, file.num_rows_in(group) * row_bytes)
        step = min(limit * scale, unit_bytes * scale / row_bytes)
        for part, decoded_rows in _parts_of(file, rows, group, leaves, step):
            part_size = decoded_rows * row_bytes / scale
            if pending and (count + decoded_rows / scale > limit or size + part_size > unit_bytes):
                yield RowRanges.union(pending)
                pending, count, size = [], 0.0, 0.0
                limit = min(2 * limit, COSTS.unit_rows)
            pending.append(part)
            count += decoded_rows / scale
            size += part_size
    if pending:
        yield RowRanges.union(pending)


def decoded_rows_bytes(file: OpenedFile, rows: RowRanges, leaves: Sequence[int]) -> float:
    """Returns the estimated bytes of ``leaves`` at ``rows``, decoded."""
    starts = file.row_group_starts
    return sum(
        rows.clip(int(starts[g]), int(starts[g + 1])).num_rows * _row_bytes(file, g, leaves)
        for g in groups_of(file, rows)
    )


def usual_bytes() -> int:
    """Returns the usual decoded bytes of a unit, fewer with a memory limit."""
    return memory.share(COSTS.unit_bytes, 32)


def _is_small(size: int) -> bool:
    """True if a row group of this size, 0 if unknown, is a small part of a unit."""
    return 0 < size <= COSTS.unit_bytes // 32


def _find_pages(
    file: OpenedFile, group: int, leaves: Sequence[int], rows: RowRanges, *, always: bool = False
) -> None:
    """Locates the pages of a large row group without offset indexes, by their headers.

    Does so if ``rows`` are a small part of it or ``always`` is set. With a memory limit it depends
    only on whether the row group is larger than a unit.
    """
    if memory.has_limit():
        if file.num_rows_in(group) * _row_bytes(file, group, leaves) > usual_bytes():
            _page_starts(file, group, leaves, learns=True)
    elif _is_large(file, group, leaves) and (always or _is_sparse(file, rows, group)):
        make_offset_indexes(file, group, leaves)


def _is_sparse(file: OpenedFile, rows: RowRanges, group: int) -> bool:
    """True if ``rows`` are a small part of a row group."""
    start, stop = file.row_group_starts[group : group + 2].tolist()
    return bool(rows.clip(start, stop).num_rows * COSTS.sparse_share <= stop - start)


def _is_large(file: OpenedFile, group: int, leaves: Sequence[int]) -> bool:
    """True if decoding the whole row group takes longer than locating single pages."""
    if file.num_rows_in(group) >= COSTS.large_group_rows:
        return True
    if _is_small(file.metadata.row_groups[group].total_byte_size):
        return False
    chunks = file.outlines(group, leaves)
    return sum(chunk.total_uncompressed_size for chunk in chunks) >= COSTS.large_group_bytes


def _row_bytes(file: OpenedFile, group: int, leaves: Sequence[int]) -> float:
    """Returns the estimated bytes of a decoded row, from the footer."""
    dictionary_leaves = file.shape.cached(
        ("coded", file.options.type_options), partial(_dictionary_leaves, file)
    )
    size, is_limited = 0, memory.has_limit()
    for leaf, chunk in zip(leaves, file.outlines(group, leaves), strict=True):
        if leaf in dictionary_leaves and has_dictionary_pages_only(file.chunk(group, leaf)):
            size += chunk.num_values * _DICTIONARY_INDEX_BYTES
        elif is_limited:
            size += decoded_chunk_bytes(file, group, leaf)
        else:
            size += decoded_bytes(file.schema.leaves[leaf], chunk)
    return max(size / file.num_rows_in(group), 1.0)


def _dictionary_leaves(file: OpenedFile) -> frozenset[int]:
    """Returns the leaves that are read as Arrow dictionaries."""
    roots = (root for root in file.schema.roots if root.leaves)
    typed = zip(roots, file.schema_arrow.types, strict=True)
    stored = {root.leaves[0] for root, kind in typed if pa.types.is_dictionary(kind)}
    requested = set(file.options.read_dictionary)
    return frozenset(stored | {leaf.index for leaf in file.schema.leaves if leaf.name in requested})


def _scale(file: OpenedFile, group: int, leaves: Sequence[int], group_bytes: float) -> float:
    """Returns how many times the usual size the units of a row group are.

    Units are larger if their edges cut large pages, or if there are many columns with few bytes
    each. Then a row group that is little larger than a unit is one unit.
    """
    if group_bytes <= COSTS.unit_bytes:
        return 1.0
    by_columns = min(len(leaves) * COSTS.unit_column_bytes / COSTS.unit_bytes, COSTS.unit_scale)
    largest = COSTS.unit_excess * by_columns
    if by_columns > 1 and group_bytes <= largest * COSTS.unit_bytes:
        return largest
    by_cuts = COSTS.cut_share * _cut_bytes(file, group, leaves) / COSTS.unit_bytes
    return min(max(by_columns, by_cuts, 1.0), COSTS.unit_scale)


def _cut_bytes(file: OpenedFile, group: int, leaves: Sequence[int]) -> float:
    """Returns the average decoded bytes of the pages that a boundary between units divides.

    Boundaries are between pages of the largest column. They divide pages of the other columns.
    """
    edges = _page_starts(file, group, leaves)
    if edges is None:
        return 0.0
    size = 0.0
    for leaf, chunk in zip(leaves, file.outlines(group, leaves), strict=True):
        index = file.page_indexes.offsets(group, leaf)
        if index is not None and not np.array_equal(index.first_row_index, edges):
            page = decoded_bytes(file.schema.leaves[leaf], chunk) / len(index)
            size += page * (1 - np.isin(edges, index.first_row_index).mean())
    return size


def decoded_chunk_bytes(file: OpenedFile, group: int, leaf: int) -> int:
    """Returns the estimated decoded bytes of a chunk, each dictionary entry as often as it occurs.

    Strings count by size statistics or by the mean length of dictionary entries, if that is more.
    """
    chunk, column = file.chunk(group, leaf), file.schema.leaves[leaf]
    size = decoded_bytes(column, chunk)
    if column.element.type == Type.BYTE_ARRAY and chunk.num_values:
        with contextlib.suppress(FormatError):  # the decoder reports it
            first = next(Chunk(file, group, leaf).pages(), None)
            mean = None if first is None else mean_entry_bytes(first.header)
            size = max(size, int((mean or 0) * chunk.num_values))
    return size


def _parts_of(
    file: OpenedFile, rows: RowRanges, group: int, leaves: Sequence[int], step: float
) -> Iterator[tuple[RowRanges, int]]:
    """Yields parts of ``rows`` in a row group, and the number of rows decoded for each part.

    Each part decodes about ``step`` rows. Parts end where a page of the largest column ends.
    """
    start, stop = file.row_group_starts[group : group + 2].tolist()
    rows_in_group = rows.clip(start, stop)
    if rows_in_group.num_rows == stop - start <= step:
        yield rows_in_group, stop - start
        return
    edges = _page_starts(file, group, leaves)
    if edges is None:
        yield rows_in_group, stop - start
        return
    edges = np.append(edges, stop - start) + start
    is_touched = rows_in_group.covers(edges[:-1], edges[1:])
    decoded_before = np.append(0, np.cumsum(np.where(is_touched, np.diff(edges), 0)))
    page, num_pages = 0, len(is_touched)
    while page < num_pages:
        last = int(np.searchsorted(decoded_before, decoded_before[page] + step, side="right")) - 1
        end = min(max(last, page + 1), num_pages)
        part = rows_in_group.clip(int(edges[page]), int(edges[end]))
        if part:
            yield part, int(decoded_before[end] - decoded_before[page])
        page = end


def _page_starts(
    file: OpenedFile, group: int, leaves: Sequence[int], *, learns: bool = False
) -> Int64Array | None:
    sizes = {leaf: file.chunk(group, leaf).total_compressed_size for leaf in leaves}
    return page_starts(file, group, sizes, learns=learns)


def page_starts(
    file: OpenedFile, group: int, sizes: Mapping[int, int], *, learns: bool
) -> Int64Array | None:
    """Returns the first rows of the pages of the largest column. ``sizes`` are given by leaf.

    Returns None unless the page positions of all columns are known from an offset index. With
    ``learns``, headers are read if there is no offset index.
    """
    if not sizes:
        return None
    file.page_indexes.load([(group, leaf) for leaf in sizes], [])
    for leaf in sizes if learns else ():
        if file.page_indexes.offsets(group, leaf) is None:
            make_offset_index(file, group, leaf)
    indexes = {leaf: file.page_indexes.offsets(group, leaf) for leaf in sizes}
    largest = indexes[max(sizes, key=lambda leaf: sizes[leaf])]
    if largest is None or any(index is None or not len(index) for index in indexes.values()):
        return None
    return largest.first_row_index
