"""What the folders of a data set say: Hive's ``key=value``.

The types of the keys are inferred from all values of a key, by one of three rules: ``"hive"`` is
this library's own and follows DuckDB, ``"pyarrow"`` and ``"spark"`` are those of pyarrow and Spark.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal
from urllib.parse import quote, unquote

import pyarrow as pa
import pyarrow.dataset as pads

from intarsia.errors import FormatError
from intarsia.storage import is_uri, resolve

Rule = Literal["hive", "pyarrow", "spark"]
_TYPES: Mapping[Rule, tuple[pa.DataType, ...]] = {
    "hive": (pa.int32(), pa.int64(), pa.date32(), pa.timestamp("us")),
    "pyarrow": (pa.int32(),),
    "spark": (pa.int32(), pa.int64(), pa.float64(), pa.date32()),
}
"""The types tried for a key, in order. A key whose values fit none of them is text."""
_NUMBER = re.compile(r"[+-]?(\d+|\d*\.\d+|\d+\.)([eE][+-]?\d+)?|NaN|-?Infinity", re.ASCII)
_INTEGER = re.compile(r"-?\d+", re.ASCII)
"""pyarrow takes hexadecimal digits as well, which Spark does not."""
_DATE = re.compile(r"(?!0000)\d{4}-\d{2}-\d{2}", re.ASCII)
"""pyarrow takes the year 0 as well, which Python does not."""
_TIMESTAMP = re.compile(r"(?!0000)\d{4}-\d{2}-\d{2}[ T]\d{2}:\d{2}(:\d{2}(\.\d{1,6})?)?", re.ASCII)
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
    if not isinstance(folders, pads.HivePartitioning) or not set(keys.names) & set(schema.names):
        return folders
    _check_fit(_values(files, base), schema, base or files[0])
    return pads.HivePartitioning(_with_types_of(keys, schema))


def _with_types_of(keys: pa.Schema, schema: pa.Schema) -> pa.Schema:
    """``keys``, with the fields of ``schema`` for those that are in it."""
    return pa.schema([schema.field(f.name) if f.name in schema.names else f for f in keys])


def hive_types(files: Sequence[str], base: str | None, rule: Rule) -> pa.Schema:
    """The keys of ``hive_partitioning`` and their types."""
    return _types(_values(files, base), rule)


def _check_fit(values: Mapping[str, set[str]], stated: pa.Schema, where: str) -> None:
    """Raise ``FormatError`` for a folder whose value the type of its column cannot hold."""
    for name in values.keys() & set(stated.names):
        kind = stated.field(name).type
        for value in sorted(values[name] - {NULL_FOLDER}):
            if not _fits(value, kind):
                raise FormatError(
                    f"{where}: folder {name}={value} contradicts the schema, in which column "
                    f"{name!r} is {kind}: rename the folder, or give partitioning=None to read "
                    "the files' own column"
                )


def _fits(value: str, kind: pa.DataType) -> bool:
    """True if pyarrow reads the value of a folder as ``kind``, or reads no folders as ``kind``."""
    try:
        pads.HivePartitioning(pa.schema([("key", kind)])).parse(f"/key={quote(value, safe='')}/")
    except pa.ArrowNotImplementedError:
        return True
    except pa.ArrowInvalid:
        return bool(pa.types.is_dictionary(kind))
    return True


def _types(found: Mapping[str, set[str]], rule: Rule) -> pa.Schema:
    return pa.schema(
        [(key, _inferred(values - {NULL_FOLDER}, rule)) for key, values in found.items()]
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


def _inferred(values: set[str], rule: Rule) -> pa.DataType:
    """The first type of ``rule`` that holds all values, else text."""
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
    if partitioning in ("hive", "pyarrow"):
        types = hive_types(files, base, partitioning) if schema is None else schema
        return pads.HivePartitioning(types)
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
    return pa.schema([(name, _inferred(found, "pyarrow")) for name, found in values.items()])


def _folders(file: str, base: str | None) -> list[str]:
    """The names of the folders between ``base`` and ``file``."""
    return file.removeprefix(base or "").strip("/").split("/")[:-1]
