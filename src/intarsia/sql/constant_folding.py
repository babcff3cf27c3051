"""What a SQL condition computes of constants alone → the constant that comes of it.

``ts > now() - INTERVAL 1 HOUR`` compares ``ts`` with a moment, which is something to plan by. What
``calculation`` is not certain of is left as it is written.
"""

from __future__ import annotations

import re
from collections.abc import Callable
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
"""The moment that a query begins, with its time zone."""

_COMPUTING = {
    *OPERATORS,
    *(exp.Neg, exp.Cast, exp.Lower, exp.Upper, exp.DateAdd, exp.DateTrunc, exp.TimestampTrunc),
    *(exp.AtTimeZone, exp.UnixToTime, exp.DateFromParts),
    *(exp.Anonymous, exp.CurrentTimestamp, exp.CurrentDate, exp.Localtimestamp),
}
_NOW = {"now", "get_current_timestamp", "transaction_timestamp"}
_USUAL_DIGITS = (18, 3)
"""Of a DECIMAL that does not say how many, and how many of them are decimals."""
_DATE = ("year", "month", "day")
_UNKNOWN = (
    UnknownValueError,
    PredicateError,
    RecursionError,
    ArithmeticError,
    ValueError,
    LookupError,
)
_WHOLE = re.compile(r"[+-]?\d+", re.ASCII)


def utc_now() -> datetime:
    """The current moment."""
    return datetime.now(UTC)


def folded(condition: exp.Expr, now: Now | None) -> exp.Expr:
    """``condition`` with constants for what is certain to come to one; a copy where there is any.

    ``date(x)`` is ``x::DATE`` there. Without ``now``, what asks for the current moment or day is
    left.
    """
    if not any(_computes(node) or _is_day(node) for node in condition.walk()):
        return condition
    return condition.copy().transform(_Folder(now).constant, copy=False)


def interval_of(node: exp.Interval) -> Interval | None:
    """The span of time that a constant is; None where that is not certain."""
    try:
        return _Folder(None)._interval(node)
    except _UNKNOWN:
        return None


class _Folder:
    """Works out values, each once; the current moment is asked for once."""

    def __init__(self, now: Now | None) -> None:
        self._now = now
        self._known: dict[int, tuple[exp.Expr, Value | None]] = {}
        """By nodes, which are kept so that no other has the same number; None is not certain."""

    def constant(self, node: exp.Expr) -> exp.Expr:
        """The constant that ``node`` comes to; itself where it is one, or none is certain."""
        if _is_day(node):
            node = exp.cast(node.this, exp.DataType.Type.DATE)
        if not _computes(node):
            return node
        try:
            return constant_of(self._value(node)) or node
        except UnknownValueError:
            return self._narrow(node)

    def _narrow(self, node: exp.Expr) -> exp.Expr:
        """As ``constant``, of a type in which nothing is computed here."""
        if type(node) is not exp.Cast:
            return node
        try:
            return constant_of(narrow(self._value(node.this), node.to.this)) or node
        except _UNKNOWN:
            return node

    def _value(self, node: exp.Expr) -> Value:
        """Raises ``UnknownValueError``, of what nests too deeply as well."""
        if id(node) not in self._known:
            try:
                self._known[id(node)] = node, self._worked_out(node)
            except _UNKNOWN:
                self._known[id(node)] = node, None
        _, value = self._known[id(node)]
        if value is None:
            raise UnknownValueError
        return value

    def _worked_out(self, node: exp.Expr) -> Value:
        """Raises what ``calculation`` does."""
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
                if to.expressions:  # of a precision, to which it is rounded
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
                return date(*(whole(self._value(node.args[part])) for part in _DATE))
        if type(node) in OPERATORS:
            sides = self._value(node.args["this"]), self._value(node.args["expression"])
            return OPERATORS[type(node)](*sides)
        return self._current(node)

    def _current(self, node: exp.Expr) -> date:
        """What is another on another day."""
        if not any(value for name, value in node.args.items() if name != "this"):
            match node:
                case exp.Anonymous(this=str(name)) if name.lower() in _NOW:
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
        counted = node.args.get("unit")
        if counted is None:  # '1 day 2 hours'
            return span(node.name)
        if not isinstance(counted, exp.Var):  # ``YEAR TO MONTH``
            raise UnknownValueError
        if not isinstance(node.this, exp.Literal):
            return unit(counted.name).times(in_double(whole(self._value(node.this))))
        if not _WHOLE.fullmatch(node.name):  # 1.5 is 1 in some places
            raise UnknownValueError
        return unit(counted.name).times(in_double(int(node.name)))


def _is_day(node: exp.Expr) -> bool:
    return type(node) is exp.Date and has_only(node, ("this",))


def _digits(kind: exp.DataType) -> tuple[int, int]:
    """How many a DECIMAL has, and how many of them are decimals."""
    told = [int(number.name) for number in kind.expressions]
    precision, scale = [*told, 0][:2] if told else _USUAL_DIGITS
    return precision, scale


def _computes(node: exp.Expr) -> bool:
    """Is ``node`` more than a constant as ``constant_of`` writes them?"""
    if type(node) not in _COMPUTING:
        return False
    if isinstance(node, exp.Cast):
        inner = node.this
        if isinstance(inner, exp.Literal) and inner.is_string:
            return node.to.this not in TYPED_TEXTS
        return not isinstance(inner, exp.Null | exp.Boolean)
    return not (isinstance(node, exp.Neg) and isinstance(node.this, exp.Literal))
