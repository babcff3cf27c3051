"""Parts of dates and datetimes in Polars expressions: the day, the hour, the start of a period."""

from __future__ import annotations

from functools import partial

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from intarsia.expr.casts import has_zone, is_moment
from intarsia.expr.constant_evaluation import DAYS

_UNITS = {
    "1us": "microsecond",
    "1ms": "millisecond",
    "1s": "second",
    "1m": "minute",
    "1h": "hour",
    "1d": "day",
    "1w": "week",
    "1mo": "month",
    "1q": "quarter",
    "1y": "year",
}
_NUMBERS = {
    "month": pc.month,
    "day": pc.day,
    "quarter": pc.quarter,
    "weekday": partial(pc.day_of_week, count_from_zero=False, week_start=1),
    "hour": pc.hour,
    "minute": pc.minute,
    "second": pc.second,
}
"""Parts that are right in every year. Weeks and days of the year are not: Arrow's calendar ends
before the last timestamp."""
_OF_TIME = ("hour", "minute", "second")


def date_part(
    expr: pl.Expr, moment: pl.Expr, field: pc.Expression, kind: pa.DataType
) -> tuple[pc.Expression, pa.DataType] | None:
    """Returns the part of ``moment``, which is ``field``, that ``expr`` computes; and its type.

    Returns None for any other expression, for columns with a time zone and for other types.
    """
    if not is_moment(kind) or has_zone(kind):
        return None
    is_date = pa.types.is_date32(kind)
    if expr.meta.eq(moment.dt.year()):
        return pc.year(field), pa.int64()
    if not is_date and expr.meta.eq(moment.dt.date()):
        return field.cast(pa.date32()), pa.date32()
    for name, number in _NUMBERS.items():
        if not (is_date and name in _OF_TIME) and expr.meta.eq(getattr(moment.dt, name)()):
            return number(field), pa.int64()
    for every, unit in _UNITS.items():
        if (unit in DAYS or not is_date) and expr.meta.eq(moment.dt.truncate(every)):
            return pc.floor_temporal(field, unit=unit), kind
    return None
