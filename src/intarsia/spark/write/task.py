"""The work of one task: it writes its rows as files with indexes, under temporary names."""

from __future__ import annotations

import os
import secrets
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from intarsia.spark.commit.commit import TEMPORARY
from intarsia.spark.types import leaves
from intarsia.spark.write.job_spec import Job
from intarsia.spark.write.row_sorting import by_folder, runs_in_order
from intarsia.writer.parquet_writer import open_writer
from intarsia.writer.row_buffer import ROW_GROUP_BYTES, Rows

ROW_GROUP_ROWS = 1024 * 1024
"""Maximum rows of a row group; it also ends at ``ROW_GROUP_BYTES``."""
SORTED_BYTES = 256 * 1024 * 1024
"""Arrow memory, in bytes, of the rows that a task sorts at a time."""
SAMPLE_ROWS = 64 * 1024
"""Rows written to a scratch file first, to learn how many bytes of a file a row takes."""
_SLACK_DIVISOR = 4
"""A task's last rows go into the file before if they are at most a quarter of the target."""


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """A published file.

    Parameters
    ----------
    path : str
        The path relative to the data set's folder.
    rows : int
        The number of rows.
    bytes : int
        The length of the file in bytes.

    Examples
    --------
    ::

        [(file.path, file.bytes) for file in ias.write(df, "lake/logs", mode="append")]
    """

    path: str
    rows: int
    bytes: int


def write_task(batches: Iterator[pa.RecordBatch], job: Job, label: str = "") -> list[WrittenFile]:
    """Writes the rows of a task; ``label`` becomes part of the names of its files."""
    from pyspark import TaskContext

    context = TaskContext.get()
    number = context.partitionId() if context else 0
    stem = f"part-{label}{number:05}"
    order = (*job.partition_by, *job.sorted_by)
    # Each sorted run is a file of its own, as a footer states the order of its whole file.
    needs_sort = job.sorts and order
    runs = runs_in_order(batches, order, SORTED_BYTES) if needs_sort else [batches]
    return [
        file
        for run in runs
        for folder, tables in by_folder(iter(run), job.partition_by, job.time_zone)
        for file in _write_folder(job, folder, stem, Rows(tables))
    ]


def _write_folder(job: Job, folder: str, stem: str, rows: Rows) -> Iterator[WrittenFile]:
    """Writes the rows of one folder as one file, or as many as the target size requires."""
    sample = rows.peek(SAMPLE_ROWS) if job.target_bytes else None
    row_bytes = 0.0 if sample is None else bytes_a_row(job, sample)
    while rows.peek(1) is not None:
        max_rows = None if not job.target_bytes else max(1, int(job.target_bytes / row_bytes))
        name = str(Path(folder, f"{stem}-{secrets.token_hex(8)}.parquet"))
        count = _write_file(job, f"{TEMPORARY}{job.name}/{name}", rows, max_rows)
        size = job.place.size(f"{TEMPORARY}{job.name}/{name}")
        row_bytes = size / count
        yield WrittenFile(name, count, size)


def _write_file(job: Job, name: str, rows: Rows, most: int | None) -> int:
    """Writes the next ``most`` rows, or up to a quarter more; returns their number."""
    written = 0
    with job.place.written(name) as path, open_job_writer(job, path) as writer:
        while most is None or written < most:
            limit = ROW_GROUP_ROWS if most is None else min(ROW_GROUP_ROWS, most - written)
            is_last = most is not None and limit == most - written
            slack = (
                min(most // _SLACK_DIVISOR, ROW_GROUP_ROWS) if most is not None and is_last else 0
            )
            group = rows.take(limit, ROW_GROUP_BYTES, slack)
            if group is None:
                break
            write_group(writer, group, job)
            written += len(group)
    return written


def write_group(writer: pq.ParquetWriter, group: pa.Table, job: Job) -> None:
    """Writes rows as one row group, in the columns and types of the job's files."""
    rows = group.select(job.schema.names).cast(job.schema)
    writer.write_table(rows, row_group_size=max(len(rows), 1))


def open_job_writer(job: Job, path: Path) -> Any:
    """Opens a writer for one of the job's files."""
    options: dict[str, Any] = {"max_rows_per_page": job.rows_per_page, **job.options}
    sorting = _sorting_columns(job)
    if sorting:
        options["sorting_columns"] = sorting
    return open_writer(
        job.schema,
        path,
        job.indexes,
        checkpoint_row_groups=job.checkpoint_row_groups,
        keep_unfinished=job.keep_unfinished,
        annotations=job.annotations,
        **options,
    )


def bytes_a_row(job: Job, rows: pa.Table) -> float:
    """Returns the bytes of a file per row, indexes included.

    The rows are written to a scratch file to measure it.
    """
    with tempfile.TemporaryDirectory(prefix="intarsia-") as scratch:
        path = Path(scratch, "sample.parquet")
        with open_job_writer(job, path) as writer:
            write_group(writer, rows, job)
        return os.path.getsize(path) / max(len(rows), 1)


def _sorting_columns(job: Job) -> list[pq.SortingColumn]:
    """Returns the order that footers state, with NULL first."""
    sorting_columns = []
    for name in job.stated_order:
        position = job.schema.get_field_index(name)
        leaf = sum(len(leaves(field.type)) for field in list(job.schema)[:position])
        sorting_columns.append(pq.SortingColumn(leaf, nulls_first=True))
    return sorting_columns
