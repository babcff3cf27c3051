"""The work of one task: it writes its rows as files with indexes, under temporary names."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from intarsia.commit.job import Job, WrittenFile, write_folder
from intarsia.writer.row_buffer import Rows
from intarsia.writer.row_sorting import SORTED_BYTES, by_folder, runs_in_order


def write_task(batches: Iterator[pa.RecordBatch], job: Job) -> list[WrittenFile]:
    """Writes the rows of a task."""
    from pyspark import TaskContext

    context = TaskContext.get()
    number = context.partitionId() if context else 0
    stem = f"part-{number:05}"
    order = (*job.partition_by, *job.sorted_by)
    # Each sorted run is a file of its own, as a footer states the order of its whole file.
    needs_sort = job.sorts and order
    runs = runs_in_order(batches, order, SORTED_BYTES) if needs_sort else [batches]
    return [
        file
        for run in runs
        for folder, tables in by_folder(iter(run), job.partition_by, job.time_zone)
        for file in write_folder(job, folder, stem, Rows(tables))
    ]
