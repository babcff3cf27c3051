"""``MinMax``: the smallest and largest value of each granule, for range conditions."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from intarsia.expr.comparison_operators import Op
from intarsia.index.base import BoolArray, Positions, Subject, Summary
from intarsia.index.kinds.distinct import unfit_for_comparing, unfit_for_pyarrow
from intarsia.index.value_predicates import boolean, spans_might_match
from intarsia.parquet.page_statistics import extremes, shortened_high, shortened_low
from intarsia.pruning.predicates import Comparison, Predicate

_MAX_BOUND_BYTES = 64
"""Bounds of longer strings are shortened to about this length."""


@dataclass(frozen=True)
class MinMax(Summary):
    """An index of bounds, as in a page index, for any granule size and for functions of columns.

    Indexes on two columns together serve bounding boxes.

    Parameters
    ----------
    on : str or pyarrow.compute.Expression
        A column path, or a function of columns as SQL text or Expression.
    granule_rows : int, default 8192
        Most rows per granule, 1 to 2**31 - 1. A column's longer pages are divided.

    Raises
    ------
    IndexSpecError
        If ``granule_rows`` is out of range, or the Expression cannot be indexed.

    Examples
    --------
    >>> report, = ia.add_indexes("logs.parquet", [ia.MinMax("ts", granule_rows=100)])
    >>> report.added
    ('ts:minmax',)
    """

    kind = "minmax"
    serves = frozenset(Op)

    def unfit(self, of: Subject) -> str | None:
        return unfit_for_comparing(of) or unfit_for_pyarrow(_try_summary, of.type)

    def summarize(self, values: pa.Array, starts: Positions) -> pa.RecordBatch:
        is_null = boolean(values.is_null())
        is_nan = boolean(values.is_null(nan_is_null=True)) & ~is_null
        low, high = _bounds(values, ~(is_null | is_nan), starts)
        columns = {
            "min": low,
            "max": high,
            "nulls": pa.array(np.logical_or.reduceat(is_null, starts[:-1])),
            "nans": pa.array(np.logical_or.reduceat(is_nan, starts[:-1])),
        }
        return pa.RecordBatch.from_pydict(columns)

    def might_match(
        self, predicate: Predicate, summaries: pa.RecordBatch, of: Subject
    ) -> BoolArray | None:
        assert isinstance(predicate, Comparison)
        if len(predicate.values) and of.order.brackets(predicate.values) is None:
            return None
        low, high, nulls, nans = (summaries.column(n) for n in ("min", "max", "nulls", "nans"))
        return spans_might_match(predicate, low, high, boolean(nulls), boolean(nans), of.order)


def _try_summary(values: pa.Array) -> None:
    MinMax("value").summarize(values, np.array([0, len(values)]))


def _bounds(values: pa.Array, present: BoolArray, starts: Positions) -> tuple[pa.Array, pa.Array]:
    """Returns the bounds of the ``present`` values of each granule, NULL if there are none."""
    numbers = _numbers(values)
    if numbers is not None:
        empty = ~np.logical_or.reduceat(present, starts[:-1])
        return (
            _reduce(numbers, present, starts, empty, values.type, np.minimum),
            _reduce(numbers, present, starts, empty, values.type, np.maximum),
        )
    edges = starts.tolist()
    granule_bounds = [
        extremes(values.slice(start, stop - start)) for start, stop in itertools.pairwise(edges)
    ]
    lows, highs = zip(*granule_bounds, strict=True) if granule_bounds else ((), ())
    return _bounds_array(lows, "min", values.type), _bounds_array(highs, "max", values.type)


def _numbers(values: pa.Array) -> NDArray[Any] | None:
    """Returns values as numbers for NumPy, with 0 for NULL. Returns None for other types."""
    kind = values.type
    if pa.types.is_integer(kind) or pa.types.is_floating(kind):
        return np.asarray(pc.fill_null(values, pa.scalar(0, kind)).to_numpy(zero_copy_only=False))
    if pa.types.is_temporal(kind):
        integers = values.cast(pa.int32() if kind.bit_width == 32 else pa.int64())
        return np.asarray(pc.fill_null(integers, 0).to_numpy(zero_copy_only=False))
    return None


def _reduce(
    numbers: NDArray[Any],
    present: BoolArray,
    starts: Positions,
    empty: BoolArray,
    kind: pa.DataType,
    ufunc: Any,
) -> pa.Array:
    is_float = numbers.dtype.kind == "f"
    limits = np.finfo(numbers.dtype) if is_float else np.iinfo(numbers.dtype)
    identity = limits.max if ufunc is np.minimum else limits.min
    if is_float:
        identity = np.inf if ufunc is np.minimum else -np.inf
    filled = np.where(present, numbers, numbers.dtype.type(identity))
    bounds = pa.array(ufunc.reduceat(filled, starts[:-1]), mask=empty)
    return bounds if bounds.type == kind else bounds.cast(kind)


def _bounds_array(bounds: Sequence[Any], name: str, kind: pa.DataType) -> pa.Array:
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        shorten = shortened_low if name == "min" else shortened_high
        stored = pa.binary() if pa.types.is_string(kind) else pa.large_binary()
        # A shortened bound need not be UTF-8.
        shortened = [bound and shorten(bound, _MAX_BOUND_BYTES, text=True) for bound in bounds]
        return pa.array(shortened, stored).view(kind)
    return pa.array(bounds, kind)
