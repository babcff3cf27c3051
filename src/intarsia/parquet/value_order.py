"""Orders of column values, by physical and logical type.

An order turns encoded bounds into *keys*, which compare as the column's values do. It turns a
filter's literal into the two keys that bracket it. All comparisons of a file's values use keys::

    ==============================  ==========================================  ================
    physical and logical type       keys                                        compared as
    ==============================  ==========================================  ================
    BOOLEAN                         uint8                                       false < true
    INT32/64, signed or plain       int64                                       signed
    INT32/64, UINT_*                uint64                                      unsigned
    DATE, TIME, TIMESTAMP           int64, in the column's unit                 signed
    INT64, a duration in Arrow      int64, in the column's unit                 signed
    DECIMAL, any physical type      unscaled value: int64, or Python integers   signed
    FLOAT, DOUBLE, FLOAT16          float32, float64, float16                   NaN has no key
    BYTE_ARRAY and FIXED, strings   bytes                                       unsigned, bytewise
    INT96, if order is declared     int64, nanoseconds since 1970               signed
    INT96, INTERVAL, VARIANT, GEO*  none                                        undefined
    ==============================  ==========================================  ================

Source: ``ColumnOrder`` in ``parquet.thrift`` and ``LogicalTypes.md``.
"""

from __future__ import annotations

import decimal
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

Keys = NDArray[Any]
Key = Any
"""One key: an int, a float or bytes, by the table above."""


class Domain(Enum):
    """The meaning of a column's values, as far as comparison with a literal is concerned."""

    BOOLEAN = auto()
    INTEGER = auto()
    DATE = auto()
    TIME = auto()
    TIMESTAMP = auto()
    DURATION = auto()
    DECIMAL = auto()
    FLOAT = auto()
    BYTES = auto()
    UNDEFINED = auto()


@dataclass(frozen=True, slots=True)
class ValueOrder:
    """The order of one column's values."""

    domain: Domain
    stored: np.dtype[Any] | None = None
    """The dtype of an encoded bound. None for byte strings and big-endian decimals."""
    key: np.dtype[Any] = np.dtype(object)  # noqa: RUF009 # a dtype is immutable
    """The dtype of keys."""
    width: int | None = None
    """Bytes per value, if all values have the same width."""
    per_second: int = 0
    """Ticks per second, for times, timestamps and durations."""
    utc: bool = False
    """True if times or timestamps are adjusted to UTC."""
    scale: int = 0
    """Digits after the decimal point, for decimals."""

    @property
    def is_defined(self) -> bool:
        return self.domain is not Domain.UNDEFINED

    @property
    def has_nan(self) -> bool:
        return self.domain is Domain.FLOAT

    def keys(self, values: Sequence[bytes | None]) -> tuple[Keys, NDArray[np.bool_]]:
        """Returns the keys of ``n`` encoded values, and which of them are usable.

        Both arrays have shape ``(n,)``. A missing value, a value of the wrong width, and NaN are
        not usable.
        """
        if self.stored is not None:
            return self._fixed_width_keys(values)
        if self is INT96_ORDER:
            return self._int96_keys(values)
        big_endian = self.domain is Domain.DECIMAL
        min_bytes = 1 if big_endian else 0
        usable = np.array(
            [
                v is not None and len(v) >= min_bytes and self.width in (None, len(v))
                for v in values
            ],
            dtype=np.bool_,
        )
        keys = np.empty(len(values), dtype=object)
        for i, value in enumerate(values):
            encoded = (value or b"") if usable[i] else b""
            keys[i] = int.from_bytes(encoded, "big", signed=True) if big_endian else encoded
        return keys, usable

    def _fixed_width_keys(self, values: Sequence[bytes | None]) -> tuple[Keys, NDArray[np.bool_]]:
        assert self.stored is not None
        width = self.stored.itemsize
        present = [value for value in values if value is not None]
        if len(present) == len(values) and {*map(len, present)} == {width}:
            keys = np.frombuffer(b"".join(present), dtype=self.stored).astype(self.key)
            return keys, keys == keys if self.has_nan else np.ones(len(keys), dtype=np.bool_)
        usable = np.array([v is not None and len(v) == width for v in values], dtype=np.bool_)
        blank = bytes(width)
        raw = b"".join(
            (v or blank) if is_usable else blank
            for v, is_usable in zip(values, usable, strict=True)
        )
        keys = np.frombuffer(raw, dtype=self.stored).astype(self.key)
        if self.has_nan:
            usable &= keys == keys  # only NaN differs from itself
        return keys, usable

    def _int96_keys(self, values: Sequence[bytes | None]) -> tuple[Keys, NDArray[np.bool_]]:
        """Returns keys in nanoseconds. Moments outside int64, which pyarrow wraps, are unusable."""
        keys = np.zeros(len(values), dtype=np.int64)
        usable = np.zeros(len(values), dtype=np.bool_)
        for i, value in enumerate(values):
            if value is None or len(value) != self.width:
                continue
            nanoseconds, day = struct.unpack("<qI", value)
            moment = (day - _JULIAN_1970) * _DAY_SECONDS * self.per_second + nanoseconds
            if -(2**63) <= moment < 2**63:
                keys[i], usable[i] = moment, True
        return keys, usable

    def keys_of_arrow(self, values: pa.Array) -> tuple[Keys, NDArray[np.bool_]]:
        """Returns the keys of ``n`` values of a column's type, and which are not NULL or NaN.

        Both arrays have shape ``(n,)``.
        """
        usable = _to_numpy(values.is_valid())
        if self.domain is Domain.BYTES:
            return _key_array(
                [v or b"" for v in values.cast(pa.large_binary()).to_pylist()]
            ), usable
        if self.domain is Domain.DECIMAL:
            with decimal.localcontext(prec=200):
                plain = [
                    int((v or decimal.Decimal()).scaleb(self.scale)) for v in values.to_pylist()
                ]
            return np.array(plain, dtype=self.key), usable
        if self.domain is Domain.FLOAT:
            keys = _to_numpy(values.fill_null(float("nan"))).astype(self.key)
            return keys, keys == keys
        if pa.types.is_date32(values.type) or pa.types.is_time32(values.type):
            values = values.cast(pa.int32())
        whole = values.cast(pa.int64()) if not pa.types.is_uint64(values.type) else values
        return _to_numpy(whole.fill_null(0)).astype(self.key), usable

    def of_arrow(self, kind: pa.DataType | None) -> ValueOrder:
        """Returns this order for a column whose Arrow type is ``kind``.

        Parquet has no durations: they are plain INT64, and only the Arrow schema states their unit.
        """
        if self.domain is Domain.INTEGER and kind is not None and pa.types.is_duration(kind):
            return replace(self, domain=Domain.DURATION, per_second=_TICKS_PER_SECOND[kind.unit])
        return self

    def bracket(self, literal: pa.Scalar) -> tuple[Key, Key] | None:
        """Returns the nearest keys with ``low <= literal <= high``.

        They are equal if the literal has a key. Returns None for NULL and NaN, and if the literal's
        type does not compare exactly with this column's. Bounds then allow no conclusion.
        """
        value = _plain_value(literal)
        if value is None:
            return None
        return _BRACKETS[self.domain](self, value)

    def brackets(self, literals: pa.Array) -> tuple[Keys, Keys] | None:
        """Returns ``bracket`` of ``n`` literals of one type: low and high keys of shape ``(n,)``.

        Returns None if one literal has no bracket. Keys outside the column's own type are Python
        objects.
        """
        exact = self._exact_keys(literals)
        if exact is not None:
            return exact, exact
        key_pairs = [self.bracket(literal) for literal in literals]
        if None in key_pairs:
            return None
        return _key_array([pair[0] for pair in key_pairs if pair]), _key_array(
            [pair[1] for pair in key_pairs if pair]
        )

    def _exact_keys(self, literals: pa.Array) -> Keys | None:
        """Returns the keys of literals that need no rounding. Returns None if any might need it."""
        kind = literals.type
        if literals.null_count:
            return None
        if self.domain is Domain.INTEGER and pa.types.is_integer(kind):
            try:
                return _to_numpy(literals.cast(pa.from_numpy_dtype(self.key)))
            except pa.ArrowInvalid:
                return None  # beyond the column's type
        if self.domain is Domain.BYTES and _is_text_or_bytes(kind):
            return _key_array(literals.cast(pa.large_binary()).to_pylist())
        if self.domain is Domain.FLOAT and pa.types.is_floating(kind):
            keys = _to_numpy(literals)
            return keys if keys.dtype == self.key and not np.isnan(keys).any() else None
        is_moment = self.domain is Domain.TIMESTAMP and pa.types.is_timestamp(kind)
        if is_moment and (kind.tz is not None) == self.utc:
            per_literal = _TICKS_PER_SECOND[kind.unit]
            if per_literal == self.per_second:
                return _to_numpy(literals.cast(pa.int64()))
        return None

    def plain(self, key: Key) -> bytes:
        """Returns the PLAIN encoding of one key, as fingerprints and bloom filters hash it.

        Raises ``OverflowError`` if the key does not fit the column's physical type.

        Source: section "Plain (PLAIN = 0)" of ``Encodings.md``.
        """
        if self.stored is not None:
            return np.array([key], dtype=self.stored).tobytes()
        if self.domain is Domain.DECIMAL:
            width = self.width or max(1, (int(key).bit_length() + 8) // 8)
            return int(key).to_bytes(width, "big", signed=True)
        return bytes(key)


INT96_ORDER = ValueOrder(Domain.TIMESTAMP, key=np.dtype(np.int64), width=12, per_second=10**9)
"""Order of INT96 if the file declares INT96_TIMESTAMP_ORDER.

A value is 8 bytes of nanoseconds in the day, then 4 bytes of Julian day. Keys are nanoseconds
since 1970. Compare it by identity.
"""
_JULIAN_1970 = 2_440_588
"""The Julian day of 1970-01-01."""


# --- literals -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Moment:
    """A timestamp, date, time of day or duration, in ``ticks`` of 1/``per_second`` s."""

    ticks: int
    per_second: int
    kind: Domain
    utc: bool = False


_TICKS_PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
_DATE_DOMAINS = {Domain.DATE, Domain.TIMESTAMP}
"""Domains that compare with one another."""
_DAY_SECONDS = 86_400
_DAY_MILLISECONDS = 86_400_000


def _plain_value(literal: pa.Scalar) -> Any:
    """Returns a Python value with the literal's exact meaning, or None."""
    if not literal.is_valid:
        return None
    kind = literal.type
    if pa.types.is_dictionary(kind):
        return _plain_value(literal.value)
    if isinstance(literal, pa.ExtensionScalar):
        return _plain_value(literal.value)
    if pa.types.is_timestamp(kind):
        ticks = _TICKS_PER_SECOND[kind.unit]
        return _Moment(literal.value, ticks, Domain.TIMESTAMP, kind.tz is not None)
    if pa.types.is_time(kind):
        return _Moment(literal.value, _TICKS_PER_SECOND[kind.unit], Domain.TIME)
    if pa.types.is_duration(kind):
        return _Moment(literal.value, _TICKS_PER_SECOND[kind.unit], Domain.DURATION)
    if pa.types.is_date(kind):
        days = literal.value if pa.types.is_date32(kind) else literal.value // _DAY_MILLISECONDS
        return _Moment(days * _DAY_SECONDS, 1, Domain.DATE)
    if pa.types.is_float16(kind):
        return float(literal.as_py())
    if _is_python_exact(kind):
        return literal.as_py()
    return None


def _key_array(keys: Sequence[Key]) -> Keys:
    """Returns keys as Python objects, because a literal may lie outside the column's own type."""
    array = np.empty(len(keys), dtype=object)
    array[:] = [key.item() if isinstance(key, np.generic) else key for key in keys]
    return array


def _to_numpy(values: pa.Array) -> Keys:
    return np.asarray(values.to_numpy(zero_copy_only=False))


def _is_text_or_bytes(kind: pa.DataType) -> bool:
    checks = (
        pa.types.is_string,
        pa.types.is_large_string,
        pa.types.is_binary,
        pa.types.is_large_binary,
        pa.types.is_fixed_size_binary,
    )
    return any(check(kind) for check in checks)


def _is_python_exact(kind: pa.DataType) -> bool:
    checks = (
        pa.types.is_boolean,
        pa.types.is_integer,
        pa.types.is_floating,
        pa.types.is_decimal,
        pa.types.is_string,
        pa.types.is_large_string,
        pa.types.is_string_view,
        pa.types.is_binary,
        pa.types.is_large_binary,
        pa.types.is_binary_view,
        pa.types.is_fixed_size_binary,
    )
    return any(check(kind) for check in checks)


def _bracket_boolean(order: ValueOrder, value: Any) -> tuple[Key, Key] | None:
    return (int(value), int(value)) if isinstance(value, bool) else None


def _bracket_integer(order: ValueOrder, value: Any) -> tuple[Key, Key] | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value, value
    if isinstance(value, decimal.Decimal):
        return _floor_and_ceiling(value)
    if isinstance(value, float) and abs(value) < 2**53:
        # The comparison is evaluated in doubles, which is exact within this bound.
        return _floor_and_ceiling(decimal.Decimal(value))
    return None


def _bracket_moment(order: ValueOrder, value: Any) -> tuple[Key, Key] | None:
    if not isinstance(value, _Moment):
        return None
    if not _DATE_DOMAINS.issuperset((order.domain, value.kind)):
        if order.domain is not value.kind:
            return None
    elif (order.domain is Domain.TIMESTAMP and value.utc != order.utc) or (
        order.domain is Domain.DATE and value.utc
    ):
        return None
    per_day = order.domain is Domain.DATE
    numerator = value.ticks * (1 if per_day else order.per_second)
    denominator = value.per_second * (_DAY_SECONDS if per_day else 1)
    return numerator // denominator, -(-numerator // denominator)


def _bracket_decimal(order: ValueOrder, value: Any) -> tuple[Key, Key] | None:
    if isinstance(value, bool) or not isinstance(value, int | decimal.Decimal):
        return None
    with decimal.localcontext(prec=200):
        return _floor_and_ceiling(decimal.Decimal(value).scaleb(order.scale))


def _bracket_float(order: ValueOrder, value: Any) -> tuple[Key, Key] | None:
    kind = order.key.type
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if isinstance(value, int) and abs(value) > 2**24:
        return None
    with np.errstate(over="ignore"):
        nearest = kind(value)
        if np.isnan(nearest):
            return None
        if float(nearest) == value:
            return nearest, nearest
        return np.nextafter(nearest, kind(-np.inf)), np.nextafter(nearest, kind(np.inf))


def _bracket_bytes(order: ValueOrder, value: Any) -> tuple[Key, Key] | None:
    if isinstance(value, str):
        value = value.encode()
    return (value, value) if isinstance(value, bytes) else None


def _floor_and_ceiling(value: decimal.Decimal) -> tuple[int, int]:
    low = int(value.to_integral_value(decimal.ROUND_FLOOR))
    high = int(value.to_integral_value(decimal.ROUND_CEILING))
    return low, high


_BRACKETS: dict[Domain, Callable[[ValueOrder, Any], tuple[Key, Key] | None]] = {
    Domain.BOOLEAN: _bracket_boolean,
    Domain.INTEGER: _bracket_integer,
    Domain.DATE: _bracket_moment,
    Domain.TIME: _bracket_moment,
    Domain.TIMESTAMP: _bracket_moment,
    Domain.DURATION: _bracket_moment,
    Domain.DECIMAL: _bracket_decimal,
    Domain.FLOAT: _bracket_float,
    Domain.BYTES: _bracket_bytes,
    Domain.UNDEFINED: lambda order, value: None,
}
