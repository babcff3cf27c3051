"""Might a row group or page hold a row that passes a test? When in doubt, yes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from intarsia.format.bounds import Bounds
from intarsia.format.order import Key, Keys, ValueOrder
from intarsia.predicate.pruning import Op, Test

BoolArray = NDArray[np.bool_]

_PYARROW = {
    Op.EQ: pc.equal,
    Op.NE: pc.not_equal,
    Op.LT: pc.less,
    Op.LE: pc.less_equal,
    Op.GT: pc.greater,
    Op.GE: pc.greater_equal,
}


def rows_might_match(test: Test, bounds: Bounds) -> BoolArray:
    """For each of ``n`` places of ``bounds``: might a row there pass? Shape ``(n,)``, bool."""
    might = _values_might_match(test, bounds) & ~bounds.all_null
    if test.nulls:
        might |= bounds.null_counts != 0
    if test.nans and bounds.order.has_nan:
        might |= (bounds.nan_counts != 0) & ~bounds.all_null
    return might


def constant_might_match(test: Test, value: pa.Scalar) -> bool:
    """As ``rows_might_match`` where every row holds ``value``, as in a Hive partition."""
    if not value.is_valid:
        return test.nulls
    try:
        match test.op:
            case Op.NONE:
                return test.nans and pa.types.is_floating(value.type)
            case Op.ANY:
                return True
            case Op.IN | Op.NOT_IN:
                if any(not _same_kind(value.type, member.type) for member in test.values):
                    return True  # membership casts its set, comparison both sides: not the same
                found = any(_compare(Op.EQ, value, member) for member in test.values)
                return found == (test.op is Op.IN) or test.nans
            case _:
                return _compare(test.op, value, test.values[0]) or test.nans
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError):
        return True


def _same_kind(one: pa.DataType, other: pa.DataType) -> bool:
    return bool(one.equals(other) or (pa.types.is_integer(one) and pa.types.is_integer(other)))


def _compare(op: Op, value: pa.Scalar, member: pa.Scalar) -> bool:
    return bool(_PYARROW[op](value, member).as_py())


def _values_might_match(test: Test, bounds: Bounds) -> BoolArray:
    if test.op is Op.NONE:
        return np.zeros(len(bounds), dtype=np.bool_)
    verdict = _within_bounds(test, bounds)
    return verdict | ~bounds.bounded


def _within_bounds(test: Test, bounds: Bounds) -> BoolArray:
    everything = np.ones(len(bounds), dtype=np.bool_)
    low, high = bounds.low, bounds.high
    if test.op is Op.ANY:
        return everything
    brackets = [bounds.order.bracket(value) for value in test.values]
    if any(bracket is None for bracket in brackets):
        return everything
    known: list[tuple[Key, Key]] = [bracket for bracket in brackets if bracket is not None]
    match test.op:
        case Op.IN | Op.EQ:
            return _any_overlaps(bounds.order, low, high, known)
        case Op.NOT_IN | Op.NE:
            return _not_only(low, high, known)
    below, above = (_comparable(low, key) for key in known[0])
    match test.op:
        case Op.LT:
            return _bools(low < above)
        case Op.LE:
            return _bools(low <= above)
        case Op.GT:
            return _bools(high > below)
        case Op.GE:
            return _bools(high >= below)
    return everything


def _any_overlaps(
    order: ValueOrder, low: Keys, high: Keys, brackets: list[tuple[Key, Key]]
) -> BoolArray:
    """Does any bracket overlap ``[low, high]``? By binary search: brackets do not cross."""
    if len(brackets) == 1:
        below, above = (_comparable(low, key) for key in brackets[0])
        return _bools(low <= above) & _bools(high >= below)
    brackets = sorted(brackets)
    belows = _key_array([below for below, _ in brackets])
    aboves = _key_array([above for _, above in brackets])
    if belows.dtype == object or low.dtype == object:
        low, high = low.astype(object), high.astype(object)
    first = np.searchsorted(aboves, low, side="left")
    last = np.searchsorted(belows, high, side="right")
    return _bools(first < last)


def _comparable(keys: Keys, key: Key) -> Any:
    """``key`` for comparing with ``keys``: NumPy would drop the trailing zeros of bare bytes."""
    if keys.dtype != object:
        return key
    boxed = np.empty((), dtype=object)
    boxed[()] = key
    return boxed


def _key_array(keys: list[Key]) -> Keys:
    """Keys of literals, as Python objects: a literal may lie outside the column's own type."""
    array = np.empty(len(keys), dtype=object)
    array[:] = [key.item() if isinstance(key, np.generic) else key for key in keys]
    return array


def _not_only(low: Keys, high: Keys, brackets: list[tuple[Key, Key]]) -> BoolArray:
    """False where all values are one and the same, and that one is excluded."""
    single = _bools(low == high)
    excluded = np.zeros(len(low), dtype=np.bool_)
    for below, above in brackets:
        if below == above:
            excluded |= _bools(low == _comparable(low, below))
    return ~(single & excluded)


def _bools(values: Any) -> BoolArray:
    return np.asarray(values, dtype=np.bool_)
