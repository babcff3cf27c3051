"""SQL's spans of time as constants that columns of durations are compared with."""

from __future__ import annotations

import pyarrow as pa
from sqlglot import exp

from intarsia.errors import PredicateError
from intarsia.expr.constant_evaluation import Interval, UnknownValueError, span
from intarsia.expr.sql_text import text_of
from intarsia.sql.constant_folding import interval_of

_MONTH_DAYS = 30  # as DuckDB compares spans
_DAY_MICROSECONDS = 86_400_000_000


def is_span(node: exp.Expr) -> bool:
    """True for ``INTERVAL 1 SECOND`` and for a text cast to INTERVAL."""
    match node:
        case exp.Interval():
            return True
        case exp.Cast(this=exp.Literal(is_string=True), to=target):
            return bool(target.this is exp.DataType.Type.INTERVAL)
    return False


def duration_scalar(node: exp.Expr, kind: pa.DataType | None) -> pa.Scalar:
    """A span, or a text that is one, beside durations of type ``kind``.

    It is in their unit, or in microseconds where that is too coarse. A month has 30 days and a day
    24 hours, as where DuckDB compares spans. Raises ``PredicateError``.
    """
    if kind is None or not pa.types.is_duration(kind):
        beside = "a value of no known type" if kind is None else kind
        raise PredicateError(f"the span {text_of(node)} compares with durations, not with {beside}")
    found = interval_of(node) if isinstance(node, exp.Interval) else _interval(_text_in(node))
    if found is None:
        raise PredicateError(
            f"{text_of(node)} cannot be read as {kind}: spans are '1 day 2 hours' or '02:03:04'"
        )
    days = found.months * _MONTH_DAYS + found.days
    try:
        scalar = pa.scalar(days * _DAY_MICROSECONDS + found.microseconds, pa.duration("us"))
    except (OverflowError, pa.ArrowInvalid) as error:
        raise PredicateError(f"the span {text_of(node)} is out of range") from error
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
