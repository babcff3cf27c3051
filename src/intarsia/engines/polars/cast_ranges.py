"""Comparisons of a cast column with a constant → ranges of the column's own values.

Polars casts a column to compare it with a constant of another type: integers to floats and
decimals, decimals to floats, dates to datetimes. These casts keep the order of values, but may make
neighbours equal. So a comparison is true for a range of the column's values. A search over all
values of the column's type finds the ends of that range, by Polars' own comparison.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from intarsia.errors import PredicateError

Change = Callable[[pl.Expr], pl.Expr]
"""The chain of casts that Polars applies to a column before the comparison."""
_PROBES = 64  # values that a step of the search compares; more values in fewer steps cost as much
_COLUMN = "column"
_FLOATS = (pl.Float32, pl.Float64)
_DIGITS = {8: 3, 16: 5, 32: 10, 64: 20}
"""Decimal digits of the largest integer, by bits."""
_TICKS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}  # per second
_DAY_SECONDS = 86_400


class Domain(NamedTuple):
    """The values of a column's type as integers: ``low`` to ``high``, both included.

    ``is_whole`` is False if the type has other values too. These are left out because a cast to a
    finer unit of time may overflow for them.
    """

    kind: pa.DataType
    low: int
    high: int
    is_whole: bool

    def array(self, values: Sequence[int]) -> pa.Array:
        width, is_signed = self.kind.bit_width // 8, not pa.types.is_unsigned_integer(self.kind)
        content = b"".join(value.to_bytes(width, "little", signed=is_signed) for value in values)
        return pa.Array.from_buffers(self.kind, len(values), [None, pa.py_buffer(content)])

    def is_at_least(self, field: pc.Expression, value: int) -> pc.Expression:
        """Returns ``field >= value``. ``value`` may be ``high + 1``."""
        if value > self.high:
            return field > pc.scalar(self.array([self.high])[0])
        return field >= pc.scalar(self.array([value])[0])

    def is_below(self, field: pc.Expression, value: int) -> pc.Expression:
        """Returns ``field < value``. ``value`` may be ``high + 1``."""
        if value > self.high:
            return field <= pc.scalar(self.array([self.high])[0])
        return field < pc.scalar(self.array([value])[0])

    def is_outside(self, field: pc.Expression) -> pc.Expression:
        low, high = self.array([self.low, self.high])
        return (field < pc.scalar(low)) | (field > pc.scalar(high))


def domain_of(kind: pa.DataType, types: Sequence[pl.DataType]) -> Domain | None:
    """Returns the domain of a column that is cast to ``types``.

    None if its values are no integers.
    """
    if pa.types.is_integer(kind):
        bits, is_signed = kind.bit_width, pa.types.is_signed_integer(kind)
        low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if is_signed else (0, 2**bits - 1)
        return Domain(kind, low, high, True)
    if pa.types.is_decimal(kind) and kind.bit_width <= 128:
        most = 10**kind.precision - 1
        return Domain(kind, -most, most, True)
    if pa.types.is_time(kind):
        return Domain(kind, 0, _DAY_SECONDS * _TICKS[kind.unit] - 1, True)
    if pa.types.is_date32(kind):
        return _domain_of_time(kind, 1, _DAY_SECONDS, types)
    if pa.types.is_timestamp(kind) or pa.types.is_duration(kind):
        return _domain_of_time(kind, _TICKS[kind.unit], 1, types)
    return None


def _domain_of_time(
    kind: pa.DataType, ticks: int, seconds: int, types: Sequence[pl.DataType]
) -> Domain:
    """Returns the values that do not overflow in the finest unit of ``types``.

    One in the column is ``seconds / ticks`` seconds.
    """
    most = 2 ** (kind.bit_width - 1) - 1
    units = [one.time_unit for one in types if isinstance(one, pl.Datetime | pl.Duration)]
    if isinstance(getattr(kind, "unit", None), str):
        units.append("ms" if kind.unit == "s" else kind.unit)  # Polars has no seconds
    finest = max((_TICKS[unit] for unit in units), default=0)
    max_value = (2**63 - 1) * ticks // (seconds * finest) if finest else most
    if max_value >= most:
        return Domain(kind, -most - 1, most, True)
    return Domain(kind, -max_value, max_value, False)


def keeps_order(source: pl.DataType, target: pl.DataType) -> bool:
    """True if a cast keeps the order of all values, and no value fails or becomes NULL.

    Only values of ``domain_of`` count.
    """
    if source == target:
        return True
    if source.is_integer():
        return _holds_integers(target, source)
    if isinstance(source, pl.Decimal):
        if isinstance(target, pl.Decimal):
            is_rounded = target.scale < source.scale  # 9.9 becomes 10, which has one more digit
            return _whole_digits(target) >= _whole_digits(source) + is_rounded
        return target in _FLOATS
    if source in _FLOATS:
        return target in _FLOATS
    if isinstance(source, pl.Datetime) and isinstance(target, pl.Datetime):
        return source.time_zone == target.time_zone
    if source == pl.Date:
        return isinstance(target, pl.Datetime)
    return isinstance(source, pl.Duration) and isinstance(target, pl.Duration)


def _holds_integers(target: pl.DataType, source: pl.DataType) -> bool:
    bits, is_signed = int(str(source).lstrip("UInt")), source.is_signed_integer()
    if target.is_integer():
        target_bits, to_signed = int(str(target).lstrip("UInt")), target.is_signed_integer()
        return target_bits - to_signed >= bits - is_signed and (to_signed or not is_signed)
    if isinstance(target, pl.Decimal):
        return bits in _DIGITS and _whole_digits(target) >= _DIGITS[bits]
    return target in _FLOATS


def _whole_digits(kind: pl.Decimal) -> int:
    """Returns the number of digits before the point."""
    return (kind.precision or 38) - kind.scale


def as_range(
    compare: Callable[[Any, Any], Any],
    field: pc.Expression,
    domain: Domain,
    change: Change,
    constant: pl.Expr,
) -> pc.Expression:
    """Returns ``compare(change(field), constant)`` as a range of ``field``.

    The result is NULL if ``field`` is NULL, and exact within ``domain``. Raises ``PredicateError``
    if Polars' comparison gives NULL.
    """

    def first(comparison: Callable[[Any, Any], Any]) -> int:
        comparison_expr = comparison(change(pl.col(_COLUMN)), constant)
        return _first(domain, lambda array: pl.DataFrame({_COLUMN: array}).select(comparison_expr))

    if compare is operator.ge:
        return domain.is_at_least(field, first(operator.ge))
    if compare is operator.gt:
        return domain.is_at_least(field, first(operator.gt))
    if compare is operator.lt:
        return domain.is_below(field, first(operator.ge))
    if compare is operator.le:
        return domain.is_below(field, first(operator.gt))
    start, stop = first(operator.ge), first(operator.gt)
    if stop - start == 1:
        equal: pc.Expression = field == pc.scalar(domain.array([start])[0])
    else:
        equal = domain.is_at_least(field, start) & domain.is_below(field, stop)
    return equal if compare is operator.eq else ~equal


def _first(domain: Domain, holds: Callable[[pl.Series], pl.DataFrame]) -> int:
    """Returns the least value for which a condition is true that is true for all greater values.

    Returns ``domain.high + 1`` if it is true for none.
    """
    below, first = domain.low - 1, domain.high + 1
    while first - below > 1:
        step = max((first - below) // _PROBES, 1)
        probes = range(below + step, first, step)
        values = pl.Series(pl.from_arrow(domain.array(probes)))
        answers = holds(values).to_series()
        if answers.dtype != pl.Boolean or answers.null_count() or not answers.is_sorted():
            raise PredicateError("the comparison does not follow the order of the column's values")
        false = len(probes) - int(answers.sum())
        if false < len(probes):
            first = probes[false]
        if false:
            below = probes[false - 1]
    return first
