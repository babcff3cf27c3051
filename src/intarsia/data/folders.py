"""What the folders of a data set say: Hive's ``key=value``."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.dataset as pads

from intarsia.storage import is_uri, resolve

_NUMBER = re.compile(r"[+-]?(\d+|\d*\.\d+|\d+\.)([eE][+-]?\d+)?|NaN|-?Infinity", re.ASCII)
_INTEGER = re.compile(r"-?\d+", re.ASCII)
"""pyarrow takes hexadecimal digits as well, which Spark does not."""
_DATE = re.compile(r"(?!0000)\d{4}-\d{2}-\d{2}", re.ASCII)
"""pyarrow takes the year 0 as well, which Python does not."""
NULL_FOLDER = "__HIVE_DEFAULT_PARTITION__"
"""The value that stands for NULL in the name of a folder."""


def folder_of(source: Any) -> str | None:
    """The local folder that ``source`` is; None where it is something else."""
    if not isinstance(source, str | os.PathLike):
        return None
    if is_uri(source) and not os.fspath(source).startswith("file:"):
        return None
    path = os.path.abspath(resolve(source)[1])
    return path if os.path.isdir(path) else None


def hive_partitioning(
    files: Sequence[str],
    base: str | None,
    *,
    as_spark: bool = False,
    stated: pa.Schema | None = None,
) -> Any:
    """Hive partitioning whose types pyarrow infers, text for keys that are NULL in every folder.

    pyarrow alone gives up on such a key. ``base`` is the folder that ``files`` lie below. With
    ``as_spark``, longer integers, other numbers and ISO dates are what they are to Spark. Keys have
    the types of ``stated`` where they are in it.
    """
    values = _values(files, base)
    types = _types(values, as_spark)
    if stated is not None:
        types = pa.schema([stated.field(f.name) if f.name in stated.names else f for f in types])
        return pads.partitioning(types, flavor="hive")
    is_inferred = not as_spark or types == _types(values, as_spark=False)
    if is_inferred and all(found != {NULL_FOLDER} for found in values.values()):
        return "hive"
    return pads.partitioning(types, flavor="hive")


def hive_types(files: Sequence[str], base: str | None, *, as_spark: bool = False) -> pa.Schema:
    """The keys of ``hive_partitioning`` and their types."""
    return _types(_values(files, base), as_spark)


def _types(found: Mapping[str, set[str]], as_spark: bool) -> pa.Schema:
    return pa.schema(
        [(key, _inferred(values - {NULL_FOLDER}, as_spark)) for key, values in found.items()]
    )


def _values(files: Sequence[str], base: str | None) -> dict[str, set[str]]:
    """The values of each key in the names of folders, which have some characters as ``%XX``."""
    values: dict[str, set[str]] = {}
    for folder in dict.fromkeys(file.rpartition("/")[0] for file in files):
        below = f"{folder}/".removeprefix(base or "")
        for part in below.split("/")[:-1]:
            key, is_pair, value = part.partition("=")
            if is_pair:
                values.setdefault(unquote(key), set()).add(unquote(value))
    return values


def _inferred(values: set[str], as_spark: bool) -> pa.DataType:
    """As pyarrow infers it: 32-bit integers where all values are, else text; or as Spark does."""
    for kind in (pa.int32(), pa.int64(), pa.float64(), pa.date32()) if as_spark else (pa.int32(),):
        if values and _all_are(kind, values, as_spark):
            return kind
    return pa.string()


def _all_are(kind: pa.DataType, values: set[str], as_spark: bool) -> bool:
    if pa.types.is_floating(kind):  # beside longer integers, some of which are no doubles, text
        integers = set(filter(_INTEGER.fullmatch, values))
        is_exact = not integers or _all_are(pa.int32(), integers, as_spark)
        return is_exact and all(map(_NUMBER.fullmatch, values))
    if pa.types.is_integer(kind) and as_spark and not all(map(_INTEGER.fullmatch, values)):
        return False
    if pa.types.is_date(kind) and not all(map(_DATE.fullmatch, values)):
        return False
    try:
        pa.array(sorted(values)).cast(kind)
    except pa.ArrowInvalid:
        return False
    return True


def folder_constants(fragment: pads.Fragment, schema: pa.Schema) -> dict[str, pa.Scalar]:
    """The columns of ``schema`` that a file's folder fixes, by name."""
    keys = pads.get_partition_keys(fragment.partition_expression)
    return {
        name: pa.scalar(value, schema.field(name).type)
        for name, value in keys.items()
        if name in schema.names
    }


def stated_folders(
    partitioning: Any, files: Sequence[str], base: str | None, schema: pa.Schema | None
) -> pads.Partitioning | None:
    """What ``partitioning`` says of the folders of ``files``, without opening any file.

    None where it is a factory of pyarrow's, which only tells once pyarrow has looked for the files
    itself. ``schema`` is the data set's where that is given: its columns are the keys.
    """
    if partitioning is None:
        return pads.HivePartitioning(pa.schema([]))
    if partitioning == "hive":
        return pads.HivePartitioning(hive_types(files, base) if schema is None else schema)
    if isinstance(partitioning, pads.HivePartitioning | pads.DirectoryPartitioning):
        return partitioning
    if isinstance(partitioning, list):
        if schema is None:
            return pads.DirectoryPartitioning(_directory_types(partitioning, files, base))
        if set(partitioning) <= set(schema.names):
            fields = [schema.field(name) for name in partitioning]
            return pads.DirectoryPartitioning(pa.schema(fields))
    return None


def _directory_types(names: Sequence[str], files: Sequence[str], base: str | None) -> pa.Schema:
    values: dict[str, set[str]] = {name: set() for name in names}
    for file in files:
        for name, value in zip(names, _folders(file, base), strict=False):
            values[name].add(unquote(value))
    return pa.schema([(name, _inferred(found, False)) for name, found in values.items()])


def _folders(file: str, base: str | None) -> list[str]:
    """The names of the folders between ``base`` and ``file``."""
    return file.removeprefix(base or "").strip("/").split("/")[:-1]
