"""What the folders of a data set say: Hive's ``key=value``.

The types of the keys are inferred from all values of a key, by one of three rules: ``"hive"`` is
this library's own and follows DuckDB, ``"pyarrow"`` and ``"spark"`` are those of pyarrow and Spark.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.dataset as pads

from intarsia.dataset.partition_values import NULL_FOLDER, hive_values, key_expression
from intarsia.errors import FormatError
from intarsia.io.storage import is_uri, resolve

Rule = Literal["hive", "pyarrow", "spark"]
_TYPES: Mapping[Rule, tuple[pa.DataType, ...]] = {
    "hive": (pa.int32(), pa.int64(), pa.date32(), pa.timestamp("us"), pa.timestamp("us", "UTC")),
    "pyarrow": (pa.int32(),),
    "spark": (pa.int32(), pa.int64(), pa.float64(), pa.date32()),
}
"""The types tried for a key, in order. A key whose values fit none of them is text."""
_NUMBER = re.compile(r"[+-]?(\d+|\d*\.\d+|\d+\.)([eE][+-]?\d+)?|NaN|-?Infinity", re.ASCII)
_INTEGER = re.compile(r"-?\d+", re.ASCII)
"""pyarrow takes hexadecimal digits as well, which Spark does not."""
_DATE = re.compile(r"(?!0000)\d{4}-\d{2}-\d{2}", re.ASCII)
"""pyarrow takes the year 0 as well, which Python does not."""
_TIMESTAMP = re.compile(
    r"(?!0000)\d{4}-\d{2}-\d{2}[ T]\d{2}:\d{2}(:\d{2}(\.\d{1,6})?)?(Z|[+-]\d{2}(:?\d{2})?)?",
    re.ASCII,
)


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
    rule: Rule,
    *,
    stated: pa.Schema | None = None,
) -> Any:
    """Hive partitioning of the folders of ``files``, with types inferred by ``rule``.

    ``base`` is the folder that ``files`` lie below. Keys have the types of ``stated`` if they are
    in it. Keys that are NULL in every folder are text; pyarrow alone gives up on them.
    """
    values = _values(files, base)
    types = _types(values, rule)
    if stated is not None:
        return pads.HivePartitioning(_with_types_of(types, stated))
    is_inferred = types == _types(values, "pyarrow")
    if is_inferred and all(found != {NULL_FOLDER} for found in values.values()):
        return "hive"
    return pads.partitioning(types, flavor="hive")


def with_types_of(
    folders: pads.Partitioning, schema: pa.Schema, files: Sequence[str], base: str | None
) -> pads.Partitioning:
    """``folders`` whose keys have the types of ``schema`` if they are in it.

    Raises ``FormatError`` if a folder's value does not fit.
    """
    keys = folders.schema
    if not shares_columns(folders, schema):
        return folders
    _check_fit(_values_of(folders, files, base), schema, base or files[0])
    return type(folders)(_with_types_of(keys, schema))


def shares_columns(folders: pads.Partitioning, schema: pa.Schema) -> bool:
    """True if ``schema`` has a key of ``folders``."""
    return not set(folders.schema.names).isdisjoint(schema.names)


def with_keys(schema: pa.Schema, folders: pads.Partitioning) -> pa.Schema:
    """``schema`` and the keys of ``folders`` that it lacks, or has without a type."""
    for field in folders.schema:
        place = schema.get_field_index(field.name)
        if place < 0:
            schema = schema.append(field)
        elif pa.types.is_null(schema.field(place).type):
            schema = schema.set(place, field)
    return schema


def _with_types_of(keys: pa.Schema, schema: pa.Schema) -> pa.Schema:
    """``keys``, with the fields of ``schema`` for those that are in it and have a type."""
    known = {field.name: field for field in schema if not pa.types.is_null(field.type)}
    return pa.schema([known.get(field.name, field) for field in keys])


def hive_types(files: Sequence[str], base: str | None, rule: Rule) -> pa.Schema:
    """The keys of ``hive_partitioning`` and their types."""
    return _types(_values(files, base), rule)


def _check_fit(values: Mapping[str, set[str]], stated: pa.Schema, where: str) -> None:
    """Raise ``FormatError`` for a folder whose value the type of its column cannot hold."""
    for name in values.keys() & set(stated.names):
        kind = stated.field(name).type
        for value in sorted(values[name]):
            try:
                key_expression(name, value, kind)
            except (pa.ArrowInvalid, ValueError) as error:
                raise FormatError(
                    f"{where}: folder {name}={unquote(value)} contradicts the schema, in which "
                    f"column {name!r} is {kind}: rename the folder, or give partitioning=None to "
                    "read the files' own column"
                ) from error


def _types(found: Mapping[str, set[str]], rule: Rule) -> pa.Schema:
    return pa.schema([(key, _inferred(values, rule)) for key, values in found.items()])


def _values(files: Sequence[str], base: str | None) -> dict[str, set[str]]:
    """The values of each key in the names of folders, which have some characters as ``%XX``."""
    values: dict[str, set[str]] = {}
    for folder in dict.fromkeys(file.rpartition("/")[0] for file in files):
        for key, value in hive_values(folder.removeprefix(base or "")).items():
            values.setdefault(key, set()).add(value)
    return values


def _inferred(found: set[str], rule: Rule) -> pa.DataType:
    """The first type of ``rule`` that holds all values, else text."""
    values = {unquote(value) for value in found} - {NULL_FOLDER}
    for kind in _TYPES[rule]:
        if values and _all_are(kind, values, rule):
            return kind
    return pa.string()


def _all_are(kind: pa.DataType, values: set[str], rule: Rule) -> bool:
    if pa.types.is_floating(kind):  # beside longer integers, some of which are no doubles, text
        integers = set(filter(_INTEGER.fullmatch, values))
        is_exact = not integers or _all_are(pa.int32(), integers, rule)
        return is_exact and all(map(_NUMBER.fullmatch, values))
    if pa.types.is_integer(kind) and rule != "pyarrow" and not all(map(_INTEGER.fullmatch, values)):
        return False
    if pa.types.is_date(kind) and not all(map(_DATE.fullmatch, values)):
        return False
    if pa.types.is_timestamp(kind) and not all(map(_TIMESTAMP.fullmatch, values)):
        return False
    try:
        pa.array(sorted(values)).cast(kind)
    except pa.ArrowInvalid:
        return False
    return True


def stated_folders(
    partitioning: Any, files: Sequence[str], base: str | None
) -> pads.Partitioning | None:
    """What ``partitioning`` says of the folders of ``files``, without opening any file.

    None where it is a factory of pyarrow's, which only tells once pyarrow has looked for the files
    itself.
    """
    if partitioning is None:
        return pads.HivePartitioning(pa.schema([]))
    if partitioning in ("hive", "pyarrow"):
        return pads.HivePartitioning(hive_types(files, base, partitioning))
    if isinstance(partitioning, pads.HivePartitioning | pads.DirectoryPartitioning):
        return partitioning
    if isinstance(partitioning, list):
        values = _directory_values(partitioning, files, base)
        return pads.DirectoryPartitioning(_types(values, "pyarrow"))
    return None


def _values_of(
    folders: pads.Partitioning, files: Sequence[str], base: str | None
) -> dict[str, set[str]]:
    if isinstance(folders, pads.HivePartitioning):
        return _values(files, base)
    return _directory_values(folders.schema.names, files, base)


def _directory_values(
    names: Sequence[str], files: Sequence[str], base: str | None
) -> dict[str, set[str]]:
    values: dict[str, set[str]] = {name: set() for name in names}
    for file in files:
        for name, value in zip(names, _folders(file, base), strict=False):
            values[name].add(value)
    return values


def _folders(file: str, base: str | None) -> list[str]:
    """The names of the folders between ``base`` and ``file``."""
    return file.removeprefix(base or "").strip("/").split("/")[:-1]
