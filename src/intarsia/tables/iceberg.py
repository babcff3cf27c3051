"""``iceberg``: opens an Iceberg table as a data set.

pyiceberg reads the metadata and the manifests. Columns are identified by field ids, as the
specification demands. Features that cannot be read right are refused by name.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.fs as pafs

from intarsia.dataset.dataset import Dataset
from intarsia.errors import FormatError, PathError, UnsupportedError, Where, optional, public
from intarsia.file.file_view import ColumnMapping, FileView, MappedField, TableSnapshot
from intarsia.file.read_options import Reader, check_reader
from intarsia.file.table_statistics import TableStatistics, bounds_of_files, comparable_order
from intarsia.io.storage import FileSource, PathLike
from intarsia.parquet.statistics import UNKNOWN, Bounds
from intarsia.parquet.value_order import Domain, ValueOrder
from intarsia.pruning.partition_pruning import Constants
from intarsia.row_ranges import RowRanges
from intarsia.scan.parquet_file import ParquetFile
from intarsia.tables.data_files import DELETE_COLUMNS
from intarsia.threads import run_io_tasks

if TYPE_CHECKING:
    from pyiceberg.io.pyarrow import PyArrowFileIO
    from pyiceberg.manifest import DataFile
    from pyiceberg.partitioning import PartitionSpec
    from pyiceberg.schema import Schema
    from pyiceberg.table import FileScanTask, Table
    from pyiceberg.table.name_mapping import MappedField as NamedField
    from pyiceberg.types import IcebergType, NestedField

_NEEDED = "reading Iceberg tables needs pyiceberg: install intarsia[iceberg]"
_VECTOR_MAGIC = bytes.fromhex("d1d33964")
"""The first bytes of a deletion vector after its length."""


@public
def iceberg(
    table: Table | str | os.PathLike[str],
    snapshot_id: int | None = None,
    ref: str | None = None,
    *,
    sidecar: PathLike | None = None,
    page_checksum_verification: bool = False,
    reader: Reader = "auto",
) -> Dataset:
    """Opens an Iceberg table as a data set of one snapshot.

    Columns are identified by field ids, so renamed, reordered and added columns have the table's
    names, types and values. Deleted rows are left out. Filters use the indexes of the data files.

    Parameters
    ----------
    table : pyiceberg.table.Table or path
        The table, or the path or location of one of its ``metadata.json`` files.
    snapshot_id : int, optional
        The snapshot to read, with the schema it had. By default the current one.
    ref : str, optional
        The branch or tag to read, instead of a snapshot.
    sidecar : path, optional
        The folder into which ``add_indexes`` put sidecars. By default they are beside the files.
    page_checksum_verification, reader
        As for ``intarsia.dataset``.

    Returns
    -------
    Dataset
        The rows of the table at that snapshot. Later commits do not change it.

    Raises
    ------
    MissingDependencyError
        If pyiceberg is not installed.
    PathError
        If there is no such metadata file, snapshot, branch or tag.
    UnsupportedError
        If the snapshot has something that is not read: equality deletes, encrypted files, files
        that are not Parquet, or default values of fields in structs.

    Examples
    --------
    >>> events = ia.iceberg(catalog.load_table("lake.events"))  # doctest: +SKIP
    >>> events.count_rows("key = 'k1'")  # doctest: +SKIP
    3
    """
    check_reader(reader)
    if snapshot_id is not None and ref is not None:
        raise ValueError("give snapshot_id or ref, not both")
    with optional(_NEEDED, "pyiceberg"):
        from pyiceberg.io.pyarrow import schema_to_pyarrow
    opened = _opened(table) if isinstance(table, str | os.PathLike) else table
    scan = opened.scan(snapshot_id=_snapshot_id(opened, snapshot_id, ref))
    version = scan.snapshot()
    name = f"{_name(opened)}, snapshot {version.snapshot_id if version else 'none'}"
    columns = scan.projection()
    try:
        schema = schema_to_pyarrow(columns, include_field_ids=False)
        tasks = list(scan.plan_files())
    except (NotImplementedError, TypeError, ValueError) as error:
        raise UnsupportedError(f"{name}: {error}") from error
    filesystem, snapshot = _Planner(opened, columns, schema, name).planned(tasks)
    return Dataset.of_table(
        snapshot,
        schema,
        filesystem,
        sidecar=sidecar,
        page_checksum_verification=page_checksum_verification,
        reader=reader,
    )


def _opened(metadata: str | os.PathLike[str]) -> Table:
    """Returns the table of a metadata file."""
    from pyiceberg.exceptions import ValidationError
    from pyiceberg.table import StaticTable

    location = os.fspath(metadata)
    try:
        return StaticTable.from_metadata(location)
    except FileNotFoundError as error:
        hint = "" if location.endswith(".metadata.json") else ": give the path of a metadata.json"
        raise PathError(f"{location}: no metadata of an Iceberg table is there{hint}") from error
    except ValidationError as error:
        raise UnsupportedError(f"{location}: pyiceberg cannot read it: {error}") from error


def _snapshot_id(table: Table, snapshot_id: int | None, ref: str | None) -> int | None:
    """Returns the snapshot that is meant, or None for the current one and its newer schema."""
    if ref is not None:
        known = table.refs()
        if ref not in known:
            names = ", ".join(sorted(known)) or "none"
            raise PathError(f"{_name(table)} has no branch or tag {ref!r}; it has {names}")
        return known[ref].snapshot_id
    if snapshot_id is not None and table.snapshot_by_id(snapshot_id) is None:
        raise PathError(f"{_name(table)} has no snapshot {snapshot_id}: it may have expired")
    return snapshot_id


def _name(table: Table) -> str:
    from pyiceberg.table import StaticTable

    is_static = isinstance(table, StaticTable)
    return f"Iceberg table {table.metadata_location if is_static else '.'.join(table.name())}"


class _Planner:
    """Makes the views of the files of one table."""

    def __init__(self, table: Table, columns: Schema, schema: pa.Schema, name: str) -> None:
        self._table, self._columns, self._schema, self._name = table, columns, schema, name
        self._io = _pyarrow_io(table)
        self._root = self._io.parse_location(table.location())[2].rstrip("/")
        self._defaults: Constants = dict(self._initial_defaults())
        self._stored_names = dict(_stored_names(table.name_mapping() or ()))
        self._mappings: dict[frozenset[str], ColumnMapping] = {}
        self._keys = {number: self._identity_keys(spec) for number, spec in table.specs().items()}

    def planned(self, tasks: Sequence[FileScanTask]) -> tuple[pafs.FileSystem, TableSnapshot]:
        """Returns where the files of scan tasks are, and how each is read."""
        self._check([file for task in tasks for file in (task.file, *task.delete_files)])
        locations = [task.file.file_path for task in tasks]
        filesystem, paths = self._resolve(locations)
        deleted = self._deleted_rows(tasks, filesystem)
        views = {
            path: self._view(task.file, deleted.get(task.file.file_path))
            for path, task in zip(paths, tasks, strict=True)
        }
        if len(views) < len(tasks):
            raise UnsupportedError(f"{self._name}: a file is in the snapshot more than once")
        bounds = partial(_bounds, [task.file for task in tasks], _field_ids(self._columns.fields))
        statistics = TableStatistics(paths, self._schema, bounds)
        return filesystem, TableSnapshot(self._name, views, self._root, statistics)

    def _check(self, files: Iterable[DataFile]) -> None:
        """Raises ``UnsupportedError`` for encrypted files, and for those of other formats."""
        for file in files:
            if file.key_metadata is not None:
                raise UnsupportedError(f"{self._name}: {file.file_path} is encrypted")
            if file.file_format not in ("PARQUET", "PUFFIN"):
                kind = file.file_format.value
                raise UnsupportedError(f"{self._name}: {file.file_path} is a file of {kind}")

    def _resolve(self, locations: Sequence[str]) -> tuple[pafs.FileSystem, list[str]]:
        """Returns the file system of all locations, and the paths there."""
        parts = [location.rpartition("/") for location in locations or [self._table.location()]]
        places = {folder: self._io.parse_location(folder) for folder, _, _ in parts}
        systems = {
            (scheme, host if scheme == "hdfs" else "") for scheme, host, _ in places.values()
        }
        if len(systems) > 1:
            names = ", ".join(sorted(scheme for scheme, _ in systems))
            raise UnsupportedError(f"{self._name}: its files lie on several file systems: {names}")
        scheme, host, _ = next(iter(places.values()))
        is_local = scheme == "file"
        filesystem = pafs.LocalFileSystem() if is_local else self._io.fs_by_scheme(scheme, host)
        return filesystem, [f"{places[folder][2]}/{name}" for folder, _, name in parts if locations]

    # --- columns ---------------------------------------------------------------------------------

    def _view(self, file: DataFile, deleted_rows: RowRanges | None) -> FileView:
        constants, defaults = self._partition_values(file)
        return FileView(
            self._mapping(frozenset(constants)),
            constants,
            deleted_rows,
            {**self._defaults, **defaults},
            self._root,
        )

    def _mapping(self, constants: frozenset[str]) -> ColumnMapping:
        """Returns the mapping of all columns but ``constants``. Files share it."""
        if constants not in self._mappings:
            fields = [field for field in self._columns.fields if field.name not in constants]
            self._mappings[constants] = ColumnMapping(self._mapped(fields), True, constants)
        return self._mappings[constants]

    def _mapped(self, fields: Iterable[NestedField]) -> tuple[MappedField, ...]:
        return tuple(
            MappedField(
                field.name,
                self._stored_names.get(field.field_id, ()),
                field.field_id,
                self._mapped(_children(field.field_type)),
            )
            for field in fields
        )

    def _identity_keys(self, spec: PartitionSpec) -> list[tuple[int, str, pa.DataType]]:
        """Returns the columns that are partition keys as they are: position, name and type."""
        from pyiceberg.transforms import IdentityTransform

        names = {field.field_id: field.name for field in self._columns.fields}
        return [
            (position, names[key.source_id], self._schema.field(names[key.source_id]).type)
            for position, key in enumerate(spec.fields)
            if isinstance(key.transform, IdentityTransform) and key.source_id in names
        ]

    def _partition_values(self, file: DataFile) -> tuple[Constants, Constants]:
        """Returns the columns that have one value in a file, and the values of those it may lack.

        Zeros and NaN have several forms, so that floats of a file count before its partition value.
        """
        constants: dict[str, pa.Scalar] = {}
        defaults: dict[str, pa.Scalar] = {}
        for position, name, kind in self._keys[file.spec_id]:
            value = file.partition[position]
            if value is not None:
                values = defaults if pa.types.is_floating(kind) else constants
                values[name] = pa.scalar(value, kind)
        return constants, defaults

    def _initial_defaults(self) -> Iterator[tuple[str, pa.Scalar]]:
        """Yields the values of columns that were added with one. Refuses values of inner fields."""
        for field in self._columns.fields:
            if field.initial_default is not None:
                yield (
                    field.name,
                    pa.scalar(field.initial_default, self._schema.field(field.name).type),
                )
            for inner in _descendants(field.field_type):
                if inner.initial_default is not None:
                    raise UnsupportedError(
                        f"{self._name}: {field.name}: its field {inner.name} has an initial default"
                    )

    # --- deleted rows ----------------------------------------------------------------------------

    def _deleted_rows(
        self, tasks: Sequence[FileScanTask], filesystem: pafs.FileSystem
    ) -> Mapping[str, RowRanges]:
        """Returns the deleted rows of each data file that has some, by its location."""
        files = list(dict.fromkeys(file for task in tasks for file in task.delete_files))
        _, paths = self._resolve([file.file_path for file in files])
        readers = [
            partial(_vectors if file.file_format == "PUFFIN" else _positions, path, filesystem)
            for file, path in zip(files, paths, strict=True)
        ]
        rows_of = dict(zip(files, run_io_tasks(readers), strict=True))
        deleted = {}
        for task in tasks:
            location = task.file.file_path
            parts = (rows_of[file].get(location) for file in task.delete_files)
            rows = [part for part in parts if part is not None]
            if rows:
                deleted[location] = RowRanges.from_rows(np.concatenate(rows))
        return deleted


def _pyarrow_io(table: Table) -> PyArrowFileIO:
    from pyiceberg.io.pyarrow import PyArrowFileIO

    io = table.io
    return io if isinstance(io, PyArrowFileIO) else PyArrowFileIO(io.properties)


def _positions(path: str, filesystem: pafs.FileSystem) -> dict[str, np.ndarray]:
    """Returns the rows that a file of position deletes names, by the location of the data file."""
    with ParquetFile(path, filesystem=filesystem) as file:
        table = file.read(columns=DELETE_COLUMNS)
    locations = table["file_path"].combine_chunks().dictionary_encode()
    rows, codes = table["pos"].to_numpy(), locations.indices.to_numpy()
    order = np.argsort(codes, kind="stable")
    edges = np.searchsorted(codes[order], np.arange(len(locations.dictionary) + 1))
    return {
        location: rows[order[edges[code] : edges[code + 1]]]
        for code, location in enumerate(locations.dictionary.to_pylist())
    }


def _vectors(path: str, filesystem: pafs.FileSystem) -> dict[str, np.ndarray]:
    """Returns the rows in the deletion vectors of a Puffin file, by the location of their file.

    pyiceberg's own decoder takes a second for 100,000 rows, and checks no checksum.
    """
    from pyiceberg.table.deletion_vector import PROPERTY_REFERENCED_DATA_FILE
    from pyiceberg.table.puffin import PuffinFile

    source = FileSource(filesystem, path)
    (content,) = source.read([(0, source.size)])
    rows_of = {}
    try:
        puffin = PuffinFile(bytes(content))
        for blob in puffin.footer.blobs:
            if blob.type == "deletion-vector-v1":
                rows = _rows_of_vector(puffin.get_blob_payload(blob))
                rows_of[blob.properties[PROPERTY_REFERENCED_DATA_FILE]] = rows
    except (KeyError, ValueError) as error:
        raise FormatError(f"a deletion vector is damaged: {error}", Where(path)) from error
    return rows_of


def _rows_of_vector(blob: bytes) -> np.ndarray:
    """Returns the rows in a blob: its length, a magic number, bitmaps by their high bits, a CRC-32.

    Raises ``ValueError`` if the blob is damaged.
    """
    from pyroaring import BitMap

    length = int.from_bytes(blob[:4], "big")
    vector, checksum = blob[4 : 4 + length], blob[4 + length :]
    if vector[:4] != _VECTOR_MAGIC or zlib.crc32(vector) != int.from_bytes(checksum, "big"):
        raise ValueError("its checksum or its magic number is wrong")
    count, position, parts = int.from_bytes(vector[4:12], "little"), 12, []
    for _ in range(count):
        high_bits = int.from_bytes(vector[position : position + 4], "little")
        bitmap = BitMap.deserialize(vector[position + 4 :])
        position += 4 + len(bitmap.serialize())
        parts.append(np.array(bitmap.to_array(), np.int64) + (high_bits << 32))
    return np.concatenate([np.zeros(0, np.int64), *parts])


# --- statistics ---------------------------------------------------------------------------------


def _bounds(
    files: Sequence[DataFile],
    field_ids: Mapping[tuple[str, ...], int],
    path: tuple[str, ...],
    kind: pa.DataType,
) -> Bounds | None:
    """Returns the bounds of a column in each of the files, if the manifests have some."""
    order, field_id = comparable_order(kind), field_ids.get(path)
    if order is None or field_id is None:
        return None
    low, is_low = order.keys(
        _plain(order, [(file.lower_bounds or {}).get(field_id) for file in files])
    )
    high, is_high = order.keys(
        _plain(order, [(file.upper_bounds or {}).get(field_id) for file in files])
    )
    nulls, nans = (
        np.array([(counts or {}).get(field_id, UNKNOWN) for counts in by_file], np.int64)
        for by_file in (
            [file.null_value_counts for file in files],
            [file.nan_value_counts for file in files],
        )
    )
    num_rows = np.array([file.record_count for file in files], np.int64)
    return bounds_of_files(order, low, high, is_low & is_high, nulls, nans, num_rows)


def _plain(order: ValueOrder, values: Sequence[bytes | None]) -> list[bytes | None]:
    """Returns bounds as Parquet encodes them. Iceberg has decimals of the fewest bytes."""
    if order.domain is not Domain.DECIMAL:
        return [*values]
    most = order.width or 0
    return [
        None
        if value is None or len(value) > most
        else order.plain(int.from_bytes(value, "big", signed=True))
        for value in values
    ]


def _field_ids(fields: Iterable[NestedField]) -> dict[tuple[str, ...], int]:
    """Returns the ids of columns and of fields of structs, by path."""
    from pyiceberg.types import StructType

    ids: dict[tuple[str, ...], int] = {}
    for field in fields:
        ids[(field.name,)] = field.field_id
        if isinstance(field.field_type, StructType):
            inner = _field_ids(field.field_type.fields)
            ids |= {(field.name, *path): number for path, number in inner.items()}
    return ids


# --- pyiceberg's types ---------------------------------------------------------------------------


def _children(kind: IcebergType) -> Sequence[NestedField]:
    """Returns the fields of a struct, the element of a list, or the key and the value of a map."""
    from pyiceberg.types import ListType, MapType, StructType

    if isinstance(kind, StructType):
        return kind.fields
    if isinstance(kind, ListType):
        return [kind.element_field]
    return [kind.key_field, kind.value_field] if isinstance(kind, MapType) else []


def _descendants(kind: IcebergType) -> Iterator[NestedField]:
    for field in _children(kind):
        yield field
        yield from _descendants(field.field_type)


def _stored_names(fields: Iterable[NamedField]) -> Iterator[tuple[int, tuple[str, ...]]]:
    """Yields the names that files without field ids may have for each field id."""
    for field in fields:
        if field.field_id is not None:
            yield field.field_id, tuple(field.names)
        yield from _stored_names(field.fields)
