"""A job that writes files of one format under temporary names, to be published by a commit."""

from __future__ import annotations

import contextlib
import math
import os
import secrets
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Integral
from pathlib import Path
from time import perf_counter
from typing import Any

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from intarsia.commit.commit import TEMPORARY, keep_job, running
from intarsia.commit.storage import Place
from intarsia.errors import PathError
from intarsia.index.registry import IndexSpec
from intarsia.io.glob import is_glob
from intarsia.io.storage import PathLike
from intarsia.limits import size_of_text
from intarsia.memory import share
from intarsia.writer.defaults import DEFAULT_ROW_GROUP_ROWS
from intarsia.writer.parquet_writer import open_writer
from intarsia.writer.row_buffer import ROW_GROUP_BYTES, Rows
from intarsia.writer.row_sorting import sorting_columns

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
    seconds : float
        The time in which a task computed the rows of the file and wrote it. 0 if it has no rows.

    Examples
    --------
    ::

        [(file.path, file.bytes) for file in ias.write(df, "lake/logs", mode="append")]
    """

    path: str
    rows: int
    bytes: int
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Job:
    """The part of a write job that all its tasks share; picklable."""

    place: Place
    name: str
    """The job's name: its files are in ``_temporary-<name>`` until they are published."""
    schema: pa.Schema
    """The schema of the files, without partition columns."""
    indexes: tuple[IndexSpec, ...]
    partition_by: tuple[str, ...]
    sorted_by: tuple[str, ...]
    """Columns by which the rows of a file are sorted."""
    stated_order: tuple[str, ...]
    """The leading part of ``sorted_by`` that footers state: columns that all readers sort alike."""
    rows_per_page: int
    target_bytes: int | None
    time_zone: str
    """The time zone of timestamps in names of folders."""
    sorts: bool = False
    """True if tasks sort rows. Else the rows come sorted, by folder first."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Further options of pyarrow's writer."""
    annotations: Mapping[int, Mapping[str, Any]] = field(default_factory=dict)
    """Fields of schema elements that pyarrow does not write, by position of the element."""
    row_group_rows: int = DEFAULT_ROW_GROUP_ROWS
    """The most rows of a row group. It also ends at ``ROW_GROUP_BYTES``."""
    groups_at_once: int = 1
    """Row groups that are held in memory and encoded at the same time."""
    nulls_first: bool = True
    """True if NULL sorts before all values, as in Spark."""
    checkpoint_row_groups: int | None = None
    keep_unfinished: bool = False
    """True if a failed job leaves in its folder what it has written so far."""


def write_folder(job: Job, folder: str, stem: str, rows: Rows) -> Iterator[WrittenFile]:
    """Writes the rows of one folder as one file, or as many as the target size requires."""
    sample = rows.peek(SAMPLE_ROWS) if job.target_bytes else None
    row_bytes = 0.0 if sample is None else bytes_a_row(job, sample)
    while rows.peek(1) is not None:
        max_rows = None if not job.target_bytes else max(1, int(job.target_bytes / row_bytes))
        name, start = str(Path(folder, f"{stem}-{secrets.token_hex(8)}.parquet")), perf_counter()
        count = _write_file(job, f"{TEMPORARY}{job.name}/{name}", rows, max_rows)
        size = job.place.size(f"{TEMPORARY}{job.name}/{name}")
        row_bytes = size / count
        yield WrittenFile(name, count, size, perf_counter() - start)


def replace_file(job: Job, file: str, rows: Rows, check: Callable[[int], None]) -> WrittenFile:
    """Replaces one file by a file of ``rows``, atomically.

    ``check`` gets the number of written rows just before. If it raises, the old file stays.
    """
    written, start = 0, perf_counter()
    path, filesystem = job.place.path(file), job.place.filesystem
    check_written = lambda: check(written)  # noqa: E731 # the count is known later
    with open_job_writer(job, path, filesystem=filesystem, check=check_written) as writer:
        written = _write_rows(job, writer, rows, None)
    return WrittenFile(file, written, job.place.size(file), perf_counter() - start)


def _write_file(job: Job, name: str, rows: Rows, most: int | None) -> int:
    """Writes the next ``most`` rows, or up to a quarter more; returns their number."""
    with job.place.written(name) as path, open_job_writer(job, path) as writer:
        return _write_rows(job, writer, rows, most)


def _write_rows(job: Job, writer: Any, rows: Rows, most: int | None) -> int:
    """Writes the next ``most`` rows to a file, or up to a quarter more; returns their number."""
    written = 0
    group_bytes = share(ROW_GROUP_BYTES, 8 * job.groups_at_once)
    while most is None or written < most:
        limit = job.row_group_rows * job.groups_at_once
        slack = 0
        if most is not None and most - written <= limit:
            limit = most - written
            slack = min(most // _SLACK_DIVISOR, job.row_group_rows)
        table = rows.take(limit, group_bytes * job.groups_at_once, slack)
        if table is None:
            break
        num_groups = max(len(table) / job.row_group_rows, table.nbytes / group_bytes)
        write_group(writer, table, job, math.ceil(len(table) / max(math.ceil(num_groups), 1)))
        written += len(table)
        del table  # before the next rows are read
    return written


def write_group(
    writer: pq.ParquetWriter, group: pa.Table, job: Job, max_rows: int | None = None
) -> None:
    """Writes rows in the columns and types of the job's files.

    They become one row group, or row groups of ``max_rows``.
    """
    rows = group.select(job.schema.names).cast(job.schema)
    writer.write_table(rows, row_group_size=max_rows or max(len(rows), 1))


def open_job_writer(
    job: Job,
    path: PathLike,
    *,
    filesystem: Any = None,
    check: Callable[[], None] | None = None,
) -> Any:
    """Opens a writer for one of the job's files. ``check`` is as for ``open_writer``."""
    options: dict[str, Any] = {"max_rows_per_page": job.rows_per_page, **job.options}
    order = sorting_columns(job.stated_order, job.schema, nulls_first=job.nulls_first)
    if order:
        options["sorting_columns"] = order
    return open_writer(
        job.schema,
        path,
        job.indexes,
        filesystem=filesystem,
        check=check,
        encodes_groups_at_once=job.groups_at_once > 1,
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


def check_count(name: str, count: object) -> None:
    """Raises ``ValueError`` unless an argument is an integer from 1 on."""
    if isinstance(count, bool) or not isinstance(count, Integral) or count < 1:
        raise ValueError(f"{name} must be a whole number, at least 1, not {count!r}")


def names_of(columns: Sequence[str]) -> tuple[str, ...]:
    """Returns column names; a single name may be passed alone.

    Raises ``TypeError`` for a name that is not a string.
    """
    names = (columns,) if isinstance(columns, str) else tuple(columns)
    for name in names:
        if not isinstance(name, str):
            raise TypeError(f"names of columns are strings, not {name!r}")
    return names


def bytes_of(size: int | str | None, name: str = "target_file_size") -> int | None:
    """Returns a size in bytes, from a number or text such as ``128 MB``.

    Units are powers of 1,024. Raises ``ValueError`` for other text and for less than one byte.
    """
    if size is None:
        return None
    count = size_of_text(str(size), 1024)
    if count is None or isinstance(size, bool):
        raise ValueError(f"{name} is bytes, or text such as '128 MB', not {size!r}")
    if count < 1:
        raise ValueError(f"{name} must be at least 1 byte, not {size!r}")
    return count


def check_place(place: Place) -> None:
    """Raises ``PathError`` if no data set can be written to the folder.

    That is if there is a file, if the path is a pattern, or if the folder is in a table of another
    format.
    """
    kind = place.kind()
    if kind == pafs.FileType.File:
        raise PathError(f"{place.root}: there is a file where the data set is to be")
    if kind == pafs.FileType.NotFound and is_glob(place.root):
        raise PathError(f"{place.root}: a data set is written to one folder, and this is a pattern")
    place.check_own()


def make_job_folder(job: Job) -> list[str]:
    """Makes the folder that tasks write to; returns the new folders, deepest first."""
    try:
        made = job.place.make(TEMPORARY + job.name)
        if job.checkpoint_row_groups or job.keep_unfinished:
            keep_job(job.place, job.name)
    except OSError as error:
        raise PathError(f"{job.place.root}: cannot be written to: {error}") from error
    return made


@contextlib.contextmanager
def job_folder(job: Job) -> Iterator[None]:
    """Makes the folder that tasks write to, and removes it when the block has ended.

    After an error, folders that were made for the job are removed as well. Raises ``PathError`` if
    nothing can be written there.
    """
    made: list[str] = []
    try:
        with contextlib.ExitStack() as stack:
            try:
                made = job.place.make("") if job.place.is_shared_disk else []
                stack.enter_context(running(job.place, job.name))
            except OSError as error:
                raise PathError(f"{job.place.root}: cannot be written to: {error}") from error
            make_job_folder(job)
            try:
                yield
            except BaseException as error:
                clear_job(job, (), error)
                raise
            job.place.remove_tree(TEMPORARY + job.name)
    except BaseException:
        job.place.remove_empty(made)
        raise


def clear_job(job: Job, made: Sequence[str], error: BaseException | None = None) -> None:
    """Removes the files of a failed job, or adds a note to the error that says where they are."""
    if job.keep_unfinished:
        if error is not None:
            folder = job.place.path(TEMPORARY + job.name)
            error.add_note(f"what was written so far is in {folder}")
        return
    job.place.remove_tree(TEMPORARY + job.name)
    job.place.remove_empty(made)
