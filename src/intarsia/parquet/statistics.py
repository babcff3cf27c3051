"""What is known of the values in row groups or pages: bounds, and counts of NULL and NaN.

Statistics of old or careless writers are weeded out here, so that what is left can be believed:

- the deprecated ``min``/``max`` count only for booleans and numbers of signed order, or where both
  are equal;
- ``min_value``/``max_value`` count only where the file declares the column's order;
- a count that is missing is unknown, not 0; so is one of as many NULLs as there are values beside
  bounds, believed or not;
- a page of NULLs only is unknown where its count is none, negative or not that of its rows, and
  where its chunk has fewer NULLs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from intarsia.parquet.metadata import ColumnMetaData, ColumnOrder, Statistics
from intarsia.parquet.page_index import ColumnIndex
from intarsia.parquet.value_order import Domain, Keys, ValueOrder

Int64Array = NDArray[np.int64]
BoolArray = NDArray[np.bool_]
UNKNOWN = -1


@dataclass(frozen=True, slots=True, eq=False)
class Bounds:
    """Bounds of ``n`` row groups or pages; every array has shape ``(n,)``.

    ``low`` and ``high`` are keys of ``order`` and hold where ``bounded``. ``all_null`` marks places
    without a value. ``null_counts`` and ``nan_counts`` are ``UNKNOWN`` (-1) where nobody counted.
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
    """Does the file say how ``min_value`` and ``max_value`` of a column compare?

    Under each of the orders known the keys of ``ValueOrder`` compare right: NaN bounds are not
    used, both zeros are one key, and INT96 has keys only where its own order is declared.
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
    """Bounds of ``n`` column chunks from their statistics."""
    lows, highs = [], []
    statistics = [chunk.statistics or Statistics() for chunk in chunks]
    for stats in statistics:
        low, high = believed(stats, order, declared=declared)
        lows.append(low)
        highs.append(high)
    null_counts = np.array([_count(s.null_count) for s in statistics], dtype=np.int64)
    num_values = np.array([chunk.num_values for chunk in chunks], dtype=np.int64)
    nan_counts = np.array([_count(s.nan_count) for s in statistics], dtype=np.int64)
    # Whatever has bounds has a value. Polars has counted NULLs once for each page.
    has_value = np.array(list(map(_has_bound, statistics)), dtype=np.bool_)
    null_counts[(null_counts >= num_values) & has_value] = UNKNOWN
    all_null = (null_counts == num_values) & ~has_value
    return _bounds(order, lows, highs, all_null, null_counts, nan_counts)


def page_bounds(order: ValueOrder, index: ColumnIndex, *, declared: bool) -> Bounds:
    """Bounds of the pages of one chunk from its ColumnIndex."""
    pages = len(index)
    unknown = np.full(pages, UNKNOWN, dtype=np.int64)
    null_counts = unknown if index.null_counts is None else index.null_counts
    nan_counts = unknown if index.nan_counts is None else index.nan_counts
    nothing: list[bytes | None] = [None] * pages
    usable = declared and order.is_defined
    # A page of NULLs only that counts none, or fewer than none, contradicts itself: nothing is
    # known of it. parquet-java has written such indexes for whole columns without a NULL.
    believed = index.null_counts is None or null_counts > 0
    all_null = index.null_pages & believed
    bounds = _bounds(
        order,
        index.min_values if usable else nothing,
        index.max_values if usable else nothing,
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
    """``index`` without the counts of pages that are not of NULLs only, as it says.

    ``rows`` are the pages', None where they do not tell how many values there are.
    """
    if not index.null_pages.any():
        return index
    counts = np.full(len(index), UNKNOWN) if index.null_counts is None else index.null_counts
    of_chunk = _count(chunk.statistics.null_count) if chunk.statistics else UNKNOWN
    least = np.ones(len(index), dtype=np.int64) if rows is None else rows
    false = np.zeros(len(index), dtype=np.bool_)
    if rows is not None and index.null_counts is not None:
        false = index.null_pages & (counts != rows)
    if of_chunk != UNKNOWN and int(least[index.null_pages].sum()) > of_chunk:
        false = index.null_pages
    return replace(index, null_counts=np.where(false, UNKNOWN, counts)) if false.any() else index


def recounted(
    bounds: Bounds, told: Sequence[ColumnMetaData] | ColumnIndex, max_level: int
) -> Bounds:
    """``bounds`` of what is ``told``, with the NULLs that histograms of levels count.

    ``max_level`` is the leaf's, of definition. Where there is no histogram, nobody counted.
    """
    if isinstance(told, ColumnIndex):
        flat = told.definition_level_histograms
        is_whole = flat is not None and len(flat) == len(told) * (max_level + 1)
        levels = [] if flat is None or not is_whole else flat.reshape(len(told), -1).tolist()
        counts = list(map(_nulls, levels)) or [UNKNOWN] * len(told)
    else:
        sizes = [chunk.size_statistics for chunk in told]
        levels = [(size and size.definition_level_histogram) or [] for size in sizes]
        counts = [
            _nulls(histogram)
            if len(histogram) == max_level + 1 and sum(histogram) == chunk.num_values
            else UNKNOWN
            for chunk, histogram in zip(told, levels, strict=True)
        ]
    return replace(bounds, null_counts=np.array(counts, dtype=np.int64))


def _nulls(histogram: Sequence[int]) -> int:
    """How many levels are not the highest."""
    count = sum(histogram[:-1])
    return count if min(histogram) >= 0 and count < 2**63 else UNKNOWN


def _bounds(
    order: ValueOrder,
    lows: Sequence[bytes | None],
    highs: Sequence[bytes | None],
    all_null: BoolArray,
    null_counts: Int64Array,
    nan_counts: Int64Array,
) -> Bounds:
    if not order.is_defined:
        blank = np.zeros(len(lows), dtype=np.int64)
        none = np.zeros(len(lows), dtype=np.bool_)
        return Bounds(order, blank, blank, none, all_null, null_counts, nan_counts)
    low, low_usable = order.keys(lows)
    high, high_usable = order.keys(highs)
    bounded = low_usable & high_usable
    # Bounds the wrong way round were written under some other order.
    bounded &= np.asarray(low <= high, dtype=np.bool_)
    return Bounds(order, low, high, bounded, all_null, null_counts, nan_counts)


def believed(
    stats: Statistics, order: ValueOrder, *, declared: bool = False
) -> tuple[bytes | None, bytes | None]:
    """Bounds of a chunk that hold, its order being ``declared`` or not; None where none do."""
    if stats.min_value is not None and stats.max_value is not None:
        return (stats.min_value, stats.max_value) if declared else (None, None)
    # Deprecated bounds of byte arrays are not used at all: some writers compared bytes as signed,
    # and some gave one value for both.
    if order.stored is None or stats.min is None or stats.max is None:
        return None, None
    signed = order.stored.kind != "u" or order.domain is Domain.BOOLEAN
    return (stats.min, stats.max) if signed or stats.min == stats.max else (None, None)


def _has_bound(stats: Statistics) -> bool:
    given = (stats.min_value, stats.max_value, stats.min, stats.max)
    return any(bound is not None for bound in given)


def _count(value: int | None) -> int:
    return UNKNOWN if value is None or value < 0 else value
