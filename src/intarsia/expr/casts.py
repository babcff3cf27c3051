"""Casts in SQL: the types they name, and casts that keep every value in every engine."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from sqlglot import exp

from intarsia.errors import PredicateError
from intarsia.expr.sql_text import text_of

_TYPES: dict[Any, pa.DataType] = {
    exp.DataType.Type.DATE: pa.date32(),
    exp.DataType.Type.TIMESTAMP: pa.timestamp("us"),
    exp.DataType.Type.TIMESTAMPNTZ: pa.timestamp("us"),
    exp.DataType.Type.TIMESTAMPTZ: pa.timestamp("us", "UTC"),
    exp.DataType.Type.TIME: pa.time64("us"),
    exp.DataType.Type.BIGINT: pa.int64(),
    exp.DataType.Type.INT: pa.int32(),
    exp.DataType.Type.DOUBLE: pa.float64(),
    exp.DataType.Type.TEXT: pa.string(),
    exp.DataType.Type.VARCHAR: pa.string(),
    exp.DataType.Type.BOOLEAN: pa.bool_(),
    exp.DataType.Type.UUID: pa.uuid(),
}
_UNWRAPPED_EXTENSIONS = {"arrow.uuid", "arrow.json"}
_MANTISSA_BITS = {16: 11, 32: 24, 64: 53}
"""The bits of the integers that a float type holds exactly, by the float's width in bits."""


def cast_type(target: exp.DataType) -> pa.DataType:
    """Returns the type that a cast names.

    Raises ``PredicateError`` for a type that is not supported.
    """
    kind = _TYPES.get(target.this)
    is_supported = (
        kind == pa.string() or not target.expressions
    )  # engines ignore the n of VARCHAR(n)
    if kind is None or not is_supported:
        raise PredicateError(f"CAST to {text_of(target)} is not understood")
    return kind


def is_uuid(kind: pa.DataType | None) -> bool:
    """True if ``kind`` is Arrow's UUID type, which stores 16 bytes."""
    return kind is not None and kind == pa.uuid()


def is_json(kind: pa.DataType) -> bool:
    """True if ``kind`` is Arrow's JSON type, which stores strings."""
    return isinstance(kind, pa.BaseExtensionType) and kind.extension_name == "arrow.json"


def without_extension(kind: pa.DataType) -> pa.DataType:
    """Returns the storage type of UUIDs and JSON, and any other type unchanged."""
    is_unwrapped = (
        isinstance(kind, pa.BaseExtensionType) and kind.extension_name in _UNWRAPPED_EXTENSIONS
    )
    return kind.storage_type if is_unwrapped else kind


def keeps_values(kind: pa.DataType, target: pa.DataType) -> bool:
    """True if a cast from ``kind`` to ``target`` is exact for every value.

    This is known for integers and floats that become wider, and for strings.
    """
    if kind == target:
        return True
    if pa.types.is_integer(kind):
        is_signed = pa.types.is_signed_integer(kind)
        bits = kind.bit_width - is_signed
        if pa.types.is_integer(target):
            is_target_signed = pa.types.is_signed_integer(target)
            return bool(
                target.bit_width - is_target_signed >= bits and (is_target_signed or not is_signed)
            )
        return bool(pa.types.is_floating(target)) and bits <= _MANTISSA_BITS[target.bit_width]
    if pa.types.is_floating(kind):
        return bool(pa.types.is_floating(target)) and kind.bit_width <= target.bit_width
    return is_text(kind) and is_text(target)


def is_moment(kind: pa.DataType) -> bool:
    """True if ``kind`` is date32 or a timestamp of any unit."""
    return bool(pa.types.is_date32(kind) or pa.types.is_timestamp(kind))


def has_zone(kind: pa.DataType) -> bool:
    """True if ``kind`` is a timestamp with a time zone."""
    return bool(pa.types.is_timestamp(kind)) and kind.tz is not None


def is_in_utc(kind: pa.DataType) -> bool:
    """True if ``kind`` is a timestamp whose time zone is UTC."""
    return has_zone(kind) and kind.tz == "UTC"


def is_text(kind: pa.DataType) -> bool:
    """True if ``kind`` is a string type, with 32-bit or 64-bit offsets."""
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))
