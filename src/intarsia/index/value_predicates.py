"""Which of some values, or spans of values, pass a predicate? When in doubt, too many."""

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
from intarsia.pruning.predicates import How, Match, Predicate, Test

TEXT_SEARCHES: dict[How, Callable[..., Any]] = {
    How.LIKE: pc.match_like,
    How.SUBSTRING: pc.match_substring,
    How.STARTS_WITH: pc.starts_with,
    How.ENDS_WITH: pc.ends_with,
    How.REGEX: pc.match_substring_regex,
}


def can_judge(predicate: Predicate, of: Subject) -> bool:
    """Can ``passing`` tell values that pass from others?"""
    if isinstance(predicate, Match):
        return of.is_text and predicate.how in TEXT_SEARCHES
    if predicate.op in (Op.ANY, Op.NONE):
        return True
    return of.order.brackets(predicate.values) is not None


def passing(predicate: Predicate, values: pa.Array, order: ValueOrder) -> BoolArray | None:
    """Which of ``n`` values pass. Shape ``(n,)``, bool.

    None where pyarrow cannot evaluate the predicate on them.
    """
    if isinstance(predicate, Test):
        is_null = boolean(values.is_null())
        is_nan = boolean(values.is_null(nan_is_null=True)) & ~is_null
        numbers = pc.if_else(pa.array(is_nan), pa.scalar(None, values.type), values)
        return spans_might_match(predicate, numbers, numbers, is_null, is_nan, order)
    search = TEXT_SEARCHES[predicate.how]
    try:
        texts = getattr(pc, predicate.through)(values) if predicate.through else values
        found = search(texts, predicate.pattern, ignore_case=predicate.ignore_case)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError):
        return None
    if predicate.negated:
        found = pc.invert(found)
    return boolean(found.fill_null(predicate.nulls))


def spans_might_match(
    test: Test, low: pa.Array, high: pa.Array, nulls: BoolArray, nans: BoolArray, order: ValueOrder
) -> BoolArray:
    """Might a value from ``low`` to ``high`` pass, for each of ``n`` places? Shape ``(n,)``.

    ``low`` and ``high`` are NULL where there is no value; neither is NaN. ``nulls`` and ``nans``
    say where there is a NULL or a NaN.
    """
    might = boolean(low.is_valid())
    if test.op in (Op.ANY, Op.NONE):
        might &= test.op is Op.ANY
        return might | (nulls & test.nulls) | (nans & test.nans)
    places = pa.array(np.flatnonzero(might))
    lows, highs = order.brackets(low.take(places)), order.brackets(high.take(places))
    if lows is not None and highs is not None:
        count = len(places)
        none = np.zeros(count, dtype=np.int64)
        everywhere, nowhere = np.ones(count, dtype=np.bool_), np.zeros(count, dtype=np.bool_)
        bounds = Bounds(order, lows[0], highs[1], everywhere, nowhere, none, none)
        might[might] = rows_might_match(test, bounds)
    if test.nulls:
        might |= nulls
    if test.nans:
        might |= nans
    return might


def boolean(values: pa.Array) -> BoolArray:
    """Booleans without NULLs as a NumPy array of one's own."""
    return np.array(values.to_numpy(zero_copy_only=False), dtype=np.bool_)
