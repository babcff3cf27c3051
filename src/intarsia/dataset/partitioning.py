"""The columns that folders give: Hive's ``key=value``.

The type of a key is inferred from all of its values, by one of three rules. ``"hive"`` is our own
and follows DuckDB. ``"pyarrow"`` and ``"spark"`` are the rules of pyarrow and Spark.
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
"""The types that are tried for a key, in order. A key is a string if none of them fits."""
_NUMBER = re.compile(r"[+-]?(\d+|\d*\.\d+|\d+\.)([eE][+-]?\d+)?|NaN|-?Infinity", re.ASCII)
_INTEGER = re.compile(r"-?\d+", re.ASCII)
"""pyarrow also reads hexadecimal digits. Spark does not."""
_DATE = re.compile(r"(?!0000)\d{4}-\d{2}-\d{2}", re.ASCII)
"""pyarrow also reads the year 0. Python does not."""
_TIMESTAMP = re.compile(
    r"(?!0000)\d{4}-\d{2}-\d{2}[ T]\d{2}:\d{2}(:\d{2}(\.\d{1,6})?)?(Z|[+-]\d{2}(:?\d{2})?)?",
    re.ASCII,
)


def folder_of(source: Any) -> str | None:
    """Returns the absolute path of ``source`` if it is a local folder, else None."""
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
    """Returns the Hive partitioning of the folders of ``files``, with types inferred by ``rule``.

    ``base`` is the folder above ``files``. Keys in the schema ``stated`` have its types. A key that
    is NULL in every folder is a string; pyarrow alone raises an error.
    """
    values = _values(files, base)
    types = _types(values, rule)
    if stated is not None:
        return pads.HivePartitioning(_with_types_of(types, stated))
    is_inferred = types == _types(values, "pyarrow")
    if is_inferred and all(key_values != {NULL_FOLDER} for key_values in values.values()):
        return "hive"
    return pads.partitioning(types, flavor="hive")


def with_types_of(
    folders: pads.Partitioning, schema: pa.Schema, files: Sequence[str], base: str | None
) -> pads.Partitioning:
    """Returns ``folders`` with the types of ``schema`` for keys that are columns of it.

    Raises ``FormatError`` if a folder's value does not fit its type.
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
    """Returns ``schema`` with the keys of ``folders`` that it lacks, or has as the null type."""
    for field in folders.schema:
        place = schema.get_field_index(field.name)
        if place < 0:
            schema = schema.append(field)
        elif pa.types.is_null(schema.field(place).type):
            schema = schema.set(place, field)
    return schema


def _with_types_of(keys: pa.Schema, schema: pa.Schema) -> pa.Schema:
    """Returns ``keys``, with the fields of ``schema`` for keys that have a type in it."""
    known = {field.name: field for field in schema if not pa.types.is_null(field.type)}
    return pa.schema([known.get(field.name, field) for field in keys])


def hive_types(files: Sequence[str], base: str | None, rule: Rule) -> pa.Schema:
    """Returns the keys of ``hive_partitioning`` and their types."""
    return _types(_values(files, base), rule)


def _check_fit(values: Mapping[str, set[str]], stated: pa.Schema, where: str) -> None:
    """Raises ``FormatError`` if the value of a folder does not fit the type of its column."""
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


def _types(values_by_key: Mapping[str, set[str]], rule: Rule) -> pa.Schema:
    return pa.schema(
        [(key, _inferred(key_values, rule)) for key, key_values in values_by_key.items()]
    )


def _values(files: Sequence[str], base: str | None) -> dict[str, set[str]]:
    """Returns the values of each key as folders are named, with some characters as ``%XX``."""
    values: dict[str, set[str]] = {}
    for folder in dict.fromkeys(file.rpartition("/")[0] for file in files):
        for key, value in hive_values(folder.removeprefix(base or "")).items():
            values.setdefault(key, set()).add(value)
    return values


def _inferred(folder_values: set[str], rule: Rule) -> pa.DataType:
    """Returns the first type of ``rule`` that fits all values, else a string."""
    values = {unquote(value) for value in folder_values} - {NULL_FOLDER}
    for kind in _TYPES[rule]:
        if values and _all_are(kind, values, rule):
            return kind
    return pa.string()


def _all_are(kind: pa.DataType, values: set[str], rule: Rule) -> bool:
    if pa.types.is_floating(
        kind
    ):  # with longer integers, which may not be exact as doubles, strings
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


def known_partitioning(
    partitioning: Any, files: Sequence[str], base: str | None
) -> pads.Partitioning | None:
    """Returns the partitioning of ``files`` that the argument stands for, without opening files.

    Returns None for a factory of pyarrow's, which needs pyarrow's own discovery of files.
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
    """Returns the names of the folders between ``base`` and ``file``."""
    return file.removeprefix(base or "").strip("/").split("/")[:-1]
