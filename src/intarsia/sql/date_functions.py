"""What SQL asks of a moment: the beginning of the day, the month … it is in, or that one's number.

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

_NUMBERS: dict[str, Callable[[pc.Expression], pc.Expression]] = {
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
_CALLED: dict[type[exp.Expr], str] = {
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
_BY_NAME = ("date_part", "datepart")


class Part(NamedTuple):
    """What is asked of the moment that ``subject`` is."""

    subject: exp.Expr
    name: str
    is_beginning: bool = False
    """The beginning of what ``name`` is, or its number?"""

    def type(self, kind: pa.DataType | None) -> pa.DataType:
        """The type of this, of moments of type ``kind``. Raises ``PredicateError``."""
        asked = "date_trunc" if self.is_beginning else self.name
        if kind is None or not is_moment(kind):
            raise PredicateError(f"{asked} needs a day or a moment, and {self._text()} is {kind}")
        units = DAYS if pa.types.is_date32(kind) else (*TIMES, *DAYS)
        if self.is_beginning and self.name not in units:
            raise PredicateError(f"{asked} of {self._text()}, {kind}, knows no {self.name!r}")
        return _in_utc(kind) if self.is_beginning else pa.int64()

    def of(self, moments: pc.Expression, kind: pa.DataType | None) -> pc.Expression:
        """This of ``moments``, of type ``kind``, in UTC where they have a time zone.

        Errors as of ``type``.
        """
        self.type(kind)
        moments = in_utc(moments, kind)
        if pa.types.is_date32(kind) and self.name in TIMES:  # of its midnight
            moments = moments.cast(pa.timestamp("s"))
        if self.is_beginning:
            return pc.floor_temporal(moments, unit=self.name)
        return _NUMBERS[self.name](moments)

    def _text(self) -> str:
        return text_of(self.subject)


def part_of(node: exp.Expr) -> Part | None:
    """What ``node`` asks of a moment; None where it asks something else."""
    match node:
        case exp.TimestampTrunc(this=subject) | exp.DateTrunc(this=subject):
            try:
                return Part(subject, unit_name(node.text("unit")), is_beginning=True)
            except UnknownValueError:
                return None
        case exp.Extract(this=exp.Expr() as asked, expression=subject):
            return _number(asked.name, subject)
        case exp.Anonymous(this=str(name), expressions=[exp.Literal() as asked, subject]) if (
            name.lower() in _BY_NAME
        ):
            return _number(asked.name, subject)
    called = _CALLED.get(type(node))
    return None if called is None else Part(node.this, called)


def _number(name: str, subject: exp.Expr) -> Part | None:
    name = _ALIASES.get(name.lower(), name.lower())
    return Part(subject, name) if name in _NUMBERS else None


def in_utc(moments: pc.Expression, kind: pa.DataType) -> pc.Expression:
    """``moments``, of type ``kind``, in UTC where they have a time zone."""
    return moments if _in_utc(kind) == kind else moments.cast(_in_utc(kind))


def _in_utc(kind: pa.DataType) -> pa.DataType:
    return pa.timestamp(kind.unit, "UTC") if has_zone(kind) else kind
