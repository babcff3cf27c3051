"""What one task does: write its rows as files with their indexes, under temporary names."""

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
"""A row group is closed at as many rows, or at ``ROW_GROUP_BYTES``."""
SORTED_BYTES = 256 * 1024 * 1024
"""Arrow memory of the rows that a task which sorts holds at a time."""
SAMPLE_ROWS = 64 * 1024
"""Rows that are written once more, to learn how many bytes of a file a row takes."""
_SLACK = 4
"""What is left of a task's rows goes into its last file, up to a quarter of the target."""


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """A published file: its path below the data set's, its rows, and its length in bytes."""

    path: str
    rows: int
    bytes: int


def write_task(batches: Iterator[pa.RecordBatch], job: Job, label: str = "") -> list[WrittenFile]:
    """Write the rows of a task; ``label`` becomes part of the names of its files."""
    from pyspark import TaskContext

    context = TaskContext.get()
    number = context.partitionId() if context else 0
    stem = f"part-{label}{number:05}"
    order = (*job.partition_by, *job.sorted_by)
    # A file ends with its run: what a footer says of the order is taken for that of the file.
    sorts = job.sorts and order
    runs = runs_in_order(batches, order, SORTED_BYTES) if sorts else [batches]
    return [
        file
        for run in runs
        for folder, tables in by_folder(iter(run), job.partition_by, job.time_zone)
        for file in _write_folder(job, folder, stem, Rows(tables))
    ]


def _write_folder(job: Job, folder: str, stem: str, rows: Rows) -> Iterator[WrittenFile]:
    """One file, or as many as the target size asks for."""
    sample = rows.peek(SAMPLE_ROWS) if job.target_bytes else None
    row_bytes = 0.0 if sample is None else bytes_a_row(job, sample)
    while rows.peek(1) is not None:
        most = None if not job.target_bytes else max(1, int(job.target_bytes / row_bytes))
        name = str(Path(folder, f"{stem}-{secrets.token_hex(8)}.parquet"))
        count = _write_file(job, f"{TEMPORARY}{job.name}/{name}", rows, most)
        size = job.place.size(f"{TEMPORARY}{job.name}/{name}")
        row_bytes = size / count
        yield WrittenFile(name, count, size)


def _write_file(job: Job, name: str, rows: Rows, most: int | None) -> int:
    """Write the next rows, ``most`` or up to a quarter more; returns how many."""
    written = 0
    with job.place.written(name) as path, open_job_writer(job, path) as writer:
        while most is None or written < most:
            limit = ROW_GROUP_ROWS if most is None else min(ROW_GROUP_ROWS, most - written)
            is_last = most is not None and limit == most - written
            slack = min(most // _SLACK, ROW_GROUP_ROWS) if most is not None and is_last else 0
            group = rows.take(limit, ROW_GROUP_BYTES, slack)
            if group is None:
                break
            write_group(writer, group, job)
            written += len(group)
    return written


def write_group(writer: pq.ParquetWriter, group: pa.Table, job: Job) -> None:
    """Write rows as one row group, in the files' columns and types."""
    rows = group.select(job.schema.names).cast(job.schema)
    writer.write_table(rows, row_group_size=max(len(rows), 1))


def open_job_writer(job: Job, path: Path) -> Any:
    """``open_writer`` for one of the job's files."""
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
    """How many bytes of a file, indexes included, a row of these takes: they are written once."""
    with tempfile.TemporaryDirectory(prefix="intarsia-") as scratch:
        path = Path(scratch, "sample.parquet")
        with open_job_writer(job, path) as writer:
            write_group(writer, rows, job)
        return os.path.getsize(path) / max(len(rows), 1)


def _sorting_columns(job: Job) -> list[pq.SortingColumn]:
    """What the footer says of the order: NULL comes first."""
    found = []
    for name in job.stated_order:
        at = job.schema.get_field_index(name)
        leaf = sum(len(leaves(field.type)) for field in list(job.schema)[:at])
        found.append(pq.SortingColumn(leaf, nulls_first=True))
    return found
