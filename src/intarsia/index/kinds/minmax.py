"""``MinMax``: the least and the greatest value of each granule, for ranges."""

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
from intarsia.pruning.predicates import Predicate, Test

_TEXT_BYTES = 64
"""Longer texts are shortened to bounds of about so many bytes."""


@dataclass(frozen=True)
class MinMax(Summary):
    """Bounds of each granule: as a page index has them, at any granule size, on any expression.

    Those of two columns together serve boxes. Otherwise as ``Lookup``.
    """

    kind = "minmax"
    serves = frozenset(Op)

    def unfit(self, of: Subject) -> str | None:
        return unfit_for_comparing(of) or unfit_for_pyarrow(_summed_up, of.type)

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
        assert isinstance(predicate, Test)
        if len(predicate.values) and of.order.brackets(predicate.values) is None:
            return None
        low, high, nulls, nans = (summaries.column(n) for n in ("min", "max", "nulls", "nans"))
        return spans_might_match(predicate, low, high, boolean(nulls), boolean(nans), of.order)


def _summed_up(values: pa.Array) -> None:
    MinMax("value").summarize(values, np.array([0, len(values)]))


def _bounds(values: pa.Array, present: BoolArray, starts: Positions) -> tuple[pa.Array, pa.Array]:
    """Least and greatest of the ``present`` values of each granule; NULL where there is none."""
    numbers = _numbers(values)
    if numbers is not None:
        empty = ~np.logical_or.reduceat(present, starts[:-1])
        return (
            _reduced(numbers, present, starts, empty, values.type, np.minimum),
            _reduced(numbers, present, starts, empty, values.type, np.maximum),
        )
    edges = starts.tolist()
    found = [
        extremes(values.slice(start, stop - start)) for start, stop in itertools.pairwise(edges)
    ]
    lows, highs = zip(*found, strict=True) if found else ((), ())
    return _gathered(lows, "min", values.type), _gathered(highs, "max", values.type)


def _numbers(values: pa.Array) -> NDArray[Any] | None:
    """Values as an array that NumPy compares; None where it does not. NULLs are zeros."""
    kind = values.type
    if pa.types.is_integer(kind) or pa.types.is_floating(kind):
        return np.asarray(pc.fill_null(values, pa.scalar(0, kind)).to_numpy(zero_copy_only=False))
    if pa.types.is_temporal(kind):
        whole = values.cast(pa.int32() if kind.bit_width == 32 else pa.int64())
        return np.asarray(pc.fill_null(whole, 0).to_numpy(zero_copy_only=False))
    return None


def _reduced(
    numbers: NDArray[Any],
    present: BoolArray,
    starts: Positions,
    empty: BoolArray,
    kind: pa.DataType,
    least_or_most: Any,
) -> pa.Array:
    is_float = numbers.dtype.kind == "f"
    limits = np.finfo(numbers.dtype) if is_float else np.iinfo(numbers.dtype)
    furthest = limits.max if least_or_most is np.minimum else limits.min
    if is_float:
        furthest = np.inf if least_or_most is np.minimum else -np.inf
    kept = np.where(present, numbers, numbers.dtype.type(furthest))
    found = pa.array(least_or_most.reduceat(kept, starts[:-1]), mask=empty)
    return found if found.type == kind else found.cast(kind)


def _gathered(bounds: Sequence[Any], name: str, kind: pa.DataType) -> pa.Array:
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        shorten = shortened_low if name == "min" else shortened_high
        stored = pa.binary() if pa.types.is_string(kind) else pa.large_binary()
        # It need not be UTF-8.
        shortened = [text and shorten(text, _TEXT_BYTES, text=True) for text in bounds]
        return pa.array(shortened, stored).view(kind)
    return pa.array(bounds, kind)
