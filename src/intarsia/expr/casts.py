"""Casts of SQL: the types they name, and those that keep every value in whatever engine."""

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
_EXTENSIONS = {"arrow.uuid", "arrow.json"}
_MANTISSA = {16: 11, 32: 24, 64: 53}
"""Bits of integers that a float of so many bits holds exactly."""


def cast_type(target: exp.DataType) -> pa.DataType:
    """The type that a cast names. Raises ``PredicateError`` for one that is not known here."""
    kind = _TYPES.get(target.this)
    is_plain = kind == pa.string() or not target.expressions  # a length of texts means nothing
    if kind is None or not is_plain:
        raise PredicateError(f"CAST to {text_of(target)} is not understood")
    return kind


def is_uuid(kind: pa.DataType | None) -> bool:
    """Is it Arrow's type of UUIDs, which are 16 bytes?"""
    return kind is not None and kind == pa.uuid()


def is_json(kind: pa.DataType) -> bool:
    """Is it Arrow's type of JSON, which is text?"""
    return isinstance(kind, pa.BaseExtensionType) and kind.extension_name == "arrow.json"


def without_extension(kind: pa.DataType) -> pa.DataType:
    """Of UUIDs and JSON, the bytes and texts that they are; any other type as it is."""
    is_one = isinstance(kind, pa.BaseExtensionType) and kind.extension_name in _EXTENSIONS
    return kind.storage_type if is_one else kind


def keeps_values(kind: pa.DataType, target: pa.DataType) -> bool:
    """Is a cast from ``kind`` to ``target`` exact for every value?

    Known of integers and floats that become wider, and of texts.
    """
    if kind == target:
        return True
    if pa.types.is_integer(kind):
        signed = pa.types.is_signed_integer(kind)
        bits = kind.bit_width - signed
        if pa.types.is_integer(target):
            to_signed = pa.types.is_signed_integer(target)
            return bool(target.bit_width - to_signed >= bits and (to_signed or not signed))
        return bool(pa.types.is_floating(target)) and bits <= _MANTISSA[target.bit_width]
    if pa.types.is_floating(kind):
        return bool(pa.types.is_floating(target)) and kind.bit_width <= target.bit_width
    return is_text(kind) and is_text(target)


def is_moment(kind: pa.DataType) -> bool:
    """Is it days, or moments of any unit?"""
    return bool(pa.types.is_date32(kind) or pa.types.is_timestamp(kind))


def has_zone(kind: pa.DataType) -> bool:
    """Is it moments with a time zone?"""
    return bool(pa.types.is_timestamp(kind)) and kind.tz is not None


def is_in_utc(kind: pa.DataType) -> bool:
    """Is it moments whose time zone is UTC?"""
    return has_zone(kind) and kind.tz == "UTC"


def is_text(kind: pa.DataType) -> bool:
    """Is it text, of offsets of either size?"""
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))
