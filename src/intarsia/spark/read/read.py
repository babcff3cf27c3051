"""``read``: the driver plans; tasks, the driver or Spark's own reader read the files.

The caller passes the filter and the columns, and the plan is executed as it is. Spark's filter
pushdown is not used: Spark 4.3 gives wrong answers if a DataFrame over a Python source is used
twice.
"""

from __future__ import annotations

import logging
import pickle
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads
import pyarrow.fs as pafs

from intarsia.catalog.catalog import catalog_of, root_of
from intarsia.dataset.commit_log import visible
from intarsia.dataset.dataset import Dataset
from intarsia.dataset.discovery import open_dataset
from intarsia.dataset.explain import explain_scan
from intarsia.dataset.file_dataset import INT96_UNIT
from intarsia.dataset.partitioning import folder_of, hive_partitioning, known_partitioning
from intarsia.dataset.schema_unification import unified_schema
from intarsia.decode.page_size_limit import check_page_size_limit
from intarsia.errors import FormatError, Where
from intarsia.expr.nested_types import leaves, nullable
from intarsia.file.corrupt_data import OnCorrupt, check_on_corrupt
from intarsia.file.open_file import OpenedFile
from intarsia.file.read_options import ReadOptions
from intarsia.file.sidecar_discovery import places_of
from intarsia.index.directory import binding_of
from intarsia.io.storage import PathLike
from intarsia.parquet.metadata import Type
from intarsia.parquet.value_display import plural
from intarsia.plan.plan import ScanPlan
from intarsia.row_ranges import RowRanges
from intarsia.scan.parquet_file import open_file
from intarsia.scan.request import Filter, Request
from intarsia.scan.scan import scan_file
from intarsia.spark.column_names import Act
from intarsia.spark.explain import ReadExplanation
from intarsia.spark.read.dataset_files import Source
from intarsia.spark.read.partition_packing import Piece, Task, pack
from intarsia.spark.read.query import Query, query_of
from intarsia.spark.read.reader_choice import choose, left_to_read
from intarsia.spark.read.user_schema import check_keys, parse_user_schema, with_user_types
from intarsia.spark.read.variant_type import as_output, check_whole
from intarsia.spark.session import parallelism_of, require_pyspark
from intarsia.spark.session_settings import or_session_setting
from intarsia.spark.task_error import silence_broken_pipes
from intarsia.spark.types import spark_schema, with_leaves
from intarsia.tables.data_files import TableFormatOption

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

_LOG = logging.getLogger("intarsia.spark")
FILES = pads.ParquetFileFormat(coerce_int96_timestamp_unit=INT96_UNIT)
"""pyarrow's file format with the unit of INT96 timestamps that Spark has."""
_ZONELESS, _UTC = pa.timestamp(INT96_UNIT), pa.timestamp(INT96_UNIT, "UTC")
_WITHOUT_VIEWS = {pa.string_view(): pa.string(), pa.binary_view(): pa.binary()}
"""Spark has no view types, and pyarrow's ``is_in`` rejects them. DataFusion writes them."""


def read(
    spark: SparkSession,
    path: PathLike | Sequence[PathLike] | Dataset,
    *,
    columns: Sequence[str] | None = None,
    where: pc.Expression | str | None = None,
    schema: StructType | str | None = None,
    merge_schema: bool = False,
    reader: str | None = None,
    filesystem: Any = None,
    partitioning: Literal["hive"] | None = "hive",
    sidecar: PathLike | None = None,
    catalog: bool | Literal["auto"] = "auto",
    on_corrupt: OnCorrupt | None = None,
    page_size_limit: int | None = None,
    table_format: TableFormatOption = "auto",
) -> DataFrame:
    """Returns the rows of a data set for which ``where`` is true, as a DataFrame.

    The driver plans at once, by statistics, indexes and the catalog. If little is left to read (4
    MB in few files), the driver reads it too, and the DataFrame holds these rows. If most bytes are
    left, Spark's own reader gets the files and the filter, as long as its rows are certain to be
    the same. Else tasks read the pages that can match. ``explain`` shows the choice and its reason.

    A ``.where()`` on the result filters rows, but does not skip pages. If tasks read, the plan of
    the DataFrame and Spark's UI show how many files and bytes are left to read.

    The session's settings ``spark.intarsia.reader``, ``.sidecar``, ``.on_corrupt`` and
    ``.page_size_limit`` are the defaults of these arguments.

    Parameters
    ----------
    spark : pyspark.sql.SparkSession
        The session.
    path : str, path, sequence of these, or Dataset
        A file, a folder, a pattern or several of them, as for ``intarsia.dataset``. Or a table
        that ``intarsia.delta`` or ``intarsia.iceberg`` opened, which takes none of ``schema``,
        ``merge_schema``, ``filesystem``, ``sidecar``, ``catalog`` and ``table_format``.
    columns : sequence of str, optional
        The columns of the result, by default all.
    where : pyarrow.compute.Expression or str, optional
        The filter. A string is a SQL condition with DuckDB's meaning; a backslash in LIKE is a
        plain character.
    schema : pyspark.sql.types.StructType or str, optional
        The columns to read and their types, for example columns that only later files have. By
        default the schema of the first file.
    merge_schema : bool, default False
        Takes the columns of all files, matched by name as in ``intarsia.dataset``. The driver then
        opens every file.
    reader : {"auto", "intarsia", "spark"}, optional
        ``"intarsia"`` makes tasks read by page, ``"spark"`` makes Spark's own reader read. By
        default ``"auto"``.
    filesystem : pyarrow.fs.FileSystem or fsspec file system, optional
        Where ``path`` is, by default the local disk or the storage that a URI names.
    partitioning : {"hive", None}, default "hive"
        None takes no columns from the names of folders.
    sidecar : str or path, optional
        The folder of the sidecars, as for ``intarsia.dataset``.
    catalog : bool or "auto", default "auto"
        Whether a catalog is used, as for ``intarsia.dataset``.
    on_corrupt : optional
        The handling of damaged pages, as for ``intarsia.dataset``. Executors warn of skipped rows.
    page_size_limit : int, optional
        The largest page, in bytes, that is decoded, as for ``intarsia.dataset``.
    table_format : str, default "auto"
        The handling of Delta and Iceberg tables, as for ``intarsia.dataset``.

    Returns
    -------
    pyspark.sql.DataFrame
        The matching rows, in Spark's types.

    Raises
    ------
    PathError
        If there is no file.
    PredicateError
        If a column does not exist, or the filter does not fit the columns' types.
    UnsupportedError
        If ``reader`` is ``"spark"`` and its rows might differ.

    Examples
    --------
    ::

        errors = ias.read(spark, "lake/logs", columns=["ts", "message"], where="status = 500")
    """
    require_pyspark()
    default = partial(or_session_setting, spark)
    on_corrupt = default("on_corrupt", on_corrupt)
    page_size_limit = default("page_size_limit", page_size_limit)
    check_on_corrupt(on_corrupt)
    check_page_size_limit(page_size_limit)
    user_schema = None if schema is None else parse_user_schema(schema)
    opening = {
        "filesystem": filesystem,
        "catalog": catalog,
        "stated": user_schema,
        "sidecar": sidecar,
        "merge_schema": merge_schema,
        "partitioning": partitioning,
        "table_format": table_format,
    }
    source = _source(spark, path, opening)
    checked = source.data.with_options(on_corrupt=on_corrupt, page_size_limit=page_size_limit)
    source = replace(source, data=checked)
    return read_source(spark, source, columns, where, reader, user_schema)


def read_source(
    spark: SparkSession,
    source: Source,
    columns: Sequence[str] | None,
    where: pc.Expression | str | None,
    reader: str | None,
    user_schema: pa.Schema | None = None,
) -> DataFrame:
    """Returns the rows of an opened data set, with its options. Arguments are those of ``read``."""
    data, options = source.data, source.data.scan_source.options
    is_bare = columns is not None and not columns  # such rows get lost on the way to Spark
    query = query_of(data, data.schema.names[:1] if is_bare else columns, where, user_schema)
    query = replace(query, on_corrupt=options.on_corrupt, page_size_limit=options.page_size_limit)
    frame = frame_of(spark, source, query, or_session_setting(spark, "reader", reader) or "auto")
    return frame.select() if is_bare else frame


def frame_of(spark: SparkSession, source: Source, query: Query, reader: str = "auto") -> DataFrame:
    """Returns the rows of a query, read by the reader that ``choose`` selects."""
    choice = choose(spark, source, query, reader)
    if choice.native is not None:
        num_files = f"{len(choice.native.files):,} of {len(source.files):,} files"
        _LOG.info("read: %s, by Spark's own reader: %s", num_files, choice.reason)
        return choice.native.frame(spark)
    plan = choice.planned(source, query)
    left = left_to_read(plan, len(source.files))
    if choice.rows is not None:
        _LOG.info("read: %s, by the driver: %s", left, choice.reason)
        return spark.createDataFrame(choice.rows, spark_schema(query.nullable_schema))
    tasks = pack(plan.files, parallelism_of(spark), source.opened, source.view)
    _LOG.info("read: %s, by %s: %s", left, plural(len(tasks), "task"), choice.reason)
    if not tasks:
        return spark.createDataFrame(
            query.output.empty_table(), spark_schema(query.nullable_schema)
        )
    ids = spark.range(len(tasks), numPartitions=len(tasks))
    run = _runner(tasks, query)
    run.__name__ = f"intarsia: {left}"  # shown in the plan of the DataFrame and in Spark's UI
    return ids.mapInArrow(run, spark_schema(query.nullable_schema))


def explain(
    spark: SparkSession,
    path: PathLike | Sequence[PathLike] | Dataset,
    *,
    columns: Sequence[str] | None = None,
    where: pc.Expression | str | None = None,
    schema: StructType | str | None = None,
    merge_schema: bool = False,
    reader: str | None = None,
    filesystem: Any = None,
    partitioning: Literal["hive"] | None = "hive",
    sidecar: PathLike | None = None,
    catalog: bool | Literal["auto"] = "auto",
    table_format: TableFormatOption = "auto",
) -> ReadExplanation:
    """Returns how ``read`` would execute these arguments: reader, reason, tasks and plan.

    Parameters
    ----------
    spark : pyspark.sql.SparkSession
        The session.
    path, columns, where, schema, merge_schema, reader, filesystem, partitioning, sidecar
        As for ``read``.
    catalog, table_format
        As for ``read``.

    Returns
    -------
    ReadExplanation
        The plan; ``print`` shows it.

    Raises
    ------
    PathError, PredicateError, UnsupportedError
        As ``read`` does.

    Examples
    --------
    ::

        print(ias.explain(spark, "lake/logs", where="status = 500"))
        print(ias.explain(spark, ia.delta("lake/events", version=7), where="key = 'k1'"))
    """
    require_pyspark()
    reader = or_session_setting(spark, "reader", reader) or "auto"
    user_schema = None if schema is None else parse_user_schema(schema)
    opening = {
        "filesystem": filesystem,
        "catalog": catalog,
        "stated": user_schema,
        "sidecar": sidecar,
        "merge_schema": merge_schema,
        "partitioning": partitioning,
        "table_format": table_format,
    }
    source = _source(spark, path, opening)
    query = query_of(source.data, columns, where, user_schema)
    choice = choose(spark, source, query, reader)
    explained = explain_scan(source.data.scan_source, query.columns, query.where, by_file=True)
    tasks: list[Task] = []
    if choice.native is None and choice.rows is None:
        files = choice.planned(source, query).files
        tasks = pack(files, parallelism_of(spark), source.opened)
    sizes = tuple(sum(piece.num_bytes for piece in task) for task in tasks)
    return ReadExplanation(
        "intarsia" if choice.native is None else "spark",
        choice.reason,
        sizes,
        explained,
        None if choice.rows is None else choice.rows.num_rows,
    )


def _source(
    spark: SparkSession,
    path: PathLike | Sequence[PathLike] | Dataset,
    options: Mapping[str, Any],
) -> Source:
    """Returns the table or the files at ``path``. ``options`` are those of ``opened``.

    Raises ``ValueError`` for options with a table, which was opened with its own.
    """
    if not isinstance(path, Dataset):
        sidecar = or_session_setting(spark, "sidecar", options["sidecar"])
        return Source(opened(path, **{**options, "sidecar": sidecar}), folder_of(path))
    for name, value in options.items():
        if value not in (None, False, "auto", "hive"):
            option = "schema" if name == "stated" else name
            raise ValueError(f"{option} is not for a table that was opened as a data set")
    return Source.of_table(path)


def opened(
    path: PathLike | Sequence[PathLike],
    filesystem: Any = None,
    catalog: bool | Literal["auto"] = "auto",
    stated: pa.Schema | None = None,
    sidecar: PathLike | None = None,
    *,
    merge_schema: bool = False,
    partitioning: Literal["hive"] | None = "hive",
    table_format: TableFormatOption = "auto",
) -> Dataset:
    """Returns the data set of the published files at ``path``, with its columns in Spark's types.

    Columns of the schema ``stated`` by the user have its types, even if the first file lacks them.
    With ``merge_schema`` the data set has the columns of all files.
    """
    seen: dict[str, pafs.FileInfo] = {}
    storage, files = visible(path, filesystem, seen, table_format=table_format)
    base = folder_of(path)
    if partitioning is None:
        folders: Any = known_partitioning(None, files, base)
    elif partitioning == "hive":
        folders = hive_partitioning(files, base, "spark", stated=stated)
    else:
        raise ValueError(f"partitioning is 'hive' or None, not {partitioning!r}")
    if stated is not None:
        check_keys(folders.schema)
    data = open_dataset(storage, files, base, folders, form=FILES)
    cache = data.scan_source.cache
    cache.places = places_of(storage, sidecar)
    plain = _as_in_spark(data.schema, partial(cache.as_opened, files[0]))
    if merge_schema:
        united = unified_schema(cache, files, lambda f: _as_in_spark(f.schema_arrow, lambda: f))
        plain = pa.schema([*united, *(field for field in plain if field.name not in united.names)])
    if stated is not None:
        plain = with_user_types(plain, stated)
    if plain != data.schema:
        plain = plain.with_metadata(data.schema.metadata)
        data = open_dataset(storage, files, base, folders, plain, FILES)
        data.scan_source = data.scan_source.with_cache(cache)
    root = root_of(storage, path, files)
    cache.catalog = catalog_of(storage, root, cache.options, seen, catalog)
    return data


def _as_in_spark(schema: pa.Schema, file: Callable[[], OpenedFile]) -> pa.Schema:
    """Returns the schema in Spark's types: INT96 as UTC, nested fields nullable."""
    return pa.schema([field.with_type(_type_in_spark(field, file)) for field in schema])


def _type_in_spark(field: pa.Field, file: Callable[[], OpenedFile]) -> pa.DataType:
    without_zone = leaves(field.type).count(_ZONELESS)
    if without_zone:
        stored = file().schema
        root = stored.root(field.name)
        own = [] if root is None else [stored.leaves[i].element for i in root.leaves]
        if without_zone == sum(element.type == Type.INT96 for element in own):
            field = with_leaves(field, _ZONELESS, _UTC)
    return _WITHOUT_VIEWS.get(field.type, nullable(field).type)


def _runner(tasks: list[Task], query: Query) -> Act:
    # All tasks get the same closure, so each unpickles only its own part.
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
    """Yields a piece's rows in Spark's types. Raises ``FormatError`` if it was rewritten."""
    options = ReadOptions(
        query.on_corrupt is not None,
        on_corrupt=query.on_corrupt,
        page_size_limit=query.page_size_limit,
        coerce_int96_timestamp_unit=INT96_UNIT,
    )
    file = open_file(piece.path, query.filesystem, options, view=piece.view)
    if binding_of(file.metadata) != piece.binding:
        raise FormatError("the file was rewritten after it was planned", Where(piece.path))
    check_whole(file, query.output)
    filters = None if query.where is None else Filter.of(query.where, query.schema)
    request = Request(query.schema, query.columns, filters)
    rows = RowRanges.of(piece.within)
    for table in scan_file(file, request, piece.constants, rows, planned=ScanPlan(piece.rows)):
        # Nanoseconds are cut to Spark's microseconds; every other value fits its output type.
        yield from as_output(table, query.output).to_batches()
