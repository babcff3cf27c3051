"""Statistics of row groups and pages: bounds, and counts of NULL and NaN.

Statistics of old or careless writers are dropped here, so that the rest can be trusted:

- The deprecated ``min`` and ``max`` are used only for booleans and numbers of signed order, or if
  both are equal.
- ``min_value`` and ``max_value`` are used only if the file declares the column's order.
- A missing count is unknown, not 0. A count of only NULLs is unknown if there are bounds.
- ``null_pages`` is ignored if the page's null count is 0, negative or not its number of rows, or
  if the chunk has fewer NULLs.

Source: ``Statistics``, ``ColumnIndex`` and ``ColumnOrder`` in ``parquet.thrift``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from intarsia.parquet.metadata import ColumnMetaData, ColumnOrder, Statistics
from intarsia.parquet.page_index import ColumnIndex
from intarsia.parquet.value_order import Domain, Keys, ValueOrder
from intarsia.row_ranges import Int64Array

BoolArray = NDArray[np.bool_]
UNKNOWN = -1
"""Stands for a count that the file does not state."""


@dataclass(frozen=True, slots=True, eq=False)
class Bounds:
    """Bounds of ``n`` row groups or pages; every array has shape ``(n,)``.

    ``low`` and ``high`` are keys of ``order``, valid where ``bounded`` is true. ``all_null`` is
    true where there is no value. ``null_counts`` and ``nan_counts`` may be ``UNKNOWN`` (-1).
    """

    order: ValueOrder
    low: Keys
    high: Keys
    bounded: BoolArray
    all_null: BoolArray
    null_counts: Int64Array
    nan_counts: Int64Array

    def __len__(self) -> int:
        return len(self.bounded)


def order_is_declared(column_order: ColumnOrder | None) -> bool:
    """True if the file declares how ``min_value`` and ``max_value`` of a column compare.

    Keys of ``ValueOrder`` compare correctly under each known order: NaN bounds are not used, both
    zeros are one key, and INT96 has keys only if its own order is declared.
    """
    return column_order is not None and any(
        known is not None
        for known in (
            column_order.TYPE_ORDER,
            column_order.IEEE_754_TOTAL_ORDER,
            column_order.INT96_TIMESTAMP_ORDER,
        )
    )


def chunk_bounds(order: ValueOrder, chunks: Sequence[ColumnMetaData], *, declared: bool) -> Bounds:
    """Returns bounds of ``n`` chunks by statistics, whose order may be ``declared``."""
    lows, highs = [], []
    statistics = [chunk.statistics or Statistics() for chunk in chunks]
    for stats in statistics:
        low, high = usable_bounds(stats, order, declared=declared)
        lows.append(low)
        highs.append(high)
    null_counts = np.array([_known_count(s.null_count) for s in statistics], dtype=np.int64)
    num_values = np.array([chunk.num_values for chunk in chunks], dtype=np.int64)
    nan_counts = np.array([_known_count(s.nan_count) for s in statistics], dtype=np.int64)
    # A chunk with bounds has a value. Some Polars versions counted NULLs once for each page.
    has_value = np.array(list(map(_has_bound, statistics)), dtype=np.bool_)
    null_counts[(null_counts >= num_values) & has_value] = UNKNOWN
    all_null = (null_counts == num_values) & ~has_value
    return _make_bounds(order, lows, highs, all_null, null_counts, nan_counts)


def page_bounds(order: ValueOrder, index: ColumnIndex, *, declared: bool) -> Bounds:
    """Returns bounds of a chunk's pages by its ColumnIndex, whose order may be ``declared``."""
    num_pages = len(index)
    unknown = np.full(num_pages, UNKNOWN, dtype=np.int64)
    null_counts = unknown if index.null_counts is None else index.null_counts
    nan_counts = unknown if index.nan_counts is None else index.nan_counts
    no_bounds: list[bytes | None] = [None] * num_pages
    usable = declared and order.is_defined
    # A null page whose null count is 0 or negative contradicts itself: nothing is known of it.
    # parquet-java has written such indexes for columns without any NULL.
    is_consistent = index.null_counts is None or null_counts > 0
    all_null = index.null_pages & is_consistent
    bounds = _make_bounds(
        order,
        index.min_values if usable else no_bounds,
        index.max_values if usable else no_bounds,
        all_null,
        null_counts,
        nan_counts,
    )
    return Bounds(
        order,
        bounds.low,
        bounds.high,
        bounds.bounded & ~index.null_pages,
        all_null,
        np.where(index.null_pages & ~all_null, UNKNOWN, null_counts),
        nan_counts,
    )


def without_false_nulls(
    index: ColumnIndex, rows: Int64Array | None, chunk: ColumnMetaData
) -> ColumnIndex:
    """Returns ``index`` with the null counts of contradicted null pages set to ``UNKNOWN``.

    ``rows`` holds the number of rows of each page. It is None if rows do not equal values, as in
    repeated columns.
    """
    if not index.null_pages.any():
        return index
    null_counts = np.full(len(index), UNKNOWN) if index.null_counts is None else index.null_counts
    chunk_null_count = _known_count(chunk.statistics.null_count) if chunk.statistics else UNKNOWN
    min_nulls = np.ones(len(index), dtype=np.int64) if rows is None else rows
    is_false = np.zeros(len(index), dtype=np.bool_)
    if rows is not None and index.null_counts is not None:
        is_false = index.null_pages & (null_counts != rows)
    if chunk_null_count != UNKNOWN and int(min_nulls[index.null_pages].sum()) > chunk_null_count:
        is_false = index.null_pages
    return (
        replace(index, null_counts=np.where(is_false, UNKNOWN, null_counts))
        if is_false.any()
        else index
    )


def with_level_counts(
    bounds: Bounds, chunks_or_index: Sequence[ColumnMetaData] | ColumnIndex, max_level: int
) -> Bounds:
    """Returns ``bounds`` with null counts from the histograms of definition levels.

    ``chunks_or_index`` is where ``bounds`` came from. ``max_level`` is the leaf's maximum
    definition level. Counts are ``UNKNOWN`` where there is no complete histogram.

    Source: ``SizeStatistics`` and ``ColumnIndex.definition_level_histograms`` in
    ``parquet.thrift``.
    """
    if isinstance(chunks_or_index, ColumnIndex):
        concatenated = chunks_or_index.definition_level_histograms
        is_whole = concatenated is not None and len(concatenated) == len(chunks_or_index) * (
            max_level + 1
        )
        histograms = (
            []
            if concatenated is None or not is_whole
            else concatenated.reshape(len(chunks_or_index), -1).tolist()
        )
        counts = list(map(_count_nulls, histograms)) or [UNKNOWN] * len(chunks_or_index)
    else:
        sizes = [chunk.size_statistics for chunk in chunks_or_index]
        histograms = [(size and size.definition_level_histogram) or [] for size in sizes]
        counts = [
            _count_nulls(histogram)
            if len(histogram) == max_level + 1 and sum(histogram) == chunk.num_values
            else UNKNOWN
            for chunk, histogram in zip(chunks_or_index, histograms, strict=True)
        ]
    return replace(bounds, null_counts=np.array(counts, dtype=np.int64))


def _count_nulls(histogram: Sequence[int]) -> int:
    """Counts the levels below the maximum. Returns ``UNKNOWN`` if the histogram is invalid."""
    count = sum(histogram[:-1])
    return count if min(histogram) >= 0 and count < 2**63 else UNKNOWN


def _make_bounds(
    order: ValueOrder,
    lows: Sequence[bytes | None],
    highs: Sequence[bytes | None],
    all_null: BoolArray,
    null_counts: Int64Array,
    nan_counts: Int64Array,
) -> Bounds:
    if not order.is_defined:
        no_keys = np.zeros(len(lows), dtype=np.int64)
        not_bounded = np.zeros(len(lows), dtype=np.bool_)
        return Bounds(order, no_keys, no_keys, not_bounded, all_null, null_counts, nan_counts)
    low, low_usable = order.keys(lows)
    high, high_usable = order.keys(highs)
    bounded = low_usable & high_usable
    # A lower bound above the upper one was written under another order.
    bounded &= np.asarray(low <= high, dtype=np.bool_)
    return Bounds(order, low, high, bounded, all_null, null_counts, nan_counts)


def usable_bounds(
    stats: Statistics, order: ValueOrder, *, declared: bool = False
) -> tuple[bytes | None, bytes | None]:
    """Returns a chunk's encoded bounds, or None twice if they are not usable."""
    if stats.min_value is not None and stats.max_value is not None:
        return (stats.min_value, stats.max_value) if declared else (None, None)
    # Deprecated bounds of byte arrays are never used: some writers compared bytes as signed, and
    # some stored one value for both bounds.
    if order.stored is None or stats.min is None or stats.max is None:
        return None, None
    is_signed = order.stored.kind != "u" or order.domain is Domain.BOOLEAN
    return (stats.min, stats.max) if is_signed or stats.min == stats.max else (None, None)


def _has_bound(stats: Statistics) -> bool:
    bounds = (stats.min_value, stats.max_value, stats.min, stats.max)
    return any(bound is not None for bound in bounds)


def _known_count(value: int | None) -> int:
    return UNKNOWN if value is None or value < 0 else value
