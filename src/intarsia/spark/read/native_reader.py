"""Handing files to Spark's own vectorised reader, where its rows are the same for certain.

Certain is what is on a list: plain columns of types that both sides store and read alike, encodings
and codecs that Spark knows, folders whose names leave nothing to interpret. The filter goes along
as a Column (``condition``); skipping by statistics, dictionaries and bloom filters is turned off
for these files, as it was done here, by rules that know of NaN and −0.0.
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
from intarsia.spark.read.spark_footer import entries_of, has_old_dates
from intarsia.spark.types import spark_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_OPTIONS = {
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
_FEW = 32
"""Of more paths than so many, Spark runs a job to list them, with a task for each."""
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
_MORE_ENCODINGS: dict[int, set[Encoding]] = {
    Type.INT32: {Encoding.DELTA_BINARY_PACKED},
    Type.INT64: {Encoding.DELTA_BINARY_PACKED},
    Type.BYTE_ARRAY: {Encoding.DELTA_LENGTH_BYTE_ARRAY, Encoding.DELTA_BYTE_ARRAY},
}
_DECIMAL_BYTES, _DIGITS_OF_INT32 = 16, 9
_FLAT_TYPES = {
    *(pa.bool_(), pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64()),
    *(pa.string(), pa.binary(), pa.date32(), pa.timestamp("us"), pa.timestamp("us", "UTC")),
}
"""Portable types that Spark has too, besides decimals. Lists and structs are not handed over."""


@dataclass(frozen=True, slots=True)
class HandOver:
    """Files that Spark reads by itself: ``columns`` are those of the query and of its filter."""

    query: Query
    columns: tuple[str, ...]
    files: tuple[str, ...]
    base: str | None
    """The folder below which folders tell values; None where none of these is asked for."""

    def frame(self, spark: SparkSession) -> DataFrame:
        """The rows for which the filter holds."""
        schema, query = spark_schema(_fields(self.query, self.columns)), self.query
        options = _OPTIONS if self.base is None else _OPTIONS | {"basePath": _uri(self.base)}
        paths = list(self.files)
        if len(paths) > _FEW and self.base is None and (folder := _folder_of(paths)):
            names = ",".join(posixpath.basename(path) for path in paths)
            paths, options = [folder], options | {"pathGlobFilter": f"{{{names}}}"}
        found = spark.read.schema(schema).options(**options).parquet(*map(_uri, paths))
        if query.where is not None:
            found = found.where(spark_condition(query.where, query.schema))
        return found.select(*map(spark_column, query.columns))


def _folder_of(files: Sequence[str]) -> str | None:
    """The one folder of ``files``, where Spark lists all of them in it, and no others."""
    folders = {posixpath.dirname(file) for file in files}
    if len(folders) > 1 or any("," in posixpath.basename(file) for file in files):
        return None
    folder = folders.pop()
    with os.scandir(folder) as entries:
        has_others = any(entry.is_dir() and _counts(entry.name) for entry in entries)
    return None if has_others else folder


def _counts(name: str) -> bool:
    """Does a folder of this name bear on which files Spark lists above it?"""
    return name[0] not in "_." or "=" in name or name == STREAM_LOG


def hand_over(source: Source, query: Query, files: Sequence[str]) -> HandOver | str:
    """How Spark is to read ``files`` for a query, or why it is not to.

    ``files`` are those of the data set in which a row might match. Their footers are looked at.
    """
    try:
        return _checked(source, query, files)
    except (RefusedError, PredicateError) as error:
        return str(error)


def _checked(source: Source, query: Query, files: Sequence[str]) -> HandOver:
    if type(source.data.filesystem) is not pafs.LocalFileSystem:
        raise RefusedError("the files are not on local disks")
    columns = _columns(query)
    check_names(source.data.schema.names)
    _check_paths(files)
    if query.where is not None:
        spark_condition(query.where, query.schema)
    constants = {name for file in files for name in source.constants(file)}
    in_folders = [name for name in columns if name in constants]
    in_files = [name for name in columns if name not in constants]
    if not in_files:
        raise RefusedError("no column is asked for that is in the files")
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
    return HandOver(query, columns, tuple(files), source.base if in_folders else None)


def _fields(query: Query, columns: Iterable[str]) -> pa.Schema:
    return pa.schema([query.schema.field(name).with_nullable(True) for name in columns])


def _uri(path: str) -> str:
    return f"file://{path}"


def _columns(query: Query) -> tuple[str, ...]:
    """Of the output, then of the filter."""
    paths = set() if query.where is None else field_paths(read_expression(query.where))
    if paths is None:
        raise RefusedError("which columns the filter is about cannot be told")
    return tuple(dict.fromkeys((*query.columns, *sorted(path[0] for path in paths))))


def _check_paths(files: Sequence[str]) -> None:
    check_paths(files)
    for file in files:
        name = posixpath.basename(file)
        if name[0] in "_." or name.endswith("._COPYING_"):
            raise RefusedError(f"{file}: Spark does not list files of such names")


def _check_folders(source: Source, files: Sequence[str], query: Query) -> None:
    """Every file has the same keys, and each value only one reading."""
    if source.base is None:
        raise RefusedError("values of folders are asked for, and it is not one folder that is read")
    keys: list[str] | None = None
    for file in files:
        below = posixpath.relpath(posixpath.dirname(file), source.base)
        pairs = [part.partition("=") for part in below.split("/")]
        if keys not in (None, [key for key, *_ in pairs]) or not all(
            is_key for _, is_key, _ in pairs
        ):
            raise RefusedError(f"{file}: its folders have other keys than those before")
        keys = [key for key, *_ in pairs]
        for key, _, value in pairs:
            if key not in query.schema.names:
                raise RefusedError(f"folder {key}={value}: a key that is no column")
            check_folder_value(key, value, query.schema.field(key).type)


# --- files --------------------------------------------------------------------------------------


def _check_files(source: Source, files: Sequence[str], wanted: Sequence[pa.Field]) -> None:
    """Raise unless all files have these columns, as flat values that Spark reads alike."""
    has_moments = any(pa.types.is_temporal(field.type) for field in wanted)
    known: dict[int, tuple[object, tuple[Leaf, ...]]] = {}
    for path in files:
        file = source.opened(path)
        # Files of one shape share their schema.
        _, leaves = known.get(id(file.schema)) or (None, None)
        if leaves is None:
            leaves = tuple(_leaf(file, path, field) for field in wanted)
            known[id(file.schema)] = file.schema, leaves
        if has_moments and has_old_dates(entries_of(file)):
            raise RefusedError(f"{path}: dates of an old Spark, which it shifts")
        _check_chunks(file, path, leaves)


def _leaf(file: OpenedFile, path: str, field: pa.Field) -> Leaf:
    if reason := why_not_portable(file, field.name, field.type):
        raise RefusedError(f"{path}: {reason}")
    leaf, kind = file.schema.leaf((field.name,)), plain_type(field.type)
    if leaf is not None and (kind in _FLAT_TYPES or _is_decimal_of_spark(leaf, kind)):
        return leaf
    raise RefusedError(f"{path}: column {field.name!r} is {field.type}, which Spark may not read")


def _is_decimal_of_spark(leaf: Leaf, kind: pa.DataType) -> bool:
    """True if a decimal is stored in the type that Spark stores so many digits in, or in bytes."""
    if not pa.types.is_decimal(kind) or kind.scale < 0:
        return False
    if leaf.element.type == Type.FIXED_LEN_BYTE_ARRAY:
        return (leaf.element.type_length or 0) <= _DECIMAL_BYTES
    stored = Type.INT32 if kind.precision <= _DIGITS_OF_INT32 else Type.INT64
    return leaf.element.type == stored


def _check_chunks(file: OpenedFile, path: str, leaves: Sequence[Leaf]) -> None:
    for group in range(len(file.metadata.row_groups)):
        for leaf in leaves:
            chunk = file.chunk(group, leaf.index)
            known = _ENCODINGS | _MORE_ENCODINGS.get(chunk.type, set())
            if not known.issuperset(chunk.encodings) or chunk.codec not in _CODECS:
                raise RefusedError(
                    f"{path}: column {leaf.name!r} is encoded or compressed in a way that Spark "
                    "may not know"
                )
