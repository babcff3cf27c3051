"""Computes SQL constants: arithmetic on numbers, dates, timestamps and intervals, and casts.

Every function gives what DuckDB gives in a session whose time zone is UTC, or raises.
``UnknownValueError`` means that only an engine knows the value. ``ArithmeticError`` and
``ValueError`` mean that the value is beyond Python's limits. Integers stay within their type, other
numbers have up to 15 digits. Timestamps have microseconds and lie in the years 1 to 9999.
"""

from __future__ import annotations

import calendar
import functools
import math
import operator
import re
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, NamedTuple, TypeGuard, TypeVar

import pyarrow as pa
from sqlglot import exp

from intarsia.expr.constants import text_scalar

_MAX_DIGITS = 15
"""Every binary and decimal type of the engines holds this many decimal digits."""
_DECIMAL_LITERAL = re.compile(r"\d+\.\d*|\.\d+", re.ASCII)
_COUNTED_UNIT = re.compile(r"([+-]?\d+)\s*([a-z]+)\s*", re.IGNORECASE | re.ASCII)
_CLOCK = re.compile(r"([+-]?)(\d+):([0-5]?\d):([0-5]?\d)(?:\.(\d{1,6}))?$", re.ASCII)
_DOUBLE_LITERAL = re.compile(r"(\d+\.?\d*|\.\d+)e[+-]?\d+", re.IGNORECASE | re.ASCII)
_EPOCH = datetime(1970, 1, 1)
_DAYS_PER_WEEK = 7
_BITS_OF_INTEGER = {exp.DataType.Type.INT: 32, exp.DataType.Type.BIGINT: 64}
_RANGE_OF_INTEGER: Mapping[object, range] = {
    exp.DataType.Type.TINYINT: range(-(2**7), 2**7),
    exp.DataType.Type.SMALLINT: range(-(2**15), 2**15),
    exp.DataType.Type.UTINYINT: range(2**8),
    exp.DataType.Type.USMALLINT: range(2**16),
    exp.DataType.Type.UINT: range(2**32),
    exp.DataType.Type.UBIGINT: range(2**64),
}
_STRING_TYPES = (exp.DataType.Type.TEXT, exp.DataType.Type.VARCHAR)
_TIMESTAMPTZ = exp.DataType.Type.TIMESTAMPTZ
_TIMESTAMP_TYPES = (exp.DataType.Type.TIMESTAMP, exp.DataType.Type.TIMESTAMPNTZ, _TIMESTAMPTZ)
_Day = TypeVar("_Day", bound=date)


class UnknownValueError(Exception):
    """The value of a constant is not certain without an engine."""


class Interval(NamedTuple):
    """A SQL interval, in the three parts that SQL adds one by one."""

    months: int = 0
    days: int = 0
    microseconds: int = 0

    def times(self, factor: int) -> Interval:
        """Returns each part multiplied by ``factor``."""
        return Interval(*(part * factor for part in self))


Value = int | float | Decimal | str | date | Interval
"""The value of a constant.

A ``datetime`` is a ``date`` to Python. A ``datetime`` with a time zone is in UTC.
"""

_UNITS = {
    "microsecond": Interval(microseconds=1),
    "millisecond": Interval(microseconds=1_000),
    "second": Interval(microseconds=1_000_000),
    "minute": Interval(microseconds=60_000_000),
    "hour": Interval(microseconds=3_600_000_000),
    "day": Interval(days=1),
    "week": Interval(days=_DAYS_PER_WEEK),
    "month": Interval(months=1),
    "quarter": Interval(months=3),
    "year": Interval(months=12),
}
TIMES = ("microsecond", "millisecond", "second", "minute", "hour")
DAYS = ("day", "week", "month", "quarter", "year")
"""Units of whole days, from the shortest to the longest. ``TIMES`` are the units below a day."""
_UNIT_ABBREVIATIONS = {
    "us": "microsecond",
    "ms": "millisecond",
    "s": "second",
    "sec": "second",
    "min": "minute",
    "h": "hour",
    "hr": "hour",
    "d": "day",
    "mon": "month",
    "y": "year",
}

# --- numbers and strings --------------------------------------------------------------------------


def number(text: str) -> int | float | Decimal:
    """Returns the value of a numeric literal: INTEGER or BIGINT, DECIMAL or DOUBLE.

    Raises ``UnknownValueError`` for any other text.
    """
    if text.isascii() and text.isdigit():
        return int(text)
    if _DECIMAL_LITERAL.fullmatch(text):
        return Decimal(text)
    if _DOUBLE_LITERAL.fullmatch(text):
        return float(text)
    raise UnknownValueError


def whole(value: Value) -> int:
    """Returns ``value`` if it is an integer. Raises ``UnknownValueError`` otherwise."""
    if not isinstance(value, int):
        raise UnknownValueError
    return value


def in_double(value: int) -> int:
    """Returns ``value`` if a DOUBLE holds it exactly. Raises ``UnknownValueError`` otherwise."""
    return _within(value, 54)


def in_ascii(value: Value) -> str:
    """Returns ``value`` if it is an ASCII string. Raises ``UnknownValueError`` otherwise.

    All engines agree on the upper and lower case of ASCII letters.
    """
    if not isinstance(value, str) or not value.isascii():
        raise UnknownValueError
    return value


def _arithmetic(compute: Callable[[Any, Any], Any], one: Value, other: Value) -> Value:
    if isinstance(one, int) and isinstance(other, int):
        return _in_type(compute(one, other), one, other)
    if isinstance(one, float) or isinstance(other, float):
        return _finite(compute(_double(one), _double(other)))
    return _exact(compute(_exact(one), _exact(other)))


def _in_type(result: int, *operands: int) -> int:
    """Returns ``result`` if it fits: INTEGERs give an INTEGER, other integers a BIGINT.

    Raises ``UnknownValueError`` if it does not fit.
    """
    bits = 32 if all(-(2**31) <= operand < 2**31 for operand in operands) else 64
    for operand in operands:
        _within(operand, bits)
    return _within(result, bits)


def _within(value: int, bits: int) -> int:
    if not -(2 ** (bits - 1)) <= value < 2 ** (bits - 1):
        raise UnknownValueError
    return value


def _exact(value: Value) -> Decimal:
    if not isinstance(value, int | Decimal):
        raise UnknownValueError
    decimal = Decimal(value)
    _, digits, exponent = decimal.as_tuple()
    if not isinstance(exponent, int) or max(len(digits), -exponent) > _MAX_DIGITS:
        raise UnknownValueError
    return decimal


def _double(value: Value) -> float:
    if isinstance(value, Decimal):
        return float(_exact(value))
    if not isinstance(value, int | float):
        raise UnknownValueError
    return float(value)


def _finite(value: float) -> float:
    if not math.isfinite(value):
        raise UnknownValueError
    return value


def _divided(one: Value, other: Value) -> float:
    return _finite(_double(one) / _double(other))


def _quotient(one: Value, other: Value) -> int:
    """Returns the quotient of two integers, rounded towards zero."""
    dividend, divisor = whole(one), whole(other)
    quotient = abs(dividend) // abs(divisor)
    return _in_type(quotient if dividend * divisor >= 0 else -quotient, dividend, divisor)


def _remainder(one: Value, other: Value) -> int:
    """Returns the remainder of an integer division; it has the sign of the dividend."""
    return whole(one) - _quotient(one, other) * whole(other)


# --- dates, timestamps and intervals --------------------------------------------------------------


def unit_name(name: str) -> str:
    """Returns the name in ``TIMES`` or ``DAYS`` of a unit written as ``day``, ``DAYS``, ``d``, …

    Raises ``UnknownValueError`` for an unknown unit.
    """
    name = name.lower()
    full_name = _UNIT_ABBREVIATIONS.get(name, name.removesuffix("s"))
    if full_name not in _UNITS:
        raise UnknownValueError
    return full_name


def unit(name: str) -> Interval:
    """Returns the interval of one unit. The unit may be written as in ``unit_name``."""
    return _UNITS[unit_name(name)]


def span(text: str) -> Interval:
    """Returns the interval written as ``1 day 2 hours``, ``00:01:40``, ``1 day 02:03:04``.

    Raises ``UnknownValueError`` for any other text.
    """
    text = text.strip()
    clock = _CLOCK.search(text)
    counted = text[: clock.start()] if clock else text
    parts = [unit(name).times(int(count)) for count, name in _COUNTED_UNIT.findall(counted)]
    if clock:
        sign, hours, minutes, seconds, fraction = clock.groups(default="")
        whole_seconds = (int(hours) * 60 + int(minutes)) * 60 + int(seconds)
        microseconds = whole_seconds * 1_000_000 + int(fraction.ljust(6, "0"))
        parts.append(Interval(microseconds=-microseconds if sign == "-" else microseconds))
    if not parts or _COUNTED_UNIT.sub("", counted):
        raise UnknownValueError
    return functools.reduce(together, parts)


def moment(value: Value) -> datetime:
    """Returns a timestamp; a date gives its midnight.

    Raises ``UnknownValueError`` for other values.
    """
    if isinstance(value, datetime):
        return value
    if isinstance(value, date):
        return datetime.combine(value, time())
    raise UnknownValueError


def months_later(day: _Day, months: int) -> _Day:
    """Returns the same day of the month ``months`` later, or the last day of a shorter month.

    Raises ``ValueError`` outside of the years 1 to 9999.
    """
    year, month = divmod(day.year * 12 + day.month - 1 + months, 12)
    return day.replace(year, month + 1, min(day.day, calendar.monthrange(year, month + 1)[1]))


def later(start: datetime, span: Interval) -> datetime:
    """Returns ``start`` plus an interval.

    Raises ``ValueError`` or ``OverflowError`` outside of the years 1 to 9999. Raises
    ``UnknownValueError`` if a timestamp with a time zone is added to both months and microseconds.
    Which of these DuckDB adds first depends on their signs and sizes.
    """
    if start.tzinfo is not None and span.months and span.microseconds:
        raise UnknownValueError
    day = months_later(start, span.months)
    return day + timedelta(days=span.days, microseconds=span.microseconds)


def truncated(start: datetime, to: Interval) -> datetime:
    """Returns the beginning of the month, the week, the hour, … that ``start`` is in."""
    midnight = datetime.combine(start, time(), start.tzinfo)
    if to.months:
        return midnight.replace(month=(start.month - 1) // to.months * to.months + 1, day=1)
    if to.days:
        return midnight - timedelta(days=start.weekday() if to.days == _DAYS_PER_WEEK else 0)
    microseconds = (start - midnight) // timedelta(microseconds=1)
    return midnight + timedelta(microseconds=microseconds // to.microseconds * to.microseconds)


def since_epoch(value: Value, scale: str) -> datetime:
    """Returns the value of ``to_timestamp`` (``scale`` is empty) or ``epoch_ms`` (``scale`` is 3).

    The first is in seconds and has a time zone, the second is in milliseconds and has none. Raises
    ``UnknownValueError`` for another scale.
    """
    if not scale:
        return (_EPOCH + timedelta(seconds=whole(value))).replace(tzinfo=UTC)
    if scale != "3":
        raise UnknownValueError
    return _EPOCH + timedelta(milliseconds=whole(value))


def cast(value: Value, kind: object) -> Value:
    """Returns ``value`` as a number, a string, a DATE or a timestamp.

    Raises ``UnknownValueError`` if ``kind`` is another type, or the result is not certain.
    """
    if kind in _BITS_OF_INTEGER:
        return _within(int(value) if _is_whole(value) else whole(value), _BITS_OF_INTEGER[kind])
    if kind in _STRING_TYPES and isinstance(value, int | str):
        return str(value)
    if kind == exp.DataType.Type.DOUBLE:
        return _double(value)
    if kind == exp.DataType.Type.DATE:
        return _read(value, pa.date32()) if isinstance(value, str) else moment(value).date()
    if kind not in _TIMESTAMP_TYPES:
        raise UnknownValueError
    # Timestamps with a time zone are in UTC. Timestamps without one mean UTC.
    zone = UTC if kind == _TIMESTAMPTZ else None
    if isinstance(value, str):
        value = _read(value, pa.timestamp("us", zone and "UTC"))
    return moment(value).replace(tzinfo=zone)


def narrow(value: Value, kind: object) -> int:
    """Returns ``value`` as an integer of a type other than INTEGER and BIGINT.

    Engines compute with these types by other rules, so only their constants are supported. Raises
    ``UnknownValueError`` if ``value`` is out of range.
    """
    integer = int(value) if _is_whole(value) else whole(value)
    if integer not in _RANGE_OF_INTEGER.get(kind, range(0)):
        raise UnknownValueError
    return integer


def as_decimal(value: Value, precision: int, scale: int) -> Decimal:
    """Returns ``value`` as a DECIMAL with ``precision`` digits, ``scale`` of them after the point.

    Raises ``UnknownValueError`` if it does not fit exactly.
    """
    if isinstance(value, str) and _DECIMAL_LITERAL.fullmatch(value.removeprefix("-")):
        value = Decimal(value)
    rounded = _exact(value).quantize(Decimal(1).scaleb(-scale))
    if rounded != value or len(rounded.as_tuple().digits) > precision:
        raise UnknownValueError
    return rounded


def _is_whole(value: Value) -> TypeGuard[str]:
    return isinstance(value, str) and re.fullmatch(r"-?\d{1,18}", value, re.ASCII) is not None


def _read(text: str, kind: pa.DataType) -> date:
    """Returns ``text`` as a date or timestamp. Raises ``PredicateError`` if it is neither.

    Raises ``UnknownValueError`` if it needs a finer unit than ``kind`` has, such as nanoseconds.
    """
    scalar = text_scalar(text, kind)
    if scalar.type != kind:  # a finer unit
        raise UnknownValueError
    value: date = scalar.as_py()
    return value


# --- operators ------------------------------------------------------------------------------------


def _added(one: Value, other: Value) -> Value:
    match one, other:
        case (date() as day, Interval() as span) | (Interval() as span, date() as day):
            return later(moment(day), span)
        case Interval(), Interval():
            return together(one, other)
        case (date() as day, int(days)) | (int(days), date() as day):
            return _days_later(day, days)
    return _arithmetic(operator.add, one, other)


def together(one: Interval, other: Interval) -> Interval:
    """Returns the sum of two intervals, part by part."""
    return Interval(*map(operator.add, one, other))


def _subtracted(one: Value, other: Value) -> Value:
    if isinstance(other, Interval):
        return _added(one, other.times(-1))
    if isinstance(one, date) and isinstance(other, int):
        return _days_later(one, -other)
    if type(one) is date and type(other) is date:
        return (one - other).days
    return _arithmetic(operator.sub, one, other)


def _days_later(day: date, days: int) -> date:
    """Returns ``day`` plus ``days``.

    Raises ``UnknownValueError`` for a timestamp, as SQL adds no number to it.
    """
    if isinstance(day, datetime):
        raise UnknownValueError
    return day + timedelta(days=days)


def _multiplied(one: Value, other: Value) -> Value:
    match one, other:
        case (Interval() as span, int(factor)) | (int(factor), Interval() as span):
            return span.times(factor)
    return _arithmetic(operator.mul, one, other)


def _joined(one: Value, other: Value) -> str:
    if isinstance(one, str) and isinstance(other, str):
        return one + other
    raise UnknownValueError


OPERATORS: Mapping[type[exp.Expr], Callable[[Value, Value], Value]] = {
    exp.Add: _added,
    exp.Sub: _subtracted,
    exp.Mul: _multiplied,
    exp.Div: _divided,
    exp.IntDiv: _quotient,
    exp.Mod: _remainder,
    exp.DPipe: _joined,
}
