"""Runs a function on the driver's objects in Spark's tasks, one task for each object."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa

from intarsia.spark.job_status import Progress, counted, described
from intarsia.spark.session import parallelism_of
from intarsia.spark.task_error import raising_task_errors

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

T = TypeVar("T")
R = TypeVar("R")


def divided(spark: SparkSession, items: Sequence[T], most: int) -> list[Sequence[T]]:
    """Returns items in runs of at most ``most``, with enough runs for all cores."""
    size = max(1, min(most, -(-len(items) // parallelism_of(spark))))
    return [items[at : at + size] for at in range(0, len(items), size)]


def map_tasks(
    spark: SparkSession,
    tasks: Sequence[T],
    work: Callable[[T], Iterable[pa.RecordBatch]],
    schema: StructType | str,
) -> DataFrame:
    """Returns the rows that ``work`` gives for each of ``tasks``."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from work(tasks[number])

    return spark.range(len(tasks), numPartitions=max(len(tasks), 1)).mapInArrow(run, schema)


def results_of(
    spark: SparkSession,
    tasks: Sequence[Sequence[T]],
    work: Callable[[Sequence[T]], R],
    description: str,
    progress: Progress | None = None,
) -> list[R]:
    """Returns the results of ``work``, in the order of ``tasks``. Raises the errors of tasks.

    A task is a list of items, mostly files. ``description`` says in Spark's UI and in the log what
    the job does to them. ``progress`` is called with the items that are done.
    """
    if not tasks:
        return []
    total = sum(map(len, tasks))
    with (
        raising_task_errors(),
        described(spark, description),
        counted(spark, description, total, progress) as count,
    ):

        def pickled(numbered: tuple[int, Sequence[T]]) -> Iterator[pa.RecordBatch]:
            number, task = numbered
            columns: dict[str, list[Any]] = {"task": [number], "result": [pickle.dumps(work(task))]}
            if count is not None:
                count(len(task))
            yield pa.RecordBatch.from_pydict(columns)

        numbered = list(enumerate(tasks))
        rows = map_tasks(spark, numbered, pickled, "task long, result binary").collect()
    return [pickle.loads(row.result) for row in sorted(rows, key=lambda row: row.task)]
