"""Encodes the values of a comparison as the indexed values were encoded before hashing."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from intarsia.expr.comparison_operators import Op
from intarsia.parquet.value_order import INT96_ORDER, Domain, Keys, ValueOrder
from intarsia.pruning.predicates import Comparison


def unfit_for_hashing(order: ValueOrder) -> str | None:
    """Returns why equal values of a column may have different hashes, or None if they cannot."""
    if order.domain is Domain.UNDEFINED or order is INT96_ORDER:
        return "its type has no defined equality in Parquet"
    if order.domain is Domain.BOOLEAN:
        return "booleans have two values only"
    if order.has_nan and order.width == 2:
        return "half floats have two encodings of zero, and NaN, among their bytes"
    if order.domain is Domain.DECIMAL and order.width is None:
        return "decimals of varying width have several encodings of one value"
    return None


def exact_values(comparison: Comparison, order: ValueOrder) -> pa.Array | None:
    """Returns physical values of which each row that passes ``comparison`` has one.

    Returns None if other values may pass. Supports only ``=`` and ``IN``. The values have a type
    that ``hash_values`` takes; zero is +0.0.
    """
    if (
        comparison.op not in (Op.EQ, Op.IN)
        or comparison.nulls
        or (comparison.nans and order.has_nan)
    ):
        return None
    if order.domain is Domain.BYTES and _is_text_or_bytes(comparison.values.type):
        return as_bytes(comparison.values)
    brackets = order.brackets(comparison.values)
    if brackets is None:
        return None
    low, high = brackets
    if not np.array_equal(low, high):
        # A value lies between two neighbours of the column's type. An IN list, which is cast, or a
        # comparison in narrower floats may still equal one of them.
        return None
    return _physical(order, low)


def as_bytes(values: pa.Array) -> pa.Array:
    """Returns strings as their bytes, and other values unchanged."""
    if pa.types.is_string(values.type):
        return values.view(pa.binary())
    return values.view(pa.large_binary()) if pa.types.is_large_string(values.type) else values


def _is_text_or_bytes(kind: pa.DataType) -> bool:
    known = (pa.string(), pa.large_string(), pa.binary(), pa.large_binary())
    return kind in known


def _physical(order: ValueOrder, keys: Keys) -> pa.Array:
    """Returns keys in the column's physical type, without those that do not fit it."""
    if order.stored is None:
        return pa.array(_plain_bytes(order, keys), pa.large_binary())
    native = order.stored.newbyteorder("=")
    if order.has_nan:
        return pa.array(keys.astype(native) + native.type(0))
    limits = np.iinfo(native)
    fits = np.asarray((keys >= limits.min) & (keys <= limits.max), dtype=np.bool_)
    return pa.array(keys[fits].astype(native))


def _plain_bytes(order: ValueOrder, keys: Keys) -> list[bytes]:
    encoded = []
    for key in keys:
        try:
            encoded.append(order.plain(key))
        except OverflowError:
            continue  # a decimal with more digits than the column can store
    return encoded
