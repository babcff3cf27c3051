"""``optimize``: merges a data set's small files, or puts all its rows into another order.

::

    day=1/  a b c d ▇▇▇▇▇▇        a to d are read and written as one file, which replaces them;
    day=1/  ▇▇▇▇    ▇▇▇▇▇▇        then day=2 follows, by a commit of its own

Rows stay in their folders. Only files that were read are removed. If one of them has changed since,
its folder stays as it is.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow.compute as pc

from intarsia.commit.commit import root_of, settle
from intarsia.commit.job import (
    Job,
    WrittenFile,
    bytes_of,
    check_place,
    job_folder,
    names_of,
)
from intarsia.commit.storage import Place
from intarsia.dataset.commit_log import visible
from intarsia.errors import PathError, UnsupportedError, Where
from intarsia.index.index import Index
from intarsia.index.registry import parse_indexes
from intarsia.io.storage import PathLike
from intarsia.parquet.value_display import plural
from intarsia.rewrite.file_rows import Part
from intarsia.rewrite.folder_commit import replace_folder
from intarsia.rewrite.rewrite_plan import (
    FileFormat,
    Folder,
    OvertakenError,
    changed_since,
    folders_of,
    matching_folders,
    opened_folder,
    small_runs,
)
from intarsia.spark.column_names import map_in_arrow
from intarsia.spark.job_status import described
from intarsia.spark.optimize.rewrite_task import (
    carried_schema,
    merge_run,
    parts_of,
    read_parts,
)
from intarsia.spark.session import parallelism_of, require_pyspark
from intarsia.spark.task_error import raising_task_errors
from intarsia.spark.tasks import map_tasks
from intarsia.spark.types import spark_schema
from intarsia.spark.write.clustering import in_layout_order
from intarsia.spark.write.job_spec import Layout, job_of
from intarsia.spark.write.write import MANIFEST, collect_written_files, file_writer
from intarsia.writer.defaults import default_page_rows
from intarsia.writer.empty_file import check_fit
from intarsia.writer.row_sorting import FOLDER, stated_order

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_ROUND = 4
"""Files of the target size that each core writes before they are published."""


@dataclass(frozen=True, slots=True)
class OptimizedFolder:
    """A folder in which files were rewritten.

    Parameters
    ----------
    folder : str
        The folder, relative to the data set's.
    files_before, files_after : int
        The number of files.
    bytes_before, bytes_after : int
        The bytes of all files.
    rows : int
        The number of rows that were rewritten.
    written : tuple of WrittenFile
        The new files.
    seconds : float
        The time from the start of the job that rewrote the folder to its new files in place.
        A job rewrites several folders.

    Examples
    --------
    ::

        for folder in ias.optimize(spark, "lake/logs"):
            print(folder.folder, folder.files_before, folder.files_after)
    """

    folder: str
    files_before: int
    files_after: int
    bytes_before: int
    bytes_after: int
    rows: int
    written: tuple[WrittenFile, ...]
    seconds: float


def optimize(
    spark: SparkSession,
    path: PathLike,
    *,
    cluster_by: Sequence[str] = (),
    curve: str | None = None,
    indexes: Sequence[Index | str] | None = None,
    where: pc.Expression | str | None = None,
    target_file_size: int | str = "128 MB",
    rows_per_page: int | None = None,
    filesystem: Any = None,
) -> list[OptimizedFolder]:
    """Compacts the files of a data set, folder by folder, or puts their rows into another order.

    Files smaller than ``target_file_size`` are merged with their neighbours by name, in the order
    of their rows, up to about that size. All other files stay. With ``cluster_by``, all files are
    rewritten in that order.

    New files have all columns of the files they replace, with types and metadata. They have the
    codec that most of the old bytes have. Each folder is published on its own, so readers see its
    old or its new files. If another writer changed or removed one of the files, its folder stays as
    it is. Files that appeared meanwhile are not touched.

    Parameters
    ----------
    spark : pyspark.sql.SparkSession
        The session.
    path : str or path
        The folder of the data set, or one of its Hive folders.
    cluster_by, curve
        The new order, as for ``write``.
    indexes : sequence of Index or str, optional
        The indexes of the new files; an empty sequence for none. By default all indexes that any
        old file has, embedded or in a sidecar.
    where : pyarrow.compute.Expression or str, optional
        A condition on partition columns; only folders for which it is true are rewritten.
    target_file_size : int or str, default "128 MB"
        In bytes, or text such as ``"128 MB"`` (units are powers of 1,024).
    rows_per_page : int, optional
        The maximum number of rows of a page: by default 2,048 in files with indexes, else 8,192.
    filesystem : pyarrow.fs.FileSystem or fsspec file system, optional
        Where ``path`` is; it must be picklable.

    Returns
    -------
    list of OptimizedFolder
        The folders in which files were rewritten.

    Raises
    ------
    PathError
        At the end, if some folders were left as they were.
    UnsupportedError
        Before any file is rewritten, if one must not or cannot be.
    IndexSpecError, PredicateError, ValueError
        For other arguments, as ``write`` does.

    Examples
    --------
    ::

        ias.optimize(spark, "lake/logs", where="day >= '2024-01-01'", cluster_by=["user_id"])
    """
    require_pyspark()
    target = bytes_of(target_file_size)
    if target is None:
        raise ValueError("target_file_size is bytes, or text such as '128 MB', not None")
    place = root_of(path, filesystem)
    check_place(place)
    index_objects = None if indexes is None else parse_indexes(indexes)
    layout = Layout(
        partition_by=(FOLDER,),
        cluster_by=names_of(cluster_by),
        curve=curve,
        rows_per_page=rows_per_page,
        target_file_size=target,
    )
    time_zone = spark.conf.get("spark.sql.session.timeZone") or "UTC"
    settle(place)
    _, files = visible(path, filesystem)
    sizes = folders_of(place, [file.removeprefix(f"{place.root}/") for file in files])
    folders = []
    for name in matching_folders(sizes, where, "spark"):
        runs = [sorted(sizes[name])] if cluster_by else small_runs(sizes[name], target)
        folder = opened_folder(place, name, sizes[name], runs, index_objects) if runs else None
        if folder is not None:
            _check_names(place, folder)
            check_fit(folder.file_format.schema, folder.file_format.indexes, place.path(name))
            folders.append(folder)
    rewrite = (
        partial(_sort_rows, spark, layout, time_zone)
        if cluster_by
        else partial(_merge_runs, spark, layout)
    )
    if cluster_by or curve is not None:  # before anything is rewritten
        for folder in folders:
            _checked_schema(place, folder.file_format, layout, time_zone)
    progress = _Progress()
    round_bytes = target * parallelism_of(spark) * _ROUND
    for round_folders in _rounds(folders, round_bytes):
        _rewrite_folders(place, round_folders, rewrite, layout, progress)
    if progress.given_up:
        reasons = "; ".join(
            f"{name or 'the data set'}: {why}" for name, why in progress.given_up.items()
        )
        raise PathError(
            f"{place.root}: {len(progress.given_up)} of {len(folders)} folders were left as they "
            f"were, the others are done: {reasons}"
        )
    return progress.reports


class _Progress:
    """The outcome of the folders so far."""

    def __init__(self) -> None:
        self.reports: list[OptimizedFolder] = []
        self.given_up: dict[str, str] = {}


Run = Callable[[Place, str, Sequence[Folder]], list[WrittenFile]]


def _check_names(place: Place, folder: Folder) -> None:
    """Raises ``UnsupportedError`` for names that a Spark job cannot carry."""
    names, where = folder.file_format.schema.names, place.path(folder.name)
    if len({name.lower() for name in names}) < len(names):
        raise UnsupportedError("the names of two columns differ only by case", Where(where))
    if FOLDER in map(str.lower, names):
        raise UnsupportedError("the name of the column is taken", Where(where, column=FOLDER))


def _rounds(folders: Sequence[Folder], max_bytes: int) -> Iterator[list[Folder]]:
    """Yields folders for one job each: about ``limit`` bytes, with one layout of new files."""
    round_folders: list[Folder] = []
    for folder in folders:
        num_bytes = sum(file.bytes for one in round_folders for file in one.files)
        if round_folders and (
            num_bytes >= max_bytes
            or not folder.file_format.is_same_as(round_folders[0].file_format)
        ):
            yield round_folders
            round_folders = []
        round_folders.append(folder)
    if round_folders:
        yield round_folders


def _rewrite_folders(
    place: Place, folders: Sequence[Folder], rewrite: Run, layout: Layout, progress: _Progress
) -> None:
    """Rewrites and publishes folders, except those that other writers have changed."""
    while folders:
        name, start = secrets.token_hex(8), time.perf_counter()
        with job_folder(_job(place, name, folders[0].file_format, layout)):
            try:
                with raising_task_errors():
                    written = rewrite(place, name, folders)
            except Exception:  # any error of Spark may come from a removed file
                changes = {folder.name: changed_since(place, folder.files) for folder in folders}
                changed = {name: why for name, why in changes.items() if why}
                if not changed:
                    raise
                progress.given_up |= changed
                folders = [folder for folder in folders if folder.name not in changed]
                continue
            for number, folder in enumerate(folders):
                _publish(place, name, number, folder, written, progress, start)
            return


def _publish(
    place: Place,
    job: str,
    number: int,
    folder: Folder,
    written: Sequence[WrittenFile],
    progress: _Progress,
    start: float,
) -> None:
    """Publishes the new files of a folder, as the job's commit of this ``number``."""
    new = [file for file in written if file.path.rpartition("/")[0] == folder.name]
    try:
        replace_folder(place, job, folder, new, number)
    except OvertakenError as error:
        progress.given_up[folder.name] = str(error)
        return
    rows = sum(file.rows for file in folder.files)
    bytes_before, bytes_after = (
        sum(file.bytes for file in folder.files),
        sum(file.bytes for file in new),
    )
    progress.reports.append(
        OptimizedFolder(
            folder.name,
            folder.num_files,
            folder.num_files - len(folder.files) + len(new),
            folder.num_bytes,
            folder.num_bytes - bytes_before + bytes_after,
            rows,
            tuple(new),
            time.perf_counter() - start,
        )
    )


# --- jobs ---------------------------------------------------------------------------------------


def _job(place: Place, name: str, file_format: FileFormat, layout: Layout) -> Job:
    order = () if layout.curve else tuple(layout.cluster_by)
    return Job(
        place=place,
        name=name,
        schema=file_format.schema,
        indexes=file_format.indexes,
        partition_by=(FOLDER,),
        sorted_by=order,
        stated_order=stated_order(order, file_format.schema),
        rows_per_page=layout.rows_per_page or default_page_rows(file_format.indexes),
        target_bytes=bytes_of(layout.target_file_size) if layout.cluster_by else None,
        time_zone="UTC",
        options=file_format.options,
        annotations=file_format.annotations,
    )


def _checked_schema(place: Place, file_format: FileFormat, layout: Layout, zone: str) -> Any:
    """Returns the columns that go through Spark; raises as ``write`` does for invalid sorts."""
    carried = carried_schema(file_format.schema, place.root)
    job_of(place, "", spark_schema(carried), layout, zone, carries_folder=True)
    return carried


def _merge_runs(
    spark: SparkSession, layout: Layout, place: Place, name: str, folders: Sequence[Folder]
) -> list[WrittenFile]:
    """Writes each run of files as one file, in a task of its own."""
    runs = []
    for folder in folders:
        job = _job(place, name, folder.file_format, layout)
        for run in folder.runs:
            parts = [Part(folder.name, file, tuple(range(len(file.group_bytes)))) for file in run]
            runs.append((job, folder.file_format, parts))
    num_files = sum(len(parts) for *_, parts in runs)
    with described(spark, f"merge {plural(num_files, 'file')} of {place.root} into {len(runs):,}"):
        return collect_written_files(map_tasks(spark, runs, merge_run, MANIFEST))


def _sort_rows(
    spark: SparkSession,
    layout: Layout,
    time_zone: str,
    place: Place,
    name: str,
    folders: Sequence[Folder],
) -> list[WrittenFile]:
    """Writes all rows of the folders in a new order, by Spark's sort."""
    file_format = folders[0].file_format
    carried = _checked_schema(place, file_format, layout, time_zone)
    tasks = [task for folder in folders for task in parts_of(folder)]
    read = partial(read_parts, place, file_format, carried)
    rows = map_tasks(spark, tasks, read, spark_schema(carried))
    job = _job(place, name, file_format, layout)
    with described(spark, f"sort {place.root} by {', '.join(layout.cluster_by)}"):
        return collect_written_files(
            map_in_arrow(in_layout_order(rows, layout, job), file_writer(job), MANIFEST)
        )
