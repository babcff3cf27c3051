"""Iceberg tables of every shape, made by pyiceberg, and delete files, which it cannot write.

Each function of ``SHAPES`` gets a catalog and returns a table whose rows pyiceberg can read.
"""

from __future__ import annotations

import datetime as dt
import decimal
import json
import struct
import uuid
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.avro.file import AvroOutputFile
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.conversions import to_bytes
from pyiceberg.io.pyarrow import PyArrowFileIO, write_file
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestWriterV2,
    write_manifest_list,
)
from pyiceberg.partitioning import PartitionFieldValue, PartitionKey
from pyiceberg.table import StaticTable, Table, WriteTask
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    IdentityTransform,
    MonthTransform,
    TruncateTransform,
    VoidTransform,
)
from pyiceberg.types import (
    DateType,
    DecimalType,
    DoubleType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
    StructType,
)
from pyroaring import BitMap

ROWS = 40
ROW_GROUP = {"write.parquet.row-group-limit": "16"}


def data(start: int = 0, count: int = ROWS) -> pa.Table:
    """Returns rows numbered from ``start``, with a column of each kind that tests filter by."""
    ids = range(start, start + count)
    return pa.table(
        {
            "id": pa.array(ids, pa.int32()),
            "k": [f"k{i * 7 % 100:02}" for i in ids],
            "day": [f"d{i % 3}" if i % 11 else None for i in ids],
            "at": [dt.datetime(2024, 1, 1 + i % 4, i % 24) for i in ids],
            "x": pa.array([i / 8 if i % 5 else None for i in ids], pa.float32()),
            "price": pa.array([decimal.Decimal(i) / 4 for i in ids], pa.decimal128(9, 2)),
            "tags": pa.array([[i, i + 1] if i % 4 else [] for i in ids], pa.list_(pa.int32())),
            "s": [{"a": i, "b": {"c": f"c{i % 6}", "d": i / 2}} for i in ids],
            "m": pa.array([[("p", i), ("q", None)] for i in ids], pa.map_(pa.string(), pa.int32())),
            "ls": [[{"u": i, "v": f"v{i}"}] for i in ids],
        }
    )


# --- catalogs, versions and metadata ------------------------------------------------------------


class _Catalog(SqlCatalog):
    version = 2
    """The format version of tables whose properties name none."""

    def create_table(self, *args, properties=None, **options):
        properties = {"format-version": str(self.version), **(properties or {})}
        return super().create_table(*args, properties=properties, **options)


def catalog_in(folder: Path, version: int = 2) -> SqlCatalog:
    """Returns a new catalog whose tables lie in ``folder``, with the name space ``n``.

    ``version`` is the format version of its tables.
    """
    made = _Catalog("c", uri=f"sqlite:///{folder}/c.db", warehouse=f"file://{folder}")
    made.version = version
    made.create_namespace("n")
    return made


def table_of(catalog: SqlCatalog, rows: pa.Table, version: int | None = None) -> Table:
    """Returns a new table with these rows, in row groups of 16."""
    properties = ROW_GROUP | ({} if version is None else {"format-version": str(version)})
    table = catalog.create_table("n.t", schema=rows.schema, properties=properties)
    table.append(rows)
    return table


def metadata_of(table: Table) -> dict:
    """Returns the metadata of a table as the JSON document that its file holds."""
    return json.loads(Path(local(table.metadata_location)).read_text())


def write_metadata(table: Table, document: dict) -> str:
    """Writes a metadata document beside the last one of a table. Returns its location."""
    folder = Path(local(table.metadata_location)).parent
    path = folder / f"{uuid.uuid4()}.metadata.json"
    path.write_text(json.dumps(document))
    return f"file://{path}"


def with_metadata(table: Table, document: dict) -> StaticTable:
    """Returns the table of a metadata document, which becomes a file beside the last one."""
    return StaticTable.from_metadata(write_metadata(table, document))


def as_version_3(table: Table) -> StaticTable:
    """Returns the table as one of format version 3, which pyiceberg reads and does not write."""
    return with_metadata(table, metadata_of(table) | {"format-version": 3, "next-row-id": 1000})


def local(location: str) -> str:
    """Returns the path of a location on local disks."""
    return PyArrowFileIO.parse_location(location)[2]


def locations(table: Table) -> list[str]:
    """Returns the locations of the live data files."""
    return [task.file.file_path for task in table.scan().plan_files()]


# --- deletes ------------------------------------------------------------------------------------


class _DeleteManifestWriter(ManifestWriterV2):
    """Writes a manifest of version 3, with the places of deletion vectors."""

    def content(self) -> ManifestContent:
        return ManifestContent.DELETES

    @property
    def version(self) -> int:
        return 3

    @property
    def _meta(self) -> dict[str, str]:
        return {**super()._meta, "content": "deletes"}

    def new_writer(self):
        schema = self._with_partition(self.version)
        return AvroOutputFile(
            output_file=self._output_file,
            file_schema=schema,
            record_schema=schema,
            schema_name="manifest_entry",
            metadata=self._meta,
        )


def position_deletes(path: Path, rows: Mapping[str, Sequence[int]]) -> list[dict]:
    """Writes a file of position deletes: row numbers by the location of a data file.

    Returns the columns of its manifest entry that only such a file has.
    """
    pairs = [(location, row) for location in sorted(rows) for row in sorted(rows[location])]
    fields = [("file_path", pa.string(), 2147483546), ("pos", pa.int64(), 2147483545)]
    schema = pa.schema(
        [
            pa.field(name, kind, False, {"PARQUET:field_id": str(number)})
            for name, kind, number in fields
        ]
    )
    columns = [[location for location, _ in pairs], [row for _, row in pairs]]
    pq.write_table(pa.table(columns, schema=schema), path)
    lower, upper = ({2147483546: to_bytes(StringType(), end)} for end in (min(rows), max(rows)))
    return [{"record_count": len(pairs), "lower_bounds": lower, "upper_bounds": upper}]


def puffin(path: Path, rows: Mapping[str, Sequence[int]]) -> list[dict]:
    """Writes a Puffin file with one deletion vector for each data file.

    Returns the columns of its manifest entries that only deletion vectors have.
    """
    blobs, content = [], b"PFA1"
    for location, numbers in rows.items():
        parts: dict[int, BitMap] = {}
        for number in numbers:
            parts.setdefault(number >> 32, BitMap()).add(number & 0xFFFFFFFF)
        vector = struct.pack("<q", len(parts)) + b"".join(
            struct.pack("<i", key) + parts[key].serialize() for key in sorted(parts)
        )
        body = b"\xd1\xd3\x39\x64" + vector
        blob = struct.pack(">i", len(body)) + body + struct.pack(">I", zlib.crc32(body))
        properties = {"referenced-data-file": location, "cardinality": str(len(set(numbers)))}
        blobs.append(
            {
                "type": "deletion-vector-v1",
                "fields": [],
                "snapshot-id": -1,
                "sequence-number": -1,
                "offset": len(content),
                "length": len(blob),
                "properties": properties,
            }
        )
        content += blob
    footer = json.dumps({"blobs": blobs}).encode()
    tail = b"PFA1" + footer + struct.pack("<i", len(footer)) + bytes(4) + b"PFA1"
    path.write_bytes(content + tail)
    return [
        {
            "record_count": int(blob["properties"]["cardinality"]),
            "referenced_data_file": blob["properties"]["referenced-data-file"],
            "content_offset": blob["offset"],
            "content_size_in_bytes": blob["length"],
        }
        for blob in blobs
    ]


def with_deletes(
    table: Table,
    rows: Mapping[str, Sequence[int]],
    *,
    is_puffin: bool = False,
    equality_ids: Sequence[int] | None = None,
) -> StaticTable:
    """Returns the table after one more snapshot, in which these rows of its files are deleted.

    All files must have one partition spec. A delete file is written for each partition.
    """
    document = metadata_of(table)
    folder = Path(local(table.location()))
    snapshot, number = table.current_snapshot(), table.metadata.last_sequence_number + 1
    new_id, io, schema = uuid.uuid4().int >> 66, PyArrowFileIO(), table.schema()
    by_partition: dict[tuple, dict[str, Sequence[int]]] = {}
    files = {task.file.file_path: task.file for task in table.scan().plan_files()}
    for location, numbers in rows.items():
        file = files[location]
        by_partition.setdefault((file.spec_id, file.partition), {})[location] = numbers
    (spec_id,) = {spec_id for spec_id, _ in by_partition}
    manifest = io.new_output(f"file://{folder}/metadata/{uuid.uuid4()}-m0.avro")
    with _DeleteManifestWriter(
        table.specs()[spec_id], schema, manifest, new_id, "deflate"
    ) as writer:
        for (_, partition), deleted in by_partition.items():
            ending = "puffin" if is_puffin else "parquet"
            path = folder / "data" / f"{uuid.uuid4()}-deletes.{ending}"
            kind = DataFileContent.POSITION_DELETES
            if equality_ids:
                kind = DataFileContent.EQUALITY_DELETES
            for columns in (puffin if is_puffin else position_deletes)(path, deleted):
                file = DataFile.from_args(
                    _table_format_version=3,
                    content=kind,
                    file_path=f"file://{path}",
                    file_format=FileFormat.PUFFIN if is_puffin else FileFormat.PARQUET,
                    partition=partition,
                    file_size_in_bytes=path.stat().st_size,
                    equality_ids=equality_ids,
                    **columns,
                )
                entry = ManifestEntry.from_args(
                    _table_format_version=3,
                    status=ManifestEntryStatus.ADDED,
                    snapshot_id=new_id,
                    data_file=file,
                )
                writer.add_entry(entry)
    listing = f"file://{folder}/metadata/snap-{new_id}.avro"
    with write_manifest_list(
        2, io.new_output(listing), new_id, snapshot.snapshot_id, number, "deflate"
    ) as manifests:
        manifests.add_manifests([*snapshot.manifests(io), writer.to_manifest_file()])
    at = max(document["last-updated-ms"], snapshot.timestamp_ms) + 1
    document["snapshots"].append(
        {
            "snapshot-id": new_id,
            "parent-snapshot-id": snapshot.snapshot_id,
            "sequence-number": number,
            "timestamp-ms": at,
            "manifest-list": listing,
            "summary": {"operation": "delete"},
            "schema-id": schema.schema_id,
        }
    )
    document["current-snapshot-id"], document["last-sequence-number"] = new_id, number
    document["last-updated-ms"] = at
    document["refs"]["main"] = {"snapshot-id": new_id, "type": "branch"}
    document["snapshot-log"].append({"snapshot-id": new_id, "timestamp-ms": at})
    return with_metadata(table, document)


def some_rows(table: Table, every: int = 3) -> dict[str, list[int]]:
    """Returns every third row number of each file, for deletes."""
    files = (task.file for task in table.scan().plan_files())
    return {file.file_path: list(range(0, file.record_count, every)) for file in files}


# --- shapes -------------------------------------------------------------------------------------


def plain(catalog, version=None):
    table = table_of(catalog, data(), version=version)
    table.append(data(40, 20))
    return table


def version_1(catalog):
    return plain(catalog, version=1)


def version_3(catalog):
    return as_version_3(plain(catalog))


def empty(catalog):
    return catalog.create_table("n.t", schema=data().schema)


def _partitioned(catalog, *fields, rows=None):
    rows = data() if rows is None else rows
    table = catalog.create_table("n.t", schema=rows.schema, properties=ROW_GROUP)
    with table.update_spec() as spec:
        for source, transform in fields:
            spec.add_field(source, transform, f"p_{source}")
    append_by_partition(table, rows)
    return table


def append_by_partition(table: Table, rows: pa.Table) -> None:
    """Appends rows, with partition values computed here: pyiceberg needs a package for most."""
    spec, schema = table.spec(), table.schema()
    groups: dict[tuple, list[int]] = {}
    values = [_partition_values(schema, field, rows) for field in spec.fields]
    for number, key in enumerate(zip(*values, strict=True)):
        groups.setdefault(tuple(map(repr, key)), []).append(number)
    tasks = []
    for task_id, numbers in enumerate(groups.values()):
        key = [
            PartitionFieldValue(field, column[numbers[0]])
            for field, column in zip(spec.fields, values, strict=True)
        ]
        batches = rows.take(numbers).combine_chunks().to_batches()
        partition = PartitionKey(key, spec, schema)
        tasks.append(WriteTask(uuid.uuid4(), task_id, schema, batches, partition_key=partition))
    with table.transaction() as change, change.update_snapshot().fast_append() as append:
        for file in write_file(table.io, table.metadata, iter(tasks)):
            append.append_data_file(file)


def _partition_values(schema, field, rows):
    source = schema.find_field(field.source_id)
    name, *inner = schema.find_column_name(field.source_id).split(".")
    values = pc.struct_field(rows[name], inner) if inner else rows[name]
    if pa.types.is_timestamp(values.type):
        values = values.cast(pa.timestamp("us")).cast(pa.int64())
    return [field.transform.transform(source.field_type)(value) for value in values.to_pylist()]


def by_identity(catalog):
    return _partitioned(catalog, ("day", IdentityTransform()))


def by_identity_of_floats(catalog):
    rows = pa.table({"id": range(4), "x": [0.0, -0.0, float("nan"), None]})
    return _partitioned(catalog, ("x", IdentityTransform()), rows=rows)


def by_identity_of_odd_names(catalog):
    names = ["New York", "a/b", "50%", "x=y", None, "né"]
    rows = pa.table({"id": range(6), "c": names})
    return _partitioned(catalog, ("c", IdentityTransform()), rows=rows)


def by_transforms(catalog):
    return _partitioned(
        catalog, ("id", BucketTransform(3)), ("k", TruncateTransform(1)), ("at", DayTransform())
    )


def by_void(catalog):
    table = _partitioned(catalog, ("day", IdentityTransform()), ("id", VoidTransform()))
    table.append(data(40, 20))
    return table


def by_nested_field(catalog):
    return _partitioned(catalog, ("s.b.c", IdentityTransform()))


def evolved_spec(catalog):
    table = by_identity(catalog)
    with table.update_spec() as spec:
        spec.remove_field("p_day")
        spec.add_field("at", MonthTransform(), "p_at")
    append_by_partition(table, data(40, 20))
    with table.update_spec() as spec:
        spec.add_field("k", IdentityTransform(), "p_k")
    append_by_partition(table, data(60, 5))
    return table


def evolved_spec_of_version_1(catalog):
    table = table_of(catalog, data(), version=1)
    with table.update_spec() as spec:
        spec.add_field("day", IdentityTransform(), "p_day")
    table.append(data(40, 20))
    with table.update_spec() as spec:
        spec.remove_field("p_day")
    table.append(data(60, 5))
    return table


def files_without_partition_columns(catalog):
    """Former Hive tables are so: only the log has the values of the partition column."""
    table = by_identity(catalog)
    for location in locations(table):
        path = local(location)
        pq.write_table(pq.read_table(path, partitioning=None).drop(["day"]), path)
    return table


def _update(table, change, more=None):
    with table.update_schema() as update:
        change(update)
    if more is not None:
        table.append(more)
    return table


def renamed(catalog):
    table = _update(plain(catalog), lambda update: update.rename_column("k", "key"))
    table.append(data(60, 10).rename_columns({"k": "key"}))
    return table


def renamed_partition_column(catalog):
    table = _update(by_identity(catalog), lambda update: update.rename_column("day", "on"))
    table.append(data(40, 10).rename_columns({"day": "on"}))
    return table


def swapped(catalog):
    table = plain(catalog)
    for old, new in (("k", "was_k"), ("day", "k"), ("was_k", "day")):
        _update(table, lambda update, old=old, new=new: update.rename_column(old, new))
    return table


def renamed_within(catalog):
    table = plain(catalog)
    for path, name in (
        (("s", "a"), "first"),
        (("s", "b", "c"), "d2"),
        (("ls", "element", "u"), "q"),
        ("m", "mm"),
    ):
        _update(table, lambda update, path=path, name=name: update.rename_column(path, name))
    return table


def swapped_within(catalog):
    table = plain(catalog)
    for old, new in ((("s", "b", "c"), "t"), (("s", "b", "d"), "c"), (("s", "b", "t"), "d")):
        _update(table, lambda update, old=old, new=new: update.rename_column(old, new))
    return table


def dropped(catalog):
    return _update(plain(catalog), lambda update: update.delete_column("k"))


def dropped_and_added_again(catalog):
    table = dropped(catalog)
    _update(table, lambda update: update.add_column("k", StringType()))
    table.append(data(60, 10))
    return table


def dropped_and_added_again_within(catalog):
    table = _update(plain(catalog), lambda update: update.delete_column(("s", "b", "c")))
    return _update(table, lambda update: update.add_column(("s", "b", "c"), StringType()))


def dropped_all_of_a_struct(catalog):
    """A struct of the files has none of the fields that the table's struct has."""
    table = _update(plain(catalog), lambda update: update.add_column(("s", "new"), LongType()))
    _update(table, lambda update: update.delete_column(("s", "a")))
    return _update(table, lambda update: update.delete_column(("s", "b")))


def added(catalog):
    table = _update(plain(catalog), lambda update: update.add_column("note", StringType()))
    _update(table, lambda update: update.add_column(("s", "b", "e"), StringType()))
    _update(table, lambda update: update.add_column(("ls", "element", "w"), LongType()))
    kind = StructType(NestedField(1, "y", LongType(), required=False))
    return _update(table, lambda update: update.add_column("s2", kind))


def reordered(catalog):
    table = plain(catalog)

    def change(update):
        update.move_first("x")
        update.move_after("id", "m")
        update.move_before(("s", "b"), ("s", "a"))

    return _update(table, change, data(60, 5))


def widened(catalog):
    def change(update):
        update.update_column("id", LongType())
        update.update_column("x", DoubleType())
        update.update_column("price", DecimalType(18, 2))
        update.update_column(("tags", "element"), LongType())
        update.update_column(("m", "value"), LongType())

    table = _update(plain(catalog), change)
    schema = table.schema().as_arrow()
    rows = data(60, 5).cast(pa.schema([schema.field(name) for name in data().column_names]))
    table.append(rows.set_column(0, "id", pa.array(range(2**40, 2**40 + 5), pa.int64())))
    return table


def name_mapping(catalog):
    """Files that were written by others, without field ids."""
    table = catalog.create_table("n.t", schema=data().schema)
    folder = Path(local(table.location()))
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"own{i}.parquet" for i in range(2)]
    for i, path in enumerate(paths):
        pq.write_table(data(i * 30, 30), path, row_group_size=16)
    table.add_files([f"file://{path}" for path in paths])
    return table


def renamed_after_name_mapping(catalog):
    table = name_mapping(catalog)
    for path, name in (("k", "key"), (("s", "a"), "first"), (("ls", "element", "u"), "q")):
        _update(table, lambda update, path=path, name=name: update.rename_column(path, name))
    rows = data(60, 5).drop(["s"]).rename_columns({"k": "key"})
    kind = pa.list_(pa.struct([("q", pa.int64()), ("v", pa.string())]))
    renamed = pa.array([[{"q": i, "v": None}] for i in range(5)], kind)
    table.append(rows.set_column(rows.column_names.index("ls"), "ls", renamed))
    return table


def reused_name_after_name_mapping(catalog):
    table = _update(name_mapping(catalog), lambda update: update.delete_column("k"))
    return _update(table, lambda update: update.add_column("k", StringType()))


def initial_defaults(catalog):
    table = plain(catalog)
    _update(table, lambda update: update.add_column("note", StringType()))
    _update(table, lambda update: update.add_column("n", LongType()))
    _update(table, lambda update: update.add_column("on", DateType()))
    _update(table, lambda update: update.add_column(("s", "b", "e"), IntegerType()))
    document = metadata_of(table) | {"format-version": 3, "next-row-id": 1000}
    (schema,) = (s for s in document["schemas"] if s["schema-id"] == document["current-schema-id"])
    values = {"note": "old", "n": 7, "on": "2024-02-29"}
    for field in schema["fields"]:
        if field["name"] in values:
            field["initial-default"] = values[field["name"]]
    return with_metadata(table, document)


def nested_initial_default(catalog):
    table = _update(plain(catalog), lambda u: u.add_column(("s", "b", "e"), IntegerType()))
    document = metadata_of(table) | {"format-version": 3, "next-row-id": 1000}
    for schema in document["schemas"]:
        for field in schema["fields"]:
            if field["name"] == "s":
                for inner in field["type"]["fields"][1]["type"]["fields"]:
                    if inner["name"] == "e":
                        inner["initial-default"] = 5
    return with_metadata(table, document)


def deleted_by_copy(catalog):
    table = plain(catalog)
    table.delete("id >= 5 and id < 9")
    return table


def deleted_by_position(catalog):
    table = plain(catalog)
    return with_deletes(table, some_rows(table))


def deleted_twice_by_position(catalog):
    table = deleted_by_position(catalog)
    return with_deletes(table, {locations(table)[0]: [1, 3, 5]})


def deleted_whole_files_by_position(catalog):
    table = plain(catalog)
    return with_deletes(table, some_rows(table, 1))


def deleted_in_partitions(catalog):
    table = by_identity(catalog)
    return with_deletes(table, some_rows(table))


def deleted_before_append(catalog):
    """Deletes apply to no file of a later snapshot: its sequence number is greater."""
    table = deleted_by_position(catalog)
    name = "n.later"
    table = catalog.register_table(name, table.metadata_location)
    table.append(data(60, 10))
    return table


def deletion_vectors(catalog):
    table = as_version_3(plain(catalog))
    return with_deletes(table, some_rows(table), is_puffin=True)


def deletion_vectors_in_partitions(catalog):
    table = as_version_3(by_identity(catalog))
    return with_deletes(table, some_rows(table), is_puffin=True)


def deletes_of_both_kinds(catalog):
    """A deletion vector replaces the position deletes of its file, so it has their rows too."""
    table = as_version_3(deleted_by_position(catalog))
    location = locations(table)[0]
    rows = {location: sorted({*some_rows(table)[location], 1, 5})}
    return with_deletes(table, rows, is_puffin=True)


def renamed_and_deleted(catalog):
    table = dropped_and_added_again(catalog)
    return with_deletes(table, some_rows(table, 2))


SHAPES = {
    make.__name__: make
    for make in (
        plain,
        version_1,
        version_3,
        empty,
        by_identity,
        by_identity_of_floats,
        by_identity_of_odd_names,
        by_transforms,
        by_void,
        by_nested_field,
        evolved_spec,
        evolved_spec_of_version_1,
        files_without_partition_columns,
        renamed,
        renamed_partition_column,
        swapped,
        renamed_within,
        swapped_within,
        dropped,
        dropped_and_added_again,
        dropped_and_added_again_within,
        dropped_all_of_a_struct,
        added,
        reordered,
        widened,
        name_mapping,
        renamed_after_name_mapping,
        reused_name_after_name_mapping,
        initial_defaults,
        nested_initial_default,
        deleted_by_copy,
        deleted_by_position,
        deleted_twice_by_position,
        deleted_whole_files_by_position,
        deleted_in_partitions,
        deleted_before_append,
        deletion_vectors,
        deletion_vectors_in_partitions,
        deletes_of_both_kinds,
        renamed_and_deleted,
    )
}
