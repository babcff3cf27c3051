"""Handing files to Spark's own vectorised reader, where its rows are the same for certain.

Certain is what is on a list: plain columns of types that both sides store and read alike, encodings
and codecs that Spark knows, folders whose names leave nothing to interpret. The filter goes along
as a Column (``condition``); skipping by statistics, dictionaries and bloom filters is turned off
for these files, as it was done here, by rules that know of NaN and −0.0.
"""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.fs as pafs

from intarsia.data.folder_values import NULL_FOLDER
from intarsia.errors import PredicateError
from intarsia.format.metadata import CompressionCodec, ConvertedType, Encoding, SchemaElement, Type
from intarsia.format.schema import Leaf
from intarsia.predicate.expression import field_paths, read_expression
from intarsia.read.opened import OpenedFile
from intarsia.spark.condition import spark_column, spark_condition
from intarsia.spark.footers import entries_of, has_old_dates
from intarsia.spark.sources import Source
from intarsia.spark.types import spark_schema
from intarsia.table_format import STREAM_LOG

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from intarsia.spark.read import Query

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
_PLAIN_PATH = re.compile(r"[\w./=+@~,& -]+")
_PLAIN_VALUES = {
    pa.string(): re.compile(r"[A-Za-z0-9_.-]+", re.ASCII),
    pa.int32(): re.compile(r"0|-?[1-9][0-9]{0,9}"),
    pa.int64(): re.compile(r"0|-?[1-9][0-9]{0,18}"),
    pa.float64(): re.compile(r"-?[0-9]{1,15}(\.[0-9]+(E-?[0-9]+)?)?"),
    pa.date32(): re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}"),
}
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
_INTEGERS = {8: "tinyint", 16: "smallint", 32: "int", 64: "bigint"}
_SIGNED = {
    ConvertedType.INT_8: 8,
    ConvertedType.INT_16: 16,
    ConvertedType.INT_32: 32,
    ConvertedType.INT_64: 64,
}
_MOST_DIGITS, _DECIMAL_BYTES = 38, 16
_MOMENTS = ("date", "timestamp", "timestamp_ntz")


class _RefusedError(Exception):
    """Why files are not handed over."""


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
    except (_RefusedError, PredicateError) as error:
        return str(error)


def _checked(source: Source, query: Query, files: Sequence[str]) -> HandOver:
    if type(source.data.filesystem) is not pafs.LocalFileSystem:
        raise _RefusedError("the files are not on local disks")
    columns = _columns(query)
    _check_names(source.data.schema.names)
    _check_paths(files)
    if query.where is not None:
        spark_condition(query.where, query.schema)
    schema = spark_schema(_fields(query, columns))
    constants = {name for file in files for name in source.constants(file)}
    in_folders = [name for name in columns if name in constants]
    in_files = [name for name in columns if name not in constants]
    if not in_files:
        raise _RefusedError("no column is asked for that is in the files")
    for file in files:
        opened = source.opened(file)
        for name in in_folders:
            if opened.schema.root(name) is not None:
                raise _RefusedError(
                    f"{file}: column {name!r} is in the file and in its folder's name"
                )
    if in_folders:
        _check_folders(source, files, query)
    _check_files(source, files, in_files, schema)
    return HandOver(query, columns, tuple(files), source.base if in_folders else None)


def _fields(query: Query, columns: Iterable[str]) -> pa.Schema:
    return pa.schema([query.schema.field(name).with_nullable(True) for name in columns])


def _uri(path: str) -> str:
    return f"file://{path}"


def _columns(query: Query) -> tuple[str, ...]:
    """Of the output, then of the filter."""
    paths = set() if query.where is None else field_paths(read_expression(query.where))
    if paths is None:
        raise _RefusedError("which columns the filter is about cannot be told")
    return tuple(dict.fromkeys((*query.columns, *sorted(path[0] for path in paths))))


def _check_names(names: Iterable[str]) -> None:
    seen: set[str] = set()
    for name in names:
        if name.lower() in seen:
            raise _RefusedError(f"two columns are called {name!r} but for the case")
        seen.add(name.lower())


def _check_paths(files: Sequence[str]) -> None:
    if len(set(files)) < len(files):
        raise _RefusedError("a file is there twice")
    for file in files:
        name = posixpath.basename(file)
        is_hidden = name[0] in "_." or name.endswith("._COPYING_")
        if not _PLAIN_PATH.fullmatch(file) or is_hidden:
            raise _RefusedError(f"{file}: a path that Spark might take for another")


def _check_folders(source: Source, files: Sequence[str], query: Query) -> None:
    """Every file has the same keys, and each value only one reading."""
    if source.base is None:
        raise _RefusedError(
            "values of folders are asked for, and it is not one folder that is read"
        )
    keys: list[str] | None = None
    for file in files:
        below = posixpath.relpath(posixpath.dirname(file), source.base)
        pairs = [part.partition("=") for part in below.split("/")]
        if keys not in (None, [key for key, *_ in pairs]) or not all(
            is_key for _, is_key, _ in pairs
        ):
            raise _RefusedError(f"{file}: its folders have other keys than those before")
        keys = [key for key, *_ in pairs]
        for key, _, value in pairs:
            kind = query.schema.field(key).type if key in query.schema.names else None
            plain = _PLAIN_VALUES.get(kind)
            if plain is None or (value != NULL_FOLDER and not plain.fullmatch(value)):
                raise _RefusedError(f"{file}: a value of {key!r} that Spark might read as another")


# --- files --------------------------------------------------------------------------------------


def _check_files(
    source: Source, files: Sequence[str], columns: Sequence[str], schema: StructType
) -> None:
    """Have all files these columns, as plain values of the types that ``schema`` has?"""
    wanted = {name: schema[name].dataType.simpleString() for name in columns}
    has_moments = not set(_MOMENTS).isdisjoint(wanted.values())
    known: dict[int, tuple[object, tuple[Leaf, ...]]] = {}
    for path in files:
        file = source.opened(path)
        # Files of one shape share their schema.
        _, leaves = known.get(id(file.schema)) or (None, None)
        if leaves is None:
            leaves = tuple(_leaf(file, path, name, kind) for name, kind in wanted.items())
            known[id(file.schema)] = file.schema, leaves
        if has_moments and has_old_dates(entries_of(file)):
            raise _RefusedError(f"{path}: dates of an old Spark, which it shifts")
        _check_chunks(file, path, leaves)


def _leaf(file: OpenedFile, path: str, name: str, wanted: str) -> Leaf:
    _check_names(root.name for root in file.schema.roots)
    leaf = file.schema.leaf((name,))
    if leaf is None:
        is_there = file.schema.root(name) is not None
        raise _RefusedError(f"{path}: column {name!r} is {'not flat' if is_there else 'not there'}")
    found = None if leaf.max_repetition_level else spark_type(leaf.element)
    if found != wanted:
        stored = found or Type(leaf.element.type or 0).name
        raise _RefusedError(f"{path}: column {name!r} is {stored}, and read as {wanted}")
    return leaf


def _check_chunks(file: OpenedFile, path: str, leaves: Sequence[Leaf]) -> None:
    for group in range(len(file.metadata.row_groups)):
        for leaf in leaves:
            chunk = file.chunk(group, leaf.index)
            known = _ENCODINGS | _MORE_ENCODINGS.get(chunk.type, set())
            if not known.issuperset(chunk.encodings) or chunk.codec not in _CODECS:
                raise _RefusedError(
                    f"{path}: column {leaf.name!r} is encoded or compressed in a way that Spark "
                    "may not know"
                )


def spark_type(element: SchemaElement) -> str | None:
    """Spark's name of the type that it and pyarrow read a stored value as, alike; None for others.

    Not on the list are INT96, nanoseconds, milliseconds, times, unsigned and 16-bit floats, and
    decimals stored in more or fewer bytes than Spark would.
    """
    logical = element.logicalType
    names = () if logical is None else (field.name for field in fields(logical))
    member = next((name for name in names if getattr(logical, name) is not None), "")
    converted = element.converted_type
    if logical is not None and not member:
        return None  # one that is newer than this list
    match element.type:
        case Type.BOOLEAN | Type.FLOAT | Type.DOUBLE:
            plain = {Type.BOOLEAN: "boolean", Type.FLOAT: "float", Type.DOUBLE: "double"}
            return plain[Type(element.type)] if not member and converted is None else None
        case Type.INT32 | Type.INT64:
            return _integer_type(element, member)
        case Type.BYTE_ARRAY:
            if member == "STRING" or (not member and converted == ConvertedType.UTF8):
                return "string"
            return "binary" if not member and converted is None else None
        case Type.FIXED_LEN_BYTE_ARRAY:
            is_short = (element.type_length or 0) <= _DECIMAL_BYTES
            return _decimal_type(element, range(1, _MOST_DIGITS + 1)) if is_short else None
    return None


def _integer_type(element: SchemaElement, member: str) -> str | None:
    logical, converted = element.logicalType, element.converted_type
    is_long = element.type == Type.INT64
    width = 64 if is_long else 32
    if not member:
        if converted is None:
            return _INTEGERS[width]
        if converted == ConvertedType.DATE:
            return None if is_long else "date"
        bits = _SIGNED.get(ConvertedType(converted), 0)
    elif logical is not None and logical.INTEGER is not None:
        bits = logical.INTEGER.bitWidth if logical.INTEGER.isSigned else 0
    elif logical is not None and logical.DATE is not None:
        return None if is_long else "date"
    elif logical is not None and logical.TIMESTAMP is not None:
        if not is_long or logical.TIMESTAMP.unit.MICROS is None:
            return None
        return "timestamp" if logical.TIMESTAMP.isAdjustedToUTC else "timestamp_ntz"
    else:
        return _decimal_type(element, range(10, 19) if is_long else range(1, 10))
    return _INTEGERS.get(bits) if (bits == 64) == is_long else None


def _decimal_type(element: SchemaElement, digits: range) -> str | None:
    """A decimal of so many digits; Spark writes those of few as integers."""
    logical = element.logicalType
    if logical is None or logical.DECIMAL is None:
        return None
    precision, scale = logical.DECIMAL.precision, logical.DECIMAL.scale
    is_agreed = (element.precision, element.scale) in ((precision, scale), (None, None))
    is_known = is_agreed and precision in digits and 0 <= scale <= precision
    return f"decimal({precision},{scale})" if is_known else None
