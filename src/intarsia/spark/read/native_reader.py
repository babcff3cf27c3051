"""Handing files to Spark's own vectorised reader, if its rows are certain to be the same.

A list of what both sides read alike decides: plain columns of types that both store alike,
encodings and codecs that Spark knows, and folder names with a single reading. Spark gets the filter
as a Column (``column_condition``). Its skipping by statistics, dictionaries and bloom filters is
turned off for these files. The plan has skipped already, by rules for NaN and −0.0 that are
correct.
"""

from __future__ import annotations

import os
import posixpath
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.fs as pafs

from intarsia.dataset.engine_hand_over import (
    RefusedError,
    check_folder_value,
    check_names,
    check_paths,
)
from intarsia.dataset.spark_footer import entries_of, has_old_dates
from intarsia.errors import PredicateError
from intarsia.expr.tree import field_paths, read_expression
from intarsia.file.open_file import OpenedFile
from intarsia.file.portable_columns import plain_type, why_not_portable
from intarsia.io.table_format import STREAM_LOG
from intarsia.parquet.metadata import CompressionCodec, Encoding, Type
from intarsia.parquet.schema import Leaf
from intarsia.spark.read.column_condition import spark_column, spark_condition
from intarsia.spark.read.dataset_files import Source
from intarsia.spark.read.query import Query
from intarsia.spark.types import spark_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_READER_OPTIONS = {
    "mergeSchema": "false",
    "ignoreCorruptFiles": "false",
    "ignoreMissingFiles": "false",
    "datetimeRebaseMode": "CORRECTED",
    "recursiveFileLookup": "false",
    "parquet.filter.stats.enabled": "false",
    "parquet.filter.dictionary.enabled": "false",
    "parquet.filter.columnindex.enabled": "false",
    "parquet.filter.bloom.enabled": "false",
}
_MAX_UNLISTED_PATHS = 32
"""Above this number of paths, Spark starts a job to list them, with one task per path."""
_CODECS = {
    CompressionCodec.UNCOMPRESSED,
    CompressionCodec.SNAPPY,
    CompressionCodec.GZIP,
    CompressionCodec.ZSTD,
    CompressionCodec.LZ4_RAW,
}
_ENCODINGS = {
    Encoding.PLAIN,
    Encoding.RLE,
    Encoding.BIT_PACKED,
    Encoding.PLAIN_DICTIONARY,
    Encoding.RLE_DICTIONARY,
}
_DELTA_ENCODINGS: dict[int, set[Encoding]] = {
    Type.INT32: {Encoding.DELTA_BINARY_PACKED},
    Type.INT64: {Encoding.DELTA_BINARY_PACKED},
    Type.BYTE_ARRAY: {Encoding.DELTA_LENGTH_BYTE_ARRAY, Encoding.DELTA_BYTE_ARRAY},
}
_MAX_DECIMAL_BYTES, _MAX_INT32_DIGITS = 16, 9
_FLAT_TYPES = {
    *(pa.bool_(), pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64()),
    *(pa.string(), pa.binary(), pa.date32(), pa.timestamp("us"), pa.timestamp("us", "UTC")),
}
"""Portable types that Spark has too, besides decimals. Lists and structs stay with Intarsia."""


@dataclass(frozen=True, slots=True)
class NativeRead:
    """Files that Spark reads by itself; ``columns`` are those of the result, then of the filter."""

    query: Query
    columns: tuple[str, ...]
    files: tuple[str, ...]
    base: str | None
    """The folder below which folders name partition values; None if the query needs none."""

    def frame(self, spark: SparkSession) -> DataFrame:
        """Returns the rows for which the filter is true."""
        schema, query = spark_schema(_fields(self.query, self.columns)), self.query
        options = (
            _READER_OPTIONS
            if self.base is None
            else _READER_OPTIONS | {"basePath": _uri(self.base)}
        )
        paths = list(self.files)
        if len(paths) > _MAX_UNLISTED_PATHS and self.base is None and (folder := _folder_of(paths)):
            names = ",".join(posixpath.basename(path) for path in paths)
            paths, options = [folder], options | {"pathGlobFilter": f"{{{names}}}"}
        frame = spark.read.schema(schema).options(**options).parquet(*map(_uri, paths))
        if query.where is not None:
            frame = frame.where(spark_condition(query.where, query.schema))
        return frame.select(*map(spark_column, query.columns))


def _folder_of(files: Sequence[str]) -> str | None:
    """Returns the common folder of ``files`` if Spark lists them all in it, and no other files."""
    folders = {posixpath.dirname(file) for file in files}
    if len(folders) > 1 or any("," in posixpath.basename(file) for file in files):
        return None
    folder = folders.pop()
    with os.scandir(folder) as entries:
        has_others = any(entry.is_dir() and _affects_listing(entry.name) for entry in entries)
    return None if has_others else folder


def _affects_listing(name: str) -> bool:
    """True if a folder of this name changes which files Spark lists above it."""
    return name[0] not in "_." or "=" in name or name == STREAM_LOG


def plan_native_read(source: Source, query: Query, files: Sequence[str]) -> NativeRead | str:
    """Returns how Spark is to read ``files``, or why it must not. Reads their footers."""
    try:
        return _checked_native_read(source, query, files)
    except (RefusedError, PredicateError) as error:
        return str(error)


def _checked_native_read(source: Source, query: Query, files: Sequence[str]) -> NativeRead:
    if type(source.data.filesystem) is not pafs.LocalFileSystem:
        raise RefusedError("the files are not on local disks")
    columns = _query_columns(query)
    check_names(source.data.schema.names)
    _check_paths(files)
    if query.where is not None:
        spark_condition(query.where, query.schema)
    constants = {name for file in files for name in source.constants(file)}
    in_folders = [name for name in columns if name in constants]
    in_files = [name for name in columns if name not in constants]
    table = source.data.table_snapshot
    if table is not None and (in_folders or not table.is_plain):
        raise RefusedError(f"{table.name} has other rows, names or values than its files")
    if not in_files:
        raise RefusedError("the query needs no column that the files store")
    for file in files:
        opened = source.opened(file)
        for name in in_folders:
            if opened.schema.root(name) is not None:
                raise RefusedError(
                    f"{file}: column {name!r} is in the file and in its folder's name"
                )
    if in_folders:
        _check_folders(source, files, query)
    _check_files(source, files, [query.schema.field(name) for name in in_files])
    return NativeRead(query, columns, tuple(files), source.base if in_folders else None)


def _fields(query: Query, columns: Iterable[str]) -> pa.Schema:
    return pa.schema([query.schema.field(name).with_nullable(True) for name in columns])


def _uri(path: str) -> str:
    return f"file://{path}"


def _query_columns(query: Query) -> tuple[str, ...]:
    """Returns the columns of the result, then those of the filter."""
    paths = set() if query.where is None else field_paths(read_expression(query.where))
    if paths is None:
        raise RefusedError("the columns of the filter cannot be determined")
    return tuple(dict.fromkeys((*query.columns, *sorted(path[0] for path in paths))))


def _check_paths(files: Sequence[str]) -> None:
    check_paths(files)
    for file in files:
        name = posixpath.basename(file)
        if name[0] in "_." or name.endswith("._COPYING_"):
            raise RefusedError(f"{file}: Spark does not list files of such names")


def _check_folders(source: Source, files: Sequence[str], query: Query) -> None:
    """Checks that all files have the same partition keys, and that each value has one reading."""
    if source.base is None:
        raise RefusedError("the query needs partition values, and the path is not one folder")
    keys: list[str] | None = None
    for file in files:
        below = posixpath.relpath(posixpath.dirname(file), source.base)
        pairs = [part.partition("=") for part in below.split("/")]
        if keys not in (None, [key for key, *_ in pairs]) or not all(
            is_key for _, is_key, _ in pairs
        ):
            raise RefusedError(f"{file}: its folders have other keys than those of files before it")
        keys = [key for key, *_ in pairs]
        for key, _, value in pairs:
            if key not in query.schema.names:
                raise RefusedError(f"folder {key}={value}: its key is not a column")
            check_folder_value(key, value, query.schema.field(key).type)


# --- files --------------------------------------------------------------------------------------


def _check_files(source: Source, files: Sequence[str], fields: Sequence[pa.Field]) -> None:
    """Raises ``RefusedError`` unless all files store these fields flat and as Spark reads them."""
    has_dates = any(pa.types.is_temporal(field.type) for field in fields)
    leaves_of_schemas: dict[int, tuple[object, tuple[Leaf, ...]]] = {}
    for path in files:
        file = source.opened(path)
        # Files of one schema group share the schema object.
        _, leaves = leaves_of_schemas.get(id(file.schema)) or (None, None)
        if leaves is None:
            leaves = tuple(_readable_leaf(file, path, field) for field in fields)
            leaves_of_schemas[id(file.schema)] = file.schema, leaves
        if has_dates and has_old_dates(entries_of(file)):
            raise RefusedError(f"{path}: its dates are those of an old Spark, which it converts")
        _check_chunks(file, path, leaves)


def _readable_leaf(file: OpenedFile, path: str, field: pa.Field) -> Leaf:
    if reason := why_not_portable(file, field.name, field.type):
        raise RefusedError(f"{path}: {reason}")
    leaf, kind = file.schema.leaf((field.name,)), plain_type(field.type)
    if leaf is not None and (kind in _FLAT_TYPES or _is_spark_decimal(leaf, kind)):
        return leaf
    raise RefusedError(f"{path}: column {field.name!r} is {field.type}, which Spark may not read")


def _is_spark_decimal(leaf: Leaf, kind: pa.DataType) -> bool:
    """True if a decimal has the physical type that Spark uses for its precision, or is in bytes."""
    if not pa.types.is_decimal(kind) or kind.scale < 0:
        return False
    if leaf.element.type == Type.FIXED_LEN_BYTE_ARRAY:
        return (leaf.element.type_length or 0) <= _MAX_DECIMAL_BYTES
    stored = Type.INT32 if kind.precision <= _MAX_INT32_DIGITS else Type.INT64
    return leaf.element.type == stored


def _check_chunks(file: OpenedFile, path: str, leaves: Sequence[Leaf]) -> None:
    for group in range(len(file.metadata.row_groups)):
        for leaf in leaves:
            chunk = file.chunk(group, leaf.index)
            known_encodings = _ENCODINGS | _DELTA_ENCODINGS.get(chunk.type, set())
            if not known_encodings.issuperset(chunk.encodings) or chunk.codec not in _CODECS:
                raise RefusedError(
                    f"{path}: column {leaf.name!r} is encoded or compressed in a way that Spark "
                    "may not know"
                )
