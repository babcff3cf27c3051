"""The values a test asks for, encoded as hashes are taken of them."""

from __future__ import annotations

from typing import Any

from intarsia.format.order import INT96_ORDER, Domain, ValueOrder
from intarsia.predicate.pruning import Op, Test


def unfit_for_hashing(order: ValueOrder) -> str | None:
    """Why equal values of a column of this order may have different hashes; None where not."""
    if order.domain is Domain.UNDEFINED or order is INT96_ORDER:
        return "its type has no defined equality in Parquet"
    if order.domain is Domain.BOOLEAN:
        return "booleans have two values only"
    if order.has_nan and order.width == 2:
        return "half floats have two encodings of zero, and NaN, among their bytes"
    if order.domain is Domain.DECIMAL and order.width is None:
        return "decimals of varying width have several encodings of one value"
    return None


def exact_encodings(test: Test, order: ValueOrder) -> list[bytes] | None:
    """PLAIN encodings, one of which every row that passes ``test`` has; None where others may pass.

    For = and IN only. Zero is +0.0.
    """
    if test.op not in (Op.EQ, Op.IN) or test.nulls or (test.nans and order.has_nan):
        return None
    encodings = []
    for value in test.values:
        bracket = order.bracket(value)
        if bracket is None:
            return None
        low, high = bracket
        if low != high:
            # Between two neighbours of the column's type. Membership, which casts its set, and
            # comparison as narrower floats may yet find it equal to one of them.
            return None
        encoded = _encoded(order, low)
        if encoded is not None:
            encodings.append(encoded)
    return encodings


def _encoded(order: ValueOrder, key: Any) -> bytes | None:
    """PLAIN encoding of a key; None where the column's type does not hold such a value."""
    try:
        if order.has_nan:
            key = key + order.key.type(0)
        return order.plain(key)
    except OverflowError:
        return None
