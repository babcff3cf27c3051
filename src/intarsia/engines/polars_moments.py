"""What Polars asks of dates and datetimes: the day, the year, the beginning of a period."""

from __future__ import annotations

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

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
_DAYS = ("1d", "1w", "1mo", "1q", "1y")


def asked_of(
    expr: pl.Expr, moment: pl.Expr, field: pc.Expression, kind: pa.DataType
) -> tuple[pc.Expression, pa.DataType] | None:
    """What ``expr`` asks of ``moment``, the column that ``field`` is, and its type.

    None where that is something else, or the column has a time zone or is no moment.
    """
    is_date = pa.types.is_date32(kind)
    if not is_date and not (pa.types.is_timestamp(kind) and kind.tz is None):
        return None
    if expr.meta.eq(moment.dt.year()):
        return pc.year(field), pa.int64()
    if not is_date and expr.meta.eq(moment.dt.date()):
        return field.cast(pa.date32()), pa.date32()
    for every in _DAYS if is_date else _UNITS:
        if expr.meta.eq(moment.dt.truncate(every)):
            return pc.floor_temporal(field, unit=_UNITS[every]), kind
    return None
