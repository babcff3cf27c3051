"""Which reader carries a query out: ours, by page, or Spark's own (``native``)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from intarsia.errors import UnsupportedError
from intarsia.plan.plan import Amount, Plan
from intarsia.spark.read.dataset_files import Source
from intarsia.spark.read.driver_read import rows_of_little
from intarsia.spark.read.native_reader import HandOver, hand_over
from intarsia.spark.read.query import Query

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_BY_RECORD = "spark.sql.parquet.recordLevelFilter.enabled"
_BY_STATISTICS = "spark.sql.parquet.aggregatePushdown"
READERS = ("auto", "intarsia", "spark")
WIDE = 0.75
"""From this share of the bytes of its columns on, a query gains little by skipping."""


@dataclass(frozen=True, slots=True)
class Way:
    """How a query is carried out and why: by Spark's reader where there is a ``handed``.

    ``plan`` is None where none was needed to choose. ``rows`` are there where the driver has read
    them.
    """

    plan: Plan | None
    handed: HandOver | None
    reason: str
    rows: pa.Table | None = None

    def planned(self, source: Source, query: Query) -> Plan:
        """The plan, made now where there was none."""
        return query.plan(source.data) if self.plan is None else self.plan


def choose(spark: SparkSession, source: Source, query: Query, reader: str) -> Way:
    """The way of a query, by one of ``READERS``. Raises ``UnsupportedError`` as ``read`` does."""
    if reader not in READERS:
        raise ValueError(f"reader is one of {', '.join(READERS)}, not {reader!r}")
    if reader == "intarsia":
        return Way(None, None, "as asked for")
    if query.on_corrupt is not None or query.page_size_limit is not None:
        reason = "Spark's own reader does not check pages"
        if reader == "spark":
            raise UnsupportedError(reason)
        return Way(None, None, reason)
    plan = None if query.where is None else query.plan(source.data)
    files = source.files if plan is None else tuple(file.path for file in plan.files)
    if plan is not None and not files:
        return Way(plan, None, "no row is left", query.output.empty_table())
    if reader == "auto" and plan is not None:
        rows, left = rows_of_little(source, query, plan), _left(plan)
        if rows is not None or left.selected < WIDE * left.total:
            return Way(plan, None, _left_to_read(plan), rows)
    if query.where is not None and _is_on(spark, _BY_RECORD):
        found: HandOver | str = f"with {_BY_RECORD} it tells the zeros apart"
    elif _is_on(spark, _BY_STATISTICS):
        found = f"with {_BY_STATISTICS} it takes one column's statistics for another's"
    else:
        found = hand_over(source, query, files)
    if not isinstance(found, HandOver):
        reason = f"Spark's own reader might give other rows: {found}"
        if reader == "spark":
            raise UnsupportedError(reason)
        return Way(plan, None, reason)
    if reader == "spark":
        return Way(plan, found, "as asked for")
    return Way(plan, found, "there is no filter" if plan is None else _left_to_read(plan))


def _is_on(spark: SparkSession, setting: str) -> bool:
    return (spark.conf.get(setting, "false") or "").lower() == "true"


def _left(plan: Plan) -> Amount:
    """Bytes of the columns involved, in the files that are left."""
    return sum((column.bytes for file in plan.files for column in file.columns), Amount())


def _left_to_read(plan: Plan) -> str:
    left = _left(plan)
    share = f"{left.selected / left.total:.0%}" if left.total else "none"
    return f"{share} of the bytes of its columns are left to read"
