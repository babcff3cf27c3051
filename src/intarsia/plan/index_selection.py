"""Chooses the indexes to probe: the most selective first, and none if few rows are left."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from intarsia.expr.comparison_operators import Op
from intarsia.file.embedded_indexes import Embedded
from intarsia.file.open_file import OpenedFile
from intarsia.file.page_layout import num_data_pages
from intarsia.index.base import Inverted
from intarsia.index.kinds.distinct_idx1 import DistinctIDX1
from intarsia.plan.cost_model import COSTS
from intarsia.pruning.predicates import Comparison, Predicate, SearchPredicate, seeks_values
from intarsia.row_ranges import RowRanges
from intarsia.scan.page_selection import groups_of

_POINT_RANKS = {Op.EQ: 0, Op.IN: 1, Op.NONE: 1}
_OTHER_RANK = 2


def by_promise(
    indexes: Mapping[Predicate, Sequence[Embedded]],
) -> list[tuple[Predicate, Sequence[Embedded]]]:
    """Returns tests and their indexes, the most selective first.

    Tests for single values come first, in order of index size. A larger index has more distinct
    values, so each value is in fewer rows.
    """

    def rank(item: tuple[Predicate, Sequence[Embedded]]) -> tuple[int, int]:
        test, usable = item
        return _rank_of(test), -max(index.entry.length for index in usable)

    return sorted(indexes.items(), key=rank)


def _rank_of(test: Predicate) -> int:
    if isinstance(test, SearchPredicate):
        one_or_several = Op.EQ if len(test.values) == 1 else Op.IN
        return _POINT_RANKS[one_or_several] if seeks_values(test) else _OTHER_RANK
    return _POINT_RANKS.get(test.op, _OTHER_RANK)


def may_pay(file: OpenedFile, index: Embedded, test: Predicate, leaves: Iterable[int]) -> bool:
    """True if probing ``index`` might save more bytes of ``leaves`` than it reads.

    Assumes that each value is in one random granule, and its key on a random page of the index.
    Whole pages are saved. Their number is taken from the footer, if it has it.
    """
    if _reads_all_values(index, test):
        read, num_values = float(index.entry.length), 0
        leaves = {*leaves, *_leaves_of(file, [test])}
    elif _rank_of(test) == _POINT_RANKS[Op.IN] and len(test.values) and index.finds_values:
        num_values = len(test.values)
        read = index.entry.length * _share(num_values, index.entry.length / COSTS.index_page_bytes)
    else:
        return True
    if read < COSTS.probe_bytes:
        return True
    granules = max(file.num_rows / index.kind.granule_rows, 1)
    saved = 0.0
    for leaf in leaves:
        chunks = file.chunks(leaf)
        hit_share = _share(num_values, min(num_data_pages(chunks) or granules, granules))
        saved += (1 - hit_share) * sum(chunk.total_compressed_size for chunk in chunks)
    return (
        COSTS.entries_cost if isinstance(test, Comparison) else COSTS.search_cost
    ) * read < saved


def _reads_all_values(index: Embedded, test: Predicate) -> bool:
    """True if the test has to be evaluated on all values of the index."""
    if not (isinstance(index.kind, Inverted) and index.kind.exact):
        return False
    is_point = isinstance(test, Comparison) and test.op in _POINT_RANKS
    return isinstance(index.kind, DistinctIDX1) or not is_point


def cost_of(index: Embedded, test: Predicate) -> int:
    """Returns the estimated bytes that a test reads of an index: a page, or all for a range."""
    is_range = isinstance(test, Comparison) and test.op not in _POINT_RANKS
    is_all = is_range or _reads_all_values(index, test)
    return index.entry.length if is_all else min(index.entry.length, COSTS.index_page_bytes)


def most_for(file: OpenedFile, tests: Iterable[Predicate]) -> int:
    """Returns the limit of index bytes for many tests: the bytes of their columns."""
    leaves = _leaves_of(file, tests)
    return sum(chunk.total_compressed_size for leaf in leaves for chunk in file.chunks(leaf))


def _leaves_of(file: OpenedFile, tests: Iterable[Predicate]) -> list[int]:
    """Returns the leaves of the columns in tests."""
    names = {path[0] for test in tests for path in test.term.fields}
    return [leaf.index for leaf in file.schema.leaves if leaf.path[0] in names]


def page_rows(file: OpenedFile, leaves: Iterable[int], rows: RowRanges) -> float:
    """Returns the average rows of a page, for the leaf of ``leaves`` with the smallest pages.

    Only the first row group that holds any of ``rows`` counts.
    """
    group = groups_of(file, rows)[0]
    counts = [1]
    for leaf in leaves:
        chunk, index = file.chunk(group, leaf), file.page_indexes.known_offsets(group, leaf)
        known_pages = len(index) if index is not None else num_data_pages([chunk])
        counts.append(known_pages or chunk.total_compressed_size // COSTS.index_page_bytes)
    return file.num_rows_in(group) / max(counts)


def _share(num_hits: int, slots: float) -> float:
    """Returns the expected share of ``slots`` with at least one of ``num_hits`` random hits."""
    return -math.expm1(-num_hits / max(slots, 1))


def is_little(file: OpenedFile, leaves: Iterable[int], rows: RowRanges) -> bool:
    """True if reading ``leaves`` at ``rows`` costs less than probing one more index."""
    limit = max(file.request_bytes, COSTS.probe_bytes)
    size = 0.0
    for group in groups_of(file, rows):
        count = file.num_rows_in(group)
        first = int(file.row_group_starts[group])
        share = rows.clip(first, first + count).num_rows / count
        size += share * sum(file.chunk(group, leaf).total_uncompressed_size for leaf in leaves)
        if size > limit:
            return False
    return True
