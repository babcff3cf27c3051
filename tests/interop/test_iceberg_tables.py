"""Iceberg tables read by ``ia.iceberg``: their rows are those of pyiceberg's own scans."""

from __future__ import annotations

import datetime as dt
import decimal
import json
import pickle
import sys
import uuid
from pathlib import Path

import iceberg_tables
import polars
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from iceberg_tables import (
    SHAPES,
    append_by_partition,
    as_version_3,
    catalog_in,
    data,
    local,
    locations,
    metadata_of,
    plain,
    some_rows,
    with_deletes,
    write_metadata,
)
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.manifest import DATA_FILE_TYPE, DataFile, FileFormat
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

import intarsia as ia
from intarsia.cli.command_line import cli

READ_SHAPES = {name: make for name, make in SHAPES.items() if name != "nested_initial_default"}


@pytest.fixture
def catalog(tmp_path):
    made = catalog_in(tmp_path)
    yield made
    made.close()


@pytest.fixture(params=READ_SHAPES)
def table(catalog, request):
    return READ_SHAPES[request.param](catalog)


def expected_of(table, **scan):
    """Returns pyiceberg's rows in the types of the table's schema."""
    scan = table.scan(**scan)
    rows = scan.to_arrow()
    return rows.cast(schema_to_pyarrow(scan.projection(), include_field_ids=False))


def rows_of(table):
    """Returns rows in the order of ``id``, in a form in which NaN and both zeros differ."""
    return sorted((repr(row) for row in table.to_pylist()), key=lambda row: row)


def filters_of(rows):
    """Returns conditions on each column and each field of a struct, by values that occur."""
    conditions = []
    for name, values in zip(rows.column_names, rows.columns, strict=True):
        _add_conditions(conditions, (name,), values)
    return conditions


def _add_conditions(conditions, path, values):
    field, kind = pc.field(*path), values.type
    if pa.types.is_struct(kind):
        for inner in kind:
            _add_conditions(conditions, (*path, inner.name), pc.struct_field(values, inner.name))
        return
    known = values.drop_null()
    if pa.types.is_nested(kind) or not len(known):
        conditions.append(field.is_null())
        return
    first, middle = known[0], known[len(known) // 2]
    comparisons = field == middle, field.isin([first, middle]), ~(field < middle), field.is_null()
    conditions.append(comparisons[len(conditions) % 4])


def check_answers(ds, expected):
    """Asserts that a data set has the expected rows, by every way to ask for them."""
    assert ds.schema.equals(expected.schema)
    assert rows_of(ds.to_table()) == rows_of(expected)
    assert ds.count_rows() == expected.num_rows
    columns = expected.column_names[:2]
    for where in filters_of(expected):
        matching = expected.filter(where)
        assert rows_of(ds.to_table(filter=where)) == rows_of(matching), where
        assert ds.count_rows(filter=where) == matching.num_rows, where
    actual = ds.to_table(columns=columns, filter=where)
    assert rows_of(actual) == rows_of(matching.select(columns)), where
    in_order = ds.to_table().to_pylist()
    positions = list(range(0, expected.num_rows, 7))
    taken = ds.take(positions).to_pylist()
    assert list(map(repr, taken)) == [repr(in_order[position]) for position in positions]
    assert ds.head(5).num_rows == min(5, expected.num_rows)
    assert sum(batch.num_rows for batch in ds.to_batches()) == expected.num_rows


def check_engines(ds, expected):
    count = ia.sql("SELECT count(*) AS n FROM t WHERE id >= 10", t=ds)["n"][0].as_py()
    assert count == expected.filter(pc.field("id") >= 10).num_rows
    names = expected.column_names
    rows = ia.sql(f'SELECT "{names[0]}", "{names[1]}" FROM t WHERE id < 30', t=ds)
    assert rows_of(rows) == rows_of(expected.filter(pc.field("id") < 30).select(names[:2]))
    frame = ia.polars.scan(ds).filter(polars.col("id") >= 10).select("id").collect()
    assert sorted(frame["id"]) == sorted(expected.filter(pc.field("id") >= 10)["id"].to_pylist())


def test_rows_are_those_of_pyiceberg(table):
    expected = expected_of(table)
    check_answers(ia.iceberg(table), expected)
    check_engines(ia.iceberg(table), expected)


@pytest.mark.filterwarnings("ignore:index .* files cannot have it")
def test_indexes_change_no_row(table):
    expected = expected_of(table)
    ds = ia.iceberg(table)
    names = [name for name in ("id", "k", "key") if name in ds.schema.names]
    lookups = [ia.Lookup(name, granule_rows=4) for name in names if expected[name].null_count < 30]
    if ds.files:
        ia.add_indexes(ds, lookups)
        assert {report.path for report in ia.list_indexes(ds)} == {*ds.files}
    check_answers(ia.iceberg(table), expected)
    check_engines(ia.iceberg(table), expected)


def test_savings_are_counted_in_the_folder_of_the_table(catalog):
    table = plain(catalog)
    ia.add_indexes(ia.iceberg(table), [ia.Lookup("k", granule_rows=4)])
    (key, *_) = expected_of(table)["k"].to_pylist()
    ia.usage.enable()
    try:
        ia.iceberg(table).count_rows(pc.field("k") == key)
    finally:
        ia.usage.disable()
    used = ia.status(ia.iceberg(table)).usage
    assert "k:lookup" in {one.name for one in used.indexes}


@pytest.mark.parametrize("sidecar", [False, True, "folder"])
def test_indexes_go_by_the_names_of_the_table(catalog, tmp_path, sidecar):
    """The files store the column as ``k``, and another one as ``key``."""
    table = plain(catalog)
    for old, new in (("k", "key"), ("day", "k")):
        with table.update_schema() as update:
            update.rename_column(old, new)
    table = with_deletes(catalog.load_table("n.t"), {locations(table)[0]: [0, 1]})
    folder = str(tmp_path / "indexes") if sidecar == "folder" else sidecar
    before = {path: Path(path).read_bytes() for path in ia.iceberg(table).files}
    ia.add_indexes(ia.iceberg(table), [ia.Lookup("key", granule_rows=4)], sidecar=folder)
    assert all(not sidecar or Path(path).read_bytes() == before[path] for path in before)
    ds = ia.iceberg(table, sidecar=folder if sidecar == "folder" else None)
    for key in expected_of(table)["key"].unique().to_pylist():
        where = pc.field("key") == key
        assert rows_of(ds.to_table(filter=where)) == rows_of(expected_of(table).filter(where))
        assert ds.plan(filter=where).figures.rows.selected <= 8
    add_again = ia.add_indexes(
        ds, [ia.Lookup("key", granule_rows=4)], sidecar=folder, replace=False
    )
    assert [report.added for report in add_again] == [(), ()]


def test_older_snapshots_have_their_rows(catalog):
    table = iceberg_tables.dropped_and_added_again(catalog)
    table.delete("id >= 5 and id < 9")
    with table.update_schema() as update:
        update.rename_column("day", "on")
        update.update_column("id", LongType())
    table.append(
        data(80, 5).rename_columns({"day": "on"}).set_column(0, "id", [list(range(80, 85))])
    )
    for snapshot in table.snapshots():
        version = {"snapshot_id": snapshot.snapshot_id}
        check_answers(ia.iceberg(table, **version), expected_of(table, **version))
    check_answers(ia.iceberg(table), expected_of(table))


# --- versions ------------------------------------------------------------------------------------


def test_branches_and_tags_have_their_rows(catalog):
    table = plain(catalog)
    first, second = (snapshot.snapshot_id for snapshot in table.snapshots())
    table.manage_snapshots().create_tag(first, "begin").create_branch(second, "dev").commit()
    table.append(data(90, 3))
    table.append(data(100, 2), branch="dev")
    for ref in ("begin", "dev", "main"):
        expected = table.scan().use_ref(ref).to_arrow()
        assert rows_of(ia.iceberg(table, ref=ref).to_table()) == rows_of(expected), ref
    with pytest.raises(ia.PathError, match="no branch or tag 'x'; it has begin, dev, main"):
        ia.iceberg(table, ref="x")
    with pytest.raises(ia.PathError, match="no snapshot 5: it may have expired"):
        ia.iceberg(table, snapshot_id=5)
    with pytest.raises(ValueError, match="give snapshot_id or ref, not both"):
        ia.iceberg(table, first, "dev")


def test_later_commits_do_not_change_a_data_set(catalog):
    table = plain(catalog)
    before = ia.iceberg(table)
    expected = rows_of(before.to_table())
    table.append(data(90, 3))
    with table.update_schema() as update:
        update.rename_column("k", "key")
    assert rows_of(before.to_table()) == expected
    assert str(table.metadata.snapshots[-2].snapshot_id) in repr(before)


def test_a_removed_file_is_an_error_that_says_so(catalog):
    table = plain(catalog)
    ds = ia.iceberg(table)
    Path(local(locations(table)[0])).unlink()
    with pytest.raises(ia.PathError, match=r"is a file of Iceberg table n\.t, snapshot"):
        ds.to_table(filter=pc.field("id") >= 0)


def test_metadata_files_are_tables(catalog):
    table = plain(catalog)
    expected = rows_of(ia.iceberg(table).to_table())
    for location in (table.metadata_location, local(table.metadata_location)):
        assert rows_of(ia.iceberg(location).to_table()) == expected
    assert rows_of(ia.iceberg(Path(local(table.metadata_location))).to_table()) == expected
    with pytest.raises(ia.PathError, match=r"no metadata of an Iceberg table is there: give"):
        ia.iceberg(local(table.location()))
    with pytest.raises(ia.PathError, match="no metadata of an Iceberg table is there"):
        ia.iceberg("/nowhere/v1.metadata.json")


# --- maintenance ---------------------------------------------------------------------------------


def test_live_files_get_the_indexes_of_the_policy(catalog):
    """Files of other snapshots, and delete files, are left alone."""
    table = iceberg_tables.renamed(catalog)
    table.delete("id < 3")
    ia.add_indexes(ia.iceberg(table), [ia.Lookup("key", granule_rows=4)], keep=True)
    table.append(data(90, 3).rename_columns({"k": "key"}))
    (new,) = {*map(local, locations(table))} - {
        *ia.iceberg(table, table.history()[-2].snapshot_id).files
    }
    table = with_deletes(table, {locations(table)[0]: [0]})
    assert ia.status(ia.iceberg(table)).coverage("key:lookup").files == 3
    before = {path: path.read_bytes() for path in Path(local(table.location())).rglob("*.parquet")}
    assert [file.path for file in ia.maintain(ia.iceberg(table)).changed] == [new]
    assert [str(path) for path in before if path.read_bytes() != before[path]] == [new]
    assert ia.status(ia.iceberg(table)).coverage("key:lookup").share == 1
    check_answers(ia.iceberg(table), expected_of(table))


def test_advice_and_explanations_have_the_names_of_the_table(catalog):
    table = iceberg_tables.renamed(catalog)
    ia.add_indexes(ia.iceberg(table), [ia.Lookup("key", granule_rows=4)])
    ds = ia.iceberg(table)
    assert "existing indexes" in ia.advise(ds, "key = 'k07'").filters[0].reason
    explanation = str(ds.explain(filter="key = 'k07'"))
    assert "key:lookup" in explanation
    assert f"Iceberg table n.t, snapshot {table.current_snapshot().snapshot_id}" in repr(ds)


def test_commands_take_tables(catalog):
    table = iceberg_tables.renamed_and_deleted(catalog)
    path = f"iceberg:{local(table.metadata_location)}"
    expected = expected_of(table)

    def run(*arguments):
        result = CliRunner().invoke(cli, arguments)
        assert result.exit_code == 0, result.output
        return result.output

    assert run("scan", path, "--count") == f"{expected.num_rows}\n"
    run("index", "add", path, "id:lookup")
    rows = run("scan", path, "--where", "id = 7", "--columns", "id", "--format", "json")
    assert [json.loads(line) for line in rows.splitlines()] == [{"id": 7}]
    assert "id:lookup" in run("explain", path, "--where", "id = 7")
    assert "id:lookup" in run("status", path)
    counted = run("sql", "SELECT count(*) AS n FROM t", f"t={path}", "--format", "json")
    assert json.loads(counted) == {"n": expected.num_rows}


def test_a_folder_that_is_read_as_plain_files_points_to_iceberg(catalog):
    with pytest.raises(ia.PathError, match=r"open it with ia\.iceberg\(table\)"):
        ia.dataset(local(plain(catalog).location()))


# --- as any data set ------------------------------------------------------------------------------


def test_data_sets_of_tables_pickle(catalog):
    table = iceberg_tables.renamed_and_deleted(catalog)
    ds = pickle.loads(pickle.dumps(ia.iceberg(table).filter("id > 5")))
    expected = expected_of(table)
    assert rows_of(ds.to_table()) == rows_of(expected.filter(pc.field("id") > 5))


def test_fragments_have_the_rows_of_the_table(catalog):
    table = iceberg_tables.renamed_and_deleted(catalog)
    fragments = list(ia.iceberg(table).get_fragments())
    rows = pa.concat_tables(fragment.to_table() for fragment in fragments)
    assert rows_of(rows) == rows_of(expected_of(table))
    assert sum(fragment.count_rows() for fragment in fragments) == rows.num_rows


def test_partition_values_leave_out_files_before_they_are_opened(catalog):
    table = iceberg_tables.by_identity(catalog)
    ds = ia.iceberg(table)
    plan = ds.plan(filter=pc.field("day") == "d1")
    assert plan.figures.files.total == 2  # the file of "d1", and that of NULL


# --- types ---------------------------------------------------------------------------------------

VALUES = {
    "boolean": (BooleanType(), True),
    "int": (IntegerType(), -5),
    "long": (LongType(), 2**40),
    "float": (FloatType(), 1.5),
    "double": (DoubleType(), -0.0),
    "decimal": (DecimalType(20, 3), decimal.Decimal("-12345678901.125")),
    "date": (DateType(), dt.date(1969, 2, 3)),
    "time": (TimeType(), dt.time(23, 59, 59, 999999)),
    "timestamp": (TimestampType(), dt.datetime(1960, 1, 2, 3, 4, 5, 6)),
    "timestamptz": (TimestamptzType(), dt.datetime(2030, 1, 2, tzinfo=dt.UTC)),
    "string": (StringType(), "né/ %"),
    "uuid": (UUIDType(), uuid.UUID(int=2**127 + 5)),
    "fixed": (FixedType(3), b"\x00\xff\x01"),
    "binary": (BinaryType(), b"\xff\x00"),
}


@pytest.mark.parametrize("name", VALUES)
def test_partition_values_of_each_type(catalog, name):
    """Rows are the same whether or not the files store the partition column."""
    kind, value = VALUES[name]
    schema = Schema(
        NestedField(1, "id", LongType(), required=False),
        NestedField(2, "v", kind, required=False),
    )
    table = catalog.create_table("n.t", schema=schema)
    with table.update_spec() as spec:
        spec.add_field("v", IdentityTransform(), "p")
    stored = value.bytes if name == "uuid" else value
    rows = pa.table({"id": [1, 2], "v": [stored, None]}, schema=schema.as_arrow())
    append_by_partition(table, rows)
    expected = rows_of(expected_of(table))
    assert len(expected) == 2
    for is_stored in (True, False):
        ds = ia.iceberg(table)
        assert rows_of(ds.to_table()) == expected
        condition = pc.field("v") == pa.scalar(stored, ds.schema.field("v").type)
        assert ds.to_table(filter=condition)["id"].to_pylist() == [1]
        assert ds.to_table(filter=pc.field("v").is_null())["id"].to_pylist() == [2]
        for location in locations(table) if is_stored else ():
            path = local(location)
            pq.write_table(pq.read_table(path, partitioning=None).drop(["v"]), path)


# --- what is refused ------------------------------------------------------------------------------


def equality_deletes(catalog):
    table = plain(catalog)
    return with_deletes(table, some_rows(table), equality_ids=[1])


def orc_files(catalog):
    return _with_files(plain(catalog), file_format=FileFormat.ORC)


def encrypted_files(catalog):
    return _with_files(plain(catalog), key_metadata=b"key")


def _with_files(table, **changes):
    """Returns the table, with other columns in the manifest entries of its files."""
    with table.transaction() as change, change.update_snapshot().overwrite() as update:
        for task in list(table.scan().plan_files()):
            update.delete_data_file(task.file)
            update.append_data_file(_data_file(task.file, **changes))
    return table


def _data_file(file, **changes):
    """Returns a manifest entry like that of ``file``, with some other columns."""
    names = [field.name for field in DATA_FILE_TYPE[2].fields]
    columns = {name: getattr(file, name, None) for name in names} | changes
    made = DataFile.from_args(**columns)
    made.spec_id = file.spec_id
    return made


def files_on_two_file_systems(catalog):
    return _with_one_more(plain(catalog), file_path="s3://bucket/x.parquet")


def a_file_twice(catalog):
    return _with_one_more(plain(catalog))


def _with_one_more(table, **changes):
    """Returns the table, with one more manifest entry like that of its first file."""
    first = next(iter(table.scan().plan_files())).file
    with table.transaction() as change, change.update_snapshot().fast_append() as append:
        append.append_data_file(_data_file(first, **changes))
    return table


def variant(catalog):
    table = plain(catalog)
    document = metadata_of(table) | {"format-version": 3, "next-row-id": 1000}
    for schema in document["schemas"]:
        schema["fields"].append({"id": 500, "name": "v", "required": False, "type": "variant"})
    return write_metadata(table, document)


def format_version_4(catalog):
    table = plain(catalog)
    return write_metadata(table, metadata_of(table) | {"format-version": 4})


REFUSED = {
    equality_deletes: "equality deletes",
    orc_files: r"\.parquet is a file of ORC",
    encrypted_files: "is encrypted",
    files_on_two_file_systems: "its files lie on several file systems: file, s3",
    a_file_twice: "a file is in the snapshot more than once",
    iceberg_tables.nested_initial_default: "s: its field e has an initial default",
    variant: "Unsupported field type: 'variant'",
    format_version_4: "Input tag '4' found using 'format_version'",
}


@pytest.mark.parametrize("make", REFUSED, ids=lambda make: make.__name__)
def test_unsupported_features_are_refused_by_name(catalog, make):
    with pytest.raises(ia.UnsupportedError, match=REFUSED[make]):
        ia.iceberg(make(catalog))


def test_files_without_field_ids_need_a_name_mapping(catalog):
    table = iceberg_tables.name_mapping(catalog)
    with table.transaction() as change:
        change.remove_properties("schema.name-mapping.default")
    with pytest.raises(ia.FormatError, match=r"own0\.parquet: it has no field ids"):
        ia.iceberg(table).to_table()


@pytest.mark.parametrize("position", [4, 12, 20, 40])
def test_damaged_deletion_vectors_are_errors(catalog, position):
    table = iceberg_tables.deletion_vectors(catalog)
    for path in Path(local(table.location())).rglob("*.puffin"):
        content = bytearray(path.read_bytes())
        content[position] ^= 0xFF
        path.write_bytes(content)
    with pytest.raises(ia.FormatError, match="puffin: a deletion vector is damaged"):
        ia.iceberg(table)


def test_a_missing_delete_file_is_an_error(catalog):
    table = iceberg_tables.deleted_by_position(catalog)
    for path in Path(local(table.location())).rglob("*-deletes.parquet"):
        path.unlink()
    with pytest.raises(ia.PathError, match=r"deletes\.parquet"):
        ia.iceberg(table)


def test_pyiceberg_is_optional(monkeypatch):
    monkeypatch.setitem(sys.modules, "pyiceberg", None)
    monkeypatch.setitem(sys.modules, "pyiceberg.io.pyarrow", None)
    with pytest.raises(ia.MissingDependencyError, match=r"install intarsia\[iceberg\]"):
        ia.iceberg("/nowhere/v1.metadata.json")


# --- the documented table of features -------------------------------------------------------------

PAGE = Path(__file__).parents[2] / "docs/how-to/iceberg.md"
FEATURES = {
    "partitions by `identity`": iceberg_tables.by_identity,
    "partitions by `bucket`, `truncate`, `day`": iceberg_tables.by_transforms,
    "partitions by `void`": iceberg_tables.by_void,
    "changed partition specs": iceberg_tables.evolved_spec,
    "partition columns that files lack, as those of former Hive tables": (
        iceberg_tables.files_without_partition_columns
    ),
    "columns renamed": iceberg_tables.renamed,
    "columns dropped, and added again under the same name": iceberg_tables.dropped_and_added_again,
    "columns added": iceberg_tables.added,
    "columns reordered": iceberg_tables.reordered,
    "fields of structs renamed, within lists as well": iceberg_tables.renamed_within,
    "widened types": iceberg_tables.widened,
    "files without field ids, by the name mapping (`add_files`)": iceberg_tables.name_mapping,
    "rows deleted by rewriting files": iceberg_tables.deleted_by_copy,
    "position deletes": iceberg_tables.deleted_by_position,
    "deletion vectors": iceberg_tables.deletion_vectors,
    "initial defaults of columns": iceberg_tables.initial_defaults,
    "initial defaults of fields in structs": iceberg_tables.nested_initial_default,
    "equality deletes": equality_deletes,
    "files of ORC or Avro": orc_files,
    "encrypted files": encrypted_files,
    "the type `variant`": variant,
}


def documented_features():
    """Yields a feature, a format version, and what the page says of both."""
    rows = [line.strip("| ").split(" | ") for line in PAGE.read_text().splitlines() if "|" in line]
    for feature, *cells in (row for row in rows if len(row) == 4 and row[0] != "feature"):
        yield from ((feature, version, cell) for version, cell in enumerate(cells, 1))


def test_all_features_are_documented():
    assert [*dict.fromkeys(feature for feature, _, _ in documented_features())] == [*FEATURES]


@pytest.mark.parametrize(
    ("feature", "version", "cell"), [case for case in documented_features() if case[2] != "–"]
)
def test_features_are_supported_as_documented(tmp_path, feature, version, cell):
    catalog = catalog_in(tmp_path, min(version, 2))  # pyiceberg writes no version 3
    try:
        table = FEATURES[feature](catalog)
    finally:
        catalog.close()
    if version == 3 and not isinstance(table, str) and table.format_version == 2:
        table = as_version_3(table)
    if cell == "refused":
        with pytest.raises(ia.UnsupportedError):
            ia.iceberg(table)
        return
    assert cell == "read"
    assert table.format_version == version
    assert rows_of(ia.iceberg(table).to_table()) == rows_of(expected_of(table))
