"""The values a test asks for, encoded as hashes are taken of them."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from intarsia.expr.comparison_operators import Op
from intarsia.parquet.value_order import INT96_ORDER, Domain, Keys, ValueOrder
from intarsia.pruning.predicates import Test


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


def exact_values(test: Test, order: ValueOrder) -> pa.Array | None:
    """Physical values, one of which every row that passes ``test`` has; None where others may pass.

    For = and IN only. They are as ``hash_values`` takes them; zero is +0.0.
    """
    if test.op not in (Op.EQ, Op.IN) or test.nulls or (test.nans and order.has_nan):
        return None
    if order.domain is Domain.BYTES and _is_text_or_bytes(test.values.type):
        return test.values.cast(pa.large_binary())
    brackets = order.brackets(test.values)
    if brackets is None:
        return None
    low, high = brackets
    if not np.array_equal(low, high):
        # Between two neighbours of the column's type. Membership, which casts its set, and
        # comparison as narrower floats may yet find it equal to one of them.
        return None
    return _physical(order, low)


def _is_text_or_bytes(kind: pa.DataType) -> bool:
    known = (pa.string(), pa.large_string(), pa.binary(), pa.large_binary())
    return kind in known


def _physical(order: ValueOrder, keys: Keys) -> pa.Array:
    """Keys as the column stores them, without those that its type does not hold."""
    if order.stored is None:
        return pa.array(_plain_bytes(order, keys), pa.large_binary())
    native = order.stored.newbyteorder("=")
    if order.has_nan:
        return pa.array(keys.astype(native) + native.type(0))
    limits = np.iinfo(native)
    held = np.asarray((keys >= limits.min) & (keys <= limits.max), dtype=np.bool_)
    return pa.array(keys[held].astype(native))


def _plain_bytes(order: ValueOrder, keys: Keys) -> list[bytes]:
    found = []
    for key in keys:
        try:
            found.append(order.plain(key))
        except OverflowError:
            continue  # a decimal of more digits than the column's have room
    return found
