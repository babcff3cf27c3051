"""``delta``: a Delta Lake table at one version as a data set. deltalake reads the log."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pafs

from intarsia.dataset.dataset import Dataset
from intarsia.errors import PathError, UnsupportedError, optional, public
from intarsia.expr.nested_types import with_children
from intarsia.file.file_view import ColumnMapping, FileView, MappedField, TableSnapshot
from intarsia.file.read_options import Reader, check_reader
from intarsia.file.table_statistics import TableStatistics, bounds_of_files, comparable_order
from intarsia.io.storage import PathLike, is_uri, resolve
from intarsia.parquet.statistics import UNKNOWN, BoolArray, Bounds
from intarsia.parquet.value_order import Domain, Keys, ValueOrder
from intarsia.row_ranges import Int64Array, RowRanges

if TYPE_CHECKING:
    from deltalake import DeltaTable

_MAX_READER_VERSION = 3
READER_FEATURES = frozenset(
    {
        "columnMapping",
        "deletionVectors",
        "timestampNtz",
        "typeWidening",
        "typeWidening-preview",
        "v2Checkpoint",
        "vacuumProtocolCheck",
    }
)
"""The features of the protocol that say how rows are read, and that are supported here."""
_VARIANT = re.compile(r'"(type|elementType|valueType)":\s*"variant"')
"""A column of type variant in a schema. Writers name its feature in tables without one as well."""
_COLORS = re.compile(r"\x1b\[[0-9;]*m")
"""The escape sequences by which deltalake colors its messages, which have several lines."""
_DELETION_VECTORS, _COLUMN_MAPPING = "deletionVectors", "columnMapping"
_FIRST_MAPPING_VERSION = 2
"""The protocol's version for readers that maps columns. Later versions name the feature."""
_MAPPING_MODE = "delta.columnMapping.mode"
_PHYSICAL_NAME, _FIELD_ID = b"delta.columnMapping.physicalName", b"delta.columnMapping.id"
_PARTITION_PREFIX = "partition."
_MAX_EXACT_DIGITS = 15
"""Bounds of decimals with more digits are rounded: the log has them as numbers of JSON."""
_ROUNDING = 2.0**-20
"""Relative rounding of floats in a log, at most: writers print 32 bits or 64."""
_PER_SECOND = 1000
"""Bounds of timestamps in a log are cut off to milliseconds."""
_MAX_TICKS = 2**62
"""Later timestamps have no bounds, which could overflow."""


@public
def delta(
    table: PathLike | DeltaTable,
    *,
    version: int | str | datetime | None = None,
    storage_options: Mapping[str, str] | None = None,
    filesystem: Any = None,
    sidecar: PathLike | None = None,
    page_checksum_verification: bool = False,
    reader: Reader = "auto",
) -> Dataset:
    """Opens a Delta Lake table at one version as a data set.

    The log decides which files and rows count, and which names columns have. Later writes to the
    table do not change the data set. deltalake reads the log: install the extra
    ``intarsia[delta]``.

    Parameters
    ----------
    table : path, URI or deltalake.DeltaTable
        The folder of the table. A ``DeltaTable`` is read at its own version.
    version : int, str or datetime, optional
        A version, or the time of one: a ``datetime``, or a string such as
        ``"2024-05-01T00:00:00Z"``, in UTC unless it has a zone. By default the last version.
    storage_options : mapping from str to str, optional
        Options of deltalake for object stores, by default those of a ``DeltaTable``. The files are
        then read through deltalake as well, unless ``filesystem`` is given.
    filesystem : pyarrow.fs.FileSystem or fsspec.AbstractFileSystem, optional
        Where the files are. By default local disks, or what the URI of the table says.
    sidecar : path, optional
        The folder into which ``add_indexes`` put sidecars. By default they are beside the files.
    page_checksum_verification, reader
        As for ``intarsia.dataset``.

    Returns
    -------
    Dataset
        The rows of the table, with the table's schema.

    Raises
    ------
    PathError
        If there is no table, or no such version. Reading raises it for a file that was removed
        since, as by a vacuum.
    UnsupportedError
        If the table needs a feature of the protocol that is not supported. The error has its name.
    MissingDependencyError
        Without deltalake.

    Examples
    --------
    >>> events = ia.delta("events")  # doctest: +SKIP
    >>> events.count_rows("status = 500")  # doctest: +SKIP
    100
    """
    check_reader(reader)
    if storage_options is None:  # a DeltaTable shows its options nowhere else
        storage_options = getattr(table, "_storage_options", None)
    opened = _opened(table, version, storage_options)
    _check_features(opened)
    storage, root = _place(opened, storage_options, filesystem)
    schema = pa.schema(opened.schema().to_arrow())
    columns = _mapping(opened, schema)
    added = pa.table(opened.get_add_actions(flatten=True))
    paths = [_path(root, path) for path in added["path"].to_pylist()]
    deleted = _deleted_rows(opened, root)
    if unknown := deleted.keys() - set(paths):
        raise UnsupportedError(
            f"{min(unknown)}: a deletion vector of a file that is not in the log"
        )
    views = {
        path: FileView(columns, constants, deleted.get(path), root=root)
        for path, constants in zip(paths, _constants(added), strict=True)
    }
    own_schema, is_mapped = pa.schema(map(_without_metadata, schema)), columns is not None
    bounds = partial(_bounds, added, schema if is_mapped else own_schema)
    name = f"Delta table {root or opened.table_uri}, version {opened.version()}"
    return Dataset.of_table(
        TableSnapshot(name, views, root, TableStatistics(paths, own_schema, bounds)),
        own_schema,
        storage,
        sidecar=sidecar,
        page_checksum_verification=page_checksum_verification,
        reader=reader,
    )


def _opened(
    table: PathLike | DeltaTable,
    version: int | str | datetime | None,
    storage_options: Mapping[str, str] | None,
) -> DeltaTable:
    """Returns the table at a version. Raises ``PathError`` if there is none."""
    with optional("deltalake is not installed: install the extra, intarsia[delta]", "deltalake"):
        from deltalake import DeltaTable
        from deltalake.exceptions import DeltaError
    if isinstance(table, DeltaTable) and version is None:
        return table
    uri = table.table_uri if isinstance(table, DeltaTable) else os.fspath(table)
    options = None if storage_options is None else dict(storage_options)
    number_or_time = _parsed_version(version) if isinstance(version, str) else version
    try:
        if number_or_time is None or isinstance(number_or_time, int):
            return DeltaTable(uri, version=number_or_time, storage_options=options)
        opened = DeltaTable(uri, storage_options=options)
        opened.load_as_version(number_or_time)
        return opened
    except (DeltaError, OSError, OverflowError, ValueError) as error:
        at = "" if version is None else f" at version {version}"
        reason = " ".join(_COLORS.sub("", str(error)).split())
        raise PathError(f"{uri}: no Delta table{at} can be opened: {reason}") from error


def _parsed_version(text: str) -> int | datetime:
    """Returns a number, or a time, which is in UTC by default. Raises ``ValueError`` for others."""
    if text.isdecimal():
        return int(text)
    try:
        time = datetime.fromisoformat(text)
    except ValueError as error:
        known = "a number or a time such as 2024-05-01T00:00:00Z"
        raise ValueError(f"version is {known}, not {text!r}") from error
    return time if time.tzinfo else time.replace(tzinfo=UTC)


def _check_features(table: DeltaTable) -> None:
    """Raises ``UnsupportedError`` for features of the protocol that are not supported."""
    protocol = table.protocol()
    if protocol.min_reader_version > _MAX_READER_VERSION:
        needed = f"version {protocol.min_reader_version} of the protocol for readers"
        raise UnsupportedError(f"{table.table_uri}: the Delta table needs {needed}")
    unknown = sorted(set(protocol.reader_features or ()) - READER_FEATURES)
    if not _VARIANT.search(table.schema().to_json()):
        unknown = [name for name in unknown if not name.startswith("variant")]
    if unknown:
        raise UnsupportedError(
            f"{table.table_uri}: the Delta table needs features that are not supported: "
            f"{', '.join(unknown)}"
        )


# --- files --------------------------------------------------------------------------------------


def _place(
    table: DeltaTable, storage_options: Mapping[str, str] | None, filesystem: Any
) -> tuple[pafs.FileSystem, str]:
    """Returns the file system of a table's files, and the table's folder there."""
    uri = table.table_uri
    if filesystem is not None:
        inner = uri.partition("://")[2] or uri
        storage, root = resolve(unquote(inner), filesystem)
    elif storage_options is not None and not uri.startswith("file://"):
        from deltalake.fs import DeltaStorageHandler

        handler = DeltaStorageHandler(uri, dict(storage_options))
        storage, root = pafs.PyFileSystem(handler), ""
    else:
        storage, root = resolve(uri)
    return storage, root.rstrip("/")


def _path(root: str, logged: str) -> str:
    """Returns the path of a file. The log has it relative to the table, and percent-encoded."""
    if is_uri(logged):
        return resolve(logged)[1]
    path = unquote(logged)
    return path if path.startswith("/") or not root else f"{root}/{path}"


def _deleted_rows(table: DeltaTable, root: str) -> dict[str, RowRanges]:
    """Returns the rows that deletion vectors delete, by file."""
    if _DELETION_VECTORS not in (table.protocol().reader_features or ()):
        return {}
    vectors = pa.table(table.deletion_vectors())
    base = f"{table.table_uri.rstrip('/')}/"
    paths = [_path(root, uri.removeprefix(base)) for uri in vectors["filepath"].to_pylist()]
    # A mask of the rows that count. Rows after its end count as well.
    masks = (np.asarray(mask.values) for mask in vectors["selection_vector"])
    return {path: RowRanges.from_mask(~mask) for path, mask in zip(paths, masks, strict=True)}


def _constants(added: pa.Table) -> Iterator[dict[str, pa.Scalar]]:
    """Yields the partition values of each file."""
    names = [name for name in added.column_names if name.startswith(_PARTITION_PREFIX)]
    columns = [added[name] for name in names]
    keys = [name.removeprefix(_PARTITION_PREFIX) for name in names]
    for values in zip(*columns, strict=True) if columns else ((),) * added.num_rows:
        yield dict(zip(keys, values, strict=True))


# --- statistics ---------------------------------------------------------------------------------


def _bounds(
    added: pa.Table, schema: pa.Schema, path: tuple[str, ...], kind: pa.DataType
) -> Bounds | None:
    """Returns the bounds of a column in each file of ``added``, if the log has some.

    ``schema`` has the names of columns in files as metadata, if these differ.
    """
    order, name = comparable_order(kind), _stored_path(schema, path)
    if order is None or name is None:
        return None
    low, is_low = _keys(added, f"min.{name}", kind, order)
    high, is_high = _keys(added, f"max.{name}", kind, order)
    usable = is_low & is_high
    if order.domain is Domain.FLOAT:
        with np.errstate(over="ignore"):
            low, high = low - abs(low) * _ROUNDING, high + abs(high) * _ROUNDING
    if order.domain is Domain.TIMESTAMP:
        usable &= (abs(low) < _MAX_TICKS) & (abs(high) < _MAX_TICKS)
        cut = max(order.per_second // _PER_SECOND, 1)
        low, high = low - cut, high + cut
    counts = _counts(added, f"null_count.{name}"), np.full(added.num_rows, UNKNOWN)
    return bounds_of_files(order, low, high, usable, *counts, _counts(added, "num_records"))


def _stored_path(schema: pa.Schema, path: tuple[str, ...]) -> str | None:
    """Returns the path of a column in the log. None if it might be that of another column."""
    fields, names = list(schema), []
    for name in path:
        if any("." in _stored_name(field) for field in fields):
            return None
        (field,) = (field for field in fields if field.name == name)
        names.append(_stored_name(field))
        fields = list(field.type) if pa.types.is_struct(field.type) else []
    return ".".join(names)


def _keys(
    added: pa.Table, name: str, kind: pa.DataType, order: ValueOrder
) -> tuple[Keys, BoolArray]:
    """Returns a column of bounds as keys of ``order``, and which of them are usable."""
    is_rounded = pa.types.is_decimal(kind) and kind.precision > _MAX_EXACT_DIGITS
    if is_rounded or added.column_names.count(name) != 1 or added[name].type != kind:
        is_bytes = order.key == np.dtype(object) and order.domain is Domain.BYTES
        return np.full(added.num_rows, b"" if is_bytes else 0, order.key), np.zeros(
            added.num_rows, np.bool_
        )
    return order.keys_of_arrow(added[name].combine_chunks())


def _counts(added: pa.Table, name: str) -> Int64Array:
    if added.column_names.count(name) != 1:
        return np.full(added.num_rows, UNKNOWN)
    counts: Int64Array = pc.fill_null(added[name].cast(pa.int64()), UNKNOWN).to_numpy()
    return counts


# --- columns ------------------------------------------------------------------------------------


def _mapping(table: DeltaTable, schema: pa.Schema) -> ColumnMapping | None:
    """Returns the names of columns in files. None if they are those of the table."""
    metadata, protocol = table.metadata(), table.protocol()
    mode = metadata.configuration.get(_MAPPING_MODE, "none")
    is_in_effect = protocol.min_reader_version == _FIRST_MAPPING_VERSION or _COLUMN_MAPPING in (
        protocol.reader_features or ()
    )
    if mode == "none" or not is_in_effect:
        return None
    if mode not in ("name", "id"):
        raise UnsupportedError(f"{table.table_uri}: column mapping by {mode!r} is not supported")
    partitions = frozenset(metadata.partition_columns)
    fields = _mapped_fields(field for field in schema if field.name not in partitions)
    return ColumnMapping(fields, by_id=mode == "id", other_names=partitions)


def _mapped_fields(fields: Iterable[pa.Field]) -> tuple[MappedField, ...]:
    """Returns the columns of a table, or the fields of a struct, and how files store them."""
    mapped = []
    for field in fields:
        number = (field.metadata or {}).get(_FIELD_ID)
        id_ = None if number is None else int(number)
        stored_names = (_stored_name(field),)
        mapped.append(MappedField(field.name, stored_names, id_, _mapped_within(field.type)))
    return tuple(mapped)


def _stored_name(field: pa.Field) -> str:
    name: bytes = (field.metadata or {}).get(_PHYSICAL_NAME, field.name.encode())
    return name.decode()


def _mapped_within(kind: pa.DataType) -> tuple[MappedField, ...]:
    """Returns what ``MappedField.fields`` has for a column of a type."""
    if pa.types.is_struct(kind):
        return _mapped_fields(kind)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return (MappedField("", fields=_mapped_within(kind.value_type)),)
    if pa.types.is_map(kind):
        types = kind.key_type, kind.item_type
        return tuple(MappedField("", fields=_mapped_within(one)) for one in types)
    return ()


def _without_metadata(field: pa.Field) -> pa.Field:
    """Returns a field without metadata at any level, which has names and ids in files."""
    return field.remove_metadata().with_type(with_children(field.type, _without_metadata))
