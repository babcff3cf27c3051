"""The code of docs/how-to/tables.md gives the right rows or an error, for every table feature."""

from __future__ import annotations

import types

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, StringType

import intarsia as ia

NESTED = {
    "l": [[i, i + 1] for i in range(20)],
    "m": pa.array([[("a", i)] for i in range(20)], pa.map_(pa.string(), pa.int64())),
    "s": [{"x": i, "y": [{"z": f"{i}"}]} for i in range(20)],
}
TABLE = pa.table(
    {"id": range(20), "k": [f"k{i:02}" for i in range(20)], "day": ["a", "b"] * 10} | NESTED
)


def rows(table):
    return sorted(pa.table(table).to_pylist(), key=lambda row: row["id"])


def check_rows(dataset, expected):
    """Asserts that a data set has the table's rows, without and with a filter."""
    names = expected.column_names
    plain = pa.table({n: pa.array(expected[n].to_pylist()) for n in names if n in ("id", "k")})
    assert rows(dataset.to_table(names)) == rows(expected)
    for where in (pc.field("id") > 3, pc.field("k").isin(["k03", "k07"])):
        expected_ids = set(plain.filter(where)["id"].to_pylist())
        actual = dataset.to_table(names, filter=where)
        assert rows(actual) == [row for row in rows(expected) if row["id"] in expected_ids]


# --- Iceberg -------------------------------------------------------------------------------------


@pytest.fixture
def catalog(tmp_path):
    made = SqlCatalog("c", uri=f"sqlite:///{tmp_path}/c.db", warehouse=f"file://{tmp_path}")
    made.create_namespace("n")
    yield made
    made.close()


@pytest.fixture
def iceberg(catalog):
    made = catalog.create_table("n.t", schema=TABLE.schema)
    with made.update_spec() as spec:
        spec.add_field("day", IdentityTransform(), "day")
    made.append(TABLE)
    return catalog.load_table("n.t")


def test_an_iceberg_table_has_its_rows(documented, iceberg):
    check_rows(documented.iceberg_dataset(iceberg), iceberg.scan().to_arrow())
    first = iceberg.current_snapshot().snapshot_id
    iceberg.delete("id = 5")
    with iceberg.update_schema() as update:
        update.add_column("note", StringType())
    iceberg.append(TABLE.slice(0, 3).append_column("note", pa.array(["x"] * 3)))
    check_rows(documented.iceberg_dataset(iceberg), iceberg.scan().to_arrow())
    old = iceberg.scan(snapshot_id=first).to_arrow()
    check_rows(documented.iceberg_dataset(iceberg, snapshot_id=first), old)
    some = documented.iceberg_dataset(iceberg, row_filter="day = 'a'", selected_fields=("id",))
    assert set(some.to_table()["id"].to_pylist()) >= set(range(0, 20, 2))


def test_widened_types_have_their_rows(documented, catalog):
    small = pa.table({"id": pa.array([1, 4], pa.int32()), "k": ["k01", "k03"]})
    table = catalog.create_table("n.small", schema=small.schema)
    table.append(small)
    with table.update_schema() as update:
        update.update_column("id", LongType())
    table.append(pa.table({"id": pa.array([2**40], pa.int64()), "k": ["k07"]}))
    check_rows(documented.iceberg_dataset(table), table.scan().to_arrow())


CHANGES = {
    "renamed": lambda update: update.rename_column("k", "key"),
    "renamed within": lambda update: update.rename_column(("s", "x"), "other"),
    "renamed deep within": lambda update: update.rename_column(("s", "y", "element", "z"), "q"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_renamed_columns_are_refused(documented, iceberg, change):
    with iceberg.update_schema() as update:
        CHANGES[change](update)
    with pytest.raises(ValueError, match="is another column of the table"):
        documented.iceberg_dataset(iceberg)


@pytest.mark.parametrize("name", ["k", "l"])
def test_reused_column_names_are_refused(documented, iceberg, name):
    with iceberg.update_schema() as update:
        update.delete_column(name)
    left = iceberg.scan().to_arrow()
    assert name not in documented.iceberg_dataset(iceberg).schema.names
    assert rows(documented.iceberg_dataset(iceberg).to_table()) == rows(left)
    with iceberg.update_schema() as update:
        update.add_column(name, StringType())
    assert iceberg.scan().to_arrow()[name].null_count == 20
    with pytest.raises(ValueError, match="is another column of the table"):
        documented.iceberg_dataset(iceberg)


def test_two_swapped_column_names_are_refused(documented, iceberg):
    for old, new in (("k", "was_k"), ("l", "k"), ("was_k", "l")):
        with iceberg.update_schema() as update:
            update.rename_column(old, new)
    with pytest.raises(ValueError, match="is another column of the table"):
        documented.iceberg_dataset(iceberg)


def test_files_with_deletes_are_refused(documented, iceberg):
    scan = iceberg.scan()
    tasks = [types.SimpleNamespace(file=task.file, delete_files={1}) for task in scan.plan_files()]
    planned = types.SimpleNamespace(projection=scan.projection, plan_files=lambda: tasks)
    table = types.SimpleNamespace(scan=lambda: planned, specs=iceberg.specs)
    with pytest.raises(ValueError, match="rows that were deleted"):
        documented.iceberg_dataset(table)


def test_files_without_field_ids_are_refused(documented, catalog, tmp_path):
    path = tmp_path / "own.parquet"
    pq.write_table(TABLE.select(["id", "k"]), path)
    table = catalog.create_table("n.own", schema=TABLE.select(["id", "k"]).schema)
    table.add_files([f"file://{path}"])
    with pytest.raises(ValueError, match="is another column of the table"):
        documented.iceberg_dataset(table)


def test_files_that_lack_a_partition_column_are_refused(documented, iceberg):
    """Only the log has the partition values, for example in former Hive tables."""
    for task in iceberg.scan().plan_files():
        path = task.file.file_path.removeprefix("file://")
        pq.write_table(pq.read_table(path, partitioning=None).drop(["day"]), path)
    with pytest.raises(ValueError, match="lacks a column that the table is partitioned by"):
        documented.iceberg_dataset(iceberg)


def test_indexes_are_added_to_the_files_of_a_list(documented, iceberg):
    reports = ia.add_indexes(documented.iceberg_dataset(iceberg).files, ["k:lookup"])
    assert all(report.added[0] == "k:lookup" for report in reports)
