"""Arithmetic of decimals and integers, of which pyarrow wants precisions that hold the result."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from intarsia.errors import PredicateError

Typed = tuple[pc.Expression, pa.DataType | None]
"""A value, and its type where that is known."""
_DIGITS = {8: 3, 16: 5, 32: 10, 64: 20}
"""How many an integer of so many bits may have."""


def computed(compute: Callable[[Any, Any], Any], one: Typed, other: Typed) -> Typed:
    """What ``compute`` of pyarrow gives for two values, and its type where both are numbers.

    Results of more than 38 digits are decimals of 256 bits. Raises ``PredicateError`` where they
    may have more than 76.
    """
    typed = [kind for _, kind in (one, other) if kind is not None]
    if not (any(map(pa.types.is_decimal, typed)) and len([*filter(_is_exact, typed)]) == 2):
        return compute(one[0], other[0]), _plain_result(compute, typed)
    kinds = [_as_decimal(kind) for kind in typed]
    try:
        try:
            result = _result(compute, kinds)
        except pa.ArrowInvalid:
            kinds = [pa.decimal256(kind.precision, kind.scale) for kind in kinds]
            result = _result(compute, kinds)
    except pa.ArrowInvalid as error:
        raise PredicateError(f"more digits than a decimal has: {error}") from error
    values = (
        value if kind == own else value.cast(kind)
        for (value, own), kind in zip((one, other), kinds, strict=True)
    )
    return compute(*values), result


def _plain_result(
    compute: Callable[[Any, Any], Any], kinds: list[pa.DataType]
) -> pa.DataType | None:
    """What pyarrow gives for values of these types; None where one is not known, or no number."""
    if len(kinds) < 2 or not all(_is_exact(kind) or pa.types.is_floating(kind) for kind in kinds):
        return None
    try:
        return _result(compute, kinds)
    except pa.ArrowException:
        return None


def _is_exact(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_decimal(kind))


def _as_decimal(kind: pa.DataType) -> pa.DataType:
    return pa.decimal128(_DIGITS[kind.bit_width], 0) if pa.types.is_integer(kind) else kind


def _result(compute: Callable[[Any, Any], Any], kinds: list[pa.DataType]) -> pa.DataType:
    return compute(*(pa.nulls(0, kind) for kind in kinds)).type
