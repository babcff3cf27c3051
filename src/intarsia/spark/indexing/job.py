"""``add_indexes`` and ``drop_indexes``: Spark's tasks change files and report on each.

::

    driver    lists files; of large ones, reads the footer and divides the row groups into parts
    job 1     one task per part: it gathers what indexes need into _temporary-<job>/
    job 2     one task per index of a large file: it merges its parts, and the last one replaces
              the file; and tasks that each add indexes to several small files, one by one

A file is complete at any time, either the old or the new one. Files that have the indexes are
skipped, so a killed job can simply be started again. Gathered parts that were not merged are lost.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import secrets
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow.dataset as pads
import pyarrow.fs as pafs

from intarsia.commit.commit import TEMPORARY
from intarsia.commit.job import bytes_of, check_count
from intarsia.commit.storage import Place
from intarsia.dataset.commit_log import visible
from intarsia.errors import IndexSpecError, PathError, quiet, warn
from intarsia.file.sidecar_discovery import Sidecars
from intarsia.index.index import Index
from intarsia.index.registry import IndexSpec, parse_indexes, spec_name
from intarsia.indexing.drop import asked_of
from intarsia.indexing.partial_build import cut
from intarsia.indexing.policy import change_policy, policy_folder
from intarsia.indexing.rewrite import check_changeable
from intarsia.indexing.sidecar_writer import only_embedded
from intarsia.io.file_handle import version_of
from intarsia.io.storage import PathLike, is_uri
from intarsia.parquet.value_display import plural
from intarsia.spark.indexing.file_packing import file_sizes, spread
from intarsia.spark.indexing.task import (
    DONE,
    FAILED,
    MERGED,
    SKIPPED,
    FileReport,
    IndexAction,
    Merge,
    Part,
    SectionMerge,
    Split,
    drop_from_file,
    file_id_of,
    gather_from,
    index_file,
    merge_file,
    merge_section,
    size_of,
)
from intarsia.spark.job_status import Progress
from intarsia.spark.session import parallelism_of, require_pyspark
from intarsia.spark.session_settings import or_session_setting
from intarsia.spark.tasks import results_of
from intarsia.tables.data_files import (
    Data,
    TableFormatOption,
    data_folder,
    table_of,
    view_of,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SPLIT_BYTES = 256 * 1024 * 1024
"""Files up to this size are not divided, unless ``split_bytes`` is set."""
_REPORT = (
    "path string, status string, why string, indexes array<string>, bytes_before bigint, "
    "bytes_added bigint, rows bigint, seconds double"
)
_PRECEDENCE = {DONE: 0, FAILED: 1, SKIPPED: 2, MERGED: 3}
"""The precedence of several reports of one file: the lowest number counts."""


def add_indexes(
    spark: SparkSession,
    path: Data,
    indexes: Sequence[Index | str],
    *,
    sidecar: bool | PathLike = False,
    replace: bool = False,
    page_index: bool = True,
    keep: bool = False,
    split_bytes: int | str | None = None,
    parallelism: int | None = None,
    filesystem: Any = None,
    progress: Progress | None = None,
    table_format: TableFormatOption = "auto",
) -> DataFrame:
    """Adds indexes to every Parquet file under a path, like ``intarsia.add_indexes``.

    Each file is changed on its own and replaced at once. An error in one file does not stop the
    others. A file gets the requested indexes that it can have and lacks. An existing index stays if
    it is complete, not stale and has the same parameters; a bloom filter stays with any parameters.

    A file larger than ``split_bytes`` is divided by row groups. Several tasks gather parts of about
    that size, and one task merges each index. Parts are in a folder ``_temporary-<job>`` of the
    data set, or of the sidecars, and are removed at the end. ``recover`` removes what a killed
    driver left.

    A job that was killed can be started again and does the rest.

    Parameters
    ----------
    spark : pyspark.sql.SparkSession
        The session.
    path : str, path, sequence of these or Dataset
        Files, folders or patterns, as for ``intarsia.dataset``. A data set stands for its files: of
        a table, such as ``intarsia.delta`` opens, these are the files of its version, and indexes
        are on columns by their names in the table.
    indexes : sequence of Index or str
        The indexes.
    sidecar : bool, str or path, default False
        Writes sidecars instead, for files that must not be changed; a path is the sidecars' folder.
    replace : bool, default False
        Builds existing indexes again.
    page_index : bool, default True
        As for ``intarsia.add_indexes``: files without a page index get one along with an index that
        finds rows. False adds it only if ``indexes`` ask for it.
    keep : bool, default False
        Adds the indexes to the policy of the folder ``path`` when the job has run: writers then
        give them to new files, and ``maintain`` adds them to files that lack them.
    split_bytes : int or str, optional
        The size above which files are divided, in bytes or as text such as ``"1 GB"``. By default
        the share of one of ``parallelism`` tasks in all files, but at least 256 MiB.
    parallelism : int, optional
        The number of tasks that run at a time, by default Spark's. The session's settings
        ``spark.intarsia.split_bytes`` and ``.parallelism`` change both defaults.
    filesystem : pyarrow.fs.FileSystem or fsspec file system, optional
        Where ``path`` is; it must be picklable.
    progress : callable, optional
        Called with what the job does, the files or parts that are done, and their number. Each
        call is made in a thread of its own, when tasks have ended. In Spark Connect there is one
        call, at the end.
    table_format : str, default "auto"
        The handling of Delta and Iceberg tables, as for ``intarsia.dataset``.

    Returns
    -------
    pyspark.sql.DataFrame
        The report of the finished job, with one row per file. A file is ``skipped`` if it has all
        indexes, or lacks their columns. If Spark ran a task again, its file may be ``skipped``
        because the first run succeeded. The columns are:

        - ``path``, and ``status``: ``done``, ``skipped`` or ``failed``;
        - ``why``, the reason or the error;
        - ``indexes``, the names of the added indexes;
        - ``bytes_before`` and ``bytes_added``, of the file or its sidecar;
        - ``rows``, and ``seconds``, summed over all tasks of the file.

    Raises
    ------
    IndexSpecError
        If an index is invalid, or none is given.
    PathError
        If there is no file, or if ``keep`` is set and ``path`` is not one folder.

    Warns
    -----
    IntarsiaWarning
        For each index that no file can have.

    Examples
    --------
    ::

        report = ias.add_indexes(spark, "lake/logs", ["request_id:lookup"])
        report.where("status = 'failed'").show()
    """
    index_objects = parse_indexes(indexes)
    if not index_objects:
        raise IndexSpecError("no index was asked for")
    if sidecar is not False:
        only_embedded(index_objects)
    policy_place = policy_folder(path, filesystem) if keep else None
    max_bytes = bytes_of(or_session_setting(spark, "split_bytes", split_bytes), "split_bytes")
    files, action = _files_and_action(
        path,
        filesystem,
        index_objects,
        sidecar,
        table_format,
        anew=replace,
        page_index=page_index,
    )
    if action.places is not None and not isinstance(path, pads.FileSystemDataset):
        action.places.check_apart(path, filesystem)
    num_workers = _parallelism(spark, parallelism)
    folder = _folder(path, filesystem, action.filesystem)
    sizes = file_sizes(action.filesystem, folder, files)
    if max_bytes is None:
        max_bytes = max(SPLIT_BYTES, -(-sum(sizes) // num_workers))
    splits = [
        split
        for file, size in zip(files, sizes, strict=True)
        if size > max_bytes and (split := _split(file, action, max_bytes)) is not None
    ]
    with _job_folder(action, folder, splits) as (place, job):
        names = ", ".join(map(spec_name, index_objects))
        merges, reports = _gathered(spark, splits, action, place, job, progress)
        divided = {merge.split.path for merge in merges} | {report.path for report in reports}
        undivided = [file for file in files if file not in divided]
        size_of_file = dict(zip(files, sizes, strict=True))
        work: list[str | Merge | SectionMerge] = []
        work_bytes = []
        for merge in merges:
            ones = [SectionMerge(merge, number) for number in merge.sections]
            work += ones or [merge]
            work_bytes += [size_of_file[merge.split.path] // max(len(ones), 1)] * max(len(ones), 1)
        work += undivided
        work_bytes += [size_of_file[path] for path in undivided]

        def work_on(item: str | Merge | SectionMerge) -> FileReport:
            if isinstance(item, SectionMerge):
                return merge_section(item, action, place)
            if isinstance(item, Merge):
                return merge_file(item, action, place)
            return index_file(item, action)

        tasks = spread(work_bytes, num_workers)
        items = [[work[position] for position in task] for task in tasks]
        outcomes = _run(
            spark, items, work_on, f"add {names}, {plural(len(files), 'file')}", progress
        )
        reports += _settled(outcomes, merges)
    if policy_place is not None:
        change_policy(*policy_place, index_objects, sidecar=action.sidecar, page_index=page_index)
    return _report(spark, files, reports, "no file can have it")


def drop_indexes(
    spark: SparkSession,
    path: Data,
    indexes: Sequence[Index | str] | Index | str | None = None,
    *,
    all: bool = False,  # noqa: A002 # as in intarsia.drop_indexes
    sidecar: bool | PathLike = False,
    parallelism: int | None = None,
    filesystem: Any = None,
    progress: Progress | None = None,
    table_format: TableFormatOption = "auto",
) -> DataFrame:
    """Drops indexes from every Parquet file under a path, like ``intarsia.drop_indexes``.

    Parameters
    ----------
    spark : pyspark.sql.SparkSession
        The session.
    path, sidecar, parallelism, filesystem, progress, table_format
        As for ``add_indexes``.
    indexes : Index, str or sequence of these, optional
        The indexes to drop.
    all : bool, default False
        Drops every index that was added, instead of ``indexes``.

    Returns
    -------
    pyspark.sql.DataFrame
        The report, as of ``add_indexes``. A file with none of the indexes is ``skipped``.

    Raises
    ------
    PathError
        If there is no file.

    Warns
    -----
    IntarsiaWarning
        For each index that no file has.

    Examples
    --------
    ::

        ias.drop_indexes(spark, "lake/logs", "request_id:lookup")
    """
    files, action = _files_and_action(
        path, filesystem, asked_of(indexes, all=all), sidecar, table_format
    )
    sizes = file_sizes(action.filesystem, _folder(path, filesystem, action.filesystem), files)
    tasks = spread(sizes, _parallelism(spark, parallelism))
    reports = _run(
        spark,
        [[files[number] for number in task] for task in tasks],
        lambda p: drop_from_file(p, action),
        f"drop indexes, {plural(len(files), 'file')}",
        progress,
    )
    return _report(spark, files, reports, "no file has it")


def _files_and_action(
    path: Data,
    filesystem: Any,
    indexes: Sequence[IndexSpec | str] | None,
    sidecar: bool | PathLike,
    table_format: TableFormatOption,
    **options: bool,
) -> tuple[list[str], IndexAction]:
    require_pyspark()
    storage, files = visible(path, filesystem, table_format=table_format)
    if not isinstance(sidecar, bool):
        sidecar = os.fspath(sidecar)
        if not is_uri(sidecar) and isinstance(storage, pafs.LocalFileSystem):
            # Absolute, as tasks run in other working directories.
            sidecar = os.path.abspath(os.path.expanduser(sidecar))
    files, view = list(dict.fromkeys(files)), view_of(path)
    views = {file: view(file) for file in files} if table_of(path) is not None else {}
    requested = None if indexes is None else tuple(indexes)
    return files, IndexAction(storage, requested, sidecar, **options, views=views)


def _parallelism(spark: SparkSession, requested: int | None) -> int:
    requested = or_session_setting(spark, "parallelism", requested)
    if requested is not None:
        check_count("parallelism", requested)
    return requested or parallelism_of(spark)


def _folder(data: Data, filesystem: Any, storage: pafs.FileSystem) -> str | None:
    """Returns the folder of a table, or the path on ``storage`` if it is a folder, else None."""
    root = data_folder(data, filesystem)
    is_folder = bool(root) and storage.get_file_info(root).type == pafs.FileType.Directory
    return root if is_folder else None


# --- large files --------------------------------------------------------------------------------


def _split(path: str, action: IndexAction, max_bytes: int) -> Split | None:
    """Returns how a file is divided; None for one part, nothing to do, or an error."""
    places = action.places
    try:
        with quiet():
            version = version_of(path, action.filesystem)
            file = action.opened(path)
            choice = action.choice_of(file)
            if places is None:
                check_changeable(file)
            groups = cut(file, max_bytes)
            size = size_of(file, places)
            file_id = file_id_of(file, places)
    except Exception:  # noqa: BLE001 # the task that gets the whole file reports it
        return None
    if not choice.all_due or len(groups) < 2:
        return None
    refused = FileReport(path, FAILED, bytes_before=size, rows=file.num_rows)
    return Split(path, version, choice, tuple(groups), file_id, refused)


@contextlib.contextmanager
def _job_folder(
    action: IndexAction, folder: str | None, splits: Sequence[Split]
) -> Iterator[tuple[Place, str]]:
    """Makes a folder for parts until the block ends; yields its storage and the name of the job."""
    job = secrets.token_hex(8)
    storage, root = action.filesystem, folder or "."
    if isinstance(action.sidecar, str):
        places = Sidecars(action.filesystem, action.sidecar)
        storage, root = places.filesystem, places.folder_of("")
    elif folder is None and splits:
        root = splits[0].path.rpartition("/")[0]
    place = Place.of(root, storage)
    if not splits:
        yield place, job
        return
    try:
        made_folders = place.make(TEMPORARY + job)
    except OSError as error:
        raise PathError(f"{place.root}: cannot be written to: {error}") from error
    try:
        yield place, job
    finally:
        place.remove_tree(TEMPORARY + job)
        place.remove_empty(made_folders)


def _gathered(
    spark: SparkSession,
    splits: Sequence[Split],
    action: IndexAction,
    place: Place,
    job: str,
    progress: Progress | None,
) -> tuple[list[Merge], list[FileReport]]:
    """Gathers all parts; returns the files to merge, and reports of files with errors."""
    if not splits:
        return [], []
    tasks = [[(split, part)] for split in splits for part in range(len(split.groups))]
    description = (
        f"read values of {plural(len(splits), 'large file')}, {plural(len(tasks), 'part')}"
    )

    def gather(parts: Sequence[tuple[Split, int]]) -> Part:
        return gather_from(*parts[0], action, place, job)

    results = iter(results_of(spark, tasks, gather, description, progress))
    merges, reports = [], []
    for split in splits:
        parts = list(itertools.islice(results, len(split.groups)))
        seconds = sum(part.seconds for part in parts)
        error = next(filter(None, (part.error for part in parts)), None)
        if error is not None:
            reports.append(replace(split.refused, why=error, seconds=seconds))
            continue
        extra_error = next(filter(None, (part.extra_error for part in parts)), None)
        if extra_error is not None:
            split = replace(split, choice=split.choice.without_extra(extra_error))
        merges.append(Merge(split, tuple(part.name for part in parts), seconds))
    return merges, reports


# --- in tasks, and after ------------------------------------------------------------------------


def _run(
    spark: SparkSession,
    tasks: Sequence[Sequence[Any]],
    work_on: Callable[[Any], FileReport],
    description: str,
    progress: Progress | None,
) -> list[FileReport]:
    """Runs tasks and returns their reports."""

    def work_on_all(items: Sequence[Any]) -> list[FileReport]:
        return [work_on(item) for item in items]

    return [*itertools.chain(*results_of(spark, tasks, work_on_all, description, progress))]


def _settled(outcomes: Sequence[FileReport], merges: Sequence[Merge]) -> list[FileReport]:
    """Returns one report per file from those of all its tasks."""
    by_path: dict[str, list[FileReport]] = {}
    for report in outcomes:
        by_path.setdefault(report.path, []).append(report)
    gathering_seconds = {merge.split.path: merge.seconds for merge in merges}
    settled = []
    for path, reports in by_path.items():
        final = min(reports, key=lambda report: _PRECEDENCE[report.status])
        if final.status == MERGED:  # happens only if storage does not list its new files
            final = replace(final, status=FAILED, why="sections that were made cannot be found")
        seconds = sum(report.seconds for report in reports) + gathering_seconds.get(path, 0.0)
        settled.append(replace(final, seconds=seconds))
    return settled


def _report(
    spark: SparkSession, files: Sequence[str], reports: Sequence[FileReport], problem: str
) -> DataFrame:
    """Returns the reports as a DataFrame, in the order of the files."""
    unfit_names = [set(report.unfit) for report in reports]
    for name in sorted(set.intersection(*unfit_names)) if unfit_names else ():
        message = f"index {name}: {problem}; the report says why"
        warn(message)
    by_path = {report.path: report for report in reports}
    rows = [
        (r.path, r.status, r.why, [*r.indexes], r.bytes_before, r.bytes_added, r.rows, r.seconds)
        for r in map(by_path.__getitem__, files)
    ]
    return spark.createDataFrame(rows, _REPORT)
