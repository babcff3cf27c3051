"""SQL constants as scalars of the type they are compared with."""

from __future__ import annotations

import contextlib
import decimal
import math
import re
from collections.abc import Callable

import pyarrow as pa

from intarsia.errors import PredicateError
from intarsia.expr.casts import has_zone, is_uuid
from intarsia.expr.nested_types import without_dictionary

EXACT, _EXACT_FLOAT32 = 2.0**53, 2.0**24
"""Below this, doubles (``EXACT``) and 32-bit floats tell all integers apart."""
_MAX_INT64 = 2**63 - 1
"""Arrow compares integers and decimals of up to this size exactly."""
DECIMALS = {"s": 0, "ms": 3, "us": 6, "ns": 9}
"""The digits after a second's decimal point in each unit, from the coarsest to the finest."""
UUID_BYTES = pa.binary(16)
"""The type in which UUIDs are stored and compared."""
_UUID = re.compile("-".join(f"[0-9A-Fa-f]{{{digits}}}" for digits in (8, 4, 4, 4, 12)))
_BYTE_ESCAPE = re.compile(rb"\\x([0-9A-Fa-f]{2})")


def cast_scalar(
    read: Callable[[pa.DataType], pa.Scalar], target: pa.DataType, kind: pa.DataType | None
) -> pa.Scalar:
    """Returns a constant that SQL casts to ``target``, to be compared with values of type ``kind``.

    ``read`` returns the constant in a given type. Dates and timestamps without a time zone count as
    UTC if they are compared with timestamps that have one. Raises ``PredicateError`` if the cast
    would round the constant or the type cannot hold it.
    """
    scalar = read(target)
    if is_uuid(target):
        if kind is not None and kind != UUID_BYTES and not is_uuid(kind):
            raise PredicateError(f"a UUID does not compare with {kind}")
        return scalar
    if kind is not None and has_zone(kind) and _is_plain_moment(target):
        return read(kind)
    if has_zone(scalar.type):
        return scalar.cast(pa.timestamp(scalar.type.unit)) if _is_plain_moment(kind) else scalar
    if pa.types.is_timestamp(target):  # as fine as it is written
        return scalar
    if pa.types.is_floating(scalar.type) and scalar.is_valid and math.isnan(scalar.as_py()):
        raise PredicateError("a comparison with NaN is not supported; use isnan")
    try:
        scalar = exactly(scalar, target)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise PredicateError(f"{scalar} cannot be cast to {target} exactly") from error
    is_whole = pa.types.is_floating(target) and scalar.is_valid and _is_whole(scalar.as_py())
    if is_whole and kind is not None and pa.types.is_integer(kind):
        return _integer(int(scalar.as_py()), kind)
    return scalar


def exactly(value: pa.Scalar, kind: pa.DataType) -> pa.Scalar:
    """Returns ``value`` as ``kind``. Raises ``ArrowInvalid`` if the cast changes the value."""
    cast_value = value.cast(kind)
    if not cast_value.cast(value.type).equals(value):
        raise pa.ArrowInvalid(f"{value!r} is no {kind}")
    return cast_value


def _is_plain_moment(kind: pa.DataType | None) -> bool:
    if kind is None:
        return False
    return bool(pa.types.is_date(kind) or (pa.types.is_timestamp(kind) and not has_zone(kind)))


def text_scalar(text: str, kind: pa.DataType | None) -> pa.Scalar:
    r"""Returns a string literal as a scalar that compares with type ``kind``.

    Compared with a timestamp, '2013-06-01' is a timestamp. Compared with bytes, ``\xFF`` is one
    byte, as in DuckDB; other characters are encoded in UTF-8. Raises ``PredicateError`` if the
    literal cannot be read as ``kind``.
    """
    kind = None if kind is None else without_dictionary(kind)
    if kind is None or pa.types.is_string(kind):
        return pa.scalar(text)
    if is_uuid(kind) or (kind == UUID_BYTES and is_uuid_text(text)):
        return uuid_scalar(text)
    try:
        if pa.types.is_timestamp(kind):
            return _timestamp(text, kind)
        if pa.types.is_time(kind):  # pyarrow casts no string to a time
            return _timestamp(f"1970-01-01 {text}", pa.timestamp(kind.unit)).cast(kind)
        return pa.scalar(_bytes(text) if is_bytes(kind) else text).cast(kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise PredicateError(f"'{text}' cannot be read as {kind}{_hint(text, kind)}") from error


def _hint(text: str, kind: pa.DataType) -> str:
    """Returns why a string literal is not bytes of type ``kind``, or "" for other types."""
    if not is_bytes(kind):
        return ""
    try:
        return f": it has {len(_bytes(text))} bytes"
    except pa.ArrowInvalid:
        return r": a backslash begins a byte, as in \xFF; write a backslash as \x5C"


def is_uuid_text(text: str) -> bool:
    """True if ``text`` is a UUID in the usual form of 32 hexadecimal digits and 4 hyphens."""
    return bool(_UUID.fullmatch(text))


def uuid_scalar(text: str) -> pa.Scalar:
    """Returns the 16 bytes of a UUID. Raises ``PredicateError`` if ``text`` is not one."""
    digits = text.strip("{}").replace("-", "")
    if not re.fullmatch("[0-9A-Fa-f]{32}", digits):
        raise PredicateError(f"'{text}' is no UUID")
    return pa.scalar(bytes.fromhex(digits), UUID_BYTES)


def is_bytes(kind: pa.DataType) -> bool:
    """True if ``kind`` is a type of bytes, of any or of fixed length."""
    types = pa.types
    has_offsets = types.is_binary(kind) or types.is_large_binary(kind)
    is_view_or_fixed = types.is_binary_view(kind) or types.is_fixed_size_binary(kind)
    return bool(has_offsets or is_view_or_fixed)


def _bytes(text: str) -> bytes:
    """Returns the bytes of a literal. Raises ``ArrowInvalid`` if a backslash begins no byte."""
    plain = text.encode()
    if b"\\" in _BYTE_ESCAPE.sub(b"", plain):
        raise pa.ArrowInvalid(text)
    return _BYTE_ESCAPE.sub(lambda match: bytes.fromhex(match[1].decode()), plain)


def _timestamp(text: str, kind: pa.TimestampType) -> pa.Scalar:
    """Returns a timestamp in the unit of ``kind``, or in a finer one if its digits need that.

    Text without an offset means UTC if ``kind`` has a time zone. Raises ``ArrowInvalid`` for other
    text.
    """
    units = list(DECIMALS)
    for unit in units[units.index(kind.unit) :]:
        for zone in dict.fromkeys((kind.tz, None)):
            with contextlib.suppress(pa.ArrowInvalid):
                parsed = pa.scalar(text).cast(pa.timestamp(unit, zone))
                return _exact_or_same(parsed.cast(pa.timestamp(unit, kind.tz)), kind)
    raise pa.ArrowInvalid(text)


def _exact_or_same(value: pa.Scalar, kind: pa.DataType) -> pa.Scalar:
    try:
        return value.cast(kind)
    except pa.ArrowInvalid:
        return value


def number_scalar(text: str, kind: pa.DataType | None) -> pa.Scalar:
    """Returns a numeric literal as a scalar for comparison with ``kind``.

    Compared with decimals it is a decimal. Otherwise a literal written as an integer is an integer,
    and any other literal is a double. Compared with floats, it has their type unless it has an
    exponent, which makes it a double. Raises ``PredicateError`` if ``kind`` is no number or the
    literal is out of range.
    """
    if kind is not None and not (
        pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    ):
        raise PredicateError(f"the number {text} does not compare with {kind}")
    try:
        if kind is not None and pa.types.is_decimal(kind):
            return pa.scalar(decimal.Decimal(text))
        if text.lstrip("-").isdigit() and not _is_rounded(int(text), kind):
            return _integer(int(text), kind)
        wide, exact = pa.scalar(float(text)), decimal.Decimal(text)
        limit = (
            EXACT if "e" in text.lower() else _MAX_INT64
        )  # an exponent makes it a double, else it is a decimal
        if kind is not None and pa.types.is_integer(kind) and abs(exact) < limit:
            whole = exact.to_integral_value()
            return _integer(int(whole), kind) if whole == exact else pa.scalar(exact)
        if kind is None or not pa.types.is_floating(kind) or "e" in text.lower():
            return wide
        narrow = pa.scalar(float(text), kind)
        return wide if math.isinf(narrow.as_py()) else narrow  # beyond the range of ``kind``
    except (ValueError, OverflowError, pa.ArrowInvalid, decimal.InvalidOperation) as error:
        raise PredicateError(f"the number {text} is out of range") from error


def fraction(text: str) -> pa.Scalar | None:
    """Returns a numeric literal with a decimal point as the decimal that arithmetic uses.

    Returns None if the text has no point or an exponent, has more digits than a decimal, or is no
    number.
    """
    if "." not in text or "e" in text.lower():
        return None
    try:
        return pa.scalar(decimal.Decimal(text))
    except (pa.ArrowInvalid, decimal.InvalidOperation):
        return None


def _is_rounded(value: int, kind: pa.DataType | None) -> bool:
    """True if ``value`` is beyond the integers that floats of type ``kind`` tell apart."""
    if kind is None or not pa.types.is_floating(kind):
        return False
    return abs(value) > (EXACT if kind.bit_width == 64 else _EXACT_FLOAT32)


def _is_whole(value: float) -> bool:
    """True if ``value`` is an integer, and no other integer is rounded to it."""
    return abs(value) < EXACT and value.is_integer()


def next_integer(value: pa.Scalar, kind: pa.DataType | None) -> pa.Scalar | None:
    """Returns the least integer of type ``kind`` above ``value``, a number between its integers.

    An integer is greater than ``value`` exactly if it is not less than the result. Returns None for
    other values and types.
    """
    if kind is None or not pa.types.is_integer(kind) or not value.is_valid:
        return None
    types = pa.types
    is_fraction = types.is_floating(value.type) or types.is_decimal(value.type)
    is_number, number = is_fraction or types.is_integer(value.type), value.as_py()
    if types.is_unsigned_integer(kind) and is_number and number < 0:
        return _integer(0, kind)
    limit = EXACT if types.is_floating(value.type) else _MAX_INT64
    if not is_fraction or not abs(number) < limit or number == int(number):
        return None
    return _integer(math.ceil(number), kind)


def _integer(value: int, kind: pa.DataType | None) -> pa.Scalar:
    """Returns an integer literal, in its field's type if an exact comparison needs that."""
    if kind is not None and pa.types.is_unsigned_integer(kind) and 0 <= value < 2**kind.bit_width:
        return pa.scalar(value, kind)
    return pa.scalar(value)
