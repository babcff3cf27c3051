"""The order in which rows go into files: by folder, then by columns or along a curve."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from intarsia.expr.evaluate import unused
from intarsia.spark.column_names import quoted
from intarsia.spark.commit.storage import Place
from intarsia.spark.write.job_spec import Job, Layout, job_of, names_of
from intarsia.spark.write.space_filling_curve import place_on_curve
from intarsia.spark.write.statistics_pass import survey

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_PLACE = "__intarsia_place"


def cluster(
    df: DataFrame,
    cluster_by: Sequence[str],
    *,
    curve: str | None = None,
    partition_by: Sequence[str] = (),
    sort_within: Sequence[str] = (),
    num_partitions: int | None = None,
) -> DataFrame:
    """The rows of ``df`` in the order in which ``write`` would put them into files.

    For ``df.write.format("intarsia")``, which writes rows as they come. Arguments are those of
    ``write``; ``num_partitions`` is Spark's number of tasks unless given. With a ``curve``, a pass
    over ``df`` samples its columns, now. Raises ``PredicateError`` for columns that are not there
    or cannot be on a curve.
    """
    layout = Layout(
        partition_by=partition_by, cluster_by=cluster_by, curve=curve, sort_within=sort_within
    )
    job = job_of(Place.of("."), "", df.schema, layout, "UTC")
    return arranged(df, layout, job, num_partitions)


def arranged(
    df: DataFrame, layout: Layout, job: Job, num_partitions: int | None = None
) -> DataFrame:
    """``df`` in the order that ``layout`` asks for, in tasks that make a file of the target size
    each, about, where there is one.
    """
    folders, clusters = names_of(layout.partition_by), names_of(layout.cluster_by)
    within = names_of(layout.sort_within)
    keys = clusters if layout.curve else ()
    sizes = bool(job.target_bytes and (folders or clusters) and num_partitions is None)
    if not (folders or clusters):
        return df.sortWithinPartitions(*map(quoted, within)) if within else df
    names = df.columns
    found = survey(df, job, keys, sizes=sizes) if keys or sizes else None
    ranges = [*folders, *clusters]
    if found is not None and layout.curve and found.bounds:
        place = unused(_PLACE, [name.lower() for name in names])
        df = df.withColumn(place, place_on_curve(layout.curve, df.schema, found.bounds))
        ranges = [*folders, place]
    if found is not None and sizes and job.target_bytes:
        num_partitions = max(1, -(-found.bytes // job.target_bytes))
    columns = [quoted(name) for name in ranges]
    if num_partitions is None:
        df = df.repartitionByRange(*columns)
    else:
        df = df.repartitionByRange(num_partitions, *columns)
    order = [*folders, *within] if within else [*ranges, *(n for n in clusters if n not in ranges)]
    return df.sortWithinPartitions(*map(quoted, order)).select(*map(quoted, names))
