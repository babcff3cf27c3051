"""``read``: the driver plans, one task reads the pages of a few files each.

Spark 4.3's own filter pushdown for Python sources gives wrong answers when a DataFrame is used
twice, so the filter and the columns are what the caller says, and a plan is carried out as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pafs

from intarsia.errors import FormatError, Where, unknown_column
from intarsia.index.directory import binding_of
from intarsia.plan.plan import FilePlan, Plan
from intarsia.predicate.sql import parse_where
from intarsia.read.dataset import Dataset
from intarsia.read.discover import open_dataset
from intarsia.read.file import open_file
from intarsia.read.folders import folder_of, hive_partitioning
from intarsia.read.request import Filter, Request
from intarsia.read.scan import scan_file
from intarsia.spark.commit import visible
from intarsia.spark.session import parallelism_of, require_pyspark
from intarsia.spark.types import arrow_schema, spark_schema
from intarsia.storage import PathLike

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TASK_BYTES = 64 * 1024 * 1024
"""About how many planned bytes one task reads; a task costs some 15 ms whatever it reads."""


@dataclass(frozen=True, slots=True)
class Query:
    """What every task needs to know besides its files."""

    schema: pa.Schema
    columns: tuple[str, ...]
    where: pc.Expression | None
    output: pa.Schema
    """As Spark takes it."""
    filesystem: pafs.FileSystem

    @property
    def found(self) -> pa.Schema:
        """The columns as the data set has them."""
        return pa.schema([self.schema.field(name) for name in self.columns])

    def plan(self, source: Dataset) -> Plan:
        """Which rows of which files there are to read."""
        return source.plan(self.columns, self.where)


def read(
    spark: SparkSession,
    path: PathLike | Sequence[PathLike],
    *,
    columns: Sequence[str] | None = None,
    where: pc.Expression | str | None = None,
    filesystem: Any = None,
) -> DataFrame:
    """The rows of a data set for which ``where`` holds, as a DataFrame of ``columns``.

    ``path`` is as for ``intarsia.dataset``; ``where`` is an Expression or a SQL condition, read as
    DuckDB reads it (a backslash in LIKE is just that). Planning, by statistics and indexes, happens
    now and on the driver. A ``.where()`` put on the result filters, but skips nothing. Raises
    ``PathError`` where there is no file, ``PredicateError`` for a column that is not there or a
    condition that does not fit it.
    """
    require_pyspark()
    if columns is not None and not columns:  # rows without columns get lost on the way to Spark
        first = opened(path, filesystem).schema.names[:1]
        return read(spark, path, columns=first, where=where, filesystem=filesystem).select()
    source = opened(path, filesystem)
    query = query_of(source, columns, where)
    tasks = pack(query.plan(source).files, parallelism_of(spark))
    schema = spark_schema(query.found)
    if not tasks:
        return spark.createDataFrame([], schema)
    ids = spark.range(len(tasks), numPartitions=len(tasks))
    return ids.mapInArrow(_runner(tasks, query), schema)


def opened(path: PathLike | Sequence[PathLike], filesystem: Any = None) -> Dataset:
    """The data set at ``path``, as far as it is published; folders of dates are dates."""
    found, files = visible(path, filesystem)
    base = folder_of(path)
    return open_dataset(found, files, base, hive_partitioning(files, base, dates=True))


def query_of(
    source: Dataset, columns: Sequence[str] | None, where: pc.Expression | str | None
) -> Query:
    """``columns`` and a condition of a data set. Raises ``PredicateError`` as ``read`` does."""
    names = tuple(source.schema.names if columns is None else columns)
    for name in names:
        if name not in source.schema.names:
            raise unknown_column(name, source.schema.names)
    if isinstance(where, str):
        where = parse_where(where, source.schema)
    output = arrow_schema(spark_schema(pa.schema([source.schema.field(name) for name in names])))
    return Query(source.schema, names, where, output, source.filesystem)


def pack(files: Sequence[FilePlan], parallelism: int) -> list[tuple[FilePlan, ...]]:
    """Files grouped into tasks of about equal planned bytes.

    ``parallelism`` tasks where there are as many files; more only where each has ``TASK_BYTES`` to
    read.
    """
    total = sum(file.figures.bytes.selected for file in files)
    count = min(len(files), max(parallelism, -(-total // TASK_BYTES)))
    loads = [0] * count
    tasks: list[list[FilePlan]] = [[] for _ in range(count)]
    for file in sorted(files, key=lambda file: -file.figures.bytes.selected):
        lightest = min(range(count), key=loads.__getitem__)
        loads[lightest] += file.figures.bytes.selected
        # Tasks plan their reads from the file itself: byte ranges need not travel.
        tasks[lightest].append(replace(file, reads=(), steps=(), columns=()))
    return [tuple(task) for task in tasks]


def _runner(
    tasks: list[tuple[FilePlan, ...]], query: Query
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for task in batch.column(0).to_pylist():
                for file in tasks[task]:
                    yield from execute(file, query)

    return run


def execute(plan: FilePlan, query: Query) -> Iterator[pa.RecordBatch]:
    """The batches of one file's part of a plan, in the types Spark expects."""
    file = open_file(plan.path, query.filesystem)
    if binding_of(file.metadata) != plan.binding:
        raise FormatError("the file was rewritten after it was planned", Where(plan.path))
    wanted = None if query.where is None else Filter.of(query.where, query.schema)
    request = Request(query.schema, query.columns, wanted)
    for table in scan_file(file, request, plan.constants, planned=plan.rows):
        # Spark has microseconds: what is finer is cut off, all else is kept by the types chosen.
        yield from table.cast(query.output, safe=False).to_batches()
