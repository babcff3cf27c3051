"""Formats encoded values, strings and enum numbers for people.

Source of the types: ``LogicalTypes.md`` in the Parquet specification.
"""

from __future__ import annotations

import datetime
import decimal
import uuid
from enum import IntEnum
from typing import Any

from intarsia.parquet.column_order import order_of
from intarsia.parquet.metadata import SchemaElement
from intarsia.parquet.page_statistics import is_text
from intarsia.parquet.value_order import Domain, ValueOrder
from intarsia.redaction import redacted

_UUID_BYTES = 16
_EPOCH = datetime.datetime(1970, 1, 1)


def clean(text: str) -> str:
    """Returns ``text`` for display: escaped, and without credentials in URIs."""
    return escaped(redacted(text))


def escaped(text: str) -> str:
    """Returns ``text`` with escapes for invisible characters, line breaks and terminal controls."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def plural(count: int, noun: str) -> str:
    """Returns a count with its noun: ``1 file``, ``2 files``."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def readable(element: SchemaElement, value: bytes | None) -> Any:
    """Returns an encoded bound as bool, int, float, ``Decimal``, date or string.

    Times and timestamps are ISO 8601 strings with all digits, UUIDs are strings. Bytes that are not
    UTF-8 strings, and values of types without an order, are ``0x`` and hexadecimal digits. A time
    or date beyond Python's range is its stored integer.
    """
    if value is None:
        return None
    order = order_of(element)
    if not order.is_defined:
        return _hex(value)
    if order.domain is Domain.BYTES:
        return _format_bytes(element, value)
    keys, usable = order.keys([value])
    key = keys[0]
    if not usable[0] and not (order.has_nan and len(value) == order.width):
        return _hex(value)
    match order.domain:
        case Domain.BOOLEAN:
            return bool(key)
        case Domain.FLOAT:
            return float(key)
        case Domain.DECIMAL:
            digits = tuple(map(int, str(abs(int(key)))))
            return decimal.Decimal((int(key < 0), digits, -order.scale))
        case Domain.INTEGER:
            return int(key)
        case _:
            return _format_moment(order, int(key))


def _format_moment(order: ValueOrder, key: int) -> Any:
    try:
        if order.domain is Domain.DATE:
            return _EPOCH.date() + datetime.timedelta(days=key)
        seconds, ticks = divmod(key, order.per_second)
        moment = _EPOCH + datetime.timedelta(seconds=seconds)
        if order.domain is Domain.TIME and moment.date() != _EPOCH.date():
            return key
    except OverflowError:
        return key
    digits = len(str(order.per_second)) - 1
    fraction = f".{ticks:0{digits}d}" if ticks else ""
    if order.domain is Domain.TIME:
        return f"{moment:%H:%M:%S}{fraction}"
    return f"{moment.isoformat()}{fraction}{'Z' if order.utc else ''}"


def _format_bytes(element: SchemaElement, value: bytes) -> str:
    if is_text(element):
        return _decode_text(value)
    logical = element.logicalType
    is_uuid = logical is not None and logical.UUID is not None and len(value) == _UUID_BYTES
    return str(uuid.UUID(bytes=value)) if is_uuid else _hex(value)


def _decode_text(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return _hex(value)


def _hex(value: bytes) -> str:
    return "0x" + value.hex()


def name_of(enum: Any, value: int | None) -> str:
    """Returns the name of an enum's value, or its number if it is unknown."""
    try:
        return str(enum(value).name)
    except ValueError:
        return str(value)


def numbered(enum: type[IntEnum], value: int) -> str:
    """Returns the number of an enum's value, and its name if it is known: ``3 (LZO)``."""
    name = name_of(enum, value)
    return name if name == str(value) else f"{value} ({name})"
