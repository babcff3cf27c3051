"""The order in which rows go into files: by folder, then by columns or along a curve."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from intarsia.commit.job import Job, names_of
from intarsia.commit.storage import Place
from intarsia.expr.evaluate import unused
from intarsia.spark.column_names import quoted
from intarsia.spark.write.job_spec import Layout, job_of
from intarsia.spark.write.space_filling_curve import place_on_curve
from intarsia.spark.write.statistics_pass import collect_statistics

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_CURVE_COLUMN = "__intarsia_place"


def cluster(
    df: DataFrame,
    cluster_by: Sequence[str],
    *,
    curve: str | None = None,
    partition_by: Sequence[str] = (),
    sort_within: Sequence[str] = (),
    num_partitions: int | None = None,
) -> DataFrame:
    """Returns the rows in the order in which ``write`` would put them into files.

    This is for ``df.write.format("intarsia")``, which writes rows in the order in which they come.
    With a ``curve``, a pass over ``df`` samples its columns now.

    Parameters
    ----------
    df : pyspark.sql.DataFrame
        The rows.
    cluster_by, curve, partition_by, sort_within
        As for ``write``.
    num_partitions : int, optional
        The number of tasks, by default Spark's.

    Returns
    -------
    pyspark.sql.DataFrame
        The same rows, partitioned and sorted.

    Raises
    ------
    PredicateError
        If a column does not exist or cannot be on a curve.

    Examples
    --------
    ::

        sorted_df = ias.cluster(df, ["user_id", "ts"], curve="hilbert")
        sorted_df.write.format("intarsia").save("lake/logs")
    """
    layout = Layout(
        partition_by=partition_by, cluster_by=cluster_by, curve=curve, sort_within=sort_within
    )
    job = job_of(Place.of("."), "", df.schema, layout, "UTC")
    return in_layout_order(df, layout, job, num_partitions)


def in_layout_order(
    df: DataFrame, layout: Layout, job: Job, num_partitions: int | None = None
) -> DataFrame:
    """Returns ``df`` in the order of ``layout``, in tasks for files of the target size."""
    folders, clusters = names_of(layout.partition_by), names_of(layout.cluster_by)
    sort_columns = names_of(layout.sort_within)
    curve_columns = clusters if layout.curve else ()
    needs_sizes = bool(job.target_bytes and (folders or clusters) and num_partitions is None)
    if not (folders or clusters):
        return df.sortWithinPartitions(*map(quoted, sort_columns)) if sort_columns else df
    names = df.columns
    statistics = (
        collect_statistics(df, job, curve_columns, sizes=needs_sizes)
        if curve_columns or needs_sizes
        else None
    )
    ranges = [*folders, *clusters]
    if statistics is not None and layout.curve and statistics.bounds:
        curve_column = unused(_CURVE_COLUMN, [name.lower() for name in names])
        df = df.withColumn(curve_column, place_on_curve(layout.curve, df.schema, statistics.bounds))
        ranges = [*folders, curve_column]
    if statistics is not None and needs_sizes and job.target_bytes:
        num_partitions = max(1, -(-statistics.bytes // job.target_bytes))
    columns = [quoted(name) for name in ranges]
    if num_partitions is None:
        df = df.repartitionByRange(*columns)
    else:
        df = df.repartitionByRange(num_partitions, *columns)
    order = (
        [*folders, *sort_columns]
        if sort_columns
        else [*ranges, *(n for n in clusters if n not in ranges)]
    )
    return df.sortWithinPartitions(*map(quoted, order)).select(*map(quoted, names))
