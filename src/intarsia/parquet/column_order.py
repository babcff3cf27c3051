"""Derives the order of a column's values from its schema element.

Source: ``LogicalTypes.md`` and ``ColumnOrder`` in ``parquet.thrift``.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from intarsia.parquet.metadata import ColumnOrder, ConvertedType, LogicalType, SchemaElement, Type
from intarsia.parquet.value_order import INT96_ORDER, Domain, ValueOrder

_UNDEFINED = ValueOrder(Domain.UNDEFINED)
_INTEGERS: dict[int, np.dtype[Any]] = {Type.INT32: np.dtype("<i4"), Type.INT64: np.dtype("<i8")}
_FLOATS: dict[int, np.dtype[Any]] = {Type.FLOAT: np.dtype("<f4"), Type.DOUBLE: np.dtype("<f8")}
_INT64, _UINT64, _UINT8 = np.dtype(np.int64), np.dtype(np.uint64), np.dtype(np.uint8)
_UNSIGNED = {
    ConvertedType.UINT_8,
    ConvertedType.UINT_16,
    ConvertedType.UINT_32,
    ConvertedType.UINT_64,
}
_CONVERTED_TICKS_PER_SECOND = {
    ConvertedType.TIME_MILLIS: (Domain.TIME, 1_000),
    ConvertedType.TIME_MICROS: (Domain.TIME, 1_000_000),
    ConvertedType.TIMESTAMP_MILLIS: (Domain.TIMESTAMP, 1_000),
    ConvertedType.TIMESTAMP_MICROS: (Domain.TIMESTAMP, 1_000_000),
}


def order_of(element: SchemaElement, declared: ColumnOrder | None = None) -> ValueOrder:
    """Returns the order of a leaf's values.

    The order is undefined if the annotation is unknown. INT96 has an order only if the file
    declares INT96_TIMESTAMP_ORDER in ``declared``.
    """
    if element.type == Type.INT96 and declared is not None:
        return _UNDEFINED if declared.INT96_TIMESTAMP_ORDER is None else INT96_ORDER
    physical = -1 if element.type is None else element.type
    stored = _INTEGERS.get(physical)
    if stored is not None:
        return _integer_order(element, stored)
    if physical in _FLOATS:
        dtype = _FLOATS[physical]
        return ValueOrder(Domain.FLOAT, dtype, dtype.newbyteorder("="), dtype.itemsize)
    if element.type == Type.BOOLEAN:
        return ValueOrder(Domain.BOOLEAN, _UINT8, _UINT8, 1)
    if element.type in (Type.BYTE_ARRAY, Type.FIXED_LEN_BYTE_ARRAY):
        return _bytes_order(element)
    return _UNDEFINED


def _integer_order(element: SchemaElement, stored: np.dtype[Any]) -> ValueOrder:
    logical, converted = element.logicalType, element.converted_type
    width = stored.itemsize
    if logical is not None:
        if logical.DECIMAL is not None:
            return ValueOrder(Domain.DECIMAL, stored, _INT64, width, scale=logical.DECIMAL.scale)
        if logical.DATE is not None:
            return ValueOrder(Domain.DATE, stored, _INT64, width)
        for domain, time_type in (
            (Domain.TIME, logical.TIME),
            (Domain.TIMESTAMP, logical.TIMESTAMP),
        ):
            if time_type is not None and time_type.unit.per_second:
                ticks = time_type.unit.per_second
                return ValueOrder(domain, stored, _INT64, width, ticks, time_type.isAdjustedToUTC)
        if logical.INTEGER is not None:
            return _plain_integer_order(stored, logical.INTEGER.isSigned)
        if logical.UNKNOWN is None:
            return _UNDEFINED
    if converted == ConvertedType.DECIMAL:
        return ValueOrder(Domain.DECIMAL, stored, _INT64, width, scale=element.scale or 0)
    if converted == ConvertedType.DATE:
        return ValueOrder(Domain.DATE, stored, _INT64, width)
    if converted in _CONVERTED_TICKS_PER_SECOND:
        domain, ticks = _CONVERTED_TICKS_PER_SECOND[ConvertedType(converted)]
        return ValueOrder(domain, stored, _INT64, width, ticks, utc=True)
    return _plain_integer_order(stored, converted not in _UNSIGNED)


def _plain_integer_order(stored: np.dtype[Any], is_signed: bool) -> ValueOrder:
    if is_signed:
        return ValueOrder(Domain.INTEGER, stored, _INT64, stored.itemsize)
    unsigned = np.dtype(f"<u{stored.itemsize}")
    return ValueOrder(Domain.INTEGER, unsigned, _UINT64, stored.itemsize)


def _bytes_order(element: SchemaElement) -> ValueOrder:
    logical, converted = element.logicalType, element.converted_type
    width = element.type_length if element.type == Type.FIXED_LEN_BYTE_ARRAY else None
    if logical is not None:
        if logical.DECIMAL is not None:
            return ValueOrder(Domain.DECIMAL, width=width, scale=logical.DECIMAL.scale)
        if logical.FLOAT16 is not None and width == 2:
            half = np.dtype("<f2")
            return ValueOrder(Domain.FLOAT, half, np.dtype(np.float16), 2)
        if not _is_bytewise(logical):
            return _UNDEFINED
    if converted == ConvertedType.DECIMAL:
        return ValueOrder(Domain.DECIMAL, width=width, scale=element.scale or 0)
    if converted == ConvertedType.INTERVAL:
        return _UNDEFINED
    return ValueOrder(Domain.BYTES, width=width)


def _is_bytewise(logical: LogicalType) -> bool:
    members = (logical.STRING, logical.ENUM, logical.JSON, logical.BSON, logical.UUID)
    return any(member is not None for member in members)
