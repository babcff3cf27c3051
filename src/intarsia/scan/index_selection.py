"""Choosing which indexes to consult: the most promising first, and none once little is left."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from intarsia.expr.comparison_operators import Op
from intarsia.file.embedded_indexes import Embedded
from intarsia.file.open_file import OpenedFile
from intarsia.index.base import Inverted
from intarsia.index.kinds.distinct_idx1 import DistinctIDX1
from intarsia.parquet.metadata import ColumnMetaData, PageType
from intarsia.pruning.predicates import Match, Predicate, Test, seeks_values
from intarsia.row_ranges import RowRanges
from intarsia.scan.page_selection import groups_of

_PROBE_BYTES = 256 * 1024
"""A probe takes about as long as it takes to read and decode so much; far storage says itself."""
_PAGE_BYTES = 20 * 1024
"""Of a section, about; no page of a column is expected to be shorter."""
_ENTRIES_COST = 2
"""Decoding a byte of entries takes so many times what a byte of values takes."""
_SEARCH_COST = 6
"""So it does where each value is searched: pages are looked through before they are decoded."""
_DATA_PAGES = (PageType.DATA_PAGE, PageType.DATA_PAGE_V2)
_POINTS = {Op.EQ: 0, Op.IN: 1, Op.NONE: 1}
_OTHERS = 2


def by_promise(
    indexes: Mapping[Predicate, Sequence[Embedded]],
) -> list[tuple[Predicate, Sequence[Embedded]]]:
    """Tests and their indexes, those first that probably leave least.

    That is tests for single values, and of these the ones with the largest index: the more distinct
    values a column has, the more an index takes, and the fewer rows one of them is in.
    """

    def rank(item: tuple[Predicate, Sequence[Embedded]]) -> tuple[int, int]:
        test, usable = item
        return _sort_of(test), -max(index.entry.length for index in usable)

    return sorted(indexes.items(), key=rank)


def _sort_of(test: Predicate) -> int:
    if isinstance(test, Match):
        one_or_several = Op.EQ if len(test.values) == 1 else Op.IN
        return _POINTS[one_or_several] if seeks_values(test) else _OTHERS
    return _POINTS.get(test.op, _OTHERS)


def may_pay(file: OpenedFile, index: Embedded, test: Predicate, leaves: Iterable[int]) -> bool:
    """Could asking ``index`` save more bytes of ``leaves`` than it reads?

    Values are taken to lie anywhere, each in one granule, and its keys anywhere in the index. What
    is saved are whole pages, as far as the footer tells how many there are; at most all of them,
    where all values of an index are looked at.
    """
    if _looks_at_all(index, test):
        read, thrown = float(index.entry.length), 0
        leaves = {*leaves, *_leaves_of(file, [test])}
    elif _sort_of(test) == _POINTS[Op.IN] and len(test.values) and index.finds_values:
        thrown = len(test.values)
        read = index.entry.length * _share(thrown, index.entry.length / _PAGE_BYTES)
    else:
        return True
    if read < _PROBE_BYTES:
        return True
    granules = max(file.num_rows / index.kind.granule_rows, 1)
    saved = 0.0
    for leaf in leaves:
        chunks = [file.chunk(group, leaf) for group in range(len(file.metadata.row_groups))]
        hit = _share(thrown, min(_num_pages(chunks) or granules, granules))
        saved += (1 - hit) * sum(chunk.total_compressed_size for chunk in chunks)
    return (_ENTRIES_COST if isinstance(test, Test) else _SEARCH_COST) * read < saved


def _looks_at_all(index: Embedded, test: Predicate) -> bool:
    """Does it take all values that the index lists to tell which of them pass?"""
    if not (isinstance(index.kind, Inverted) and index.kind.exact):
        return False
    is_point = isinstance(test, Test) and test.op in _POINTS
    return isinstance(index.kind, DistinctIDX1) or not is_point


def cost_of(index: Embedded, test: Predicate) -> int:
    """How many bytes a test takes of an index, about: of values just a page, of a range all."""
    is_range = isinstance(test, Test) and test.op not in _POINTS
    is_all = is_range or _looks_at_all(index, test)
    return index.entry.length if is_all else min(index.entry.length, _PAGE_BYTES)


def most_for(file: OpenedFile, tests: Iterable[Predicate]) -> int:
    """How many bytes many tests may take of indexes: as many as the columns that they ask of."""
    groups = range(len(file.metadata.row_groups))
    return sum(
        file.chunk(group, leaf).total_compressed_size
        for leaf in _leaves_of(file, tests)
        for group in groups
    )


def _leaves_of(file: OpenedFile, tests: Iterable[Predicate]) -> list[int]:
    """The leaves of the columns that tests ask of."""
    names = {path[0] for test in tests for path in test.term.fields}
    return [leaf.index for leaf in file.schema.leaves if leaf.path[0] in names]


def _num_pages(chunks: Sequence[ColumnMetaData]) -> int | None:
    """How many data pages chunks have; None where a footer does not tell."""
    if not all(chunk.encoding_stats for chunk in chunks):
        return None
    stats = (one for chunk in chunks for one in chunk.encoding_stats or ())
    return sum(one.count for one in stats if one.page_type in _DATA_PAGES)


def page_rows(file: OpenedFile, leaves: Iterable[int], rows: RowRanges) -> float:
    """How many rows a page has, on average, of that of ``leaves`` whose pages have the fewest.

    That is in the first row group that holds any of ``rows``.
    """
    group = groups_of(file, rows)[0]
    counts = [1]
    for leaf in leaves:
        chunk, index = file.chunk(group, leaf), file.page_indexes.known_offsets(group, leaf)
        told = len(index) if index is not None else _num_pages([chunk])
        counts.append(told or chunk.total_compressed_size // _PAGE_BYTES)
    return file.num_rows_in(group) / max(counts)


def _share(thrown: int, places: float) -> float:
    """The share of ``places`` that are hit by so many throws."""
    return -math.expm1(-thrown / max(places, 1))


def is_little(file: OpenedFile, leaves: Iterable[int], rows: RowRanges) -> bool:
    """Does reading ``leaves`` at ``rows`` cost less than asking one more index?"""
    most = max(file.request_bytes, _PROBE_BYTES)
    size = 0.0
    for group in groups_of(file, rows):
        count = file.num_rows_in(group)
        first = int(file.row_group_starts[group])
        share = rows.clip(first, first + count).num_rows / count
        size += share * sum(file.chunk(group, leaf).total_uncompressed_size for leaf in leaves)
        if size > most:
            return False
    return True
