"""``read_delta`` and ``read_iceberg``: tables at one version, read as ``read`` reads files."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

import pyarrow.compute as pc

from intarsia.io.storage import PathLike
from intarsia.spark.read.dataset_files import Source
from intarsia.spark.read.read import read_source
from intarsia.spark.session import require_pyspark
from intarsia.tables.delta import delta
from intarsia.tables.iceberg import iceberg

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from pyiceberg.table import Table
    from pyspark.sql import DataFrame, SparkSession


def read_delta(
    spark: SparkSession,
    table: PathLike | DeltaTable,
    *,
    columns: Sequence[str] | None = None,
    where: pc.Expression | str | None = None,
    version: int | str | datetime | None = None,
    reader: str | None = None,
    storage_options: Mapping[str, str] | None = None,
    filesystem: Any = None,
    sidecar: PathLike | None = None,
) -> DataFrame:
    """Returns the rows of a Delta Lake table for which ``where`` is true, as a DataFrame.

    The driver reads the log and plans. Deleted rows are left out, and columns have the names of the
    table. Spark's own reader reads tables of which the files say everything.

    Parameters
    ----------
    spark : pyspark.sql.SparkSession
        The session.
    table, version, storage_options, filesystem, sidecar
        As for ``intarsia.delta``.
    columns, where, reader
        As for ``read``.

    Returns
    -------
    pyspark.sql.DataFrame
        The matching rows, in Spark's types.

    Raises
    ------
    PathError, UnsupportedError, MissingDependencyError
        As ``intarsia.delta`` does.
    PredicateError, UnsupportedError
        As ``read`` does.

    Examples
    --------
    ::

        events = ias.read_delta(spark, "/lake/events", where="key = 'k1'", version=7)
    """
    require_pyspark()
    data = delta(
        table,
        version=version,
        storage_options=storage_options,
        filesystem=filesystem,
        sidecar=sidecar,
    )
    return read_source(spark, Source(data, None), columns, where, reader)


def read_iceberg(
    spark: SparkSession,
    table: Table | str | os.PathLike[str],
    *,
    columns: Sequence[str] | None = None,
    where: pc.Expression | str | None = None,
    snapshot_id: int | None = None,
    ref: str | None = None,
    reader: str | None = None,
    sidecar: PathLike | None = None,
) -> DataFrame:
    """Returns the rows of an Iceberg table for which ``where`` is true, as a DataFrame.

    The driver reads the metadata and plans. Deleted rows are left out, and columns go by field ids.

    Parameters
    ----------
    spark : pyspark.sql.SparkSession
        The session.
    table, snapshot_id, ref, sidecar
        As for ``intarsia.iceberg``.
    columns, where, reader
        As for ``read``.

    Returns
    -------
    pyspark.sql.DataFrame
        The matching rows, in Spark's types.

    Raises
    ------
    PathError, UnsupportedError, MissingDependencyError
        As ``intarsia.iceberg`` does.
    PredicateError, UnsupportedError
        As ``read`` does.

    Examples
    --------
    ::

        events = ias.read_iceberg(spark, catalog.load_table("lake.events"), where="key = 'k1'")
    """
    require_pyspark()
    data = iceberg(table, snapshot_id, ref, sidecar=sidecar)
    return read_source(spark, Source(data, None), columns, where, reader)
