"""Reading a data set as a stream: each file once, as it is published.

An offset is what has been read so far: the files by name, with their sizes and times of change,
and a time ``since`` which they are listed; older ones all count as read. That time lies
``maxFileAge`` before the youngest file, or before the oldest one that is yet to be read, so that
offsets stay small. A file that is replaced under its name, as when it is given indexes, is not
read again while the offset still lists it.
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

from intarsia.dataset.commit_journal import visible
from intarsia.dataset.discovery import open_dataset
from intarsia.dataset.partitioning import hive_types
from intarsia.errors import PathError
from intarsia.io.storage import NoDataError, infos_under
from intarsia.spark.commit.storage import Place
from intarsia.spark.data_source import options as opts
from intarsia.spark.read.read import FILES, opened
from intarsia.spark.read.user_schema import parse_user_schema, with_required_fields
from intarsia.spark.read.variant_type import as_output, check_whole, holds_variant
from intarsia.spark.task_error import silence_broken_pipes
from intarsia.spark.types import arrow_schema
from intarsia.sql.where_clause import parse_where

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

_MOST_AGE = "7d"
Offset = dict[str, Any]
"""``{"since": ms, "files": {path: [bytes, ms]}}``, paths below the data set's folder."""


class _Files(InputPartition):  # type: ignore[misc]  # pyspark is not typed here
    """The files that a task reads, and what is wanted of them."""

    def __init__(self, paths: list[str], where: pc.Expression | None) -> None:
        super().__init__(None)
        self.paths = paths
        self.where = where


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]  # pyspark is not typed
    """Files that are new since an offset; a task reads some of them, by page where it can."""

    def __init__(self, options: opts.Options, schema: StructType) -> None:
        path = opts.path_of(options)
        if not isinstance(path, str):
            raise ValueError("a stream is read from one folder, not from several paths")
        self._place = Place.of(path)
        self._table_format = opts.table_format_of(options)
        self._columns = schema.names
        self._output = parse_user_schema(schema, keeps_collations=True)
        self._given = arrow_schema(schema)
        self._schema = self._known_schema(path)
        self._asked = options.get("where")
        self._where()  # raises what is wrong with it before there is a file
        self._most_files = opts.count_of(options, "max_files_per_trigger")
        self._most_age = opts.age_of(options, _MOST_AGE)
        self._parallelism = opts.count_of(options, "parallelism") or os.cpu_count() or 1
        self._target: set[str] | None = None

    def _known_schema(self, path: str) -> pa.Schema:
        """Of the files there are: the condition may need columns that are not asked for."""
        try:
            return opened(path, stated=self._output, table_format=self._table_format).schema
        except PathError:
            self._listing()  # raises if the folder is a table of another format
            return self._output

    def _where(self) -> pc.Expression | None:
        """The condition; to it, now is when a batch is planned."""
        return None if self._asked is None else parse_where(self._asked, self._schema)

    def initialOffset(self) -> Offset:  # noqa: N802 # Spark's name
        """Nothing has been read."""
        return {"since": -1, "files": {}}  # files may be of 1970

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 # Spark's name
        """``maxFilesPerTrigger``, or all there is."""
        return ReadMaxFiles(self._most_files) if self._most_files else ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 # Spark's name
        """From now on, files that come later are not read."""
        self._target = set(self._listing())

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802 # Spark's name
        """``start`` and the oldest new files, as many as ``limit`` allows."""
        listing = self._listing()
        new = {
            name
            for name, (_, changed) in listing.items()
            if changed > start["since"] and name not in start["files"]
        }
        wanted = new if self._target is None else new & self._target
        count = limit.max_files if isinstance(limit, ReadMaxFiles) else len(wanted)
        taken = sorted(wanted, key=lambda name: (listing[name][1], name))[:count]
        if not taken:
            return start
        since = max(changed for _, changed in listing.values()) - self._most_age
        left = [listing[name][1] - 1 for name in new.difference(taken)]  # of later batches, queries
        since = max(min([since, *left]), start["since"])
        read = {name: listing.get(name, known) for name, known in start["files"].items()}
        files = {name: known for name, known in read.items() if known[1] > since}
        return {"since": since, "files": files | {name: listing[name] for name in taken}}

    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        """Tasks for the files that ``end`` has and ``start`` has not, about even by bytes."""
        new = {name: known for name, known in end["files"].items() if name not in start["files"]}
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
        """The rows of a task's files for which the condition holds."""
        silence_broken_pipes()
        paths = [self._place.path(name) for name in partition.paths]
        keys = hive_types(paths, self._place.root, "spark").names
        fields = [field for field in self._schema if field.name in keys]
        folders = pads.partitioning(pa.schema(fields), flavor="hive") if fields else None
        found, root = self._place.filesystem, self._place.root
        source = open_dataset(found, paths, root, folders, self._schema, FILES)
        for path in paths if any(map(holds_variant, self._output)) else ():
            check_whole(source.scan_source.cache.as_opened(path), self._output)
        for batch in source.to_batches(self._columns, filter=partition.where):
            found = as_output(pa.Table.from_batches([batch]), self._output)
            yield from with_required_fields(found.to_batches(), self._given)

    def _listing(self) -> dict[str, list[int]]:
        """All files that readers see: their sizes in bytes, and times of change in ms."""
        root = self._place.root
        try:
            _, files = visible(root, self._place.filesystem, table_format=self._table_format)
        except NoDataError:  # nothing has been published yet
            return {}
        infos = {info.path: info for info in infos_under(self._place.filesystem, root)}
        known = [infos[file] for file in files if file in infos]
        return {
            info.path.removeprefix(f"{root}/"): [int(info.size), (info.mtime_ns or 0) // 1_000_000]
            for info in known
        }
