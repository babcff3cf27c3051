"""``sql``: Spark runs a query, and reads of each table what the query's conditions leave.

Each mention of a data set becomes a read of its own, with the columns and conditions that reach it.
The query is given to Spark as it was written, but for the names of tables; conditions stay in it.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import pyarrow as pa

from intarsia.dataset.partitioning import folder_of
from intarsia.io.storage import PathLike
from intarsia.spark.read.dataset_files import Source
from intarsia.spark.read.query import query_of
from intarsia.spark.read.read import frame_of, opened
from intarsia.spark.session import require_pyspark
from intarsia.spark.sql.spark_dialect import is_as_written, seen_by
from intarsia.spark.types import arrow_schema
from intarsia.sql.query.scans import Query, Scan, scans_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def sql(spark: SparkSession, query: str, /, **tables: DataFrame | PathLike) -> DataFrame:
    """The answer of a SQL query of Spark's, over data sets or DataFrames by name, as a DataFrame.

    ``ias.sql(spark, "SELECT … FROM logs JOIN users USING (id) WHERE …", logs="lake/logs",
    users=frame)``. A path is opened as ``read`` does, and planned now. Conditions are pushed to it
    where they are certain to mean the same; answers are Spark's own either way. Names of ``tables``
    go before the session's tables and views, which are there as ever. The folder of a Delta or
    Iceberg table is refused: give ``read(spark, path, table_format="ignore")``, if at all. Raises
    ``PathError`` where there is no file, ``PredicateError`` for tables whose names differ by case
    only, and Spark's errors for what is wrong with the query.
    """
    require_pyspark()
    sources = {name: _source(table) for name, table in tables.items()}
    known = {
        name: _schema(table) if (source := sources[name]) is None else source.data.schema
        for name, table in tables.items()
    }
    rewritten = scans_of(query, known, "spark", seen_by(spark, query))
    if not is_as_written(spark, query):  # names of tables are looked at all the same
        rewritten = Query(query, (), tuple(known))
    frames = {scan.name: _scanned(spark, scan, tables, sources) for scan in rewritten.scans}
    whole = {name: _whole(spark, tables[name], sources[name]) for name in rewritten.others}
    with _views(spark, whole):
        return spark.sql(_with_fields(rewritten), **frames)


def _source(table: DataFrame | PathLike) -> Source | None:
    """A data set's; None of a DataFrame. Raises ``TypeError`` for what is neither."""
    from pyspark.sql import DataFrame

    if isinstance(table, str | os.PathLike):
        return Source(opened(table), folder_of(table))
    if not isinstance(table, DataFrame):
        raise TypeError(f"a table is a path or a DataFrame, not {type(table).__name__}")
    return None


def _schema(frame: DataFrame | PathLike) -> pa.Schema:
    assert not isinstance(frame, str | os.PathLike)
    return arrow_schema(frame.schema)


def _scanned(
    spark: SparkSession,
    scan: Scan,
    tables: Mapping[str, DataFrame | PathLike],
    sources: Mapping[str, Source | None],
) -> DataFrame:
    """What one mention of a table stands for."""
    source = sources[scan.table]
    if source is None:
        return _whole(spark, tables[scan.table], None)
    columns = scan.columns or source.data.schema.names[:1]  # for rows to be counted
    return frame_of(spark, source, query_of(source.data, columns, scan.filter))


def _whole(spark: SparkSession, table: DataFrame | PathLike, source: Source | None) -> DataFrame:
    if source is not None:
        return frame_of(spark, source, query_of(source.data, None, None))
    assert not isinstance(table, str | os.PathLike)
    return table.select("*")  # of its own, so that Spark can tell two mentions apart


def _with_fields(query: Query) -> str:
    """The query with its scans as fields to be formatted, which Spark puts DataFrames into."""
    if not query.scans:
        return query.sql
    text = query.sql.replace("{", "{{").replace("}", "}}")
    for scan in reversed(query.scans):  # scan_1 is how scan_10 begins
        text = text.replace(scan.name, f"{{{scan.name}}}")
    return text


@contextlib.contextmanager
def _views(spark: SparkSession, frames: Mapping[str, DataFrame]) -> Iterator[None]:
    """Views of these names, in place of the session's own, for as long as a query is analyzed."""
    before = {name: spark.table(name) for name in frames if _is_view(spark, name)}
    try:
        for name, frame in frames.items():
            frame.createOrReplaceTempView(name)
        yield
    finally:
        for name in frames:
            spark.catalog.dropTempView(name)
        for name, frame in before.items():
            frame.createOrReplaceTempView(name)


def _is_view(spark: SparkSession, name: str) -> bool:
    return any(
        table.isTemporary and table.name.lower() == name.lower()
        for table in spark.catalog.listTables()
    )
