"""Arithmetic of numbers of two types: what each becomes before pyarrow computes.

Decimals and integers become decimals of precisions that hold the result, which pyarrow asks for.
Beside floats, what is none becomes one, rounded where it has to be, as in SQL; pyarrow would fail.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from intarsia.errors import PredicateError
from intarsia.expr.casts import keeps_values

Typed = tuple[pc.Expression, pa.DataType | None]
"""A value, and its type where that is known."""
_DIGITS = {8: 3, 16: 5, 32: 10, 64: 20}
"""How many an integer of so many bits may have."""


def computed(compute: Callable[[Any, Any], Any], one: Typed, other: Typed) -> Typed:
    """What ``compute`` of pyarrow gives for two values, and its type where both are numbers.

    Results of more than 38 digits are decimals of 256 bits. Raises ``PredicateError`` where they
    may have more than 76.
    """
    (left, left_kind), (right, right_kind) = one, other
    if left_kind is None or right_kind is None:
        return compute(left, right), None
    kinds = [left_kind, right_kind]
    if any(map(pa.types.is_floating, kinds)):
        left, right = as_floats(one, other)
        return compute(left, right), _float_of(kinds)
    if any(map(pa.types.is_decimal, kinds)) and all(map(is_exact, kinds)):
        return _of_decimals(compute, (left, right), kinds)
    is_whole = all(map(pa.types.is_integer, kinds))
    return compute(left, right), _result(compute, kinds) if is_whole else None


def as_floats(one: Typed, other: Typed) -> tuple[pc.Expression, pc.Expression]:
    """Two values, of which both are floats of one type where one is a float and both are numbers.

    That is so even where pyarrow would convert them: it takes a constant for the shortest float
    that holds it, and computes by that.
    """
    target = _float_of([one[1], other[1]])
    if target is None:
        return one[0], other[0]
    left, right = (
        value if kind is None or kind == target else nearest(value, kind, target)
        for value, kind in (one, other)
    )
    return left, right


def nearest(value: pc.Expression, kind: pa.DataType, target: pa.DataType) -> pc.Expression:
    """A number as the nearest float of type ``target``."""
    if pa.types.is_decimal(kind):
        value = value.cast(pa.string())  # of which pyarrow makes the nearest, and not directly
    return value.cast(target, safe=pa.types.is_integer(kind) and keeps_values(kind, target))


def _float_of(kinds: Sequence[pa.DataType | None]) -> pa.DataType | None:
    """The float that numbers of two types become; None where there is none, or no number."""
    floats = [kind for kind in kinds if kind is not None and pa.types.is_floating(kind)]
    others = [kind for kind in kinds if kind not in floats]
    if not floats or not all(kind is not None and is_exact(kind) for kind in others):
        return None
    widest = max(floats, key=lambda kind: int(kind.bit_width))
    return None if widest == pa.float16() else widest


def _of_decimals(
    compute: Callable[[Any, Any], Any],
    values: Sequence[pc.Expression],
    own: Sequence[pa.DataType],
) -> Typed:
    kinds = [_as_decimal(kind) for kind in own]
    try:
        try:
            result = _result(compute, kinds)
        except pa.ArrowInvalid:
            kinds = [pa.decimal256(kind.precision, kind.scale) for kind in kinds]
            result = _result(compute, kinds)
    except pa.ArrowInvalid as error:
        raise PredicateError(f"more digits than a decimal has: {error}") from error
    left, right = (
        value if kind == was else value.cast(kind)
        for value, was, kind in zip(values, own, kinds, strict=True)
    )
    return compute(left, right), result


def is_exact(kind: pa.DataType) -> bool:
    """Is it integers or decimals?"""
    return bool(pa.types.is_integer(kind) or pa.types.is_decimal(kind))


def _as_decimal(kind: pa.DataType) -> pa.DataType:
    return pa.decimal128(_DIGITS[kind.bit_width], 0) if pa.types.is_integer(kind) else kind


def _result(compute: Callable[[Any, Any], Any], kinds: list[pa.DataType]) -> pa.DataType:
    return compute(*(pa.nulls(0, kind) for kind in kinds)).type
