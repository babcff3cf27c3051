"""Evaluates predicates on values and on ranges of values. Rows in doubt pass."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from intarsia.expr.comparison_operators import Op
from intarsia.index.base import BoolArray, Subject
from intarsia.parquet.statistics import Bounds
from intarsia.parquet.value_order import ValueOrder
from intarsia.pruning.bounds_comparison import rows_might_match
from intarsia.pruning.predicates import Comparison, How, Predicate, SearchPredicate

TEXT_SEARCHES: dict[How, Callable[..., Any]] = {
    How.LIKE: pc.match_like,
    How.SUBSTRING: pc.match_substring,
    How.STARTS_WITH: pc.starts_with,
    How.ENDS_WITH: pc.ends_with,
    How.REGEX: pc.match_substring_regex,
}
"""The pyarrow function of each string search."""


def can_judge(predicate: Predicate, of: Subject) -> bool:
    """True if ``passing`` can evaluate ``predicate`` on the values of ``of``."""
    if isinstance(predicate, SearchPredicate):
        return of.is_text and predicate.how in TEXT_SEARCHES
    if predicate.op in (Op.ANY, Op.NONE):
        return True
    return of.order.brackets(predicate.values) is not None


def passing(predicate: Predicate, values: pa.Array, order: ValueOrder) -> BoolArray | None:
    """Returns which of ``n`` values pass, as bool, or None if pyarrow cannot tell."""
    if isinstance(predicate, Comparison):
        is_null = boolean(values.is_null())
        is_nan = boolean(values.is_null(nan_is_null=True)) & ~is_null
        numbers = pc.if_else(pa.array(is_nan), pa.scalar(None, values.type), values)
        return spans_might_match(predicate, numbers, numbers, is_null, is_nan, order)
    search = TEXT_SEARCHES[predicate.how]
    try:
        strings = getattr(pc, predicate.through)(values) if predicate.through else values
        matches = search(strings, predicate.pattern, ignore_case=predicate.ignore_case)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError):
        return None
    if predicate.negated:
        matches = pc.invert(matches)
    return boolean(matches.fill_null(predicate.nulls))


def spans_might_match(
    comparison: Comparison,
    low: pa.Array,
    high: pa.Array,
    nulls: BoolArray,
    nans: BoolArray,
    order: ValueOrder,
) -> BoolArray:
    """Returns, for each of ``n`` ranges, whether a value from ``low`` to ``high`` might pass.

    The result has shape ``(n,)``. ``low`` and ``high`` are NULL where there is no value, and never
    NaN. ``nulls`` and ``nans`` are true where there is a NULL or a NaN.
    """
    mask = boolean(low.is_valid())
    if comparison.op in (Op.ANY, Op.NONE):
        mask &= comparison.op is Op.ANY
        return mask | (nulls & comparison.nulls) | (nans & comparison.nans)
    positions = pa.array(np.flatnonzero(mask))
    lows, highs = order.brackets(low.take(positions)), order.brackets(high.take(positions))
    if lows is not None and highs is not None:
        count = len(positions)
        no_counts = np.zeros(count, dtype=np.int64)
        everywhere, nowhere = np.ones(count, dtype=np.bool_), np.zeros(count, dtype=np.bool_)
        bounds = Bounds(order, lows[0], highs[1], everywhere, nowhere, no_counts, no_counts)
        mask[mask] = rows_might_match(comparison, bounds)
    if comparison.nulls:
        mask |= nulls
    if comparison.nans:
        mask |= nans
    return mask


def boolean(values: pa.Array) -> BoolArray:
    """Returns Booleans without NULLs as a new NumPy array."""
    return np.array(values.to_numpy(zero_copy_only=False), dtype=np.bool_)
