"""Encoded values, texts, and the numbers of enums, as a person can read them."""

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
    """``text`` as a person is shown it: escaped, and without the credentials of URIs."""
    return escaped(redacted(text))


def escaped(text: str) -> str:
    """``text`` with escapes in place of what would not show, break lines, or steer a terminal."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def plural(count: int, noun: str) -> str:
    """``1 file``, ``2 files``."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def readable(element: SchemaElement, value: bytes | None) -> Any:
    """An encoded bound as bool, int, float, ``Decimal``, date, time, timestamp or text.

    UUIDs come as text. Timestamps come as ISO 8601 text, all their digits kept. Bytes that are no
    text, and values of types without an order, come as ``0x`` and hexadecimal digits.
    """
    if value is None:
        return None
    order = order_of(element)
    if not order.is_defined:
        return _hex(value)
    if order.domain is Domain.BYTES:
        return _of_bytes(element, value)
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
            return _moment(order, int(key))


def _moment(order: ValueOrder, key: int) -> Any:
    try:
        if order.domain is Domain.DATE:
            return _EPOCH.date() + datetime.timedelta(days=key)
        seconds, ticks = divmod(key, order.per_second)
        whole = _EPOCH + datetime.timedelta(seconds=seconds)
        if order.domain is Domain.TIME and whole.date() != _EPOCH.date():
            return key
    except OverflowError:
        return key
    digits = len(str(order.per_second)) - 1
    fraction = f".{ticks:0{digits}d}" if ticks else ""
    if order.domain is Domain.TIME:
        return f"{whole:%H:%M:%S}{fraction}"
    return f"{whole.isoformat()}{fraction}{'Z' if order.utc else ''}"


def _of_bytes(element: SchemaElement, value: bytes) -> str:
    if is_text(element):
        return _text(value)
    logical = element.logicalType
    is_uuid = logical is not None and logical.UUID is not None and len(value) == _UUID_BYTES
    return str(uuid.UUID(bytes=value)) if is_uuid else _hex(value)


def _text(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return _hex(value)


def _hex(value: bytes) -> str:
    return "0x" + value.hex()


def name_of(names: Any, value: int | None) -> str:
    """The name of a value of one of the specification's enums; its number, where unknown."""
    try:
        return str(names(value).name)
    except ValueError:
        return str(value)


def numbered(names: type[IntEnum], value: int) -> str:
    """The number of such a value, and its name, where it has one: ``3 (LZO)``."""
    name = name_of(names, value)
    return name if name == str(value) else f"{value} ({name})"
