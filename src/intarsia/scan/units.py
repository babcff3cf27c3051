"""Dividing the rows of a file into units: what is read, filtered and held in memory at a time."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from functools import partial

import numpy as np
import pyarrow as pa

from intarsia import memory
from intarsia.decode.page_size_limit import mean_entry_bytes, value_bytes
from intarsia.decode.page_validation import has_codes_only
from intarsia.errors import FormatError
from intarsia.file.chunk_reader import Chunk
from intarsia.file.open_file import OpenedFile
from intarsia.file.page_walk import learn_pages, walk_through
from intarsia.parquet.metadata import ColumnMetaData, Outline, Type
from intarsia.parquet.schema import Leaf, Root
from intarsia.row_ranges import Int64Array, RowRanges
from intarsia.scan.page_selection import groups_of

UNIT_ROWS = 1024 * 1024
UNIT_BYTES = 32 * 1024 * 1024
"""A unit's rows, and their bytes decoded, as a rule; row groups without page indexes are read
whole."""
_LARGEST, _SHARE = 4, 3
"""Each unit decodes its dictionaries anew: its bytes are three times theirs, where that is more, up
to four times the rule."""
_CUT_SHARE = 16
"""And pages that a cut goes through are decoded on either side of it: so many times theirs."""
_COLUMN_BYTES = 128 * 1024
"""Each column takes some time by itself: of many, units are so large for each."""
_CODE_BYTES = 4
_FEW_GROUPS, _FEW_RANGES = 8, 16
"""Rows of so few row groups that are in so few places are hardly in many pages."""
_LARGE_ROWS, _LARGE_BYTES = 128 * 1024, 16 * 1024 * 1024
_PART = 8
"""One row in so many, at most, is worth looking for its pages where no index tells of them."""
FIRST_ROWS = 16 * 1024
"""Rows of the first unit where few rows are wanted; each unit after it may be twice as long."""


def units_of(
    file: OpenedFile, rows: RowRanges, roots: Sequence[Root], *, small_first: bool = False
) -> Iterator[RowRanges]:
    """``rows`` in portions, in order; ``roots`` are what will be read of them.

    With ``small_first`` the first ones are small. Then, and where ``rows`` are few of their row
    group, headers tell where pages are that no index tells of.
    """
    groups = groups_of(file, rows)
    leaves = [leaf for root in roots for leaf in root.leaves]
    are_few = len(rows.starts) <= _FEW_RANGES and len(groups) <= _FEW_GROUPS
    if rows and rows.num_rows <= FIRST_ROWS and are_few:
        for group in groups:
            _find_pages(file, group, leaves, rows)
        row_bytes = max(_row_bytes(file, group, leaves) for group in groups)
        if rows.num_rows * row_bytes <= usual_bytes():
            yield rows
            return
    limit: float = FIRST_ROWS if small_first else UNIT_ROWS
    unit_bytes = usual_bytes()
    pending: list[RowRanges] = []
    count, size = 0.0, 0.0
    for group in groups:
        _find_pages(file, group, leaves, rows, always=small_first)
        row_bytes, scale = _row_bytes(file, group, leaves), _scale(file, group, leaves)
        if not small_first and file.num_rows_in(group) * row_bytes > unit_bytes:
            cut = _CUT_SHARE * _cut_bytes(file, group, leaves)
            scale = max(scale, min(cut / unit_bytes, _largest()))
        step = min(limit * scale, unit_bytes * scale / row_bytes)
        for part, held in _parts_of(file, rows, group, leaves, step):
            part_size = held * row_bytes / scale
            if pending and (count + held / scale > limit or size + part_size > unit_bytes):
                yield RowRanges.union(pending)
                pending, count, size = [], 0.0, 0.0
                limit = min(2 * limit, UNIT_ROWS)
            pending.append(part)
            count += held / scale
            size += part_size
    if pending:
        yield RowRanges.union(pending)


def decoded_rows_bytes(file: OpenedFile, rows: RowRanges, leaves: Sequence[int]) -> float:
    """Returns about the bytes that ``leaves`` take at ``rows``, decoded."""
    starts = file.row_group_starts
    return sum(
        rows.clip(int(starts[g]), int(starts[g + 1])).num_rows * _row_bytes(file, g, leaves)
        for g in groups_of(file, rows)
    )


def usual_bytes() -> int:
    """Returns the bytes of a unit, decoded, as a rule: fewer with a memory limit."""
    return memory.share(UNIT_BYTES, 32)


def _is_small(size: int) -> bool:
    """Is a row group of so many bytes, if the footer says how many, no more than a small part of a
    unit?
    """
    return 0 < size <= UNIT_BYTES // 32


def _find_pages(
    file: OpenedFile, group: int, leaves: Sequence[int], rows: RowRanges, *, always: bool = False
) -> None:
    """Look for the pages of a large row group that no index tells of, where ``rows`` are few of
    its own; with a memory limit, if it is more than a unit.
    """
    if memory.has_limit():
        if file.num_rows_in(group) * _row_bytes(file, group, leaves) > usual_bytes():
            _page_starts(file, group, leaves, learns=True)
    elif _is_large(file, group, leaves) and (always or _is_part(file, rows, group)):
        walk_through(file, group, leaves)


def _is_part(file: OpenedFile, rows: RowRanges, group: int) -> bool:
    """Are ``rows`` a small part of a row group?"""
    start, stop = file.row_group_starts[group : group + 2].tolist()
    return bool(rows.clip(start, stop).num_rows * _PART <= stop - start)


def _is_large(file: OpenedFile, group: int, leaves: Sequence[int]) -> bool:
    """Does it take so long to decode all of a row group that parts of it are worth looking for?"""
    if file.num_rows_in(group) >= _LARGE_ROWS:
        return True
    if _is_small(file.metadata.row_groups[group].total_byte_size):
        return False
    chunks = file.outlines(group, leaves)
    return sum(chunk.total_uncompressed_size for chunk in chunks) >= _LARGE_BYTES


def _row_bytes(file: OpenedFile, group: int, leaves: Sequence[int]) -> float:
    """Bytes of a row, decoded, as far as the footer tells."""
    coded = file.shape.kept(("coded", file.options.of_types), partial(_coded_leaves, file))
    size, is_limited = 0, memory.has_limit()
    for leaf, chunk in zip(leaves, file.outlines(group, leaves), strict=True):
        if leaf in coded and has_codes_only(file.chunk(group, leaf)):
            size += chunk.num_values * _CODE_BYTES
        elif is_limited:
            size += decoded_chunk_bytes(file, group, leaf)
        else:
            size += decoded_bytes(file.schema.leaves[leaf], chunk)
    return max(size / file.num_rows_in(group), 1.0)


def _coded_leaves(file: OpenedFile) -> frozenset[int]:
    """The leaves that are read as Arrow dictionaries."""
    roots = (root for root in file.schema.roots if root.leaves)
    typed = zip(roots, file.schema_arrow.types, strict=True)
    stored = {root.leaves[0] for root, kind in typed if pa.types.is_dictionary(kind)}
    asked = set(file.options.read_dictionary)
    return frozenset(stored | {leaf.index for leaf in file.schema.leaves if leaf.name in asked})


def _scale(file: OpenedFile, group: int, leaves: Sequence[int]) -> float:
    """How much larger units are for the sake of dictionaries, which each of them decodes, or of
    many columns, each of which takes some time by itself.
    """
    told = file.metadata.row_groups[group].total_byte_size
    size = 0
    if not _is_small(told):  # in which no dictionary is large
        size = sum(_dictionary_bytes(file.chunk(group, leaf)) for leaf in leaves)
    least = max(_SHARE * size, len(leaves) * _COLUMN_BYTES)
    return min(max(least / UNIT_BYTES, 1.0), _largest())


def _largest() -> int:
    return 1 if memory.has_limit() else _LARGEST


def _cut_bytes(file: OpenedFile, group: int, leaves: Sequence[int]) -> float:
    """Bytes, decoded, of the pages that a cut goes through on average: those of other columns than
    the largest, whose pages it lies between.
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


def _dictionary_bytes(chunk: ColumnMetaData) -> int:
    """What a chunk's dictionary takes, at most: as if compression made no codes smaller.

    None where there are values besides.
    """
    size = chunk.data_page_offset - chunk.start
    if not 0 < size < chunk.total_compressed_size or not has_codes_only(chunk):
        return 0
    return max(chunk.total_uncompressed_size - (chunk.total_compressed_size - size), 0)


def decoded_bytes(leaf: Leaf, chunk: Outline | ColumnMetaData) -> int:
    """At least what is stored: dictionaries, and runs of one value, take far less than values do.

    Texts of a writer that leaves out size statistics count as they are stored.
    """
    sizes = chunk.size_statistics
    texts = sizes.unencoded_byte_array_data_bytes if sizes else None
    values = chunk.num_values * value_bytes(leaf.element) + (texts or 0)
    return max(chunk.total_uncompressed_size, values)


def decoded_chunk_bytes(file: OpenedFile, group: int, leaf: int) -> int:
    """About the bytes of a chunk's values, decoded: those of a dictionary as often as they occur.

    Size statistics tell, and where a chunk has none, the mean of its dictionary.
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
    """``rows`` of a row group, and how many have to be decoded for them: about ``step`` at a time.

    Parts end where a page of the largest column does, and are as heavy as the pages that hold them.
    """
    start, stop = file.row_group_starts[group : group + 2].tolist()
    wanted = rows.clip(start, stop)
    if wanted.num_rows == stop - start <= step:
        yield wanted, stop - start
        return
    edges = _page_starts(file, group, leaves)
    if edges is None:
        yield wanted, stop - start
        return
    edges = np.append(edges, stop - start) + start
    is_touched = wanted.covers(edges[:-1], edges[1:])
    held = np.append(0, np.cumsum(np.where(is_touched, np.diff(edges), 0)))
    at, pages = 0, len(is_touched)
    while at < pages:
        within = int(np.searchsorted(held, held[at] + step, side="right")) - 1
        end = min(max(within, at + 1), pages)
        part = wanted.clip(int(edges[at]), int(edges[end]))
        if part:
            yield part, int(held[end] - held[at])
        at = end


def _page_starts(
    file: OpenedFile, group: int, leaves: Sequence[int], *, learns: bool = False
) -> Int64Array | None:
    sizes = {leaf: file.chunk(group, leaf).total_compressed_size for leaf in leaves}
    return page_starts(file, group, sizes, learns=learns)


def page_starts(
    file: OpenedFile, group: int, sizes: Mapping[int, int], *, learns: bool
) -> Int64Array | None:
    """Returns the first rows of the pages of the largest column. ``sizes`` are given by leaf.

    None unless the pages of all columns can be told apart: by an offset index, or if ``learns`` by
    their headers.
    """
    if not sizes:
        return None
    file.page_indexes.load([(group, leaf) for leaf in sizes], [])
    for leaf in sizes if learns else ():
        if file.page_indexes.offsets(group, leaf) is None:
            learn_pages(file, group, leaf)
    indexes = {leaf: file.page_indexes.offsets(group, leaf) for leaf in sizes}
    largest = indexes[max(sizes, key=lambda leaf: sizes[leaf])]
    if largest is None or any(index is None or not len(index) for index in indexes.values()):
        return None
    return largest.first_row_index
