"""``sql``: Spark runs a query over data sets that are pruned by the query's own conditions.

Each mention of a data set becomes a read of its own, with the columns and conditions that reach it.
Spark gets the query as it was written, except for the names of tables; all conditions stay in it.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import pyarrow as pa

from intarsia.dataset.dataset import Dataset
from intarsia.dataset.partitioning import folder_of
from intarsia.io.storage import PathLike
from intarsia.spark.read.dataset_files import Source
from intarsia.spark.read.query import query_of
from intarsia.spark.read.read import frame_of, opened
from intarsia.spark.session import require_pyspark
from intarsia.spark.sql.spark_dialect import condition_translator, is_as_written
from intarsia.spark.types import arrow_schema
from intarsia.sql.query.scans import Query, Scan, scans_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def sql(spark: SparkSession, query: str, /, **tables: DataFrame | Dataset | PathLike) -> DataFrame:
    """Returns the result of a SQL query in Spark's dialect, over data sets or DataFrames by name.

    Data sets are opened as ``read`` does, and planned now. A condition is pushed to a data set if
    it is certain to mean the same there; Spark computes the result either way. Names of ``tables``
    take precedence over the session's tables and views, which the query can use too.

    Parameters
    ----------
    spark : pyspark.sql.SparkSession
        The session.
    query : str
        The query.
    **tables : pyspark.sql.DataFrame, Dataset, str or path
        DataFrames, paths of data sets, and tables that ``intarsia.delta`` or ``intarsia.iceberg``
        opened, by the names that the query uses. The folders of such tables are refused: pass
        ``read(spark, path, table_format="ignore")`` to read one as plain files.

    Returns
    -------
    pyspark.sql.DataFrame
        The result.

    Raises
    ------
    PathError
        If there is no file.
    PredicateError
        If the names of two tables differ only by case.
    TypeError
        If a table is neither a path nor a DataFrame, nor a Delta or Iceberg table.

    Spark's own errors are raised for invalid queries.

    Examples
    --------
    ::

        ias.sql(
            spark,
            "SELECT name, ts FROM logs JOIN users USING (user_id) WHERE status = 500",
            logs="lake/logs",
            users=users,
        )
    """
    require_pyspark()
    sources = {name: _source(table) for name, table in tables.items()}
    schemas = {
        name: _schema(table) if (source := sources[name]) is None else source.data.schema
        for name, table in tables.items()
    }
    rewritten = scans_of(query, schemas, "spark", condition_translator(spark, query))
    if not is_as_written(spark, query):  # the table names have been checked nevertheless
        rewritten = Query(query, (), tuple(schemas))
    frames = {scan.name: _frame_of_scan(spark, scan, tables, sources) for scan in rewritten.scans}
    views = {name: _whole_table(spark, tables[name], sources[name]) for name in rewritten.others}
    with _views(spark, views):
        return spark.sql(_with_fields(rewritten), **frames)


def _source(table: DataFrame | Dataset | PathLike) -> Source | None:
    """Returns a table or the files at a path, or None for a DataFrame.

    Raises ``TypeError`` for others.
    """
    from pyspark.sql import DataFrame

    if isinstance(table, str | os.PathLike):
        return Source(opened(table), folder_of(table))
    if isinstance(table, Dataset):
        return Source.of_table(table)
    if not isinstance(table, DataFrame):
        raise TypeError(f"a table is a path or a DataFrame, not {type(table).__name__}")
    return None


def _schema(frame: DataFrame | Dataset | PathLike) -> pa.Schema:
    assert not isinstance(frame, str | os.PathLike | Dataset)
    return arrow_schema(frame.schema)


def _frame_of_scan(
    spark: SparkSession,
    scan: Scan,
    tables: Mapping[str, DataFrame | Dataset | PathLike],
    sources: Mapping[str, Source | None],
) -> DataFrame:
    """Returns the DataFrame that replaces one mention of a table."""
    source = sources[scan.table]
    if source is None:
        return _whole_table(spark, tables[scan.table], None)
    columns = scan.columns or source.data.schema.names[:1]  # one column suffices to count rows
    return frame_of(spark, source, query_of(source.data, columns, scan.filter))


def _whole_table(
    spark: SparkSession, table: DataFrame | Dataset | PathLike, source: Source | None
) -> DataFrame:
    if source is not None:
        return frame_of(spark, source, query_of(source.data, None, None))
    assert not isinstance(table, str | os.PathLike | Dataset)
    return table.select("*")  # a new DataFrame for each mention, so that Spark can distinguish them


def _with_fields(query: Query) -> str:
    """Returns the query with its scans as format fields, into which Spark puts DataFrames."""
    if not query.scans:
        return query.sql
    text = query.sql.replace("{", "{{").replace("}", "}}")
    for scan in reversed(query.scans):  # scan_10 before scan_1, its prefix
        text = text.replace(scan.name, f"{{{scan.name}}}")
    return text


@contextlib.contextmanager
def _views(spark: SparkSession, frames: Mapping[str, DataFrame]) -> Iterator[None]:
    """Defines temporary views while a query is analyzed. The session's own come back then."""
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
