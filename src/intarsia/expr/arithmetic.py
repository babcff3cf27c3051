"""Arithmetic on two numbers of different types: the casts that pyarrow needs before it computes.

Decimals and integers become decimals whose precision holds the result, as pyarrow requires.
Operands combined with floats are cast to float, rounded if necessary, as in SQL. Without these
casts, pyarrow would fail.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from intarsia.errors import PredicateError
from intarsia.expr.casts import keeps_values
from intarsia.expr.tree import Node, built

Typed = tuple[Node, pa.DataType | None]
"""A value, and its type if that is known."""
_DECIMAL_DIGITS = {8: 3, 16: 5, 32: 10, 64: 20}
"""The number of decimal digits that an integer type needs, by its width in bits."""


def computed(compute: Callable[[Any, Any], Any], one: Typed, other: Typed) -> Typed:
    """Returns the result of pyarrow's ``compute`` on two values, and its type if both are numbers.

    Results of more than 38 digits are 256-bit decimals. Raises ``PredicateError`` if the result may
    have more than 76 digits.
    """
    (left, left_kind), (right, right_kind) = one, other
    if left_kind is None or right_kind is None:
        return built(compute, left, right), None
    kinds = [left_kind, right_kind]
    if any(map(pa.types.is_floating, kinds)):
        left, right = as_floats(one, other)
        return built(compute, left, right), _common_float(kinds)
    if any(map(pa.types.is_decimal, kinds)) and all(map(is_exact, kinds)):
        return _compute_decimals(compute, (left, right), kinds)
    are_integers = all(map(pa.types.is_integer, kinds))
    return built(compute, left, right), _result_type(compute, kinds) if are_integers else None


def as_floats(one: Typed, other: Typed) -> tuple[Node, Node]:
    """Returns two numbers, both cast to one float type if one of them is a float.

    The cast is explicit even where pyarrow would convert implicitly: pyarrow gives a constant the
    narrowest float type that holds it, and computes in that type. Values that are not numbers are
    returned unchanged.
    """
    target = _common_float([one[1], other[1]])
    if target is None:
        return one[0], other[0]
    left, right = (
        value if kind is None or kind == target else nearest(value, kind, target)
        for value, kind in (one, other)
    )
    return left, right


def nearest(value: Node, kind: pa.DataType, target: pa.DataType) -> Node:
    """Returns a number as the nearest float of type ``target``."""
    if pa.types.is_decimal(kind):
        # A string's cast to float rounds to the nearest, a decimal's does not.
        value = built(pc.Expression.cast, value, pa.string())
    is_safe = pa.types.is_integer(kind) and keeps_values(kind, target)
    return built(pc.Expression.cast, value, target, safe=is_safe)


def _common_float(kinds: Sequence[pa.DataType | None]) -> pa.DataType | None:
    """Returns the float type that numbers of two types are cast to.

    Returns None if neither is a float, if one is not a number, or if the only floats are float16.
    """
    floats = [kind for kind in kinds if kind is not None and pa.types.is_floating(kind)]
    others = [kind for kind in kinds if kind not in floats]
    if not floats or not all(kind is not None and is_exact(kind) for kind in others):
        return None
    widest = max(floats, key=lambda kind: int(kind.bit_width))
    return None if widest == pa.float16() else widest


def _compute_decimals(
    compute: Callable[[Any, Any], Any],
    values: Sequence[Node],
    types: Sequence[pa.DataType],
) -> Typed:
    decimals = [_as_decimal(kind) for kind in types]
    try:
        try:
            result = _result_type(compute, decimals)
        except pa.ArrowInvalid:
            decimals = [pa.decimal256(kind.precision, kind.scale) for kind in decimals]
            result = _result_type(compute, decimals)
    except pa.ArrowInvalid as error:
        raise PredicateError(f"the result has more digits than a decimal holds: {error}") from error
    left, right = (
        value if kind == original else built(pc.Expression.cast, value, kind)
        for value, original, kind in zip(values, types, decimals, strict=True)
    )
    return built(compute, left, right), result


def is_exact(kind: pa.DataType) -> bool:
    """True if ``kind`` is an integer or decimal type."""
    return bool(pa.types.is_integer(kind) or pa.types.is_decimal(kind))


def _as_decimal(kind: pa.DataType) -> pa.DataType:
    return pa.decimal128(_DECIMAL_DIGITS[kind.bit_width], 0) if pa.types.is_integer(kind) else kind


def _result_type(compute: Callable[[Any, Any], Any], kinds: list[pa.DataType]) -> pa.DataType:
    return compute(*(pa.nulls(0, kind) for kind in kinds)).type
