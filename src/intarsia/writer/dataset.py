"""Writes rows to a folder of Parquet files, partitioned as ``pyarrow.dataset`` does."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import reduce
from operator import and_
from typing import Any, Literal, get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from intarsia.errors import PathError, public, unknown_column
from intarsia.expr.filterable_types import taken
from intarsia.index.registry import IndexSpec
from intarsia.io.atomic_replace import make_folder, remove_file
from intarsia.io.local_path import local_path
from intarsia.io.retry import infos_of
from intarsia.io.storage import PathLike, infos_under, resolve
from intarsia.writer.parquet_writer import ParquetWriter
from intarsia.writer.row_buffer import ROW_GROUP_BYTES, Rows

MAX_PENDING_BYTES = ROW_GROUP_BYTES
"""Bytes of Arrow memory for rows that are not written yet. Above this, the folder with most of them
gets a row group.
"""
ExistingData = Literal["error", "overwrite_or_ignore", "delete_matching"]
_STEP_ROWS, _STEP_BYTES = 128 * 1024, 64 * 1024 * 1024
"""The most rows and bytes that are divided among folders at a time."""
_READ_AHEAD = {"batch_readahead": 4, "fragment_readahead": 2}
"""Batches and files that pyarrow reads ahead of a data set. Fewer than its default, to bound
memory.
"""


@public
def write_dataset(
    data: Any,
    base_dir: PathLike,
    *,
    indexes: Sequence[IndexSpec | str] = (),
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

    Takes the arguments of ``pyarrow.dataset.write_dataset`` and names folders and files as it does.
    Each file is written by ``intarsia.ParquetWriter`` and appears whole. Rows keep their order.
    Rows that wait for their row group take about 256 MB of memory at most. Files that have appeared
    before an error stay.

    Parameters
    ----------
    data : table, record batch, list of either, reader, Dataset, Scanner or iterable of batches
        The rows. Objects with ``__arrow_c_stream__`` are accepted too. An iterable of batches needs
        ``schema``.
    base_dir : str or path-like
        The folder, on the local disk or on remote storage.
    indexes : sequence of index or str, optional
        Indexes of each file, as for ``add_indexes``.
    basename_template : str, optional
        Names of files, with ``{i}`` for a number. By default ``"part-{i}.parquet"``.
    format : "parquet" or pyarrow.dataset.ParquetFileFormat, optional
        Only Parquet is supported.
    partitioning : pyarrow.dataset.Partitioning or list of str, optional
        The columns whose values divide rows among folders. By default all files are in
        ``base_dir``.
    partitioning_flavor : str, optional
        ``"hive"`` names folders ``column=value``. Needs ``partitioning`` as a list of columns.
    schema : pyarrow.Schema, optional
        The schema of the rows, if ``data`` has none.
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
        Called with a ``pyarrow.dataset.WrittenFile`` for each file.
    existing_data_behavior : {"error", "overwrite_or_ignore", "delete_matching"}, default "error"
        How existing files
        are treated. ``"delete_matching"`` deletes old files in the
        folders that were written to, once all new files are written.
    create_dir : bool, default True
        Creates folders.
    **options
        Options of ``intarsia.ParquetWriter``, such as ``compression="zstd"``.

    Raises
    ------
    PathError
        If ``base_dir`` holds files and ``existing_data_behavior`` is ``"error"``, or if a file
        cannot be written.
    IndexSpecError
        If an index cannot be built.
    ValueError, TypeError
        If another argument is wrong.

    Examples
    --------
    >>> table = pa.table({"day": ["mon", "mon", "tue"], "user_id": [1, 2, 3]})
    >>> ia.write_dataset(table, "users", partitioning=["day"], partitioning_flavor="hive",
    ...                  indexes=["user_id:lookup"])
    >>> [report.path.partition("users/")[2] for report in ia.list_indexes("users")]
    ['day=mon/part-0.parquet', 'day=tue/part-0.parquet']
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
    rows_per_group = _limit("max_rows_per_group", max_rows_per_group, 1024 * 1024)
    if _limit("min_rows_per_group", min_rows_per_group, 0) > rows_per_group:
        raise ValueError("min_rows_per_group is more than max_rows_per_group")
    schema, batches = _rows_of(data, schema)
    scheme = _partitioning_of(partitioning, partitioning_flavor, schema)
    keys = [name for name in scheme.schema.names if name in schema.names] if scheme else []
    stored_schema = pa.schema([f for f in schema if f.name not in keys], metadata=schema.metadata)
    file_system, base = resolve(base_dir, filesystem)
    base = base.rstrip("/")
    _check_existing(data, base, file_system, existing_data_behavior)

    def begin(path: str) -> ParquetWriter:
        if create_dir and local_path(path, file_system) is not None:  # uploads create their folders
            try:
                make_folder(path.rpartition("/")[0], file_system)
            except OSError as error:
                raise PathError(f"{path}: cannot be written: {error}") from error
        return ParquetWriter(
            path, stored_schema, indexes=indexes, filesystem=file_system, **options
        )

    def end(path: str) -> None:
        if file_visitor is not None:
            metadata = pq.read_metadata(path, filesystem=file_system)
            metadata.set_file_path(path.removeprefix(f"{base}/"))
            file_visitor(pads.WrittenFile(path, metadata, infos_of(file_system, path).size))

    rows_per_file = _limit("max_rows_per_file", max_rows_per_file, 0) or sys.maxsize
    files = _limit("max_open_files", max_open_files, 256) or sys.maxsize
    writer = _Writer(begin, end, template, rows_per_file, max(rows_per_group, 1), files)
    try:
        for table in _steps(batches, schema):
            row_bytes = table.nbytes / table.num_rows
            for (folder, prefix), rows in _partitions(table, keys, scheme, partitions):
                writer.add(f"{base}/{folder}".rstrip("/"), prefix, rows, row_bytes)
        writer.finish()
    except BaseException as error:
        writer.give_up(error)
        raise
    if existing_data_behavior == "delete_matching":
        writer.delete_others(file_system)


class _Part:
    """The rows of one folder that are not written yet, and the file that takes them."""

    def __init__(self, folder: str, prefix: str) -> None:
        self.folder, self.prefix = folder, prefix
        self.tables: list[pa.Table] = []
        self.rows, self.bytes = 0, 0.0
        self.files = 0
        """The number of files begun."""
        self.path = ""
        self.writer: ParquetWriter | None = None
        self.rows_in_file = 0


class _Writer:
    """Gathers the rows of each folder into row groups, and writes these to files."""

    def __init__(
        self,
        begin: Callable[[str], ParquetWriter],
        end: Callable[[str], None],
        template: str,
        rows_per_file: int,
        rows_per_group: int,
        max_open: int,
    ) -> None:
        self._begin, self._end, self._template = begin, end, template
        self._rows_per_file, self._rows_per_group = rows_per_file, rows_per_group
        self._max_open = max_open
        self._parts: dict[tuple[str, str], _Part] = {}
        self._open: dict[_Part, None] = {}
        """Parts with an open file, the most recently written one last."""
        self._written: set[str] = set()
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
        while self._pending_bytes > MAX_PENDING_BYTES:
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

    def delete_others(self, filesystem: pafs.FileSystem) -> None:
        """Deletes all files of the folders that were not written here. Raises ``PathError``."""
        for folder in {part.folder for part in self._parts.values()}:
            try:
                for info in infos_under(filesystem, folder):
                    if info.is_file and info.path not in self._written:
                        remove_file(info.path, filesystem)
            except OSError as error:
                raise PathError(f"{folder}: old files cannot be removed: {error}") from error

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
            name = self._template.replace("{i}", str(part.files))
            part.path, part.rows_in_file = f"{part.folder}/{part.prefix}{name}", 0
            part.writer = self._begin(part.path)
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
            self._written.add(part.path)
            self._end(part.path)


def _limit(name: str, value: int | None, default: int) -> int:
    """Returns the value of a limit. Raises ``TypeError`` or ``ValueError`` unless it is a count."""
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} is an integer, not {value!r}")
    if value < 0:
        raise ValueError(f"{name} must be at least 0, not {value}")
    return value


def _rows_of(data: Any, schema: pa.Schema | None) -> tuple[pa.Schema, Iterable[pa.RecordBatch]]:
    """Returns the schema of rows, and their batches. Raises ``TypeError`` for other objects."""
    if isinstance(data, pads.Scanner | pads.Dataset) and schema is not None:
        raise ValueError("schema is for batches and tables: a data set has its own schema")
    if isinstance(data, pads.Scanner):
        return data.projected_schema, data.to_batches()
    if isinstance(data, pads.Dataset):
        return data.schema, data.to_batches(**_READ_AHEAD)
    if isinstance(data, pa.Table | pa.RecordBatch):
        data = [data]
    if isinstance(data, list | tuple) and data and schema is None:
        schema = data[0].schema
    if hasattr(data, "__arrow_c_stream__"):
        reader = pa.RecordBatchReader.from_stream(data, schema)
        return reader.schema, reader
    if schema is None or not isinstance(data, Iterable):
        raise TypeError(
            f"data is a table, batches, a reader or a data set, not {type(data).__name__}; an "
            "iterable of batches needs a schema"
        )
    return schema, data


def _steps(batches: Iterable[pa.RecordBatch | pa.Table], schema: pa.Schema) -> Iterator[pa.Table]:
    """Yields tables of a size to be divided at once. Raises ``ValueError`` for other schemas."""

    def tables() -> Iterator[pa.Table]:
        for batch in batches:
            if not batch.schema.equals(schema, check_metadata=False):
                raise ValueError(f"rows of another schema: {batch.schema}, not {schema}")
            yield pa.Table.from_batches([batch]) if isinstance(batch, pa.RecordBatch) else batch

    rows = Rows(tables())
    while (table := rows.take(_STEP_ROWS, _STEP_BYTES)) is not None:
        yield table


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
    """Yields the rows of each partition, with its folder and the prefix of its files' names.

    Raises ``ValueError`` for more than ``max_partitions``, or if a value leads to another folder.
    """
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


def _check_existing(
    data: Any, base: str, filesystem: pafs.FileSystem, behavior: ExistingData
) -> None:
    """Raises ``PathError`` if a folder must not have files, or if ``data`` is read from it."""
    try:
        everything = pafs.FileSelector(base, allow_not_found=True, recursive=True)
        if behavior == "error" and any(info.is_file for info in infos_of(filesystem, everything)):
            raise PathError(
                f"{base}: there are files in the folder; with "
                "existing_data_behavior='overwrite_or_ignore' they stay"
            )
    except PathError:
        raise
    except OSError as error:
        raise PathError(f"{base}: cannot be listed: {error}") from error
    is_there = isinstance(data, pads.FileSystemDataset) and filesystem.equals(data.filesystem)
    if is_there and any(file.startswith(f"{base}/") for file in data.files):
        raise PathError(f"{base}: rows are read from files of this folder; write to another one")
