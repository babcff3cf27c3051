"""SQL constants: which nodes are constants, and how Python values are written as constants."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from datetime import date, datetime, timedelta
from decimal import Decimal

from sqlglot import exp

from intarsia.expr.constant_evaluation import Interval

TYPED_TEXTS = {
    exp.DataType.Type.DATE,
    exp.DataType.Type.DOUBLE,
    exp.DataType.Type.TIMESTAMP,
    exp.DataType.Type.TIMESTAMPNTZ,
    exp.DataType.Type.TIMESTAMPTZ,
}
"""Types whose constants are written as strings, cast to the type."""


def is_constant(node: exp.Expr) -> bool:
    """True if ``node`` is a literal or an interval, possibly cast or in parentheses."""
    match node:
        case (
            exp.Paren(this=inner)
            | exp.Neg(this=inner)
            | exp.Cast(this=inner)
            | exp.Interval(this=inner)
        ):
            return is_constant(inner)
        case exp.Literal() | exp.Null() | exp.Boolean():
            return True
    return False


def constant_of(value: object) -> exp.Expr | None:
    """Returns the SQL constant that means ``value``, or None if there is none."""
    if isinstance(value, datetime):  # pandas has a subclass
        zone = "TIMESTAMP" if value.tzinfo is None else "TIMESTAMPTZ"
        return exp.cast(exp.Literal.string(value.isoformat(" ")), zone)
    constant = _CONSTANTS.get(type(value))
    return None if constant is None else constant(value)


def _number(value: int) -> exp.Expr:
    return _signed(str(abs(value)), value < 0)


def _decimal(value: Decimal) -> exp.Expr | None:
    """Returns a decimal with all digits; arithmetic would round it."""
    if not value.is_finite():
        return None
    return _signed(f"{value.copy_abs():f}", value < 0)


def _signed(digits: str, is_negative: bool) -> exp.Expr:
    literal = exp.Literal.number(digits)
    return exp.Neg(this=literal) if is_negative else literal


def _double(value: float) -> exp.Expr | None:
    """Returns a DOUBLE. A plain literal would be a DECIMAL, which each engine rounds in its way."""
    return exp.cast(exp.Literal.string(repr(value)), "DOUBLE") if math.isfinite(value) else None


def _span(value: Interval) -> exp.Expr:
    text = f"{value.months} months {value.days} days {value.microseconds} microseconds"
    return exp.Interval(this=exp.Literal.string(text))


_CONSTANTS: Mapping[type, Callable[..., exp.Expr | None]] = {
    type(None): lambda _: exp.Null(),
    bool: lambda value: exp.Boolean(this=value),
    int: _number,
    float: _double,
    Decimal: _decimal,
    str: exp.Literal.string,
    Interval: _span,
    timedelta: lambda value: _span(Interval(microseconds=value // timedelta(microseconds=1))),
    date: lambda value: exp.cast(exp.Literal.string(value.isoformat()), "DATE"),
}
