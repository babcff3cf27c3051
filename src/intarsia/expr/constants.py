"""SQL's constants as scalars of the type they are compared with."""

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

EXACT, _EXACT_SINGLE = 2.0**53, 2.0**24
"""Up to here, doubles and floats of 32 bits tell all integers apart."""
_MOST = 2**63 - 1
"""Up to here, Arrow compares any integers."""
DECIMALS = {"s": 0, "ms": 3, "us": 6, "ns": 9}
"""Of a second, that a moment holds in each unit; from the coarsest on."""
UUID_BYTES = pa.binary(16)
"""What UUIDs are stored as, and compared."""
_UUID = re.compile("-".join(f"[0-9A-Fa-f]{{{digits}}}" for digits in (8, 4, 4, 4, 12)))
_BYTE = re.compile(rb"\\x([0-9A-Fa-f]{2})")


def cast_scalar(
    read: Callable[[pa.DataType], pa.Scalar], target: pa.DataType, kind: pa.DataType | None
) -> pa.Scalar:
    """A constant that is cast to ``target``, to compare with ``kind``; ``read`` gives it in a type.

    Beside a time zone, and one beside them, dates and plain timestamps are UTC. Raises
    ``PredicateError`` for what would have to be rounded, or has no room.
    """
    found = read(target)
    if is_uuid(target):
        if kind is not None and kind != UUID_BYTES and not is_uuid(kind):
            raise PredicateError(f"a UUID does not compare with {kind}")
        return found
    if kind is not None and has_zone(kind) and _is_plain_moment(target):
        return read(kind)
    if has_zone(found.type):
        return found.cast(pa.timestamp(found.type.unit)) if _is_plain_moment(kind) else found
    if pa.types.is_timestamp(target):  # as fine as it is written
        return found
    if pa.types.is_floating(found.type) and found.is_valid and math.isnan(found.as_py()):
        raise PredicateError("NaN is asked for by isnan")
    try:
        found = exactly(found, target)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise PredicateError(f"{found} is no {target} without being rounded") from error
    is_whole = pa.types.is_floating(target) and found.is_valid and _is_whole(found.as_py())
    if is_whole and kind is not None and pa.types.is_integer(kind):
        return _integer(int(found.as_py()), kind)
    return found


def exactly(value: pa.Scalar, kind: pa.DataType) -> pa.Scalar:
    """``value`` as ``kind``. Raises ``ArrowInvalid`` where that changes it."""
    found = value.cast(kind)
    if not found.cast(value.type).equals(value):
        raise pa.ArrowInvalid(f"{value!r} is no {kind}")
    return found


def _is_plain_moment(kind: pa.DataType | None) -> bool:
    if kind is None:
        return False
    return bool(pa.types.is_date(kind) or (pa.types.is_timestamp(kind) and not has_zone(kind)))


def text_scalar(text: str, kind: pa.DataType | None) -> pa.Scalar:
    """A text literal, read as ``kind``: '2013-06-01' beside a timestamp is a timestamp.

    Beside bytes, ``\\xFF`` is one of them, as in DuckDB; other characters are their UTF-8.
    """
    kind = None if kind is None else without_dictionary(kind)
    if kind is None or pa.types.is_string(kind):
        return pa.scalar(text)
    if is_uuid(kind) or (kind == UUID_BYTES and is_uuid_text(text)):
        return uuid_scalar(text)
    try:
        if pa.types.is_timestamp(kind):
            return _timestamp(text, kind)
        if pa.types.is_time(kind):  # which pyarrow reads in no text of its own
            return _timestamp(f"1970-01-01 {text}", pa.timestamp(kind.unit)).cast(kind)
        return pa.scalar(_bytes(text) if is_bytes(kind) else text).cast(kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise PredicateError(f"'{text}' cannot be read as {kind}{_hint(text, kind)}") from error


def _hint(text: str, kind: pa.DataType) -> str:
    """Says why a text literal is not bytes of type ``kind``; nothing of other types."""
    if not is_bytes(kind):
        return ""
    try:
        return f": it has {len(_bytes(text))} bytes"
    except pa.ArrowInvalid:
        return r": \ begins a byte, as in \xFF; itself it is \x5C"


def is_uuid_text(text: str) -> bool:
    """Is it a UUID, as these are written everywhere?"""
    return bool(_UUID.fullmatch(text))


def uuid_scalar(text: str) -> pa.Scalar:
    """Returns the 16 bytes of a UUID. Raises ``PredicateError`` if ``text`` is not one."""
    digits = text.strip("{}").replace("-", "")
    if not re.fullmatch("[0-9A-Fa-f]{32}", digits):
        raise PredicateError(f"'{text}' is no UUID")
    return pa.scalar(bytes.fromhex(digits), UUID_BYTES)


def is_bytes(kind: pa.DataType) -> bool:
    """Is it bytes, of any length or a fixed one, and no text?"""
    types = pa.types
    of_any_length = types.is_binary(kind) or types.is_large_binary(kind)
    others = types.is_binary_view(kind) or types.is_fixed_size_binary(kind)
    return bool(of_any_length or others)


def _bytes(text: str) -> bytes:
    """Raises ``ArrowInvalid`` for a backslash that begins no byte."""
    plain = text.encode()
    if b"\\" in _BYTE.sub(b"", plain):
        raise pa.ArrowInvalid(text)
    return _BYTE.sub(lambda found: bytes.fromhex(found[1].decode()), plain)


def _timestamp(text: str, kind: pa.TimestampType) -> pa.Scalar:
    """A moment in the unit of ``kind``, or in a finer one where its digits need that.

    Text without an offset means UTC beside a field with a time zone.
    """
    units = list(DECIMALS)
    for unit in units[units.index(kind.unit) :]:
        for zone in dict.fromkeys((kind.tz, None)):
            with contextlib.suppress(pa.ArrowInvalid):
                found = pa.scalar(text).cast(pa.timestamp(unit, zone))
                return _exact_or_same(found.cast(pa.timestamp(unit, kind.tz)), kind)
    raise pa.ArrowInvalid(text)


def _exact_or_same(found: pa.Scalar, kind: pa.DataType) -> pa.Scalar:
    try:
        return found.cast(kind)
    except pa.ArrowInvalid:
        return found


def number_scalar(text: str, kind: pa.DataType | None) -> pa.Scalar:
    """A numeric literal: a decimal beside decimals, else an integer where written so, else a
    double; beside floats, of their type, as far as it has no exponent, which makes it a double.
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
        most = EXACT if "e" in text.lower() else _MOST  # one is a double, the other a decimal
        if kind is not None and pa.types.is_integer(kind) and abs(exact) < most:
            whole = exact.to_integral_value()
            return _integer(int(whole), kind) if whole == exact else pa.scalar(exact)
        if kind is None or not pa.types.is_floating(kind) or "e" in text.lower():
            return wide
        found = pa.scalar(float(text), kind)
        return wide if math.isinf(found.as_py()) else found  # it is larger than all of them
    except (ValueError, OverflowError, pa.ArrowInvalid, decimal.InvalidOperation) as error:
        raise PredicateError(f"the number {text} is out of range") from error


def fraction(text: str) -> pa.Scalar | None:
    """A numeric literal as the decimal that it is in arithmetic; None where it has no fraction, an
    exponent, or more digits than decimals have, and for what is no number.
    """
    if "." not in text or "e" in text.lower():
        return None
    try:
        return pa.scalar(decimal.Decimal(text))
    except (pa.ArrowInvalid, decimal.InvalidOperation):
        return None


def _is_rounded(value: int, kind: pa.DataType | None) -> bool:
    """Is an integer beyond those that floats of type ``kind`` tell apart?"""
    if kind is None or not pa.types.is_floating(kind):
        return False
    return abs(value) > (EXACT if kind.bit_width == 64 else _EXACT_SINGLE)


def _is_whole(value: float) -> bool:
    """Is it an integer of those that no other integer is rounded to?"""
    return abs(value) < EXACT and value.is_integer()


def whole_above(value: pa.Scalar, kind: pa.DataType | None) -> pa.Scalar | None:
    """The least integer of type ``kind`` above a number that is none of its integers: those that
    are not less than it are greater than the number.

    None for any other constant, or kind.
    """
    if kind is None or not pa.types.is_integer(kind) or not value.is_valid:
        return None
    types = pa.types
    is_fraction = types.is_floating(value.type) or types.is_decimal(value.type)
    is_number, number = is_fraction or types.is_integer(value.type), value.as_py()
    if types.is_unsigned_integer(kind) and is_number and number < 0:
        return _integer(0, kind)
    most = EXACT if types.is_floating(value.type) else _MOST
    if not is_fraction or not abs(number) < most or number == int(number):
        return None
    return _integer(math.ceil(number), kind)


def _integer(value: int, kind: pa.DataType | None) -> pa.Scalar:
    """An integer literal, in its field's type where that is what it takes to compare exactly."""
    if kind is not None and pa.types.is_unsigned_integer(kind) and 0 <= value < 2**kind.bit_width:
        return pa.scalar(value, kind)
    return pa.scalar(value)
