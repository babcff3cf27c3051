"""``write``: a job whose tasks write Parquet files with indexes, which the driver publishes.

::

    <path>/_temporary-<job>/day=1/part-….parquet    written by tasks; readers ignore the folder
    <path>/day=1/part-….parquet                     moved there by the driver when all are done

If Spark runs a task twice, each attempt writes files of its own. The driver publishes only the
files of the attempt whose result it got. A failed job leaves nothing behind.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from intarsia.commit.commit import TEMPORARY, has_data, publish, settle
from intarsia.commit.job import (
    Job,
    WrittenFile,
    check_place,
    job_folder,
    open_job_writer,
    write_group,
)
from intarsia.commit.storage import Place
from intarsia.errors import PathError
from intarsia.index.index import Index
from intarsia.io.storage import PathLike
from intarsia.scan.request import without_rows
from intarsia.spark.column_names import Act, map_in_arrow
from intarsia.spark.job_status import described
from intarsia.spark.session import require_pyspark
from intarsia.spark.task_error import raising_task_errors
from intarsia.spark.write.clustering import in_layout_order
from intarsia.spark.write.job_spec import Layout, job_of
from intarsia.spark.write.schema_check import check_existing
from intarsia.spark.write.task import write_task

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

MANIFEST = "path string, rows bigint, bytes bigint, seconds double"
"""The Spark schema of the rows in which tasks report their files."""
_MODES = ("error", "errorifexists", "ignore", "append", "overwrite")
_PARTITION_OVERWRITES = ("static", "dynamic")
_PARTITION_OVERWRITE_SETTING = "spark.sql.sources.partitionOverwriteMode"


def write(
    df: DataFrame,
    path: PathLike,
    *,
    indexes: Sequence[Index | str] | None = None,
    partition_by: Sequence[str] = (),
    cluster_by: Sequence[str] = (),
    curve: str | None = None,
    sort_within: Sequence[str] = (),
    target_file_size: int | str | None = None,
    rows_per_page: int | None = None,
    compression: str | None = None,
    mode: str = "error",
    partition_overwrite: str | None = None,
    checkpoint_row_groups: int | None = None,
    keep_unfinished: bool = False,
    filesystem: Any = None,
) -> list[WrittenFile]:
    """Writes a DataFrame as Parquet files with page indexes and embedded indexes.

    All files appear at once when every task is done, or none does.

    Parameters
    ----------
    df : pyspark.sql.DataFrame
        The rows.
    path : str or path
        The folder of the data set.
    indexes : sequence of Index or str, optional
        The indexes to embed, as for ``intarsia.add_indexes``. By default those of the folder's
        policy that the columns can have.
    partition_by : sequence of str, default ()
        The columns that become Hive folders.
    cluster_by : sequence of str, default ()
        The columns by which rows are range-partitioned and sorted, the first one first.
    curve : {"zorder", "hilbert"}, optional
        Clusters along this curve through two or more columns, over approximate ranks of their
        values.
    sort_within : sequence of str, default ()
        Another order for the rows within each task. By default, without ``cluster_by``, the
        ``sort_by`` of the policy.
    target_file_size : int or str, optional
        In bytes, or text such as ``"128 MB"`` (units are powers of 1,024). See the notes.
    rows_per_page : int, optional
        The maximum number of rows of a page: by default that of the policy, else 2,048 in files
        with indexes and 8,192 in others.
    compression : {"zstd", "snappy", "gzip", "lz4", "none"}, optional
        The codec, by pyarrow's or Spark's name. By default that of the policy, else ``"zstd"``.
    mode : {"error", "ignore", "append", "overwrite"}, default "error"
        ``error`` requires that there is no data yet. ``ignore`` does nothing if there is data.
        ``append`` adds files. ``overwrite`` removes old files when the new ones are published.
    partition_overwrite : {"static", "dynamic"}, optional
        With ``mode="overwrite"`` and ``partition_by``: ``dynamic`` replaces only folders that get
        new rows, ``static`` replaces all. By default the session's setting
        ``spark.sql.sources.partitionOverwriteMode``.
    checkpoint_row_groups : int, optional
        As for ``intarsia.ParquetWriter``, for each file; local folders only. If the driver is
        killed, the files stay until ``recover`` is called with ``keep_unfinished=False``.
    keep_unfinished : bool, default False
        Keeps the files of a failed job too; local folders only. A note on the error names their
        folder, and ``intarsia.recover`` gets the rows of unfinished files back.
    filesystem : pyarrow.fs.FileSystem or fsspec file system, optional
        Where ``path`` is; it must be picklable.

    Returns
    -------
    list of WrittenFile
        The published files; empty if ``ignore`` found data.

    Raises
    ------
    IndexSpecError
        If an index cannot be built on its column.
    PredicateError
        If a column does not exist, or cannot be used as asked.
    PathError
        If the path cannot be written to, there is data already, or kept files are partitioned by
        other columns.
    UnsupportedError
        If a column has a type without a form in Arrow, such as intervals of months.
    ValueError
        If another argument is out of range.

    Notes
    -----
    For ``target_file_size``, an extra pass over ``df`` counts its rows. Each task of this pass
    writes some of them, to learn how many tasks are needed. Without ``partition_by`` and
    ``cluster_by`` there is no extra pass, and each task divides its own rows.

    A file ends when it reaches the target, estimated from the files before it. It may be up to a
    quarter larger if that takes all remaining rows.

    The session's settings ``spark.intarsia.compression``, ``.rows_per_page`` and
    ``.target_file_size`` hold where neither the argument nor the policy says otherwise.

    Examples
    --------
    ::

        ias.write(
            df,
            "lake/logs",
            partition_by=["day"],
            cluster_by=["user_id"],
            indexes=["request_id:lookup"],
            target_file_size="128 MB",
        )
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
    layout = layout.by_policy(place, df.schema).by_session(df.sparkSession)
    time_zone = df.sparkSession.conf.get("spark.sql.session.timeZone") or "UTC"
    job = job_of(place, secrets.token_hex(8), df.schema, layout, time_zone)
    check_place(place)
    has_old_data = mode not in ("append", "overwrite") and has_data(place)
    if has_old_data and mode == "ignore":
        return []
    if has_old_data:
        raise PathError(
            f"{place.root}: there is data already; mode='append' adds to it, "
            "mode='overwrite' replaces it"
        )
    if mode == "append" or is_dynamic:
        check_existing(job)
    settle(place)
    with job_folder(job):
        with raising_task_errors(), described(df.sparkSession, f"write {place.root}"):
            tasks = map_in_arrow(in_layout_order(df, layout, job), file_writer(job), MANIFEST)
            files = collect_written_files(tasks) or empty_file(job)
        folders = replaced_folders(files, mode == "overwrite", is_dynamic)
        publish(place, job.name, [file.path for file in files], overwrites=folders)
    return files


def _check_mode(mode: str, partition_overwrite: str | None, partition_by: Sequence[str]) -> None:
    if mode not in _MODES:
        raise ValueError(f"mode must be one of {', '.join(_MODES)}, not {mode!r}")
    if partition_overwrite not in (None, *_PARTITION_OVERWRITES):
        known = ", ".join(_PARTITION_OVERWRITES)
        raise ValueError(f"partition_overwrite must be one of {known}, not {partition_overwrite!r}")
    if partition_overwrite == "dynamic" and not (mode == "overwrite" and partition_by):
        raise ValueError("partition_overwrite='dynamic' goes with mode='overwrite', partition_by")


def _is_dynamic(df: DataFrame, partition_overwrite: str | None) -> bool:
    """True if the argument, or else the session, says to replace only folders with new rows."""
    overwrite_mode = partition_overwrite or df.sparkSession.conf.get(
        _PARTITION_OVERWRITE_SETTING, "static"
    )
    return str(overwrite_mode).lower() == "dynamic"


def replaced_folders(
    files: Sequence[WrittenFile], overwrites: bool, only_new_folders: bool
) -> list[str]:
    """Returns the folders whose old files are replaced by ``files``."""
    if not overwrites or not only_new_folders:
        return [""] if overwrites else []
    return sorted({str(PurePosixPath(file.path).parent) for file in files})


def empty_file(job: Job) -> list[WrittenFile]:
    """Writes a file without rows, which gives the data set its schema."""
    if job.partition_by:
        return []
    name = f"part-empty-{secrets.token_hex(8)}.parquet"
    temporary = f"{TEMPORARY}{job.name}/{name}"
    with job.place.written(temporary) as path, open_job_writer(job, path) as writer:
        write_group(writer, without_rows(job.schema), job)
    return [WrittenFile(name, 0, job.place.size(temporary))]


def file_writer(job: Job) -> Act:
    """Returns the function with which a task writes rows; it reports files as ``MANIFEST``."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from manifest(write_task(batches, job))

    return run


def manifest(files: Sequence[WrittenFile]) -> Iterator[pa.RecordBatch]:
    """Yields the rows that report files to the driver."""
    if files:
        yield pa.RecordBatch.from_pylist([asdict(file) for file in files])


def collect_written_files(tasks: DataFrame) -> list[WrittenFile]:
    """Runs the tasks and returns the files that they report."""
    return [WrittenFile(**row.asDict()) for row in tasks.collect()]
