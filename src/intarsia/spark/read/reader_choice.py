"""The choice of the reader of a query: Intarsia's, which reads by page, or Spark's own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from intarsia.errors import UnsupportedError
from intarsia.plan.plan import Amount, Plan
from intarsia.spark.read.dataset_files import Source
from intarsia.spark.read.driver_read import read_on_driver
from intarsia.spark.read.native_reader import NativeRead, plan_native_read
from intarsia.spark.read.query import Query

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_RECORD_FILTER = "spark.sql.parquet.recordLevelFilter.enabled"
_STATISTICS_AGGREGATION = "spark.sql.parquet.aggregatePushdown"
READERS = ("auto", "intarsia", "spark")
"""The values of the argument ``reader`` of ``read``."""
WIDE = 0.75
"""The share of its columns' bytes from which on a query gains little by skipping pages."""


@dataclass(frozen=True, slots=True)
class ReaderChoice:
    """The reader of a query, and the reason.

    ``native`` holds the files for Spark's own reader; None means that Intarsia reads. ``plan`` is
    None if no plan was needed to choose. ``rows`` are set if the driver has read them.
    """

    plan: Plan | None
    native: NativeRead | None
    reason: str
    rows: pa.Table | None = None

    def planned(self, source: Source, query: Query) -> Plan:
        """Returns the plan, and makes it now if the choice needed none."""
        return query.plan(source.data) if self.plan is None else self.plan


def choose(spark: SparkSession, source: Source, query: Query, reader: str) -> ReaderChoice:
    """Returns the reader. Raises ``UnsupportedError`` as ``read`` does, or ``ValueError``."""
    if reader not in READERS:
        raise ValueError(f"reader is one of {', '.join(READERS)}, not {reader!r}")
    if reader == "intarsia":
        return ReaderChoice(None, None, "as asked for")
    if query.on_corrupt is not None or query.page_size_limit is not None:
        reason = "Spark's own reader does not check pages"
        if reader == "spark":
            raise UnsupportedError(reason)
        return ReaderChoice(None, None, reason)
    plan = None if query.where is None else query.plan(source.data)
    files = source.files if plan is None else tuple(file.path for file in plan.files)
    if plan is not None and not files:
        return ReaderChoice(plan, None, "no row is left", query.output.empty_table())
    if reader == "auto" and plan is not None:
        rows, amount = read_on_driver(source, query, plan), _selected_bytes(plan)
        if rows is not None or amount.selected < WIDE * amount.total:
            reason = _share_to_read(plan) if rows is None else "little is left to read"
            return ReaderChoice(plan, None, reason, rows)
    if query.where is not None and _is_on(spark, _RECORD_FILTER):
        files_or_reason: NativeRead | str = (
            f"with {_RECORD_FILTER} it treats 0.0 and -0.0 as unequal"
        )
    elif _is_on(spark, _STATISTICS_AGGREGATION):
        files_or_reason = (
            f"with {_STATISTICS_AGGREGATION} it takes one column's statistics for another's"
        )
    else:
        files_or_reason = plan_native_read(source, query, files)
    if not isinstance(files_or_reason, NativeRead):
        reason = f"Spark's own reader might give other rows: {files_or_reason}"
        if reader == "spark":
            raise UnsupportedError(reason)
        return ReaderChoice(plan, None, reason)
    if reader == "spark":
        return ReaderChoice(plan, files_or_reason, "as asked for")
    return ReaderChoice(
        plan, files_or_reason, "there is no filter" if plan is None else _share_to_read(plan)
    )


def _is_on(spark: SparkSession, setting: str) -> bool:
    return (spark.conf.get(setting, "false") or "").lower() == "true"


def _selected_bytes(plan: Plan) -> Amount:
    """Returns the bytes of the query's columns in the plan's files: selected and total."""
    return sum((column.bytes for file in plan.files for column in file.columns), Amount())


def left_to_read(plan: Plan, num_files: int) -> str:
    """Returns the files that a plan leaves of ``num_files``, and the bytes of their columns."""
    amount = _selected_bytes(plan)
    files = f"{len(plan.files):,} of {num_files:,} files"
    return f"{files}, {amount.selected:,} of {amount.total:,} bytes of their columns"


def _share_to_read(plan: Plan) -> str:
    amount = _selected_bytes(plan)
    share = f"{amount.selected / amount.total:.0%}" if amount.total else "none"
    return f"{share} of the bytes of its columns are left to read"
