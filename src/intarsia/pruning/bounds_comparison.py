"""Compares a predicate with bounds: whether a row group, page or granule may hold a matching row.

If this is unknown, the answer is yes.

A filter is evaluated on values in the data set's type. Bounds and indexes hold values in the file's
type. ``types_agree`` is true if the conversion from one to the other keeps every value and every
comparison.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from intarsia.expr.casts import without_extension
from intarsia.expr.comparison_operators import Op
from intarsia.expr.functions import is_list
from intarsia.expr.nested_types import without_dictionary
from intarsia.parquet.statistics import Bounds
from intarsia.parquet.value_order import Key, Keys, ValueOrder
from intarsia.pruning.predicates import Comparison

BoolArray = NDArray[np.bool_]


def rows_might_match(comparison: Comparison, bounds: Bounds) -> BoolArray:
    """Returns for each of ``n`` places of ``bounds`` whether a row may pass ``comparison``.

    Shape ``(n,)``, bool.
    """
    might = _values_might_match(comparison, bounds) & ~bounds.all_null
    if comparison.nulls:
        might |= bounds.null_counts != 0
    if comparison.nans and bounds.order.has_nan:
        might |= (bounds.nan_counts != 0) & ~bounds.all_null
    return might


def _values_might_match(comparison: Comparison, bounds: Bounds) -> BoolArray:
    if comparison.op is Op.NONE:
        return np.zeros(len(bounds), dtype=np.bool_)
    might_match = _within_bounds(comparison, bounds)
    return might_match | ~bounds.bounded


def _within_bounds(comparison: Comparison, bounds: Bounds) -> BoolArray:
    everything = np.ones(len(bounds), dtype=np.bool_)
    low, high = bounds.low, bounds.high
    if comparison.op is Op.ANY:
        return everything
    brackets = _brackets(bounds.order, comparison)
    if brackets is None:
        return everything
    match comparison.op:
        case Op.IN | Op.EQ:
            return _any_overlaps(low, high, *brackets)
        case Op.NOT_IN | Op.NE:
            return _not_only(low, high, *brackets)
    below, above = (_comparable(low, keys[0]) for keys in brackets)
    match comparison.op:
        case Op.LT:
            return _bools(low < above)
        case Op.LE:
            return _bools(low <= above)
        case Op.GT:
            return _bools(high > below)
        case Op.GE:
            return _bools(high >= below)
    return everything


@functools.lru_cache(maxsize=8)
def _brackets(order: ValueOrder, comparison: Comparison) -> tuple[Keys, Keys] | None:
    """Returns the low keys and the high keys of a predicate's brackets, both sorted.

    Cached, because every row group needs them.
    """
    brackets = order.brackets(comparison.values)
    if brackets is None or len(comparison.values) == 1:
        return brackets
    belows, aboves = brackets
    ascending = np.sort(belows)
    # Brackets do not cross, so the high keys are in the same order.
    return ascending, ascending if aboves is belows else np.sort(aboves)


def _any_overlaps(low: Keys, high: Keys, belows: Keys, aboves: Keys) -> BoolArray:
    """Returns where any bracket overlaps ``[low, high]``. Brackets do not cross, so it bisects."""
    if len(belows) == 1:
        below, above = (_comparable(low, keys[0]) for keys in (belows, aboves))
        return _bools(low <= above) & _bools(high >= below)
    if belows.dtype != low.dtype:  # Python objects compare numbers of different types exactly
        low, high, belows, aboves = (keys.astype(object) for keys in (low, high, belows, aboves))
    first = np.searchsorted(aboves, low, side="left")
    last = np.searchsorted(belows, high, side="right")
    return _bools(first < last)


def _comparable(keys: Keys, key: Key) -> Any:
    """Returns ``key`` for comparing with ``keys``: NumPy would drop trailing zero bytes."""
    if keys.dtype != object:
        return key
    boxed = np.empty((), dtype=object)
    boxed[()] = key
    return boxed


def _not_only(low: Keys, high: Keys, belows: Keys, aboves: Keys) -> BoolArray:
    """Returns False where all values are the same, and that value is excluded; True elsewhere."""
    single = np.flatnonzero(_bools(low == high))
    excluded = set(belows[_bools(belows == aboves)].tolist()) if len(single) else set()
    might = np.ones(len(low), dtype=np.bool_)
    might[single] = [key not in excluded for key in low[single].tolist()]
    return might


def _bools(values: Any) -> BoolArray:
    return np.asarray(values, dtype=np.bool_)


_RANK_BY_UNIT = {"s": 0, "ms": 1, "us": 2, "ns": 3}


def types_agree_at(
    stored: pa.DataType, seen: pa.DataType, path: Sequence[str], *, exactly: bool = False
) -> bool:
    """True if the types at ``path``, through structs, agree.

    With ``exactly``, they must agree for any function of the values: they are one type, or two
    string types.
    """
    for name in path:
        if not (pa.types.is_struct(stored) and pa.types.is_struct(seen)):
            break
        places = stored.get_field_index(name), seen.get_field_index(name)
        if min(places) < 0:
            return False
        stored, seen = stored.field(places[0]).type, seen.field(places[1]).type
    if exactly:
        stored, seen = without_extension(stored), without_extension(seen)
        return bool(stored.equals(seen) or (_is_text(stored) and _is_text(seen)))
    return types_agree(stored, seen)


def types_agree(stored: pa.DataType, seen: pa.DataType) -> bool:
    """True if reading ``stored`` as ``seen`` is exact for every value that it does not reject."""
    stored, seen = without_extension(stored), without_extension(seen)
    if stored.equals(seen):
        return True
    if pa.types.is_dictionary(stored) or pa.types.is_dictionary(seen):
        return types_agree(without_dictionary(stored), without_dictionary(seen))
    if is_list(stored) and is_list(seen):
        return types_agree(stored.value_type, seen.value_type)
    if pa.types.is_map(stored) and pa.types.is_map(seen):
        return types_agree(stored.key_type, seen.key_type) and types_agree(
            stored.item_type, seen.item_type
        )
    if pa.types.is_integer(stored) and pa.types.is_integer(seen):
        return True
    if pa.types.is_floating(stored) and pa.types.is_floating(seen):
        return bool(stored.bit_width <= seen.bit_width)
    if pa.types.is_decimal(stored) and pa.types.is_decimal(seen):
        return bool(stored.scale <= seen.scale)
    if pa.types.is_timestamp(stored) and pa.types.is_timestamp(seen):
        zoned = (stored.tz is None) == (seen.tz is None)
        return zoned and _RANK_BY_UNIT[stored.unit] <= _RANK_BY_UNIT[seen.unit]
    return _is_text(stored) and _is_text(seen)


def _is_text(kind: pa.DataType) -> bool:
    checks = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
    return any(check(kind) for check in checks)
