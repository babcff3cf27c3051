"""Reading a data set as a stream: each file once, when it is published.

An offset records what has been read: the files by name with their sizes and modification times, and
a time ``since``. Only files newer than ``since`` are listed; older ones all count as read. To keep
offsets small, ``since`` lies ``maxFileAge`` before the youngest file, or before the oldest unread
file if that is earlier. A file that is replaced under its name, for example to add indexes, is not
read again while the offset lists it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxFiles,
    SupportsTriggerAvailableNow,
)

from intarsia.commit.storage import Place
from intarsia.dataset.commit_log import visible
from intarsia.dataset.discovery import open_dataset
from intarsia.dataset.partitioning import hive_types
from intarsia.errors import PathError
from intarsia.io.storage import NoDataError, infos_under
from intarsia.spark.data_source import options as opts
from intarsia.spark.read.read import FILES, opened
from intarsia.spark.read.user_schema import parse_user_schema, with_required_fields
from intarsia.spark.read.variant_type import as_output, check_whole, holds_variant
from intarsia.spark.task_error import silence_broken_pipes
from intarsia.spark.types import arrow_schema
from intarsia.sql.where_clause import parse_where

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

_DEFAULT_MAX_AGE = "7d"
"""The default of ``maxFileAge``, as in Spark's own file streams."""
Offset = dict[str, Any]
"""``{"since": ms, "files": {path: [bytes, ms]}}``, paths below the data set's folder."""


class _Files(InputPartition):  # type: ignore[misc]  # pyspark is not typed here
    """The files that a task reads, and the filter."""

    def __init__(self, paths: list[str], where: pc.Expression | None) -> None:
        super().__init__(None)
        self.paths = paths
        self.where = where


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]  # pyspark is not typed
    """A reader of the files that are new since an offset; its tasks read by page where they can."""

    def __init__(self, options: opts.Options, schema: StructType) -> None:
        path = opts.path_of(options)
        if not isinstance(path, str):
            raise ValueError("a stream is read from one folder, not from several paths")
        self._place = Place.of(path)
        self._table_format = opts.table_format_of(options)
        self._columns = schema.names
        self._output = parse_user_schema(schema, keeps_collations=True)
        self._arrow_schema = arrow_schema(schema)
        self._schema = self._known_schema(path)
        self._where_text = options.get("where")
        self._where()  # raises its errors even if there is no file yet
        self._max_files = opts.count_of(options, "max_files_per_trigger")
        self._max_age = opts.age_of(options, _DEFAULT_MAX_AGE)
        self._parallelism = opts.count_of(options, "parallelism") or os.cpu_count() or 1
        self._available_files: set[str] | None = None

    def _known_schema(self, path: str) -> pa.Schema:
        """Returns the schema of the existing files; the filter may need all columns."""
        try:
            return opened(path, stated=self._output, table_format=self._table_format).schema
        except PathError:
            self._listing()  # raises if the folder is a table of another format
            return self._output

    def _where(self) -> pc.Expression | None:
        """Returns the filter. ``now()`` in it is the time at which a batch is planned."""
        return None if self._where_text is None else parse_where(self._where_text, self._schema)

    def initialOffset(self) -> Offset:  # noqa: N802 # Spark's name
        """Returns the offset at which nothing has been read."""
        return {"since": -1, "files": {}}  # files may be of 1970

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 # Spark's name
        """Returns ``maxFilesPerTrigger`` as a limit, or no limit."""
        return ReadMaxFiles(self._max_files) if self._max_files else ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 # Spark's name
        """Limits the query to the files that exist now."""
        self._available_files = set(self._listing())

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802 # Spark's name
        """Returns ``start`` plus the oldest new files, as many as ``limit`` allows."""
        listing = self._listing()
        new = {
            name
            for name, (_, changed) in listing.items()
            if changed > start["since"] and name not in start["files"]
        }
        candidates = new if self._available_files is None else new & self._available_files
        count = limit.max_files if isinstance(limit, ReadMaxFiles) else len(candidates)
        next_files = sorted(candidates, key=lambda name: (listing[name][1], name))[:count]
        if not next_files:
            return start
        since = max(changed for _, changed in listing.values()) - self._max_age
        unread_times = [
            listing[name][1] - 1 for name in new.difference(next_files)
        ]  # for later batches
        since = max(min([since, *unread_times]), start["since"])
        read = {
            name: listing.get(name, size_and_time) for name, size_and_time in start["files"].items()
        }
        files = {
            name: size_and_time for name, size_and_time in read.items() if size_and_time[1] > since
        }
        return {"since": since, "files": files | {name: listing[name] for name in next_files}}

    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        """Returns tasks, about even in bytes, for the files that ``end`` adds to ``start``."""
        new = {
            name: size_and_time
            for name, size_and_time in end["files"].items()
            if name not in start["files"]
        }
        count = min(len(new), self._parallelism)
        tasks: list[list[str]] = [[] for _ in range(count)]
        loads = [0] * count
        for name in sorted(new, key=lambda name: -new[name][0]):
            lightest = min(range(count), key=loads.__getitem__)
            loads[lightest] += new[name][0]
            tasks[lightest].append(name)
        where = self._where()
        return [_Files(paths, where) for paths in tasks]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yields the rows of a task's files for which the filter is true."""
        silence_broken_pipes()
        paths = [self._place.path(name) for name in partition.paths]
        keys = hive_types(paths, self._place.root, "spark").names
        fields = [field for field in self._schema if field.name in keys]
        folders = pads.partitioning(pa.schema(fields), flavor="hive") if fields else None
        filesystem, root = self._place.filesystem, self._place.root
        source = open_dataset(filesystem, paths, root, folders, self._schema, FILES)
        for path in paths if any(map(holds_variant, self._output)) else ():
            check_whole(source.scan_source.cache.as_opened(path), self._output)
        for batch in source.to_batches(self._columns, filter=partition.where):
            table = as_output(pa.Table.from_batches([batch]), self._output)
            yield from with_required_fields(table.to_batches(), self._arrow_schema)

    def _listing(self) -> dict[str, list[int]]:
        """Returns all files that readers see: sizes in bytes, modification times in ms."""
        root = self._place.root
        try:
            _, files = visible(root, self._place.filesystem, table_format=self._table_format)
        except NoDataError:  # nothing has been published yet
            return {}
        infos = {info.path: info for info in infos_under(self._place.filesystem, root)}
        published = [infos[file] for file in files if file in infos]
        return {
            info.path.removeprefix(f"{root}/"): [int(info.size), (info.mtime_ns or 0) // 1_000_000]
            for info in published
        }
