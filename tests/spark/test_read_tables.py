"""Delta and Iceberg tables in Spark: deleted rows, other names and values of the log."""

import datetime as dt
import time
from pathlib import Path

import delta_log
import deltalake
import iceberg_tables
import pyarrow as pa
import pytest
from pyspark.errors import PySparkException

import intarsia as ia
import intarsia.spark as ias
from intarsia.spark.data_source.options import check_reads

pytestmark = pytest.mark.spark


def rows(start, stop):
    numbers = range(start, stop)
    return pa.table(
        {
            "id": pa.array(numbers, pa.int64()),
            "k": [f"k{n * 7 % 1000:04}" for n in numbers],
            "day": [f"d{n // 500}" for n in numbers],
        }
    )


def delta(folder):
    """A table with column mapping, in which a column was renamed and rows are deleted."""
    path, settings = str(folder), {"delta.columnMapping.mode": "name"}
    deltalake.write_deltalake(path, rows(0, 1000), partition_by=["day"], configuration=settings)

    def rename(fields):
        fields[1]["name"] = "key"

    features = ["columnMapping", "deletionVectors"]
    delta_log.change_schema(path, rename, features, **{"delta.enableDeletionVectors": "true"})
    for path_in_log in [one["add"]["path"] for one in delta_log.actions(path) if "add" in one]:
        delta_log.delete_rows(path, path_in_log, [*range(0, 500, 10)])
    return path


def iceberg(folder):
    """A table in which a column was renamed and rows are deleted."""
    table = iceberg_tables.catalog_in(folder).create_table("n.t", schema=rows(0, 1).schema)
    for start in (0, 500):
        table.append(rows(start, start + 500))
    with table.update_schema() as update:
        update.rename_column("k", "key")
    return iceberg_tables.with_deletes(table, iceberg_tables.some_rows(table, 10))


def load(spark, kind, path, **options):
    return spark.read.format("intarsia").options(table=kind, **options).load(path)


def as_rows(table):
    return sorted(tuple(row.values()) for row in table.to_pylist())


@pytest.mark.parametrize("reader", ["auto", "intarsia"])
@pytest.mark.parametrize(
    ("make", "read", "open_table"),
    [(delta, ias.read_delta, ia.delta), (iceberg, ias.read_iceberg, ia.iceberg)],
    ids=["delta", "iceberg"],
)
def test_spark_has_the_rows_of_the_table(spark, tmp_path, make, read, open_table, reader):
    """By tasks, on the driver, with an index, and where Spark's own reader must not read."""
    table = make(tmp_path)
    data = open_table(table)
    ia.add_indexes(data, ["key:lookup"])
    for where in (None, "key = 'k0007'", "day = 'd1' AND id >= 700"):
        expected = sorted(
            map(tuple, (row.values() for row in data.to_table(filter=where).to_pylist()))
        )
        frame = read(spark, table, where=where, reader=reader)
        assert sorted(map(tuple, frame.collect())) == expected
        assert frame.columns == data.schema.names
    assert read(spark, table, columns=[], where="id < 20", reader=reader).count() == 18
    assert [
        tuple(row) for row in read(spark, table, columns=["key"], where="id = 1").collect()
    ] == [("k0007",)]
    with pytest.raises(ia.UnsupportedError, match="has other rows, names or values"):
        read(spark, table, reader="spark")


@pytest.mark.parametrize("sidecar", [False, True], ids=["in files", "in sidecars"])
@pytest.mark.parametrize(
    ("make", "open_table"), [(delta, ia.delta), (iceberg, ia.iceberg)], ids=["delta", "iceberg"]
)
def test_indexes_of_tables_are_added_and_dropped(spark, tmp_path, make, open_table, sidecar):
    """By the names of the table, in files that tasks divide among them."""
    data = open_table(make(tmp_path))
    before = {file: Path(file).read_bytes() for file in data.files}
    split = {"split_bytes": min(map(len, before.values())) - 1}
    added = ias.add_indexes(
        spark, data, ["key:lookup", "id:minmax"], sidecar=sidecar, keep=True, **split
    ).collect()
    assert [(row.path, row.status) for row in added] == [(file, "done") for file in data.files]
    for report in ia.list_indexes(data):
        assert [entry.name for entry in report.entries] == ["key:lookup", "id:minmax"]
        assert bool(report.sidecar) is sidecar
    assert ias.maintain(spark, data).changed == ()
    expected = data.to_table(filter="key = 'k0007'").to_pylist()
    assert [row.asDict() for row in ias.read(spark, data, where="key = 'k0007'").collect()] == (
        expected
    )
    ias.drop_indexes(spark, data, all=True, sidecar=sidecar)
    assert {file: Path(file).read_bytes() for file in data.files} == before


def test_versions_are_read(spark, tmp_path):
    path = str(tmp_path)
    for start in (0, 500):
        deltalake.write_deltalake(path, rows(start, start + 500), mode="append")
    assert ias.read_delta(spark, path).count() == 1000
    assert ias.read_delta(spark, path, version=0, reader="spark").count() == 500


@pytest.mark.parametrize(
    ("kind", "make", "open_table"),
    [("delta", delta, ia.delta), ("iceberg", iceberg, ia.iceberg)],
    ids=["delta", "iceberg"],
)
def test_the_format_has_the_rows_of_the_table(spark, tmp_path, kind, make, open_table):
    table = make(tmp_path)
    path = table if kind == "delta" else table.metadata_location
    data = open_table(table)
    ia.add_indexes(data, ["key:lookup"])
    assert load(spark, kind, path).columns == data.schema.names
    for where in (None, "key = 'k0007'", "day = 'd1' AND id >= 700"):
        options = {} if where is None else {"where": where}
        expected = as_rows(data.to_table(filter=where))
        assert sorted(map(tuple, load(spark, kind, path, **options).collect())) == expected
    picked = spark.read.format("intarsia").option("table", kind).schema("day string, id bigint")
    picked_rows = picked.option("where", "id < 3").load(path).collect()
    assert sorted(map(tuple, picked_rows)) == as_rows(data.to_table(["day", "id"], filter="id < 3"))
    assert load(spark, kind, path, columns="key", where="id = 1").collect() == [("k0007",)]


def test_the_format_reads_the_version_that_is_given(spark, tmp_path):
    path = str(tmp_path)
    deltalake.write_deltalake(path, rows(0, 500))
    time.sleep(0.01)
    between = dt.datetime.now(dt.UTC).isoformat()
    time.sleep(0.01)
    deltalake.write_deltalake(path, rows(500, 1000), mode="append")
    assert load(spark, "delta", path).count() == 1000
    for name, value in {"version": 0, "versionAsOf": 0, "timestampAsOf": between}.items():
        assert load(spark, "delta", path, **{name: value}).count() == 500


def test_the_format_reads_the_snapshot_that_is_given(spark, tmp_path):
    table = iceberg_tables.catalog_in(tmp_path).create_table("n.t", schema=rows(0, 1).schema)
    table.append(rows(0, 500))
    first = table.current_snapshot().snapshot_id
    table.manage_snapshots().create_tag(first, "start").commit()
    table.append(rows(500, 1000))
    location = table.metadata_location
    assert load(spark, "iceberg", location).count() == 1000
    for name, value in {"snapshot_id": first, "snapshot-id": first, "ref": "start"}.items():
        assert load(spark, "iceberg", location, **{name: value}).count() == 500
    assert load(spark, "iceberg", location, tag="start").count() == 500


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"table": "hudi"}, "option 'table' is delta or iceberg, not 'hudi'"),
        ({"table": "delta", "mergeSchema": "true"}, "the options to read a table of delta are"),
        ({"table": "delta", "ref": "main"}, "option 'ref' is unknown"),
        ({"table": "iceberg", "version": "0"}, "option 'version' is unknown"),
        ({"version": "0"}, "option 'version' is unknown"),
        ({"table": "delta", "versionAsOf": "0", "timestampAsOf": "2024-01-01"}, "give one"),
    ],
)
def test_options_that_a_table_does_not_take_are_errors(options, message):
    with pytest.raises(ValueError, match=message):
        check_reads(options, streams=False)


def test_errors_of_spark_say_what_is_wrong_with_a_table(spark, tmp_path):
    path = str(tmp_path)
    deltalake.write_deltalake(path, rows(0, 10))
    with pytest.raises(PySparkException, match="no Delta table at version 7"):
        load(spark, "delta", path, version=7)
    with pytest.raises(PySparkException, match="the options to read a table of delta are"):
        load(spark, "delta", path, mergeSchema="true")


def test_a_schema_keeps_the_types_of_the_table(spark, tmp_path):
    deltalake.write_deltalake(str(tmp_path), rows(0, 10))
    frame = spark.read.format("intarsia").option("table", "delta").schema("id string")
    with pytest.raises(PySparkException, match="it is int64 in the table, and string in the"):
        frame.load(str(tmp_path)).collect()


@pytest.mark.parametrize(
    ("make", "open_table"), [(delta, ia.delta), (iceberg, ia.iceberg)], ids=["delta", "iceberg"]
)
def test_tables_are_explained_and_queried(spark, tmp_path, make, open_table):
    """By ``explain``, ``read`` and ``sql``, which take tables that are opened."""
    table = open_table(make(tmp_path))
    ia.add_indexes(table, ["key:lookup"])
    plan = ias.explain(spark, table, where="key = 'k0007'", reader="intarsia")
    assert plan.reader == "intarsia"
    assert len(plan.task_bytes) == 1
    assert plan.explanation.planned.files.selected == 1
    assert "key:lookup" in plan.text
    whole = ias.explain(spark, table)
    assert "has other rows, names or values" in whole.reason
    assert ias.read(spark, table, where="key = 'k0007'").collect() == [(1, "k0007", "d0")]
    query = "SELECT day, count(*) FROM t WHERE id < 600 GROUP BY day"
    expected = ia.sql(query, t=table)
    assert sorted(map(tuple, ias.sql(spark, query, t=table).collect())) == as_rows(expected)


def test_data_sets_of_plain_files_are_not_tables(spark, tmp_path):
    deltalake.write_deltalake(str(tmp_path), rows(0, 10))
    files = ia.delta(str(tmp_path)).files
    for read in (ias.read, ias.explain):
        with pytest.raises(TypeError, match="pass the paths of others"):
            read(spark, ia.dataset(files))
        with pytest.raises(ValueError, match="merge_schema is not for a table"):
            read(spark, ia.delta(str(tmp_path)), merge_schema=True)


@pytest.mark.parametrize(
    ("make", "open_table"), [(delta, ia.delta), (iceberg, ia.iceberg)], ids=["delta", "iceberg"]
)
def test_maintain_indexes_files_of_tables_in_tasks(spark, tmp_path, jobs, make, open_table):
    """Columns have other names in the table than in its files."""
    table = make(tmp_path)
    data = open_table(table)
    ia.add_indexes(data, ["key:lookup"], keep=True)
    dropped = data.files[0]
    ia.drop_indexes(dropped, all=True)
    expected = data.to_table().sort_by("id")
    report = ias.maintain(spark, data)
    assert [(file.path, file.indexes[0]) for file in report.changed] == [(dropped, "key:lookup")]
    assert report.failed == ()
    assert jobs() == ["intarsia: maintain, 2 files", "intarsia: maintain, 1 file"]
    data = open_table(table)
    assert ia.status(data).coverage("key:lookup").share == 1
    assert data.to_table().sort_by("id").equals(expected)
    assert ias.maintain(spark, data).changed == ()
