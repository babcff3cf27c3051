"""``read``: the driver plans, tasks read pages; or Spark's own reader gets the files (``native``).

Spark 4.3's own filter pushdown for Python sources gives wrong answers when a DataFrame is used
twice, so the filter and the columns are what the caller says, and a plan is carried out as it is.
"""

from __future__ import annotations

import pickle
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads
import pyarrow.fs as pafs

from intarsia.catalog.catalog import catalog_of, root_of
from intarsia.dataset.commit_journal import visible
from intarsia.dataset.dataset import Dataset
from intarsia.dataset.discovery import open_dataset
from intarsia.dataset.partitioning import folder_of, hive_partitioning
from intarsia.dataset.schema_unification import united_schema
from intarsia.decode.page_size_limit import check_page_size_limit
from intarsia.errors import FormatError, Where
from intarsia.expr.nested_types import nullable
from intarsia.file.corrupt_rows import OnCorrupt, check_on_corrupt
from intarsia.file.open_file import OpenedFile
from intarsia.file.read_options import ReadOptions
from intarsia.file.sidecar_discovery import places_of
from intarsia.index.directory import binding_of
from intarsia.io.storage import PathLike
from intarsia.parquet.metadata import Type
from intarsia.row_ranges import RowRanges
from intarsia.scan.parquet_file import open_file
from intarsia.scan.request import Filter, Request
from intarsia.scan.scan import scan_file
from intarsia.spark.column_names import Act
from intarsia.spark.explain import ReadExplanation
from intarsia.spark.read.dataset_files import Source
from intarsia.spark.read.partition_packing import Piece, Task, pack
from intarsia.spark.read.query import Query, query_of
from intarsia.spark.read.reader_choice import choose
from intarsia.spark.read.user_schema import as_stated, check_keys, stated_schema
from intarsia.spark.read.variant_type import as_output, check_whole
from intarsia.spark.session import parallelism_of, require_pyspark
from intarsia.spark.task_error import silence_broken_pipes
from intarsia.spark.types import leaves, spark_schema, with_leaves
from intarsia.tables.data_files import TableFormatOption

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

_INT96_UNIT = "us"
"""Spark's own: nanoseconds, as pyarrow has them otherwise, hold no years before 1677."""
FILES = pads.ParquetFileFormat(coerce_int96_timestamp_unit=_INT96_UNIT)
_TIME, _INSTANT = pa.timestamp(_INT96_UNIT), pa.timestamp(_INT96_UNIT, "UTC")
_VIEWS = {pa.string_view(): pa.string(), pa.binary_view(): pa.binary()}
"""As Spark has them anyway; pyarrow has no IN for views. DataFusion's writer says views."""


def read(
    spark: SparkSession,
    path: PathLike | Sequence[PathLike],
    *,
    columns: Sequence[str] | None = None,
    where: pc.Expression | str | None = None,
    schema: StructType | str | None = None,
    merge_schema: bool = False,
    reader: str = "auto",
    filesystem: Any = None,
    sidecar: PathLike | None = None,
    catalog: bool | Literal["auto"] = "auto",
    on_corrupt: OnCorrupt | None = None,
    page_size_limit: int | None = None,
    table_format: TableFormatOption = "auto",
) -> DataFrame:
    """The rows of a data set for which ``where`` holds, as a DataFrame of ``columns``.

    ``path``, ``sidecar``, ``catalog``, ``on_corrupt``, ``page_size_limit`` and ``table_format`` are
    as for ``intarsia.dataset``; executors warn of what is skipped. ``where`` is an Expression or a
    SQL condition, read as DuckDB reads it (a backslash in LIKE is just that). ``schema`` names
    columns and their types, also such as only later files have; without it they are the first
    file's, or with ``merge_schema``, for which the driver opens all files, those of all, united as
    ``intarsia.dataset`` does by name.

    Planning, by statistics, indexes and the catalog, happens now and on the driver, which also
    reads what is left where that is little (4 MB in few files): the DataFrame then holds the rows
    there are now. A ``.where()`` put on the result filters, but skips nothing.

    Where most of the bytes are left to be read, Spark's own reader gets the files and the filter,
    as far as its rows are certain to be the same; ``explain`` tells. ``reader`` is ``"intarsia"``
    or ``"spark"`` where one of them has to do it, in tasks. Raises ``PathError`` where there is no
    file, ``PredicateError`` for a column that is not there or a condition that does not fit it,
    ``UnsupportedError`` where ``reader`` is ``"spark"`` and its rows might differ.
    """
    require_pyspark()
    check_on_corrupt(on_corrupt)
    check_page_size_limit(page_size_limit)
    stated = None if schema is None else stated_schema(schema)
    found = opened(
        path,
        filesystem,
        catalog,
        stated,
        sidecar,
        merge_schema=merge_schema,
        table_format=table_format,
    )
    found = found.with_options(on_corrupt=on_corrupt, page_size_limit=page_size_limit)
    is_bare = columns is not None and not columns  # such rows get lost on the way to Spark
    query = query_of(found, found.schema.names[:1] if is_bare else columns, where, stated)
    query = replace(query, on_corrupt=on_corrupt, page_size_limit=page_size_limit)
    frame = frame_of(spark, Source(found, folder_of(path)), query, reader)
    return frame.select() if is_bare else frame


def frame_of(spark: SparkSession, source: Source, query: Query, reader: str = "auto") -> DataFrame:
    """The rows of a query, by the reader that ``choose`` finds."""
    way = choose(spark, source, query, reader)
    if way.handed is not None:
        return way.handed.frame(spark)
    if way.rows is not None:
        return spark.createDataFrame(way.rows, spark_schema(query.found))
    tasks = pack(way.planned(source, query).files, parallelism_of(spark), source.opened)
    if not tasks:
        return spark.createDataFrame(query.output.empty_table(), spark_schema(query.found))
    ids = spark.range(len(tasks), numPartitions=len(tasks))
    return ids.mapInArrow(_runner(tasks, query), spark_schema(query.found))


def explain(
    spark: SparkSession,
    path: PathLike | Sequence[PathLike],
    *,
    columns: Sequence[str] | None = None,
    where: pc.Expression | str | None = None,
    schema: StructType | str | None = None,
    merge_schema: bool = False,
    reader: str = "auto",
    filesystem: Any = None,
    sidecar: PathLike | None = None,
    catalog: bool | Literal["auto"] = "auto",
    table_format: TableFormatOption = "auto",
) -> ReadExplanation:
    """What ``read`` would do with these arguments: which reader, why, and what is left to read.

    Raises as ``read`` does.
    """
    require_pyspark()
    stated = None if schema is None else stated_schema(schema)
    found = opened(
        path,
        filesystem,
        catalog,
        stated,
        sidecar,
        merge_schema=merge_schema,
        table_format=table_format,
    )
    source = Source(found, folder_of(path))
    query = query_of(source.data, columns, where, stated)
    way = choose(spark, source, query, reader)
    explained = source.data.explain(query.columns, query.where)
    tasks: list[Task] = []
    if way.handed is None and way.rows is None:
        files = way.planned(source, query).files
        tasks = pack(files, parallelism_of(spark), source.opened)
    sizes = tuple(sum(piece.num_bytes for piece in task) for task in tasks)
    return ReadExplanation(
        "intarsia" if way.handed is None else "spark",
        way.reason,
        sizes,
        explained,
        None if way.rows is None else way.rows.num_rows,
    )


def opened(
    path: PathLike | Sequence[PathLike],
    filesystem: Any = None,
    catalog: bool | Literal["auto"] = "auto",
    stated: pa.Schema | None = None,
    sidecar: PathLike | None = None,
    *,
    merge_schema: bool = False,
    table_format: TableFormatOption = "auto",
) -> Dataset:
    """The data set at ``path``, as far as it is published; folders of dates are dates.

    Columns that are ``stated`` have those types, be they in the first file or not. With
    ``merge_schema`` there are those of all files.
    """
    seen: dict[str, pafs.FileInfo] = {}
    found, files = visible(path, filesystem, seen, table_format=table_format)
    base = folder_of(path)
    folders = hive_partitioning(files, base, "spark", stated=stated)
    if stated is not None:
        check_keys(folders.schema)
    made = open_dataset(found, files, base, folders, form=FILES)
    cache = made.scan_source.cache
    cache.places = places_of(found, sidecar)
    plain = _as_in_spark(made.schema, partial(cache.as_opened, files[0]))
    if merge_schema:
        united = united_schema(cache, files, lambda f: _as_in_spark(f.schema_arrow, lambda: f))
        plain = pa.schema([*united, *(field for field in plain if field.name not in united.names)])
    if stated is not None:
        plain = as_stated(plain, stated)
    if plain != made.schema:
        plain = plain.with_metadata(made.schema.metadata)
        made = open_dataset(found, files, base, folders, plain, FILES)
        made.scan_source = made.scan_source.with_cache(cache)
    root = root_of(found, path, files)
    cache.catalog = catalog_of(found, root, cache.options, seen, catalog)
    return made


def _as_in_spark(schema: pa.Schema, file: Callable[[], OpenedFile]) -> pa.Schema:
    """The columns of ``file``, and of its folders, as Spark is to have them.

    INT96 are instants, which pyarrow gives as times without a zone. What is within a column may be
    NULL: a struct of another file may have fewer fields.
    """
    return pa.schema([field.with_type(_type_in_spark(field, file)) for field in schema])


def _type_in_spark(field: pa.Field, file: Callable[[], OpenedFile]) -> pa.DataType:
    without_zone = leaves(field.type).count(_TIME)
    if without_zone:
        stored = file().schema
        root = stored.root(field.name)
        own = [] if root is None else [stored.leaves[i].element for i in root.leaves]
        if without_zone == sum(element.type == Type.INT96 for element in own):
            field = with_leaves(field, _TIME, _INSTANT)
    return _VIEWS.get(field.type, nullable(field).type)


def _runner(tasks: list[Task], query: Query) -> Act:
    # All tasks are given the same closure: each makes objects of its own part alone.
    packed = [zlib.compress(pickle.dumps(task), 1) for task in tasks]

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        silence_broken_pipes()
        for batch in batches:
            for number in batch.column(0).to_pylist():
                task: Task = pickle.loads(zlib.decompress(packed[number]))
                for piece in task:
                    yield from execute(piece, query)

    return run


def execute(piece: Piece, query: Query) -> Iterator[pa.RecordBatch]:
    """The batches of a piece of a file, in the types Spark expects."""
    options = ReadOptions(
        query.on_corrupt is not None,
        on_corrupt=query.on_corrupt,
        page_size_limit=query.page_size_limit,
        coerce_int96_timestamp_unit=_INT96_UNIT,
    )
    file = open_file(piece.path, query.filesystem, options)
    if binding_of(file.metadata) != piece.binding:
        raise FormatError("the file was rewritten after it was planned", Where(piece.path))
    check_whole(file, query.output)
    wanted = None if query.where is None else Filter.of(query.where, query.schema)
    request = Request(query.schema, query.columns, wanted)
    rows = RowRanges.of(piece.within)
    for table in scan_file(file, request, piece.constants, rows, planned=piece.rows):
        # Spark has microseconds: what is finer is cut off, all else is kept by the types chosen.
        yield from as_output(table, query.output).to_batches()
