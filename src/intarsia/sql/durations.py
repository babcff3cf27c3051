"""SQL intervals as constants that duration columns are compared with."""

from __future__ import annotations

import pyarrow as pa
from sqlglot import exp

from intarsia.errors import PredicateError
from intarsia.expr.constant_evaluation import Interval, UnknownValueError, span
from intarsia.expr.sql_text import text_of
from intarsia.sql.constant_folding import interval_of

_DAYS_PER_MONTH = 30  # as DuckDB assumes when it compares intervals
_MICROSECONDS_PER_DAY = 86_400_000_000


def is_interval(node: exp.Expr) -> bool:
    """True if ``node`` is ``INTERVAL 1 SECOND``, or a string cast to INTERVAL."""
    match node:
        case exp.Interval():
            return True
        case exp.Cast(this=exp.Literal(is_string=True), to=target):
            return bool(target.this is exp.DataType.Type.INTERVAL)
    return False


def duration_scalar(node: exp.Expr, kind: pa.DataType | None) -> pa.Scalar:
    """Returns an interval, or a string that is one, as a constant to compare with type ``kind``.

    It is in the unit of ``kind``, or in microseconds if that unit is too coarse. A month has 30
    days and a day 24 hours, as when DuckDB compares intervals. Raises ``PredicateError`` if
    ``kind`` is no duration, or the interval is not understood or out of range.
    """
    if kind is None or not pa.types.is_duration(kind):
        other = "a value of no known type" if kind is None else kind
        raise PredicateError(
            f"the interval {text_of(node)} compares with durations, not with {other}"
        )
    interval = interval_of(node) if isinstance(node, exp.Interval) else _interval(_text_in(node))
    if interval is None:
        raise PredicateError(
            f"{text_of(node)} cannot be read as {kind}: write '1 day 2 hours' or '02:03:04'"
        )
    days = interval.months * _DAYS_PER_MONTH + interval.days
    try:
        scalar = pa.scalar(days * _MICROSECONDS_PER_DAY + interval.microseconds, pa.duration("us"))
    except (OverflowError, pa.ArrowInvalid) as error:
        raise PredicateError(f"the interval {text_of(node)} is out of range") from error
    try:
        return scalar.cast(kind)
    except pa.ArrowInvalid:
        return scalar


def _text_in(node: exp.Expr) -> str:
    return str(node.this.name if isinstance(node, exp.Cast) else node.name)


def _interval(text: str) -> Interval | None:
    try:
        return span(text)
    except UnknownValueError:
        return None
