"""``add_indexes`` and ``drop_indexes``: a data set's files given to tasks, and what became of each.

::

    driver    lists files; of large ones, reads the footer and cuts the row groups into parts
    job 1     a task for each part: what it gathers goes to _temporary-<job>/
    job 2     a task for each index of a large file: merges its parts; the last of them puts the
              file in place; and for some small ones: adds their indexes, one file after the other

A file is whole at any time, the old one or the new one, and files that have the indexes already are
passed over: a job that was killed is simply started again. The parts of large files that were not
merged are then lost.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.fs as pafs

from intarsia.dataset.commit_journal import visible
from intarsia.errors import IndexSpecError, PathError, quiet, warn
from intarsia.file.sidecar_discovery import Sidecars
from intarsia.index.registry import IndexSpec, kinds_of
from intarsia.indexing.drop import asked_of
from intarsia.indexing.partial_build import cut
from intarsia.indexing.rewrite import check_changeable
from intarsia.indexing.sidecar_writer import only_embedded
from intarsia.io.file_handle import version_of
from intarsia.io.storage import PathLike, is_uri
from intarsia.scan.parquet_file import open_file
from intarsia.spark.commit.commit import TEMPORARY
from intarsia.spark.commit.storage import Place
from intarsia.spark.indexing.file_packing import file_sizes, spread
from intarsia.spark.indexing.task import (
    DONE,
    FAILED,
    MERGED,
    REPORT,
    SKIPPED,
    FileReport,
    Merge,
    OneOf,
    Split,
    Wanted,
    drop_from_file,
    gather_from,
    held_bytes,
    id_of,
    index_file,
    merge_file,
    merge_section,
)
from intarsia.spark.session import parallelism_of, require_pyspark
from intarsia.spark.task_error import as_told
from intarsia.spark.write.job_spec import bytes_of, check_count
from intarsia.tables.data_files import TableFormatOption

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SPLIT_BYTES = 256 * 1024 * 1024
"""Smaller files are not divided, unless that is asked for."""
_REPORT = (
    "path string, status string, why string, indexes array<string>, bytes_before bigint, "
    "bytes_added bigint, rows bigint, seconds double"
)
_RAW = f"{_REPORT}, unfit array<string>"
_RANKS = {DONE: 0, FAILED: 1, SKIPPED: 2, MERGED: 3}
"""Which of several reports of one file counts: the first of these."""
_PARTS = "split int, part int, name string, seconds double, why string"
_PART = pa.schema(
    [
        ("split", pa.int32()),
        ("part", pa.int32()),
        ("name", pa.string()),
        ("seconds", pa.float64()),
        ("why", pa.string()),
    ]
)


def add_indexes(
    spark: SparkSession,
    path: PathLike | Sequence[PathLike],
    indexes: Sequence[IndexSpec | str],
    *,
    sidecar: bool | PathLike = False,
    replace: bool = False,
    split_bytes: int | str | None = None,
    parallelism: int | None = None,
    filesystem: Any = None,
    table_format: TableFormatOption = "auto",
) -> DataFrame:
    """Add ``indexes`` to every Parquet file under ``path``, as ``intarsia.add_indexes`` does.

    ``path``, ``indexes``, ``sidecar`` and ``table_format`` are as there: sidecars are for files
    that must not be changed. Files are worked on by tasks, each put in place at once and for
    itself; one that cannot be indexed does not keep the others from it. A file gets those indexes
    that it can have and has not: where one is there already, with the same parameters (a bloom
    filter with any), whole and not stale, it stays; with ``replace=True`` it is built anew. A job
    that was killed can be started again, and does the rest.

    Row groups of a file larger than ``split_bytes``, a number or text such as ``"1 GB"``, are
    gathered by several tasks, in parts of about that size, and merged, each index by one; by
    default that is the share of one of ``parallelism`` tasks in all files, from 256 MiB on. Parts
    are kept in a folder ``_temporary-<job>`` of the data set, or of the folder of sidecars, and
    removed at the end; ``recover`` removes what a driver that was killed left. ``parallelism`` is
    Spark's default unless given.

    The job has run when this returns. What it returns is its report, one row a file: ``path``;
    ``status``, ``done``, ``skipped`` or ``failed``; ``why``; ``indexes``, the names of those added;
    ``bytes_before`` and ``bytes_added``, of the file or its sidecar; ``rows``; ``seconds`` of all
    its tasks. A file is skipped that has all indexes already, or lacks what they are on; a file
    whose task Spark ran again may be, where the first run had done it.

    Raises ``IndexSpecError`` for what is no index, ``PathError`` where there is no file. An index
    that no file can have is warned of.
    """
    kinds = kinds_of(indexes)
    if not kinds:
        raise IndexSpecError("no index was asked for")
    if sidecar is not False:
        only_embedded(kinds)
    limit = bytes_of(split_bytes, "split_bytes")
    files, wanted = _wanted(path, filesystem, kinds, sidecar, table_format, anew=replace)
    if wanted.places is not None:
        wanted.places.check_apart(path, filesystem)
    workers = _parallelism(spark, parallelism)
    folder = _folder(path, wanted.filesystem)
    sizes = file_sizes(wanted.filesystem, folder, files)
    if limit is None:
        limit = max(SPLIT_BYTES, -(-sum(sizes) // workers))
    splits = [
        split
        for file, size in zip(files, sizes, strict=True)
        if size > limit and (split := _split(file, wanted, limit)) is not None
    ]
    with _job_folder(wanted, folder, splits) as (place, job):
        merges, reports = _gathered(spark, splits, wanted, place, job)
        apart = {merge.split.path for merge in merges} | {report.path for report in reports}
        whole = [file for file in files if file not in apart]
        known = dict(zip(files, sizes, strict=True))
        work: list[str | Merge | OneOf] = []
        work_bytes = []
        for merge in merges:
            ones = [OneOf(merge, number) for number in merge.sections]
            work += ones or [merge]
            work_bytes += [known[merge.split.path] // max(len(ones), 1)] * max(len(ones), 1)
        work += whole
        work_bytes += [known[path] for path in whole]

        def act(item: str | Merge | OneOf) -> FileReport:
            if isinstance(item, OneOf):
                return merge_section(item, wanted, place)
            if isinstance(item, Merge):
                return merge_file(item, wanted, place)
            return index_file(item, wanted)

        tasks = spread(work_bytes, workers)
        made = _run(spark, [[work[at] for at in task] for task in tasks], act)
        reports += _settled(made, merges)
    return _report(spark, files, reports, "no file can have it")


def drop_indexes(
    spark: SparkSession,
    path: PathLike | Sequence[PathLike],
    indexes: Sequence[IndexSpec | str] | IndexSpec | str | None = None,
    *,
    all: bool = False,  # noqa: A002 # as the library's own says it
    sidecar: bool | PathLike = False,
    parallelism: int | None = None,
    filesystem: Any = None,
    table_format: TableFormatOption = "auto",
) -> DataFrame:
    """Take ``indexes`` off every Parquet file under ``path``, as ``intarsia.drop_indexes`` does.

    The job, its report and the other arguments are as of ``add_indexes``; a file that has none of
    them is skipped. With ``all=True``, instead of ``indexes``, every index that was added is taken
    off. An index that no file has is warned of. Raises ``PathError`` where there is no file.
    """
    files, wanted = _wanted(path, filesystem, asked_of(indexes, all=all), sidecar, table_format)
    sizes = file_sizes(wanted.filesystem, _folder(path, wanted.filesystem), files)
    tasks = spread(sizes, _parallelism(spark, parallelism))
    reports = _run(
        spark, [[files[at] for at in task] for task in tasks], lambda p: drop_from_file(p, wanted)
    )
    return _report(spark, files, reports, "no file has it")


def _wanted(
    path: PathLike | Sequence[PathLike],
    filesystem: Any,
    indexes: Sequence[IndexSpec | str] | None,
    sidecar: bool | PathLike,
    table_format: TableFormatOption,
    *,
    anew: bool = False,
) -> tuple[list[str], Wanted]:
    require_pyspark()
    found, files = visible(path, filesystem, table_format=table_format)
    if not isinstance(sidecar, bool):
        sidecar = os.fspath(sidecar)
        if not is_uri(sidecar) and isinstance(found, pafs.LocalFileSystem):
            # Tasks run in other folders.
            sidecar = os.path.abspath(os.path.expanduser(sidecar))
    return list(dict.fromkeys(files)), Wanted(
        found, None if indexes is None else tuple(indexes), sidecar, anew
    )


def _parallelism(spark: SparkSession, asked: int | None) -> int:
    if asked is not None:
        check_count("parallelism", asked)
    return asked or parallelism_of(spark)


def _folder(path: PathLike | Sequence[PathLike], filesystem: pafs.FileSystem) -> str | None:
    """The one folder that was given; None where it is something else."""
    if not isinstance(path, str | os.PathLike):
        return None
    root = Place.of(path, None if is_uri(path) else filesystem).root
    is_folder = filesystem.get_file_info(root).type == pafs.FileType.Directory
    return root if is_folder else None


# --- large files --------------------------------------------------------------------------------


def _split(path: str, wanted: Wanted, limit: int) -> Split | None:
    """How a file is divided; None where it is not, or there is nothing to do, or it is damaged."""
    places = wanted.places
    try:
        with quiet():
            version = version_of(path, wanted.filesystem)
            file = open_file(path, wanted.filesystem, sidecar=places)
            choice = wanted.choice_of(file)
            if places is None:
                check_changeable(file)
            groups = cut(file, limit)
            size = held_bytes(file, places)
            file_id = id_of(file, places)
    except Exception:  # noqa: BLE001 # the task that gets the whole file reports it
        return None
    if not choice.due or len(groups) < 2:
        return None
    refused = FileReport(path, FAILED, bytes_before=size, rows=file.num_rows)
    return Split(path, version, choice, tuple(groups), file_id, refused)


@contextlib.contextmanager
def _job_folder(
    wanted: Wanted, folder: str | None, splits: Sequence[Split]
) -> Iterator[tuple[Place, str]]:
    """Where parts are kept until the block ends, and the name of the job."""
    job = secrets.token_hex(8)
    on, root = wanted.filesystem, folder or "."
    if isinstance(wanted.sidecar, str):
        places = Sidecars(wanted.filesystem, wanted.sidecar)
        on, root = places.filesystem, places.folder_of("")
    elif folder is None and splits:
        root = splits[0].path.rpartition("/")[0]
    place = Place.of(root, on)
    if not splits:
        yield place, job
        return
    try:
        made = place.make(TEMPORARY + job)
    except OSError as error:
        raise PathError(f"{place.root}: cannot be written to: {error}") from error
    try:
        yield place, job
    finally:
        place.remove_tree(TEMPORARY + job)
        place.remove_empty(made)


def _gathered(
    spark: SparkSession, splits: Sequence[Split], wanted: Wanted, place: Place, job: str
) -> tuple[list[Merge], list[FileReport]]:
    """Gather all parts; returns the files that can be merged, and reports of the others."""
    if not splits:
        return [], []
    tasks = [(at, part) for at, split in enumerate(splits) for part in range(len(split.groups))]

    def act(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for task in batch.column(0).to_pylist():
                at, part = tasks[task]
                name, seconds, why = gather_from(splits[at], part, wanted, place, job)
                row = {"split": at, "part": part, "name": name, "seconds": seconds, "why": why}
                yield pa.RecordBatch.from_pylist([row], schema=_PART)

    ids = spark.range(len(tasks), numPartitions=len(tasks))
    with as_told():
        rows = ids.mapInArrow(act, _PARTS).collect()
    rows.sort(key=lambda row: (row.split, row.part))
    merges, reports = [], []
    for at, split in enumerate(splits):
        parts = [row for row in rows if row["split"] == at]
        seconds = sum(row.seconds for row in parts)
        why = next((row.why for row in parts if row.why is not None), None)
        if why is None:
            merges.append(Merge(split, tuple(row.name for row in parts), seconds))
        else:
            refused = asdict(split.refused) | {"why": why, "seconds": seconds}
            reports.append(FileReport(**refused))
    return merges, reports


# --- in tasks, and after ------------------------------------------------------------------------


def _run(
    spark: SparkSession, tasks: Sequence[Sequence[Any]], act: Callable[[Any], FileReport]
) -> list[FileReport]:
    """The reports of all that tasks do."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for task in batch.column(0).to_pylist():
                for item in tasks[task]:
                    yield act(item).batch

    if not tasks:
        return []
    ids = spark.range(len(tasks), numPartitions=len(tasks))
    names = REPORT.names
    with as_told():
        rows = ids.mapInArrow(run, _RAW).collect()
    return [FileReport(**{name: row[name] for name in names}) for row in rows]


def _settled(made: Sequence[FileReport], merges: Sequence[Merge]) -> list[FileReport]:
    """One report of each file, of all those that its tasks gave."""
    by_path: dict[str, list[FileReport]] = {}
    for report in made:
        by_path.setdefault(report.path, []).append(report)
    gathering = {merge.split.path: merge.seconds for merge in merges}
    found = []
    for path, reports in by_path.items():
        said = min(reports, key=lambda report: _RANKS[report.status])
        if said.status == MERGED:  # no storage whose files can be seen leads here
            said = replace(said, status=FAILED, why="sections that were made cannot be found")
        seconds = sum(report.seconds for report in reports) + gathering.get(path, 0.0)
        found.append(replace(said, seconds=seconds))
    return found


def _report(
    spark: SparkSession, files: Sequence[str], reports: Sequence[FileReport], nowhere: str
) -> DataFrame:
    """The reports as a DataFrame, in the order of the files."""
    seen = [set(report.unfit) for report in reports]
    for name in sorted(set.intersection(*seen)) if seen else ():
        message = f"index {name}: {nowhere}; the report says why"
        warn(message)
    by_path = {report.path: report for report in reports}
    names = REPORT.names[: len(_REPORT.split(", "))]
    rows = [tuple(getattr(by_path[file], name) for name in names) for file in files]
    return spark.createDataFrame(rows, _REPORT)
