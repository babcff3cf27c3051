"""``format("intarsia")`` as a Python data source of Spark: batch and streaming, reads and writes.

This module imports pyspark at its top, so other modules import it only once pyspark is known to be
installed. Spark's filter pushdown is not used (see ``read``): the options ``where`` and ``columns``
take its place.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    InputPartition,
    WriterCommitMessage,
)

from intarsia.commit.commit import (
    TEMPORARY,
    end_job,
    has_data,
    publish,
    publish_batch,
    settle,
)
from intarsia.commit.job import Job, WrittenFile, check_place, clear_job, make_job_folder
from intarsia.commit.storage import Place
from intarsia.dataset.commit_log import StreamBatch
from intarsia.dataset.dataset import Dataset
from intarsia.errors import PredicateError
from intarsia.spark.data_source import options as opts
from intarsia.spark.data_source.stream_reader import StreamReader
from intarsia.spark.read.dataset_files import Source
from intarsia.spark.read.partition_packing import Piece, pack
from intarsia.spark.read.query import Query, query_of
from intarsia.spark.read.read import execute, opened
from intarsia.spark.read.user_schema import (
    check_types,
    parse_user_schema,
    with_required_fields,
)
from intarsia.spark.task_error import silence_broken_pipes
from intarsia.spark.types import arrow_schema, spark_schema
from intarsia.spark.write.job_spec import job_of
from intarsia.spark.write.schema_check import check_existing
from intarsia.spark.write.task import write_task
from intarsia.spark.write.write import empty_file, replaced_folders
from intarsia.tables.delta import delta
from intarsia.tables.iceberg import iceberg

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


class IntarsiaSource(DataSource):  # type: ignore[misc]  # pyspark is not typed here
    """Data sets of Parquet files with indexes.

    - Options of all reads: ``where``, ``columns``, ``parallelism``, ``table_format``.
    - Options of batch reads: ``catalog``, ``sidecar``, ``mergeSchema``.
    - Options of reads of tables: ``table``, which is ``delta`` or ``iceberg``; ``version`` of the
      former, ``snapshot_id`` or ``ref`` of the latter; ``sidecar``.
    - Options of streaming reads: ``maxFilesPerTrigger``, ``maxFileAge``.
    - Options of writes: ``indexes``, ``partition_by``, ``cluster_by``, ``sort_within``,
      ``rows_per_page``, ``target_file_size``, ``compression``, ``checkpoint_row_groups``,
      ``keep_unfinished``, ``partitionOverwriteMode``, ``timeZone``.

    Commas separate the parts of lists.
    """

    def __init__(self, options: opts.Options) -> None:
        """Initializes the source in a Python process of Spark, which plans one query or job."""
        silence_broken_pipes()
        super().__init__(options)

    @classmethod
    def name(cls) -> str:
        """Returns the name of the format."""
        return "intarsia"

    def schema(self) -> StructType:
        """Returns the requested columns, of the first file or of all files."""
        return spark_schema(_query(self.options).nullable_schema)

    def reader(self, schema: StructType) -> Reader:
        """Returns a reader of one query, which is planned now."""
        opts.check_reads(self.options, streams=False)
        return Reader(self.options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> Writer:
        """Returns a writer of one job."""
        job = _job(self.options, schema)
        is_dynamic = _check_target(self.options, job, overwrite)
        settle(job.place)
        return Writer(job, overwrite, is_dynamic, tuple(make_job_folder(job)))

    def streamReader(self, schema: StructType) -> StreamReader:  # noqa: N802 # Spark's name
        """Returns a reader of files as they are published."""
        opts.check_reads(self.options, streams=True)
        return StreamReader(self.options, schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:  # noqa: N802 # Spark's name
        """Returns a writer of the batches of one streaming query."""
        job = _job(self.options, schema)
        if job.checkpoint_row_groups or job.keep_unfinished:
            raise ValueError(
                "checkpoint_row_groups and keep_unfinished are not for streams, which run a "
                "failed batch again"
            )
        return StreamWriter(job, overwrite, _check_target(self.options, job, overwrite))


def _query(options: opts.Options) -> Query:
    columns = opts.names_of(options, "columns") or None
    return query_of(_opened(options), columns, options.get("where"))


def _opened(options: opts.Options, stated: pa.Schema | None = None) -> Dataset:
    kind = opts.table_of(options)
    if kind is not None:
        return _opened_table(kind, options, stated)
    return opened(
        opts.path_of(options),
        catalog=opts.catalog_of(options),
        stated=stated,
        sidecar=options.get("sidecar"),
        merge_schema=opts.flag_of(options, "merge_schema"),
        table_format=opts.table_format_of(options),
    )


def _opened_table(
    kind: Literal["delta", "iceberg"], options: opts.Options, stated: pa.Schema | None
) -> Dataset:
    """Returns a table at a version. Raises ``PredicateError`` if the user changes a type of it."""
    opts.check_reads(options, streams=False)
    path, sidecar = opts.path_of(options), options.get("sidecar")
    if not isinstance(path, str):
        raise ValueError("a table is read from one path, and several are given")
    if kind == "delta":
        data = delta(path, version=opts.get(options, "version"), sidecar=sidecar)
    else:
        snapshot_id = opts.count_of(options, "snapshot_id")
        data = iceberg(path, snapshot_id, opts.get(options, "ref"), sidecar=sidecar)
    check_types(data.schema, stated or ())
    return data


def _job(options: opts.Options, schema: StructType) -> Job:
    opts.check_writes(options)
    path, zone = opts.path_of(options), opts.get(options, "time_zone")
    if not isinstance(path, str):
        raise ValueError("a data set is written to one path, and several are given")
    place = Place.of(path)
    layout = opts.layout_of(options).by_policy(place, schema)
    job = job_of(place, secrets.token_hex(8), schema, layout, zone or "UTC")
    for name in job.partition_by:
        if zone is None and schema[name].dataType.simpleString() == "timestamp":
            raise PredicateError(
                f"column {name!r}: names of folders for timestamps need a time zone; "
                "set the option 'timeZone'"
            )
    return replace(job, sorts=True)


def _check_target(options: opts.Options, job: Job, overwrite: bool) -> bool:
    """Returns whether only folders with new rows are replaced. Raises ``PathError``."""
    is_dynamic = _is_dynamic(options, job, overwrite)
    check_place(job.place)
    if is_dynamic or not overwrite:
        check_existing(job)
    return is_dynamic


def _is_dynamic(options: opts.Options, job: Job, overwrite: bool) -> bool:
    mode = (opts.get(options, "partition_overwrite") or "static").lower()
    if mode not in ("static", "dynamic"):
        raise ValueError(f"option 'partitionOverwriteMode' is static or dynamic, not {mode!r}")
    if mode == "dynamic" and not (overwrite and job.partition_by):
        raise ValueError(
            "partitionOverwriteMode 'dynamic' goes with mode 'overwrite', partition_by"
        )
    return mode == "dynamic"


# --- reading ------------------------------------------------------------------------------------


class _Task(InputPartition):  # type: ignore[misc]  # pyspark is not typed here
    """The pieces of files that a task reads."""

    def __init__(self, pieces: tuple[Piece, ...]) -> None:
        super().__init__(None)
        self.pieces = pieces


class Reader(DataSourceReader):  # type: ignore[misc]  # pyspark is not typed here
    """A reader that plans in its constructor; tasks read the pages."""

    def __init__(self, options: opts.Options, schema: StructType) -> None:
        user_schema = parse_user_schema(schema, keeps_collations=True)
        self._arrow_schema = arrow_schema(schema)
        source = Source(_opened(options, user_schema), None)
        query = self._query = query_of(source.data, None, options.get("where"), user_schema)
        count = opts.count_of(options, "parallelism") or os.cpu_count() or 1
        files = query.plan(source.data).files
        self._tasks = [_Task(pieces) for pieces in pack(files, count, source.opened, source.view)]

    def partitions(self) -> list[InputPartition]:
        """Returns the tasks, in the list that Spark requires."""
        return list(self._tasks)

    def __getstate__(self) -> dict[str, Any]:  # without the other tasks' files
        return {"_query": self._query, "_arrow_schema": self._arrow_schema}

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yields the rows of a task. Spark passes a partition without pieces if there are none."""
        silence_broken_pipes()
        for piece in getattr(partition, "pieces", ()):
            yield from with_required_fields(execute(piece, self._query), self._arrow_schema)


# --- writing ------------------------------------------------------------------------------------


@dataclass
class Written(WriterCommitMessage):  # type: ignore[misc]  # pyspark is not typed here
    """The files that a task has written, and for streams their batch."""

    files: list[WrittenFile]
    batch: StreamBatch | None = None


@dataclass
class Writer(DataSourceArrowWriter):  # type: ignore[misc]  # pyspark is not typed here
    """A writer of one job, which writes rows in the order in which they come."""

    job: Job
    overwrites: bool
    only_new_folders: bool
    made: tuple[str, ...]

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Writes, in a task, its rows under temporary names."""
        return Written(write_task(iterator, self.job))

    def commit(self, messages: Sequence[Written | None]) -> None:
        """Publishes, on the driver, the files that the tasks have written."""
        files = [file for message in messages if message for file in message.files]
        files = files or empty_file(self.job)
        folders = replaced_folders(files, self.overwrites, self.only_new_folders)
        paths = [file.path for file in files]
        publish(self.job.place, self.job.name, paths, overwrites=folders)
        self.job.place.remove_tree(TEMPORARY + self.job.name)

    def abort(self, messages: Sequence[Written | None]) -> None:
        """Removes, on the driver, what the job has written, unless it is to be kept.

        If the process of ``commit`` died, its commit is undone, unless the files count already.
        """
        end_job(self.job.place, self.job.name)
        clear_job(self.job, self.made)


@dataclass
class StreamWriter(DataSourceStreamArrowWriter):  # type: ignore[misc]  # pyspark is not typed here
    """A writer of the batches of a query; each is published once, however often Spark runs it.

    Spark makes one writer for the tasks of each batch and another for its commit. Messages carry
    what both must know: the query's id, which stays the same after restarts, and the batch's
    number.
    """

    job: Job
    overwrites: bool
    only_new_folders: bool

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Writes, in a task, its rows under temporary names."""
        from pyspark import TaskContext

        context = TaskContext.get()
        query = context.getLocalProperty("sql.streaming.queryId")
        batch = StreamBatch(query, int(context.getLocalProperty("streaming.sql.batchId")))
        job = self._job_of(batch)
        make_job_folder(job)
        return Written(write_task(iterator, job), batch)

    def commit(self, messages: Sequence[Written | None], batchId: int) -> None:  # noqa: N803 # Spark's name
        """Publishes, on the driver, the batch, unless it has been published."""
        written = [message for message in messages if message]
        for batch in {message.batch for message in written if message.batch}:
            job = self._job_of(batch)
            files = [file for message in written for file in message.files]
            if not files and (self.overwrites or not has_data(job.place)):
                files = empty_file(job)
            folders = replaced_folders(files, self.overwrites, self.only_new_folders)
            publish_batch(job.place, job.name, [file.path for file in files], folders, batch)

    def abort(self, messages: Sequence[Written | None], batchId: int) -> None:  # noqa: N803 # Spark's name
        """Removes what the batch has written. The next batch removes what failed tasks leave."""
        for batch in {message.batch for message in messages if message and message.batch}:
            end_job(self.job.place, self._job_of(batch).name)
            self.job.place.remove_tree(TEMPORARY + self._job_of(batch).name)

    def _job_of(self, batch: StreamBatch) -> Job:
        return replace(self.job, name=f"{batch.query}-{batch.batch}")
