"""``write``: a job whose tasks write Parquet files with their indexes, published by the driver.

::

    <path>/_temporary-<job>/day=1/part-….parquet    written by tasks; readers ignore the folder
    <path>/day=1/part-….parquet                     moved there by the driver when all are done

A task that is retried or runs twice writes files of its own; only those of the attempt whose
result the driver got are published. A job that fails leaves nothing behind.
"""

from __future__ import annotations

import os
import secrets
import shutil
import time
import zoneinfo
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from intarsia.errors import IndexSpecError, PathError, PredicateError, unknown_column
from intarsia.index.registry import IndexSpec, kinds_of, spec_name
from intarsia.index.standard import PageIndex
from intarsia.read.folders import NULL_FOLDER
from intarsia.read.request import without_rows
from intarsia.spark.session import require_pyspark
from intarsia.spark.types import arrow_schema, nullable
from intarsia.storage import PathLike, list_files, resolve
from intarsia.write.writer import PAGE_ROWS, check_fit, open_writer

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ROW_GROUP_ROWS = 1024 * 1024
ROW_GROUP_BYTES = 256 * 1024 * 1024
"""A row group is closed at either: rows, or bytes of Arrow memory."""
_ESCAPED = frozenset("\"#%'*/:=?\\{[]^\x7f")
_MANIFEST = "path string, rows bigint, bytes bigint"
_MODES = ("error", "append")
_DISCARD_TRIES = 100
_DISCARD_PAUSE_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """A published file: its path below the data set's, its rows, and its length in bytes."""

    path: str
    rows: int
    bytes: int


@dataclass(frozen=True, slots=True)
class _Job:
    """What every task needs to know."""

    folder: str
    schema: pa.Schema
    """Of the files: without the columns that folders fix."""
    indexes: tuple[IndexSpec, ...]
    partition_by: tuple[str, ...]
    cluster_by: tuple[str, ...]
    rows_per_page: int
    time_zone: str
    """In which folders name timestamps."""


def write(
    df: DataFrame,
    path: PathLike,
    *,
    indexes: Sequence[IndexSpec | str] = (),
    partition_by: Sequence[str] = (),
    cluster_by: Sequence[str] = (),
    rows_per_page: int = PAGE_ROWS,
    mode: str = "error",
) -> list[WrittenFile]:
    """Write ``df`` as Parquet files with page indexes and embedded ``indexes`` under ``path``.

    ``partition_by`` makes Hive folders; rows are range-partitioned and sorted by ``cluster_by``
    within them. ``mode`` is ``error`` (there must be no data yet) or ``append``. Files appear when
    all are written, or not at all. Raises ``IndexSpecError`` or ``PredicateError`` for columns that
    are not there, ``PathError`` for a path that cannot be written to.
    """
    require_pyspark()
    partition_by, cluster_by = _names(partition_by), _names(cluster_by)
    job = _job(df, path, indexes, partition_by, cluster_by, rows_per_page)
    target = Path(job.folder).parent
    _check_target(target, mode)
    order = [*partition_by, *cluster_by]
    if order:
        df = df.repartitionByRange(*order).sortWithinPartitions(*order)
    made = _make_folders(Path(job.folder))
    try:
        manifest = df.mapInArrow(lambda batches: _write_task(batches, job), _MANIFEST).collect()
        files = [WrittenFile(row.path, row.rows, row.bytes) for row in manifest]
        published = _publish(job, target, files or _empty(job))
    except BaseException:
        _discard(Path(job.folder))
        _remove_empty(made)
        raise
    _discard(Path(job.folder))
    return published


def _discard(folder: Path) -> None:
    """Remove a job's folder. Tasks may still write to it, for a while, when another one failed."""
    for _ in range(_DISCARD_TRIES):
        shutil.rmtree(folder, ignore_errors=True)
        if not folder.exists():
            return
        time.sleep(_DISCARD_PAUSE_SECONDS)


def _make_folders(folder: Path) -> list[Path]:
    """Make ``folder`` and what is missing above it; returns what was made, the deepest first."""
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    try:
        os.makedirs(folder)
    except OSError as error:
        _remove_empty(missing)
        raise PathError(f"{folder.parent}: cannot be written to: {error}") from error
    return missing


def _remove_empty(folders: Sequence[Path]) -> None:
    """Remove folders, the deepest first, up to the first that holds something of someone else's."""
    for folder in folders:
        try:
            folder.rmdir()
        except FileNotFoundError:
            continue
        except OSError:
            return


def _names(columns: Sequence[str]) -> list[str]:
    """Column names; one name may stand alone."""
    return [columns] if isinstance(columns, str) else list(columns)


def _job(
    df: DataFrame,
    path: PathLike,
    indexes: Sequence[IndexSpec | str],
    partition_by: Sequence[str],
    cluster_by: Sequence[str],
    rows_per_page: int,
) -> _Job:
    if rows_per_page < 1:
        raise ValueError(f"rows_per_page must be at least 1, not {rows_per_page}")
    for name in (*partition_by, *cluster_by):
        if [*partition_by, *cluster_by].count(name) > 1:
            raise PredicateError(f"column {name!r} is named twice in partition_by and cluster_by")
        if name not in df.columns:
            raise unknown_column(name, df.columns)
    whole = arrow_schema(df.schema)
    schema = pa.schema([nullable(field) for field in whole if field.name not in partition_by])
    if not len(schema):
        raise PredicateError("every column is in partition_by; nothing is left to write")
    kinds = kinds_of(indexes)
    for index in kinds:
        columns = index.columns or () if isinstance(index, PageIndex) else (index.on,)
        if not set(columns).isdisjoint(partition_by):
            name = spec_name(index)
            raise IndexSpecError(f"{path}: no index {name}: folders fix its column already")
    check_fit(schema, kinds, str(path))
    filesystem, where = resolve(path)
    if not isinstance(filesystem, pafs.LocalFileSystem):
        raise PathError(f"{path}: data sets are written to local folders only, so far")
    folder = f"{where}/_temporary-{secrets.token_hex(8)}"
    parts = tuple(kinds), tuple(partition_by), tuple(cluster_by)
    zone = df.sparkSession.conf.get("spark.sql.session.timeZone") or "UTC"
    return _Job(folder, schema, *parts, rows_per_page, zone)


def _check_target(target: Path, mode: str) -> None:
    if mode not in _MODES:
        raise ValueError(f"mode must be one of {', '.join(_MODES)}, not {mode!r}")
    if target.exists() and not target.is_dir():
        raise PathError(f"{target}: there is a file where the data set is to be")
    if mode == "error" and target.is_dir() and _has_data(target):
        raise PathError(f"{target}: there is data already; mode='append' adds to it")


def _has_data(folder: Path) -> bool:
    try:
        return bool(list_files(folder))
    except PathError:
        return False


def _publish(job: _Job, target: Path, files: list[WrittenFile]) -> list[WrittenFile]:
    """Move all files to where readers see them; where one cannot be, none stays.

    Only a driver that is killed in the middle of this leaves a part of the files published.
    """
    published: list[Path] = []
    made: list[Path] = []
    try:
        for folder in sorted({(target / file.path).parent for file in files}):
            if not folder.exists():
                made = [*_make_folders(folder), *made]
        for file in files:
            os.rename(Path(job.folder, file.path), target / file.path)
            published.append(target / file.path)
        (target / "_SUCCESS").touch()
    except BaseException as error:
        for path in published:
            path.unlink(missing_ok=True)
        _remove_empty(made)
        if isinstance(error, OSError) and not isinstance(error, PathError):
            raise PathError(f"{target}: cannot be written to: {error}") from error
        raise
    return files


def _empty(job: _Job) -> list[WrittenFile]:
    """A file without rows, so that the data set has its schema."""
    if job.partition_by:
        return []
    name = "part-empty.parquet"
    with open_writer(job.schema, Path(job.folder, name)) as writer:
        writer.write_table(without_rows(job.schema))
    return [WrittenFile(name, 0, os.path.getsize(Path(job.folder, name)))]


# --- in a task ----------------------------------------------------------------------------------


def _write_task(batches: Iterator[pa.RecordBatch], job: _Job) -> Iterator[pa.RecordBatch]:
    """Write the rows of one task; yields one row of the manifest a file."""
    from pyspark import TaskContext

    context = TaskContext.get()
    number = context.partitionId() if context else 0
    for folder, tables in _by_folder(batches, job):
        name = f"part-{number:05}-{secrets.token_hex(8)}.parquet"
        path = Path(job.folder, folder, name)
        _make_below(Path(job.folder), folder)
        rows = _write_file(path, tables, job)
        entry = {"path": str(Path(folder, name)), "rows": rows, "bytes": os.path.getsize(path)}
        yield pa.RecordBatch.from_pylist([entry])


def _make_below(job_folder: Path, folder: str) -> None:
    """Make a partition's folder, but not the job's: where that is gone, the job has failed."""
    for part in Path(folder).parts:
        job_folder = job_folder / part
        job_folder.mkdir(exist_ok=True)


def _write_file(path: Path, tables: Iterator[pa.Table], job: _Job) -> int:
    rows = 0
    names = job.schema.names
    options: dict[str, Any] = {"max_rows_per_page": job.rows_per_page}
    sorting = _sorting_columns(job)
    if sorting:
        options["sorting_columns"] = sorting
    with open_writer(job.schema, path, job.indexes, **options) as writer:
        for group in _row_groups(tables):
            writer.write_table(group.select(names).cast(job.schema), row_group_size=len(group))
            rows += len(group)
    return rows


def _sorting_columns(job: _Job) -> list[pq.SortingColumn]:
    """What the footer says of the order: Spark puts NULL first, and knows no order of NaN."""
    found = []
    for name in job.cluster_by:
        at = job.schema.get_field_index(name)
        kind = job.schema.field(at).type
        if pa.types.is_floating(kind) or pa.types.is_nested(kind):
            break
        leaf = sum(_num_leaves(field.type) for field in list(job.schema)[:at])
        found.append(pq.SortingColumn(leaf, nulls_first=True))
    return found


def _num_leaves(kind: pa.DataType) -> int:
    if not pa.types.is_nested(kind):
        return 1
    return sum(_num_leaves(kind.field(i).type) for i in range(kind.num_fields))


def _row_groups(tables: Iterator[pa.Table]) -> Iterator[pa.Table]:
    """The same rows in tables as large as row groups are to be."""
    held: list[pa.Table] = []
    for table in tables:
        held.append(table)
        rows, size = sum(len(t) for t in held), sum(t.nbytes for t in held)
        if rows >= ROW_GROUP_ROWS or size >= ROW_GROUP_BYTES:
            yield pa.concat_tables(held)
            held = []
    if held:
        yield pa.concat_tables(held)


def _by_folder(
    batches: Iterator[pa.RecordBatch], job: _Job
) -> Iterator[tuple[str, Iterator[pa.Table]]]:
    """Runs of rows that belong in one folder, and the folder's name; rows come sorted by folder."""
    runs = _runs(batches, job)
    current = next(runs, None)
    while current is not None:
        folder = current[0]

        def tables() -> Iterator[pa.Table]:
            nonlocal current
            while current is not None and current[0] == folder:  # noqa: B023 # used at once
                yield current[1]
                current = next(runs, None)

        yield folder, tables()


def _runs(batches: Iterator[pa.RecordBatch], job: _Job) -> Iterator[tuple[str, pa.Table]]:
    for batch in batches:
        if not batch.num_rows:
            continue
        ends = {batch.num_rows}
        for name in job.partition_by:
            encoded = pc.run_end_encode(batch.column(name), run_end_type=pa.int32())
            ends.update(encoded.run_ends.to_pylist())
        edges = np.array([0, *sorted(ends)])
        for start, stop in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
            part = pa.Table.from_batches([batch.slice(start, stop - start)])
            yield _folder(part, job), part


def _folder(rows: pa.Table, job: _Job) -> str:
    """``day=1/city=New York`` of rows that agree in these columns; ``""`` without any."""
    pairs = ((name, _text(rows.column(name)[0], job.time_zone)) for name in job.partition_by)
    return "/".join(f"{_escaped(name)}={_escaped(text) or NULL_FOLDER}" for name, text in pairs)


def _text(value: pa.Scalar, time_zone: str) -> str:
    """A partition's value as Spark names its folder; NULL and empty text have one name."""
    if not value.is_valid:
        return ""
    if not pa.types.is_timestamp(value.type):
        return str(value.cast(pa.string()).as_py())
    moment = value.as_py()
    if value.type.tz is not None:
        moment = moment.astimezone(zoneinfo.ZoneInfo(time_zone))
    text: str = moment.replace(tzinfo=None).isoformat(sep=" ")
    return text.rstrip("0") if moment.microsecond else text


def _escaped(text: str) -> str:
    """``text`` with the characters that Spark escapes in the names of folders as ``%XX``."""
    return "".join(f"%{ord(c):02X}" if c in _ESCAPED or c < " " else c for c in text)
