"""SQL functions of a date or timestamp: the beginning of its day, month, …, or that one's number.

Sources: DuckDB's documentation, "Date Part Functions" and ``date_trunc``.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from intarsia.errors import PredicateError
from intarsia.expr.casts import has_zone, is_moment
from intarsia.expr.constant_evaluation import DAYS, TIMES, UnknownValueError, unit_name
from intarsia.expr.sql_text import text_of

_PART_NUMBERS: dict[str, Callable[[pc.Expression], pc.Expression]] = {
    "year": pc.year,
    "quarter": pc.quarter,
    "month": pc.month,
    "week": pc.iso_week,
    "day": pc.day,
    "hour": pc.hour,
    "minute": pc.minute,
    "second": pc.second,
    "dayofweek": functools.partial(pc.day_of_week, week_start=7),
    "isodow": functools.partial(pc.day_of_week, count_from_zero=False),
    "dayofyear": pc.day_of_year,
}
_ALIASES = {"dow": "dayofweek", "doy": "dayofyear", "dayofmonth": "day"}
_NAME_BY_NODE: dict[type[exp.Expr], str] = {
    exp.Year: "year",
    exp.Quarter: "quarter",
    exp.Month: "month",
    exp.Day: "day",
    exp.Hour: "hour",
    exp.Minute: "minute",
    exp.Second: "second",
    exp.Week: "week",
    exp.DayOfMonth: "day",
    exp.DayOfWeek: "dayofweek",
    exp.DayOfWeekIso: "isodow",
    exp.DayOfYear: "dayofyear",
}
_PART_FUNCTIONS = ("date_part", "datepart")


class Part(NamedTuple):
    """A call of ``date_trunc``, or of a date part function, on ``subject``."""

    subject: exp.Expr
    name: str
    is_beginning: bool = False
    """True for the beginning of the part, as of ``date_trunc``; False for its number."""

    def type(self, kind: pa.DataType | None) -> pa.DataType:
        """Returns the type of the result for values of type ``kind``.

        Raises ``PredicateError`` if ``kind`` is no date or timestamp, or does not have the part.
        """
        function = "date_trunc" if self.is_beginning else self.name
        if kind is None or not is_moment(kind):
            raise PredicateError(
                f"{function} needs a date or a timestamp, and {self._text()} is {kind}"
            )
        units = DAYS if pa.types.is_date32(kind) else (*TIMES, *DAYS)
        if self.is_beginning and self.name not in units:
            raise PredicateError(f"{function} of {self._text()}, {kind}, has no part {self.name!r}")
        return _in_utc(kind) if self.is_beginning else pa.int64()

    def of(self, moments: pc.Expression, kind: pa.DataType | None) -> pc.Expression:
        """Returns the call on ``moments``, which are values of type ``kind``.

        Values with a time zone are converted to UTC. Raises ``PredicateError`` as ``type`` does.
        """
        self.type(kind)
        moments = in_utc(moments, kind)
        if pa.types.is_date32(kind) and self.name in TIMES:  # a date's time is midnight
            moments = moments.cast(pa.timestamp("s"))
        if self.is_beginning:
            return pc.floor_temporal(moments, unit=self.name)
        return _PART_NUMBERS[self.name](moments)

    def _text(self) -> str:
        return text_of(self.subject)


def part_of(node: exp.Expr) -> Part | None:
    """Returns the date part that ``node`` computes, or None if it is no such call."""
    match node:
        case exp.TimestampTrunc(this=subject) | exp.DateTrunc(this=subject):
            try:
                return Part(subject, unit_name(node.text("unit")), is_beginning=True)
            except UnknownValueError:
                return None
        case exp.Extract(this=exp.Expr() as part, expression=subject):
            return _number(part.name, subject)
        case exp.Anonymous(this=str(name), expressions=[exp.Literal() as part, subject]) if (
            name.lower() in _PART_FUNCTIONS
        ):
            return _number(part.name, subject)
    part_name = _NAME_BY_NODE.get(type(node))
    return None if part_name is None else Part(node.this, part_name)


def _number(name: str, subject: exp.Expr) -> Part | None:
    name = _ALIASES.get(name.lower(), name.lower())
    return Part(subject, name) if name in _PART_NUMBERS else None


def in_utc(moments: pc.Expression, kind: pa.DataType) -> pc.Expression:
    """Returns ``moments``, of type ``kind``, converted to UTC if they have a time zone."""
    return moments if _in_utc(kind) == kind else moments.cast(_in_utc(kind))


def _in_utc(kind: pa.DataType) -> pa.DataType:
    return pa.timestamp(kind.unit, "UTC") if has_zone(kind) else kind
