"""Dividing the rows of a file into units: what is read, filtered and held in memory at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np
import pyarrow as pa

from intarsia.decode.page_check import told_encodings
from intarsia.decode.page_limit import value_bytes
from intarsia.format.metadata import DICTIONARY_ENCODINGS, ColumnMetaData
from intarsia.ranges import Int64Array, RowRanges
from intarsia.read.columns import roots_of
from intarsia.read.opened import OpenedFile
from intarsia.read.selection import groups_of
from intarsia.read.walked import walk_through

UNIT_ROWS = 1024 * 1024
UNIT_BYTES = 32 * 1024 * 1024
"""A unit's rows, and their bytes decoded, as a rule; row groups without page indexes are read
whole."""
_LARGEST, _SHARE = 4, 3
"""Each unit decodes its dictionaries anew: its bytes are three times theirs, where that is more, up
to four times the rule."""
_COLUMN_BYTES = 128 * 1024
_CODE_BYTES = 4
_FEW_GROUPS = 8
_LARGE_ROWS, _LARGE_BYTES = 128 * 1024, 16 * 1024 * 1024
_PART = 8
"""One row in so many, at most, is worth looking for its pages where no index tells of them."""
FIRST_ROWS = 16 * 1024
"""Rows of the first unit where few rows are wanted; each unit after it may be twice as long."""


def units_of(
    file: OpenedFile, rows: RowRanges, columns: Sequence[str], *, small_first: bool = False
) -> Iterator[RowRanges]:
    """``rows`` in portions, in order; ``columns`` are those that will be read.

    With ``small_first`` the first ones are small. Then, and where ``rows`` are few of their row
    group, headers tell where pages are that no index tells of.
    """
    groups = groups_of(file, rows)
    leaves = [leaf for root in roots_of(file, columns) for leaf in root.leaves]
    if rows and rows.num_rows <= FIRST_ROWS and len(groups) <= _FEW_GROUPS:
        for group in groups:
            _find_pages(file, group, leaves, rows)
        row_bytes = max(_row_bytes(file, group, leaves) for group in groups)
        if rows.num_rows * row_bytes <= UNIT_BYTES:
            yield rows
            return
    limit: float = FIRST_ROWS if small_first else UNIT_ROWS
    pending: list[RowRanges] = []
    count, size = 0.0, 0.0
    weights = _Weights(file, leaves)
    for group in groups:
        _find_pages(file, group, leaves, rows, always=small_first)
        row_bytes, scale = weights.of(group)
        step = min(limit * scale, UNIT_BYTES * scale / row_bytes)
        for part, held in _parts_of(file, rows, group, leaves, step):
            part_size = held * row_bytes / scale
            if pending and (count + part.num_rows / scale > limit or size + part_size > UNIT_BYTES):
                yield RowRanges.union(pending)
                pending, count, size = [], 0.0, 0.0
                limit = min(2 * limit, UNIT_ROWS)
            pending.append(part)
            count += part.num_rows / scale
            size += part_size
    if pending:
        yield RowRanges.union(pending)


class _Weights:
    """What the rows of a row group weigh, and how much larger units of them are.

    A small one that is like the one before it, by what the footer says of it as a whole, weighs as
    much: to ask all of its chunks may take longer than reading them.
    """

    def __init__(self, file: OpenedFile, leaves: Sequence[int]) -> None:
        self._file, self._leaves = file, leaves
        self._rows, self._bytes = 0, 0
        self._known = 1.0, 1.0

    def of(self, group: int) -> tuple[float, float]:
        """``_row_bytes`` and ``_scale``."""
        told = self._file.metadata.row_groups[group]
        rows, size = told.num_rows, told.total_byte_size
        if not (_is_small(size) and _are_near(rows, self._rows) and _are_near(size, self._bytes)):
            file, leaves = self._file, self._leaves
            self._known = _row_bytes(file, group, leaves), _scale(file, group, leaves)
            self._rows, self._bytes = rows, size
        return self._known


def _is_small(size: int) -> bool:
    """Is a row group of so many bytes, if the footer says how many, no more than a small part of a
    unit?
    """
    return 0 < size <= UNIT_BYTES // 32


def _are_near(one: int, other: int) -> bool:
    return one <= 1.25 * other and other <= 1.25 * one


def _find_pages(
    file: OpenedFile, group: int, leaves: Sequence[int], rows: RowRanges, *, always: bool = False
) -> None:
    """Look for the pages of a large row group that no index tells of, where ``rows`` are few of
    its own.
    """
    if _is_large(file, group, leaves) and (always or _is_part(file, rows, group)):
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
    return sum(file.chunk(group, leaf).total_uncompressed_size for leaf in leaves) >= _LARGE_BYTES


def _row_bytes(file: OpenedFile, group: int, leaves: Sequence[int]) -> float:
    """Bytes of a row, decoded, as far as the footer tells."""
    coded = file.shape.kept(("coded", file.options.of_types), partial(_coded_leaves, file))
    size = sum(
        (_coded_bytes if leaf in coded else decoded_bytes)(file, group, leaf) for leaf in leaves
    )
    return max(size / file.num_rows_in(group), 1.0)


def _coded_leaves(file: OpenedFile) -> frozenset[int]:
    """The leaves that are read as Arrow dictionaries."""
    roots = (root for root in file.schema.roots if root.leaves)
    typed = zip(roots, file.schema_arrow.types, strict=True)
    stored = {root.leaves[0] for root, kind in typed if pa.types.is_dictionary(kind)}
    asked = set(file.options.read_dictionary)
    return frozenset(stored | {leaf.index for leaf in file.schema.leaves if leaf.name in asked})


def _coded_bytes(file: OpenedFile, group: int, leaf: int) -> int:
    """What a chunk's entries of an Arrow dictionary take, without the dictionary; its values, where
    any are stored as such.
    """
    chunk = file.chunk(group, leaf)
    if not _has_codes_only(chunk):
        return decoded_bytes(file, group, leaf)
    return chunk.num_values * _CODE_BYTES


def _scale(file: OpenedFile, group: int, leaves: Sequence[int]) -> float:
    """How much larger units are for the sake of dictionaries, which each of them decodes, or of
    many columns, each of which takes some time by itself.
    """
    size = sum(_dictionary_bytes(file.chunk(group, leaf)) for leaf in leaves)
    least = max(_SHARE * size, len(leaves) * _COLUMN_BYTES)
    return min(max(least / UNIT_BYTES, 1.0), _LARGEST)


def _dictionary_bytes(chunk: ColumnMetaData) -> int:
    """What a chunk's dictionary takes, at most: as if compression made no codes smaller.

    None where there are values besides.
    """
    size = chunk.data_page_offset - chunk.start
    if not 0 < size < chunk.total_compressed_size or not _has_codes_only(chunk):
        return 0
    return max(chunk.total_uncompressed_size - (chunk.total_compressed_size - size), 0)


def _has_codes_only(chunk: ColumnMetaData) -> bool:
    """Are all data pages said to be of a dictionary's codes?"""
    told = told_encodings(chunk)
    return bool(told) and told <= DICTIONARY_ENCODINGS


def decoded_bytes(file: OpenedFile, group: int, leaf: int) -> int:
    """At least what is stored: dictionaries, and runs of one value, take far less than values do.

    Texts of a writer that leaves out size statistics count as they are stored.
    """
    chunk = file.chunk(group, leaf)
    element = file.schema.leaves[leaf].element
    sizes = chunk.size_statistics
    texts = sizes.unencoded_byte_array_data_bytes if sizes else None
    return max(
        chunk.total_uncompressed_size, chunk.num_values * value_bytes(element) + (texts or 0)
    )


def _parts_of(
    file: OpenedFile, rows: RowRanges, group: int, leaves: Sequence[int], step: float
) -> Iterator[tuple[RowRanges, int]]:
    """``rows`` of a row group, about ``step`` at a time, and how many have to be decoded for them.

    Parts end where a page of the largest column does; rows that are near each other are one part.
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
    if wanted.stops[-1] - wanted.starts[0] <= step:
        yield wanted, wanted.num_rows
        return
    edges = np.append(edges, stop - start) + start
    at = start
    while at < stop:
        within = int(np.searchsorted(edges, at + step, side="right")) - 1
        beyond = int(np.searchsorted(edges, at, side="right"))
        end = int(edges[max(within, beyond)])
        part = wanted.clip(at, end)
        at = end
        if part:
            yield part, part.num_rows


def _page_starts(file: OpenedFile, group: int, leaves: Sequence[int]) -> Int64Array | None:
    """First rows of the pages of the largest column; None where not all are to be had by page."""
    if not leaves:
        return None
    file.page_indexes.load([(group, leaf) for leaf in leaves], [])
    indexes = [file.page_indexes.offsets(group, leaf) for leaf in leaves]
    sizes = [file.chunk(group, leaf).total_compressed_size for leaf in leaves]
    largest = indexes[int(np.argmax(sizes))]
    if largest is None or any(index is None or not len(index) for index in indexes):
        return None
    return largest.first_row_index
