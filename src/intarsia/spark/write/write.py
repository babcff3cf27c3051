"""``write``: a job whose tasks write Parquet files with their indexes, published by the driver.

::

    <path>/_temporary-<job>/day=1/part-….parquet    written by tasks; readers ignore the folder
    <path>/day=1/part-….parquet                     moved there by the driver when all are done

A task that is retried or runs twice writes files of its own; only those of the attempt whose
result the driver got are published. A job that fails leaves nothing behind.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from intarsia.errors import PathError
from intarsia.index.registry import IndexSpec
from intarsia.io.storage import PathLike
from intarsia.scan.request import without_rows
from intarsia.spark.column_names import Act, map_in_arrow
from intarsia.spark.commit.commit import TEMPORARY, has_data, keep_job, publish, settle
from intarsia.spark.commit.storage import Place
from intarsia.spark.session import require_pyspark
from intarsia.spark.task_error import as_told
from intarsia.spark.write.clustering import arranged
from intarsia.spark.write.job_spec import Job, Layout, check_place, job_of
from intarsia.spark.write.schema_check import check_existing
from intarsia.spark.write.task import WrittenFile, open_job_writer, write_group, write_task
from intarsia.writer.defaults import PAGE_ROWS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

MANIFEST = "path string, rows bigint, bytes bigint"
_MODES = ("error", "errorifexists", "ignore", "append", "overwrite")
_OVERWRITES = ("static", "dynamic")
_OVERWRITE = "spark.sql.sources.partitionOverwriteMode"


def write(
    df: DataFrame,
    path: PathLike,
    *,
    indexes: Sequence[IndexSpec | str] = (),
    partition_by: Sequence[str] = (),
    cluster_by: Sequence[str] = (),
    curve: str | None = None,
    sort_within: Sequence[str] = (),
    target_file_size: int | str | None = None,
    rows_per_page: int = PAGE_ROWS,
    compression: str = "zstd",
    mode: str = "error",
    partition_overwrite: str | None = None,
    checkpoint_row_groups: int | None = None,
    keep_unfinished: bool = False,
    filesystem: Any = None,
) -> list[WrittenFile]:
    """Write ``df`` as Parquet files with page indexes and embedded ``indexes`` under ``path``.

    ``partition_by`` makes Hive folders. Within them rows are range-partitioned and sorted by
    ``cluster_by``, first column first, or along a ``curve`` through two or more columns:
    ``"zorder"`` or ``"hilbert"``, over ranks by approximate quantiles. ``sort_within`` is another
    order for the rows that come together in a task. A page holds ``rows_per_page`` rows at most.

    ``target_file_size`` is in bytes, or text such as ``"128 MB"``. One more pass over ``df`` then
    counts its rows and writes some in each task, to learn how many tasks are needed; without
    folders and clusters, which would move rows between tasks, each task only divides what it has.
    A file ends where it has grown to the target by the measure of the files before it, or up to a
    quarter later where that takes all that is left. ``compression`` is a codec by pyarrow's or
    Spark's name: ``zstd``, ``snappy``, ``gzip``, ``lz4`` or ``none``.

    ``mode`` is ``error`` (there must be no data yet), ``ignore`` (nothing is done where there is
    some), ``append`` or ``overwrite``: of all data files, or with ``partition_overwrite="dynamic"``
    of those in folders that get new rows; without it, where there are ``partition_by``, the session
    says which (``spark.sql.sources.partitionOverwriteMode``, ``static`` unless it was set). Old
    files are removed when the new ones are published. ``filesystem`` is one of ``pyarrow.fs`` or
    fsspec that can be pickled.

    ``checkpoint_row_groups`` is that of ``intarsia.ParquetWriter``, for each file; local folders
    only. What a driver that is killed leaves of such a job stays until ``recover`` is told to
    remove it. With ``keep_unfinished`` that goes for a job that fails as well: a note of the error
    says where the files are, and ``intarsia.recover`` gets the rows of unfinished ones back.

    Files appear when all are written, or not at all. Returns them; none for ``ignore``. Raises
    ``IndexSpecError`` or ``PredicateError`` for columns that are not there, ``PathError`` for a
    path that cannot be written to, or where files are in other folders that are to stay,
    ``ValueError`` for other arguments out of range, ``UnsupportedError`` for intervals of months.
    """
    require_pyspark()
    _check_mode(mode, partition_overwrite, partition_by)
    is_dynamic = mode == "overwrite" and bool(partition_by) and _is_dynamic(df, partition_overwrite)
    layout = Layout(
        indexes,
        partition_by,
        cluster_by,
        curve,
        sort_within,
        rows_per_page,
        target_file_size,
        checkpoint_row_groups,
        keep_unfinished,
        compression,
    )
    place = Place.of(path, filesystem)
    zone = df.sparkSession.conf.get("spark.sql.session.timeZone") or "UTC"
    job = job_of(place, secrets.token_hex(8), df.schema, layout, zone)
    check_place(place)
    is_taken = mode not in ("append", "overwrite") and has_data(place)
    if is_taken and mode == "ignore":
        return []
    if is_taken:
        raise PathError(
            f"{place.root}: there is data already; mode='append' adds to it, "
            "mode='overwrite' replaces it"
        )
    if mode == "append" or is_dynamic:
        check_existing(job)
    settle(place)
    made = make_job_folder(job)
    try:
        with as_told():
            tasks = map_in_arrow(arranged(df, layout, job), file_writer(job), MANIFEST)
            files = told_of(tasks) or empty_file(job)
        folders = replaced_folders(files, mode == "overwrite", is_dynamic)
        publish(place, job.name, [file.path for file in files], overwrites=folders)
    except BaseException as error:
        clear_job(job, made, error)
        raise
    place.remove_tree(TEMPORARY + job.name)
    return files


def _check_mode(mode: str, partition_overwrite: str | None, partition_by: Sequence[str]) -> None:
    if mode not in _MODES:
        raise ValueError(f"mode must be one of {', '.join(_MODES)}, not {mode!r}")
    if partition_overwrite not in (None, *_OVERWRITES):
        known = ", ".join(_OVERWRITES)
        raise ValueError(f"partition_overwrite must be one of {known}, not {partition_overwrite!r}")
    if partition_overwrite == "dynamic" and not (mode == "overwrite" and partition_by):
        raise ValueError("partition_overwrite='dynamic' goes with mode='overwrite', partition_by")


def _is_dynamic(df: DataFrame, partition_overwrite: str | None) -> bool:
    """Are only folders overwritten that get rows, as is said, or else by the session?"""
    said = partition_overwrite or df.sparkSession.conf.get(_OVERWRITE, "static")
    return str(said).lower() == "dynamic"


def make_job_folder(job: Job) -> list[str]:
    """Make the folder that tasks write to; returns what was made, deepest first."""
    try:
        made = job.place.make(TEMPORARY + job.name)
        if job.checkpoint_row_groups or job.keep_unfinished:
            keep_job(job.place, job.name)
    except OSError as error:
        raise PathError(f"{job.place.root}: cannot be written to: {error}") from error
    return made


def clear_job(job: Job, made: Sequence[str], error: BaseException | None = None) -> None:
    """Leave nothing of a job that failed, or a note of the error that says where it lies."""
    if job.keep_unfinished:
        if error is not None:
            folder = job.place.path(TEMPORARY + job.name)
            error.add_note(f"what was written so far is in {folder}")
        return
    job.place.remove_tree(TEMPORARY + job.name)
    job.place.remove_empty(made)


def replaced_folders(
    files: Sequence[WrittenFile], overwrites: bool, only_touched: bool
) -> list[str]:
    """The folders of which ``files`` take the place of all there is."""
    if not overwrites or not only_touched:
        return [""] if overwrites else []
    return sorted({str(PurePosixPath(file.path).parent) for file in files})


def empty_file(job: Job) -> list[WrittenFile]:
    """A file without rows, so that the data set has its schema."""
    if job.partition_by:
        return []
    name = f"part-empty-{secrets.token_hex(8)}.parquet"
    temporary = f"{TEMPORARY}{job.name}/{name}"
    with job.place.written(temporary) as path, open_job_writer(job, path) as writer:
        write_group(writer, without_rows(job.schema), job)
    return [WrittenFile(name, 0, job.place.size(temporary))]


def file_writer(job: Job) -> Act:
    """What a task does; what it has written comes back as ``MANIFEST`` says."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from manifest(write_task(batches, job))

    return run


def manifest(files: Sequence[WrittenFile]) -> Iterator[pa.RecordBatch]:
    """Files as the rows that tell the driver of them."""
    if files:
        yield pa.RecordBatch.from_pylist([asdict(file) for file in files])


def told_of(tasks: DataFrame) -> list[WrittenFile]:
    """The files that tasks tell of, which are run now."""
    return [WrittenFile(row.path, row.rows, row.bytes) for row in tasks.collect()]
