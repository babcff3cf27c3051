"""``format("intarsia")``, by Spark's Python data sources: reading, writing, and both as streams.

Imports pyspark, so it is imported only once that is known to be there. Filters are not pushed by
Spark (see ``read``): the options ``where`` and ``columns`` say what is wanted.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    InputPartition,
    WriterCommitMessage,
)

from intarsia.dataset.commit_journal import StreamBatch
from intarsia.dataset.dataset import Dataset
from intarsia.errors import PredicateError
from intarsia.spark.commit.commit import (
    TEMPORARY,
    end_job,
    has_data,
    publish,
    publish_batch,
    settle,
)
from intarsia.spark.commit.storage import Place
from intarsia.spark.data_source import options as opts
from intarsia.spark.data_source.stream_reader import StreamReader
from intarsia.spark.read.dataset_files import Source
from intarsia.spark.read.partition_packing import Piece, pack
from intarsia.spark.read.query import Query, query_of
from intarsia.spark.read.read import execute, opened
from intarsia.spark.read.user_schema import parse_user_schema, with_required_fields
from intarsia.spark.task_error import silence_broken_pipes
from intarsia.spark.types import arrow_schema, spark_schema
from intarsia.spark.write.job_spec import Job, check_place, job_of
from intarsia.spark.write.schema_check import check_existing
from intarsia.spark.write.task import WrittenFile, write_task
from intarsia.spark.write.write import clear_job, empty_file, make_job_folder, replaced_folders

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


class IntarsiaSource(DataSource):  # type: ignore[misc]  # pyspark is not typed here
    """Data sets of Parquet files with indexes.

    Options of reading are ``where``, ``columns``, ``parallelism`` and ``table_format``,
    ``catalog``, ``sidecar`` and ``mergeSchema``, of streams ``maxFilesPerTrigger`` and
    ``maxFileAge`` instead of these three; of writing ``indexes``, ``partition_by``, ``cluster_by``,
    ``sort_within``, ``rows_per_page``, ``target_file_size``, ``compression``,
    ``checkpoint_row_groups``, ``keep_unfinished``, ``partitionOverwriteMode`` and ``timeZone``.
    Lists have commas between their parts.
    """

    def __init__(self, options: opts.Options) -> None:
        """Made in a Python process of Spark's, which plans one query or job and may fail."""
        silence_broken_pipes()
        super().__init__(options)

    @classmethod
    def name(cls) -> str:
        """What the format is called."""
        return "intarsia"

    def schema(self) -> StructType:
        """The columns that are asked for, as the first file has them, or all files do together."""
        return spark_schema(_query(self.options).found)

    def reader(self, schema: StructType) -> Reader:
        """A reader of one query, planned now."""
        opts.check_reads(self.options, streams=False)
        return Reader(self.options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> Writer:
        """A writer of one job."""
        job = _job(self.options, schema)
        is_dynamic = _checked(self.options, job, overwrite)
        settle(job.place)
        return Writer(job, overwrite, is_dynamic, tuple(make_job_folder(job)))

    def streamReader(self, schema: StructType) -> StreamReader:  # noqa: N802 # Spark's name
        """A reader of files as they are published."""
        opts.check_reads(self.options, streams=True)
        return StreamReader(self.options, schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:  # noqa: N802 # Spark's name
        """A writer of one batch after the other."""
        job = _job(self.options, schema)
        if job.checkpoint_row_groups or job.keep_unfinished:
            raise ValueError(
                "a stream runs a batch that failed again: checkpoint_row_groups and "
                "keep_unfinished are not for streams"
            )
        return StreamWriter(job, overwrite, _checked(self.options, job, overwrite))


def _query(options: opts.Options) -> Query:
    columns = opts.names_of(options, "columns") or None
    return query_of(_opened(options), columns, options.get("where"))


def _opened(options: opts.Options, stated: pa.Schema | None = None) -> Dataset:
    return opened(
        opts.path_of(options),
        catalog=opts.catalog_of(options),
        stated=stated,
        sidecar=options.get("sidecar"),
        merge_schema=opts.flag_of(options, "merge_schema"),
        table_format=opts.table_format_of(options),
    )


def _job(options: opts.Options, schema: StructType) -> Job:
    opts.check_writes(options)
    path, zone = opts.path_of(options), opts.get(options, "time_zone")
    if not isinstance(path, str):
        raise ValueError("one path is written to, not several")
    job = job_of(
        Place.of(path), secrets.token_hex(8), schema, opts.layout_of(options), zone or "UTC"
    )
    for name in job.partition_by:
        if zone is None and schema[name].dataType.simpleString() == "timestamp":
            raise PredicateError(
                f"column {name!r}: folders of timestamps are in some time zone; "
                "option 'timeZone' says in which"
            )
    return replace(job, sorts=True)


def _checked(options: opts.Options, job: Job, overwrite: bool) -> bool:
    """Are only files in folders that get new rows replaced? Raises where none can be written."""
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
    """Plans when it is made; tasks read pages."""

    def __init__(self, options: opts.Options, schema: StructType) -> None:
        stated = parse_user_schema(schema, keeps_collations=True)
        self._given = arrow_schema(schema)
        source = Source(_opened(options, stated), None)
        query = self._query = query_of(source.data, None, options.get("where"), stated)
        count = opts.count_of(options, "parallelism") or os.cpu_count() or 1
        files = query.plan(source.data).files
        self._tasks = [_Task(pieces) for pieces in pack(files, count, source.opened)]

    def partitions(self) -> list[InputPartition]:
        """A list, as Spark insists on, of tasks."""
        return list(self._tasks)

    def __getstate__(self) -> dict[str, Any]:  # tasks need not know of each other's files
        return {"_query": self._query, "_given": self._given}

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a task; Spark asks for those of no task where there is none."""
        silence_broken_pipes()
        for piece in getattr(partition, "pieces", ()):
            yield from with_required_fields(execute(piece, self._query), self._given)


# --- writing ------------------------------------------------------------------------------------


@dataclass
class Written(WriterCommitMessage):  # type: ignore[misc]  # pyspark is not typed here
    """The files that a task has written; of which batch, where it is one of a stream."""

    files: list[WrittenFile]
    batch: StreamBatch | None = None


@dataclass
class Writer(DataSourceArrowWriter):  # type: ignore[misc]  # pyspark is not typed here
    """One job, as ``write`` runs it, of rows as they come."""

    job: Job
    overwrites: bool
    only_touched: bool
    made: tuple[str, ...]

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """In a task: write its rows under temporary names."""
        return Written(write_task(iterator, self.job))

    def commit(self, messages: Sequence[Written | None]) -> None:
        """On the driver: publish what the tasks have written."""
        files = [file for message in messages if message for file in message.files]
        files = files or empty_file(self.job)
        folders = replaced_folders(files, self.overwrites, self.only_touched)
        paths = [file.path for file in files]
        publish(self.job.place, self.job.name, paths, overwrites=folders)
        self.job.place.remove_tree(TEMPORARY + self.job.name)

    def abort(self, messages: Sequence[Written | None]) -> None:
        """On the driver: leave nothing behind, unless it is to be kept.

        What ``commit`` had begun when its process died is undone, unless it counts already.
        """
        end_job(self.job.place, self.job.name)
        clear_job(self.job, self.made)


@dataclass
class StreamWriter(DataSourceStreamArrowWriter):  # type: ignore[misc]  # pyspark is not typed here
    """The batches of a query: each is published once, however often it is run.

    Spark makes a writer for the tasks of each batch and another one for its commit. What both know
    of each other is in the messages: the query's id, which outlives restarts, and the batch's.
    """

    job: Job
    overwrites: bool
    only_touched: bool

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """In a task: write its rows under temporary names."""
        from pyspark import TaskContext

        context = TaskContext.get()
        query = context.getLocalProperty("sql.streaming.queryId")
        batch = StreamBatch(query, int(context.getLocalProperty("streaming.sql.batchId")))
        job = self._job_of(batch)
        make_job_folder(job)
        return Written(write_task(iterator, job), batch)

    def commit(self, messages: Sequence[Written | None], batchId: int) -> None:  # noqa: N803 # Spark's name
        """On the driver: publish the batch, unless it has been."""
        written = [message for message in messages if message]
        for batch in {message.batch for message in written if message.batch}:
            job = self._job_of(batch)
            files = [file for message in written for file in message.files]
            if not files and (self.overwrites or not has_data(job.place)):
                files = empty_file(job)
            folders = replaced_folders(files, self.overwrites, self.only_touched)
            publish_batch(job.place, job.name, [file.path for file in files], folders, batch)

    def abort(self, messages: Sequence[Written | None], batchId: int) -> None:  # noqa: N803 # Spark's name
        """On the driver: leave nothing behind; what failed tasks left goes with the next batch."""
        for batch in {message.batch for message in messages if message and message.batch}:
            end_job(self.job.place, self._job_of(batch).name)
            self.job.place.remove_tree(TEMPORARY + self._job_of(batch).name)

    def _job_of(self, batch: StreamBatch) -> Job:
        return replace(self.job, name=f"{batch.query}-{batch.batch}")
