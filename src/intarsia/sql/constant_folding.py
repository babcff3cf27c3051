"""Replaces the constant parts of a SQL condition by the constants that they evaluate to.

``ts > now() - INTERVAL 1 HOUR`` becomes a comparison of ``ts`` with a timestamp, which pruning can
use. A part that ``constant_evaluation`` is not certain of stays as it is written.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from datetime import UTC, date, datetime

from sqlglot import exp

from intarsia.errors import PredicateError
from intarsia.expr.constant_evaluation import (
    OPERATORS,
    Interval,
    UnknownValueError,
    Value,
    as_decimal,
    cast,
    in_ascii,
    in_double,
    moment,
    narrow,
    number,
    since_epoch,
    span,
    truncated,
    unit,
    whole,
)
from intarsia.process_state import cached_property
from intarsia.sql.literals import TYPED_TEXTS, constant_of
from intarsia.sql.scope import has_only

Now = Callable[[], datetime]
"""Returns the time at which a query begins, with its time zone."""

_COMPUTED_NODES = {
    *OPERATORS,
    *(exp.Neg, exp.Cast, exp.Lower, exp.Upper, exp.DateAdd, exp.DateTrunc, exp.TimestampTrunc),
    *(exp.AtTimeZone, exp.UnixToTime, exp.DateFromParts),
    *(exp.Anonymous, exp.CurrentTimestamp, exp.CurrentDate, exp.Localtimestamp),
}
_NOW_FUNCTIONS = {"now", "get_current_timestamp", "transaction_timestamp"}
_DEFAULT_DIGITS = (18, 3)
"""The precision and the scale of a DECIMAL that states neither."""
_DATE_PARTS = ("year", "month", "day")
_UNKNOWN_VALUE_ERRORS = (
    UnknownValueError,
    PredicateError,
    RecursionError,
    ArithmeticError,
    ValueError,
    LookupError,
)
_INTEGER = re.compile(r"[+-]?\d+", re.ASCII)


def utc_now() -> datetime:
    """Returns the current time in UTC."""
    return datetime.now(UTC)


def may_be_computed(kinds: Iterable[type[exp.Expr]]) -> bool:
    """True if ``fold_constants`` may change a condition that has nodes of these ``kinds``."""
    return not {*_COMPUTED_NODES, exp.Date}.isdisjoint(kinds)


def fold_constants(condition: exp.Expr, now: Now | None) -> exp.Expr:
    """Returns ``condition`` with constants in place of parts that certainly evaluate to one.

    It is a copy if anything changes. ``date(x)`` becomes ``x::DATE``. If ``now`` is None, parts
    that depend on the current time or day stay.
    """
    if not any(_is_computed(node) or _is_date_call(node) for node in condition.walk()):
        return condition
    return condition.copy().transform(_Folder(now).constant, copy=False)


def interval_of(node: exp.Interval) -> Interval | None:
    """Returns the value of a SQL interval, or None if it is not certain."""
    try:
        return _Folder(None)._interval(node)
    except _UNKNOWN_VALUE_ERRORS:
        return None


class _Folder:
    """Evaluates nodes, each once, and asks for the current time at most once."""

    def __init__(self, now: Now | None) -> None:
        self._now = now
        self._values: dict[int, tuple[exp.Expr, Value | None]] = {}
        """Values by the nodes' ``id``; None is not certain. A stored node keeps its ``id``."""

    def constant(self, node: exp.Expr) -> exp.Expr:
        """Returns the constant that ``node`` evaluates to, or ``node`` if it is not certain."""
        if _is_date_call(node):
            node = exp.cast(node.this, exp.DataType.Type.DATE)
        if not _is_computed(node):
            return node
        try:
            return constant_of(self._value(node)) or node
        except UnknownValueError:
            return self._narrow(node)

    def _narrow(self, node: exp.Expr) -> exp.Expr:
        """Returns the constant of a cast to an integer type in which no arithmetic is done here."""
        if type(node) is not exp.Cast:
            return node
        try:
            return constant_of(narrow(self._value(node.this), node.to.this)) or node
        except _UNKNOWN_VALUE_ERRORS:
            return node

    def _value(self, node: exp.Expr) -> Value:
        """Returns the value of ``node``.

        Raises ``UnknownValueError`` if it is not certain or nests too deeply.
        """
        if id(node) not in self._values:
            try:
                self._values[id(node)] = node, self._evaluate(node)
            except _UNKNOWN_VALUE_ERRORS:
                self._values[id(node)] = node, None
        _, value = self._values[id(node)]
        if value is None:
            raise UnknownValueError
        return value

    def _evaluate(self, node: exp.Expr) -> Value:
        """Returns the value of ``node``. Raises one of ``_UNKNOWN_VALUE_ERRORS``."""
        match node:
            case exp.Literal(this=str(text)):
                return text if node.is_string else number(text)
            case exp.Paren(this=inner):
                return self._value(inner)
            case exp.Neg(this=inner):
                return OPERATORS[exp.Mul](self._value(inner), -1)
            case exp.Interval():
                return self._interval(node)
            case exp.Cast(this=inner, to=exp.DataType(this=kind) as to) if type(node) is exp.Cast:
                if kind is exp.DataType.Type.DECIMAL:
                    return as_decimal(self._value(inner), *_digits(to))
                if to.expressions:  # a precision would round it
                    raise UnknownValueError
                return cast(self._value(inner), kind)
            case exp.Lower(this=inner):
                return in_ascii(self._value(inner)).lower()
            case exp.Upper(this=inner):
                return in_ascii(self._value(inner)).upper()
            case exp.DateAdd(this=inner, expression=exp.Interval() as span):
                return OPERATORS[exp.Add](moment(self._value(inner)), self._interval(span))
            case exp.DateTrunc(this=inner) | exp.TimestampTrunc(this=inner):
                return truncated(moment(self._value(inner)), unit(node.text("unit")))
            case exp.AtTimeZone(this=inner) if node.text("zone") == "UTC":
                at = moment(self._value(inner))
                return at.replace(tzinfo=None if at.tzinfo else UTC)
            case exp.UnixToTime(this=inner):
                return since_epoch(self._value(inner), node.text("scale"))
            case exp.DateFromParts():
                return date(*(whole(self._value(node.args[part])) for part in _DATE_PARTS))
        if type(node) in OPERATORS:
            sides = self._value(node.args["this"]), self._value(node.args["expression"])
            return OPERATORS[type(node)](*sides)
        return self._current_time(node)

    def _current_time(self, node: exp.Expr) -> date:
        """Returns the value of a call that depends on the current time."""
        if not any(value for name, value in node.args.items() if name != "this"):
            match node:
                case exp.Anonymous(this=str(name)) if name.lower() in _NOW_FUNCTIONS:
                    return self._moment
                case exp.CurrentTimestamp(this=None):
                    return self._moment
                case exp.CurrentDate(this=None):
                    return self._moment.date()
                case exp.Localtimestamp(this=None):
                    return self._moment.replace(tzinfo=None)
        raise UnknownValueError

    @cached_property
    def _moment(self) -> datetime:
        if self._now is None:
            raise UnknownValueError
        return self._now().astimezone(UTC)

    def _interval(self, node: exp.Interval) -> Interval:
        unit_node = node.args.get("unit")
        if unit_node is None:  # '1 day 2 hours'
            return span(node.name)
        if not isinstance(unit_node, exp.Var):  # ``YEAR TO MONTH``
            raise UnknownValueError
        if not isinstance(node.this, exp.Literal):
            return unit(unit_node.name).times(in_double(whole(self._value(node.this))))
        if not _INTEGER.fullmatch(node.name):  # some engines read 1.5 as 1
            raise UnknownValueError
        return unit(unit_node.name).times(in_double(int(node.name)))


def _is_date_call(node: exp.Expr) -> bool:
    return type(node) is exp.Date and has_only(node, ("this",))


def _digits(kind: exp.DataType) -> tuple[int, int]:
    """Returns the precision of a DECIMAL and its scale, the number of digits after the point."""
    stated = [int(number.name) for number in kind.expressions]
    precision, scale = [*stated, 0][:2] if stated else _DEFAULT_DIGITS
    return precision, scale


def _is_computed(node: exp.Expr) -> bool:
    """True if ``node`` is not yet a constant in the form that ``constant_of`` writes."""
    if type(node) not in _COMPUTED_NODES:
        return False
    if isinstance(node, exp.Cast):
        inner = node.this
        if isinstance(inner, exp.Literal) and inner.is_string:
            return node.to.this not in TYPED_TEXTS
        return not isinstance(inner, exp.Null | exp.Boolean)
    return not (isinstance(node, exp.Neg) and isinstance(node.this, exp.Literal))
