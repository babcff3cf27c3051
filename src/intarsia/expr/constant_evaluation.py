"""What SQL makes of constants: arithmetic of numbers, of moments and of spans of time, and casts.

Every function gives what DuckDB does in a session whose time zone is UTC, or raises
``UnknownValueError``, or the ``ArithmeticError`` or ``ValueError`` of what is beyond Python's
limits: whole numbers stay within their type, other numbers have up to 15 digits, moments are in
microseconds of the years 1 to 9999.
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

_DIGITS = 15
"""As many as every binary and decimal type holds."""
_DECIMAL = re.compile(r"\d+\.\d*|\.\d+", re.ASCII)
_COUNTED = re.compile(r"([+-]?\d+)\s*([a-z]+)\s*", re.IGNORECASE | re.ASCII)
_CLOCK = re.compile(r"([+-]?)(\d+):([0-5]?\d):([0-5]?\d)(?:\.(\d{1,6}))?$", re.ASCII)
_DOUBLE = re.compile(r"(\d+\.?\d*|\.\d+)e[+-]?\d+", re.IGNORECASE | re.ASCII)
_EPOCH = datetime(1970, 1, 1)
_WEEK = 7
_BITS = {exp.DataType.Type.INT: 32, exp.DataType.Type.BIGINT: 64}
_NARROW: Mapping[object, range] = {
    exp.DataType.Type.TINYINT: range(-(2**7), 2**7),
    exp.DataType.Type.SMALLINT: range(-(2**15), 2**15),
    exp.DataType.Type.UTINYINT: range(2**8),
    exp.DataType.Type.USMALLINT: range(2**16),
    exp.DataType.Type.UINT: range(2**32),
    exp.DataType.Type.UBIGINT: range(2**64),
}
_TEXTS = (exp.DataType.Type.TEXT, exp.DataType.Type.VARCHAR)
_ZONED = exp.DataType.Type.TIMESTAMPTZ
_MOMENTS = (exp.DataType.Type.TIMESTAMP, exp.DataType.Type.TIMESTAMPNTZ, _ZONED)
_Day = TypeVar("_Day", bound=date)


class UnknownValueError(Exception):
    """It takes an engine to tell."""


class Interval(NamedTuple):
    """A span of time in the three parts that SQL adds one by one."""

    months: int = 0
    days: int = 0
    microseconds: int = 0

    def times(self, factor: int) -> Interval:
        return Interval(*(part * factor for part in self))


Value = int | float | Decimal | str | date | Interval
"""Of a constant. A ``datetime`` is a ``date`` to Python; one with a zone is in UTC."""

_UNITS = {
    "microsecond": Interval(microseconds=1),
    "millisecond": Interval(microseconds=1_000),
    "second": Interval(microseconds=1_000_000),
    "minute": Interval(microseconds=60_000_000),
    "hour": Interval(microseconds=3_600_000_000),
    "day": Interval(days=1),
    "week": Interval(days=_WEEK),
    "month": Interval(months=1),
    "quarter": Interval(months=3),
    "year": Interval(months=12),
}
TIMES = ("microsecond", "millisecond", "second", "minute", "hour")
DAYS = ("day", "week", "month", "quarter", "year")
"""Units of days, a whole number of them; ``TIMES`` are parts of one. From the shortest on."""
_SHORT = {
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

# --- numbers and texts ----------------------------------------------------------------------------


def number(text: str) -> int | float | Decimal:
    """A literal's value: INTEGER or BIGINT, DECIMAL or DOUBLE."""
    if text.isascii() and text.isdigit():
        return int(text)
    if _DECIMAL.fullmatch(text):
        return Decimal(text)
    if _DOUBLE.fullmatch(text):
        return float(text)
    raise UnknownValueError


def whole(value: Value) -> int:
    """``value``, which has to be a whole number."""
    if not isinstance(value, int):
        raise UnknownValueError
    return value


def in_double(value: int) -> int:
    """``value``, which a DOUBLE has to hold."""
    return _within(value, 54)


def in_ascii(value: Value) -> str:
    """A text of which every engine knows lower and upper case."""
    if not isinstance(value, str) or not value.isascii():
        raise UnknownValueError
    return value


def _arithmetic(compute: Callable[[Any, Any], Any], one: Value, other: Value) -> Value:
    if isinstance(one, int) and isinstance(other, int):
        return _in_type(compute(one, other), one, other)
    if isinstance(one, float) or isinstance(other, float):
        return _finite(compute(_double(one), _double(other)))
    return _exact(compute(_exact(one), _exact(other)))


def _in_type(found: int, *operands: int) -> int:
    """What comes of INTEGERs is an INTEGER, of others a BIGINT, or nothing."""
    bits = 32 if all(-(2**31) <= operand < 2**31 for operand in operands) else 64
    for operand in operands:
        _within(operand, bits)
    return _within(found, bits)


def _within(value: int, bits: int) -> int:
    if not -(2 ** (bits - 1)) <= value < 2 ** (bits - 1):
        raise UnknownValueError
    return value


def _exact(value: Value) -> Decimal:
    if not isinstance(value, int | Decimal):
        raise UnknownValueError
    found = Decimal(value)
    _, digits, exponent = found.as_tuple()
    if not isinstance(exponent, int) or max(len(digits), -exponent) > _DIGITS:
        raise UnknownValueError
    return found


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
    """Rounded towards zero."""
    dividend, divisor = whole(one), whole(other)
    found = abs(dividend) // abs(divisor)
    return _in_type(found if dividend * divisor >= 0 else -found, dividend, divisor)


def _remainder(one: Value, other: Value) -> int:
    """Of the sign of what is divided."""
    return whole(one) - _quotient(one, other) * whole(other)


# --- moments --------------------------------------------------------------------------------------


def unit_name(name: str) -> str:
    """The one name of a unit: ``day`` of ``DAYS``, ``d``, …"""
    name = name.lower()
    found = _SHORT.get(name, name.removesuffix("s"))
    if found not in _UNITS:
        raise UnknownValueError
    return found


def unit(name: str) -> Interval:
    """One ``day``, one of the ``hours``, …"""
    return _UNITS[unit_name(name)]


def span(text: str) -> Interval:
    """The span of time that a text is: ``1 day 2 hours``, ``00:01:40``, ``1 day 02:03:04``."""
    text = text.strip()
    clock = _CLOCK.search(text)
    counted = text[: clock.start()] if clock else text
    parts = [unit(name).times(int(count)) for count, name in _COUNTED.findall(counted)]
    if clock:
        sign, hours, minutes, seconds, fraction = clock.groups(default="")
        whole_seconds = (int(hours) * 60 + int(minutes)) * 60 + int(seconds)
        microseconds = whole_seconds * 1_000_000 + int(fraction.ljust(6, "0"))
        parts.append(Interval(microseconds=-microseconds if sign == "-" else microseconds))
    if not parts or _COUNTED.sub("", counted):
        raise UnknownValueError
    return functools.reduce(together, parts)


def moment(value: Value) -> datetime:
    """A moment; a day's is its midnight."""
    if isinstance(value, datetime):
        return value
    if isinstance(value, date):
        return datetime.combine(value, time())
    raise UnknownValueError


def months_later(day: _Day, months: int) -> _Day:
    """The day of that number, the last of the month where it has no such day.

    Raises ``ValueError`` outside of the years 1 to 9999.
    """
    year, month = divmod(day.year * 12 + day.month - 1 + months, 12)
    return day.replace(year, month + 1, min(day.day, calendar.monthrange(year, month + 1)[1]))


def later(start: datetime, span: Interval) -> datetime:
    """``start`` and a span. Raises ``ValueError`` or ``OverflowError`` beyond the calendar.

    And ``UnknownValueError`` for months and parts of a day after a moment in a zone: which of these
    DuckDB adds first is another by their signs and sizes.
    """
    if start.tzinfo is not None and span.months and span.microseconds:
        raise UnknownValueError
    day = months_later(start, span.months)
    return day + timedelta(days=span.days, microseconds=span.microseconds)


def truncated(start: datetime, to: Interval) -> datetime:
    """The beginning of the month, the week, the hour, … that ``start`` is in."""
    midnight = datetime.combine(start, time(), start.tzinfo)
    if to.months:
        return midnight.replace(month=(start.month - 1) // to.months * to.months + 1, day=1)
    if to.days:
        return midnight - timedelta(days=start.weekday() if to.days == _WEEK else 0)
    since = (start - midnight) // timedelta(microseconds=1)
    return midnight + timedelta(microseconds=since // to.microseconds * to.microseconds)


def since_epoch(value: Value, scale: str) -> datetime:
    """``to_timestamp`` of seconds, which has a zone; ``epoch_ms``, which has none."""
    if not scale:
        return (_EPOCH + timedelta(seconds=whole(value))).replace(tzinfo=UTC)
    if scale != "3":
        raise UnknownValueError
    return _EPOCH + timedelta(milliseconds=whole(value))


def cast(value: Value, kind: object) -> Value:
    """``value`` as a number, a text, a DATE or a timestamp."""
    if kind in _BITS:
        return _within(int(value) if _is_whole(value) else whole(value), _BITS[kind])
    if kind in _TEXTS and isinstance(value, int | str):
        return str(value)
    if kind == exp.DataType.Type.DOUBLE:
        return _double(value)
    if kind == exp.DataType.Type.DATE:
        return _read(value, pa.date32()) if isinstance(value, str) else moment(value).date()
    if kind not in _MOMENTS:
        raise UnknownValueError
    # Those with a zone are in UTC, and those without mean UTC.
    zone = UTC if kind == _ZONED else None
    if isinstance(value, str):
        value = _read(value, pa.timestamp("us", zone and "UTC"))
    return moment(value).replace(tzinfo=zone)


def narrow(value: Value, kind: object) -> int:
    """``value`` as a whole number of another type than INTEGER and BIGINT, which are computed with
    by other rules.
    """
    found = int(value) if _is_whole(value) else whole(value)
    if found not in _NARROW.get(kind, range(0)):
        raise UnknownValueError
    return found


def as_decimal(value: Value, precision: int, scale: int) -> Decimal:
    """``value`` as a DECIMAL of so many digits, so many of them decimals, which has room for it."""
    if isinstance(value, str) and _DECIMAL.fullmatch(value.removeprefix("-")):
        value = Decimal(value)
    found = _exact(value).quantize(Decimal(1).scaleb(-scale))
    if found != value or len(found.as_tuple().digits) > precision:
        raise UnknownValueError
    return found


def _is_whole(value: Value) -> TypeGuard[str]:
    return isinstance(value, str) and re.fullmatch(r"-?\d{1,18}", value, re.ASCII) is not None


def _read(text: str, kind: pa.DataType) -> date:
    """Raises ``PredicateError`` as well."""
    found = text_scalar(text, kind)
    if found.type != kind:  # of nanoseconds, perhaps
        raise UnknownValueError
    value: date = found.as_py()
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
    """The sum of each part."""
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
    """``DATE + INTEGER``, which is not there for moments."""
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
