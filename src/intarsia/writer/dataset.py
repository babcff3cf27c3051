"""Writes rows to a folder of Parquet files, partitioned as ``pyarrow.dataset`` does.

::

    <base_dir>/_temporary-<job>/day=1/part-0.parquet    written here; readers ignore the folder
    <base_dir>/day=1/part-0.parquet                     moved there by one commit at the end

The commit is that of Spark's writer (``commit.commit``).
"""

from __future__ import annotations

import os
import re
import secrets
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial, reduce
from operator import and_
from typing import Any, Literal, get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads
import pyarrow.parquet as pq

from intarsia.commit.commit import TEMPORARY, has_data, publish, settle
from intarsia.commit.job import Job, check_place, job_folder, names_of
from intarsia.commit.storage import Place
from intarsia.errors import PathError, public, unknown_column
from intarsia.expr.filterable_types import taken
from intarsia.index.index import Index
from intarsia.index.registry import IndexSpec, parse_indexes
from intarsia.io.atomic_replace import make_folder
from intarsia.io.external_sort import Workspace
from intarsia.io.local_path import local_path
from intarsia.io.storage import PathLike, resolve
from intarsia.memory import share
from intarsia.writer.defaults import DEFAULT_ROW_GROUP_ROWS, PAGE_ROWS
from intarsia.writer.empty_file import check_fit
from intarsia.writer.input_rows import input_rows
from intarsia.writer.parquet_writer import ParquetWriter
from intarsia.writer.policy_settings import settings_of
from intarsia.writer.row_buffer import ROW_GROUP_BYTES, row_groups
from intarsia.writer.row_sorting import sorted_tables

MAX_PENDING_BYTES = ROW_GROUP_BYTES
"""Bytes of Arrow memory for rows that are not written yet. Above this, the folder with most of them
gets a row group.
"""
ExistingData = Literal["error", "append", "overwrite", "delete_matching", "overwrite_or_ignore"]
_STEP_ROWS, _STEP_BYTES = 128 * 1024, 64 * 1024 * 1024
"""The most rows and bytes that are divided among folders at a time."""


@public
def write_dataset(
    data: Any,
    base_dir: PathLike,
    *,
    partition_by: Sequence[str] = (),
    indexes: Sequence[Index | str] | None = None,
    sort_by: Sequence[str] | None = None,
    basename_template: str | None = None,
    format: Any = None,  # noqa: A002 # pyarrow's name
    partitioning: pads.Partitioning | Sequence[str] | None = None,
    partitioning_flavor: str | None = None,
    schema: pa.Schema | None = None,
    filesystem: Any = None,
    file_options: None = None,
    use_threads: bool = True,
    preserve_order: bool = False,
    max_partitions: int | None = None,
    max_open_files: int | None = None,
    max_rows_per_file: int | None = None,
    min_rows_per_group: int | None = None,
    max_rows_per_group: int | None = None,
    file_visitor: Callable[[Any], None] | None = None,
    existing_data_behavior: ExistingData = "error",
    create_dir: bool = True,
    **options: Any,
) -> None:
    """Writes rows as a folder of Parquet files with page indexes and user-defined indexes.

    Takes the arguments of ``pyarrow.dataset.write_dataset`` and names folders as it does. Each file
    is written by ``intarsia.ParquetWriter``. Rows that wait for their row group take about 256 MB
    of memory at most. If ``base_dir`` has a policy, new files follow its layout.

    All files appear at once when all are written, and old files disappear at the same moment. After
    an error the folder is as it was. Intarsia's readers see the old rows or the new ones. Other
    readers may see both for a moment. If the process is killed, the next write or
    ``intarsia.recover_dataset`` finishes the change or undoes it.

    Parameters
    ----------
    data : table, batches, reader, data set, frame or relation
        The rows. Accepts pyarrow's tables, batches, readers, data sets and scanners, and lists of
        tables or batches. Accepts frames of pandas and Polars, also lazy ones, DuckDB relations,
        and objects with ``__arrow_c_stream__`` or ``__dataframe__``. An iterable of batches needs
        ``schema``. The rows may come from ``base_dir`` itself.
    base_dir : str or path-like
        The folder, on the local disk or on remote storage.
    partition_by : sequence of str, optional
        The columns whose values become Hive folders, ``column=value``. Short for
        ``partitioning=…, partitioning_flavor="hive"``.
    indexes : sequence of Index or str, optional
        Indexes of each file, as for ``add_indexes``. By default those of the policy of
        ``base_dir`` that the schema can have.
    sort_by : sequence of str, optional
        The columns by which the rows of each folder are sorted, as for ``write_table``. By default
        those of the policy; an empty sequence keeps the order of the rows.
    basename_template : str, optional
        Names of files, with ``{i}`` for a number. By default ``"part-{i}.parquet"``. The number is
        followed by ``-`` and 16 hexadecimal digits where old files may exist: always with
        ``"append"``, ``"overwrite"`` and ``"delete_matching"``, and with ``"overwrite_or_ignore"``
        if the name is in use.
    format : "parquet" or pyarrow.dataset.ParquetFileFormat, optional
        Only Parquet is supported.
    partitioning : pyarrow.dataset.Partitioning or list of str, optional
        The columns whose values divide rows among folders. By default all files are in
        ``base_dir``.
    partitioning_flavor : str, optional
        ``"hive"`` names folders ``column=value``. Needs ``partitioning`` as a list of columns.
    schema : pyarrow.Schema, optional
        The schema to which rows are cast. An iterable of batches needs it.
    filesystem : pyarrow.fs.FileSystem or fsspec file system, optional
        The file system of ``base_dir``. By default it is taken from the URI; other paths are local.
    file_options : None
        Not supported: pass ``options`` instead.
    use_threads, preserve_order : bool
        Have no effect.
    max_partitions : int, default 1024
        The most partitions among rows that are divided together, about 131,072 at a time.
    max_open_files : int, default 256
        Files that are open at a time. Each takes two file handles. 0 is no limit.
    max_rows_per_file : int, default 0
        Rows of a file. 0 is no limit.
    min_rows_per_group : int, default 0
        Row groups are filled from all batches, so they reach this size. They end earlier if memory
        or ``max_open_files`` demands it.
    max_rows_per_group : int, default 1,048,576
        Rows of a row group.
    file_visitor : callable, optional
        Called with a ``pyarrow.dataset.WrittenFile`` for each file, once all have appeared.
    existing_data_behavior : str, default "error"
        How existing files are treated:

        - ``"error"``: raises ``PathError`` if there are any.
        - ``"append"``: they stay.
        - ``"overwrite"``: all of them are removed.
        - ``"delete_matching"``: those in the folders that get new rows are removed.
        - ``"overwrite_or_ignore"``: those with the names of new files are removed.
    create_dir : bool, default True
        Creates folders. If false, a missing folder raises ``PathError``.
    **options
        Options of ``intarsia.ParquetWriter``, such as ``compression="zstd"``.

    Raises
    ------
    PathError
        If ``base_dir`` holds files and ``existing_data_behavior`` is ``"error"``, if it is a table
        of another format, or if a file cannot be written.
    IndexSpecError
        If an index cannot be built.
    ValueError, TypeError
        If another argument is wrong, or rows do not fit ``schema``.

    Examples
    --------
    >>> table = pa.table({"day": ["mon", "mon", "tue"], "user_id": [1, 2, 3]})
    >>> ia.write_dataset(table, "users", partition_by=["day"], indexes=["user_id:lookup"])
    >>> [report.path.partition("users/")[2] for report in ia.list_indexes("users")]
    ['day=mon/part-0.parquet', 'day=tue/part-0.parquet']
    >>> ia.write_dataset(table, "users", partition_by=["day"], existing_data_behavior="append")
    >>> ia.dataset("users").count_rows()
    6
    """
    template = basename_template or "part-{i}.parquet"
    if template.count("{i}") != 1 or "/" in template:
        raise ValueError(f"basename_template has '{{i}}' once and no '/', not {template!r}")
    if format not in (None, "parquet") and not isinstance(format, pads.ParquetFileFormat):
        raise ValueError(f"format is 'parquet', not {format!r}")
    if file_options is not None:
        raise ValueError("file_options: give the writer's options as arguments: compression='zstd'")
    if existing_data_behavior not in get_args(ExistingData):
        known = ", ".join(get_args(ExistingData))
        raise ValueError(f"existing_data_behavior: one of {known}, not {existing_data_behavior!r}")
    partitions = _limit("max_partitions", max_partitions, 1024)
    rows_per_group = _limit("max_rows_per_group", max_rows_per_group, DEFAULT_ROW_GROUP_ROWS)
    least_rows = _limit("min_rows_per_group", min_rows_per_group, 0)
    if least_rows > rows_per_group:
        raise ValueError("min_rows_per_group is more than max_rows_per_group")
    rows_per_file = _limit("max_rows_per_file", max_rows_per_file, 0) or sys.maxsize
    max_open = _limit("max_open_files", max_open_files, 256) or sys.maxsize
    if partition_by and (partitioning is not None or partitioning_flavor is not None):
        raise ValueError("partition_by and partitioning exclude each other")
    if partition_by:
        partitioning, partitioning_flavor = names_of(partition_by), "hive"
    schema, tables = input_rows(data, schema)
    scheme = _partitioning_of(partitioning, partitioning_flavor, schema)
    keys = [name for name in scheme.schema.names if name in schema.names] if scheme else []
    stored_schema = pa.schema([f for f in schema if f.name not in keys], metadata=schema.metadata)
    if keys and not len(stored_schema):
        raise ValueError(f"no column is left for the files: {', '.join(keys)} are names of folders")
    file_system, base = resolve(base_dir, filesystem)
    columns = None if sort_by is None else names_of(sort_by)
    settings = settings_of(file_system, base, stored_schema, indexes, columns, options)
    if max_rows_per_group is None and settings.row_group_rows is not None:
        rows_per_group = max(settings.row_group_rows, least_rows)
    specs = parse_indexes(settings.indexes)
    check_fit(stored_schema, specs, str(base_dir))
    local = local_path(base, file_system)
    place = Place.of(base, file_system) if local is None else Place.of(local)
    check_place(place)
    if not create_dir and local is not None and not os.path.isdir(place.root):
        raise PathError(f"{place.root}: there is no such folder, and create_dir is false")
    if existing_data_behavior == "error":
        _check_new(place)
    settle(place)
    job = _job_of(place, stored_schema, specs, options)
    names = _FileNames(place, job.name, template, existing_data_behavior)
    with job_folder(job), Workspace() as work:
        if settings.sort_by:
            tables = sorted_tables(tables, settings.sort_by, work)
        begin = partial(_begin, job, names, settings.options)
        writer = _Writer(begin, rows_per_file, max(rows_per_group, 1), max_open)
        try:
            for table in row_groups(tables, _STEP_ROWS, share(_STEP_BYTES, 16)):
                row_bytes = table.nbytes / table.num_rows
                for (folder, prefix), rows in _partitions(table, keys, scheme, partitions):
                    writer.add(folder, prefix, rows, row_bytes)
            writer.finish()
            if not (names.written or keys):
                begin("", "", 0).close()  # the data set has its schema
        except BaseException as error:
            writer.give_up(error)
            raise
        if not create_dir and local is not None:
            _check_folders(place, names.written)
        if existing_data_behavior == "error":  # another writer may have published
            _check_new(place)
        publish(
            place,
            job.name,
            names.written,
            names.replaced,
            overwrites=names.overwritten_folders,
        )
    if file_visitor is not None:
        for name in names.written:
            metadata = pq.read_metadata(place.path(name), filesystem=place.filesystem)
            metadata.set_file_path(name)
            path = f"{base.rstrip('/')}/{name}"
            file_visitor(pads.WrittenFile(path, metadata, place.size(name)))


def _check_new(place: Place) -> None:
    """Raises ``PathError`` if the folder has files."""
    if has_data(place):
        raise PathError(
            f"{place.root}: there are files in the folder; existing_data_behavior='append' keeps "
            "them, 'overwrite' replaces them"
        )


def _job_of(
    place: Place, schema: pa.Schema, indexes: Sequence[IndexSpec], options: dict[str, Any]
) -> Job:
    return Job(
        place=place,
        name=secrets.token_hex(8),
        schema=schema,
        indexes=tuple(indexes),
        partition_by=(),
        sorted_by=(),
        stated_order=(),
        rows_per_page=PAGE_ROWS,
        target_bytes=None,
        time_zone="UTC",
        checkpoint_row_groups=options.get("checkpoint_row_groups"),
        keep_unfinished=bool(options.get("keep_unfinished")),
    )


def _check_folders(place: Place, names: Sequence[str]) -> None:
    """Raises ``PathError`` unless the folders of all files exist."""
    for folder in {os.path.dirname(place.path(name)) for name in names}:
        if not os.path.isdir(folder):
            raise PathError(f"{folder}: there is no such folder, and create_dir is false")


def _begin(
    job: Job, names: _FileNames, options: Mapping[str, Any], folder: str, prefix: str, number: int
) -> ParquetWriter:
    """Begins a file in the job's folder. Raises ``PathError``."""
    path = job.place.path(f"{TEMPORARY}{job.name}/{names.add(folder, prefix, number)}")
    if job.place.is_shared_disk:  # uploads create their folders
        try:
            make_folder(os.path.dirname(path), job.place.filesystem)
        except OSError as error:
            raise PathError(f"{path}: cannot be written: {error}") from error
    return ParquetWriter(
        path,
        job.schema,
        indexes=job.indexes,
        filesystem=job.place.filesystem,
        is_hidden=True,
        **options,
    )


class _FileNames:
    """Names new files, relative to the data set's folder, and says which old ones they replace."""

    def __init__(self, place: Place, job: str, template: str, behavior: ExistingData) -> None:
        self._job, self._template, self._behavior = job, template, behavior
        self._existing: dict[str, list[str]] = {}
        """Old files by their names without the digits of a job."""
        self.written: list[str] = []
        self.replaced: list[str] = []
        if behavior == "overwrite_or_ignore":
            end = re.escape(template.partition("{i}")[2])
            digits = re.compile(rf"(?<=[0-9])-[0-9a-f]{{16}}(?={end}\Z)")
            for file in place.data_files():
                self._existing.setdefault(digits.sub("", file), []).append(file)

    def add(self, folder: str, prefix: str, number: int) -> str:
        """Returns the name of the next new file."""
        start = f"{folder}/{prefix}".lstrip("/")
        name = start + self._template.replace("{i}", str(number))
        old = self._existing.get(name, [])
        if old or self._behavior in ("append", "overwrite", "delete_matching"):
            # A file under an old name would replace rows before the commit.
            name = start + self._template.replace("{i}", f"{number}-{self._job}")
        self.replaced += old
        self.written.append(name)
        return name

    @property
    def overwritten_folders(self) -> list[str]:
        """The folders of which all old files are replaced."""
        if self._behavior == "delete_matching":
            return sorted({name.rpartition("/")[0] for name in self.written})
        return [""] if self._behavior == "overwrite" else []


class _Part:
    """The rows of one folder that are not written yet, and the file that takes them."""

    def __init__(self, folder: str, prefix: str) -> None:
        self.folder, self.prefix = folder, prefix
        self.tables: list[pa.Table] = []
        self.rows, self.bytes = 0, 0.0
        self.files = 0
        """The number of files begun."""
        self.writer: ParquetWriter | None = None
        self.rows_in_file = 0


class _Writer:
    """Gathers the rows of each folder into row groups, and writes these to files."""

    def __init__(
        self,
        begin: Callable[[str, str, int], ParquetWriter],
        rows_per_file: int,
        rows_per_group: int,
        max_open: int,
    ) -> None:
        self._begin = begin
        self._rows_per_file, self._rows_per_group = rows_per_file, rows_per_group
        self._max_open = max_open
        self._parts: dict[tuple[str, str], _Part] = {}
        self._open: dict[_Part, None] = {}
        """Parts with an open file, the most recently written one last."""
        self._pending_bytes = 0.0
        """Bytes of all rows that are not written yet."""

    def add(self, folder: str, prefix: str, table: pa.Table, row_bytes: float) -> None:
        """Takes rows for a folder, and writes all row groups that are full."""
        part = self._parts.setdefault((folder, prefix), _Part(folder, prefix))
        part.tables.append(table)
        part.rows += table.num_rows
        part.bytes += table.num_rows * row_bytes
        self._pending_bytes += table.num_rows * row_bytes
        while part.rows >= self._next_group_rows(part):
            self._write(part)
        while self._pending_bytes > share(MAX_PENDING_BYTES, 8):
            self._write(max(self._parts.values(), key=lambda part: part.bytes))

    def finish(self) -> None:
        """Writes the remaining rows, and closes all files."""
        for part in sorted(self._parts.values(), key=lambda part: part not in self._open):
            while part.rows:
                self._write(part)
            self._close(part)

    def give_up(self, error: BaseException) -> None:
        """Abandons the open files, which then do not appear."""
        for part in self._open:
            if part.writer is not None:
                part.writer.__exit__(type(error), error, error.__traceback__)

    def _next_group_rows(self, part: _Part) -> int:
        """Returns the number of rows of the next row group."""
        return min(self._rows_per_group, self._rows_per_file - part.rows_in_file)

    def _write(self, part: _Part) -> None:
        """Writes a row group."""
        table = pa.concat_tables(part.tables)
        group = table.slice(0, self._next_group_rows(part))
        rest = table.slice(group.num_rows)
        written_bytes = part.bytes * group.num_rows / table.num_rows
        part.tables = [rest] if rest.num_rows else []
        part.rows = rest.num_rows
        part.bytes -= written_bytes
        self._pending_bytes -= written_bytes
        if part.writer is None:
            if len(self._open) >= self._max_open:
                self._close(next(iter(self._open)))
            part.writer = self._begin(part.folder, part.prefix, part.files)
            part.files += 1
        self._open.pop(part, None)
        self._open[part] = None
        part.writer.write_table(group, group.num_rows)
        part.rows_in_file += group.num_rows
        if part.rows_in_file == self._rows_per_file:
            self._close(part)

    def _close(self, part: _Part) -> None:
        if part.writer is not None:
            part.writer.close()
            part.writer, part.rows_in_file = None, 0
            del self._open[part]


def _limit(name: str, value: int | None, default: int) -> int:
    """Returns the value of a limit. Raises ``TypeError`` or ``ValueError`` unless it is a count."""
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} is an integer, not {value!r}")
    if value < 0:
        raise ValueError(f"{name} must be at least 0, not {value}")
    return value


def _partitioning_of(
    partitioning: Any, flavor: str | None, schema: pa.Schema
) -> pads.Partitioning | None:
    """Returns what divides rows among folders. Returns None if all rows are in one folder."""
    if partitioning is None or partitioning == []:
        return None
    if isinstance(partitioning, pads.Partitioning):
        if flavor is not None:
            raise ValueError("partitioning_flavor needs partitioning as a list of columns")
        return partitioning
    if isinstance(partitioning, str) or not isinstance(partitioning, Sequence):
        raise ValueError(
            "partitioning is a list of columns or a pyarrow.dataset.Partitioning with a schema, "
            f"not {partitioning!r}"
        )
    for name in partitioning:
        if name not in schema.names:
            raise unknown_column(name, schema.names)
    return pads.partitioning(
        pa.schema([schema.field(name) for name in partitioning]), flavor=flavor
    )


def _partitions(
    table: pa.Table, keys: Sequence[str], scheme: pads.Partitioning | None, max_partitions: int
) -> Iterator[tuple[tuple[str, str], pa.Table]]:
    """Yields each partition's folder, prefix and rows. Raises ``ValueError`` for too many."""
    if not keys:
        yield ("", ""), table
        return
    assert scheme is not None
    values = {str(number): table.column(name) for number, name in enumerate(keys)}
    numbered = pa.table({**values, "rows": np.arange(table.num_rows)})
    groups = numbered.group_by([*values], use_threads=False).aggregate([("rows", "list")])
    if groups.num_rows > max_partitions:
        raise ValueError(
            f"{groups.num_rows:,} partitions within {table.num_rows:,} rows; the limit is "
            f"{max_partitions:,} (max_partitions)"
        )
    rest = table.drop_columns([*keys]).combine_chunks()  # once, instead of in each take
    columns = [groups.column(name).combine_chunks() for name in values]
    for group, rows in enumerate(groups.column("rows_list").combine_chunks()):
        scalars = (column[group] for column in columns)
        tests = (
            pc.field(name) == value if value.is_valid else pc.field(name).is_null()
            for name, value in zip(keys, scalars, strict=True)
        )
        folder, prefix = scheme.format(reduce(and_, tests))
        if {".", ".."} & {*folder.split("/")} or "/" in prefix:
            message = (
                "these values lead to another folder; partitioning_flavor='hive' can store them"
            )
            raise ValueError(f"{folder}/{prefix}: {message}")
        yield (folder, prefix), taken(rest, rows.values)
