"""``read_delta`` and ``read_iceberg``: deleted rows, other names and values of the log."""

import delta_log
import deltalake
import iceberg_tables
import pyarrow as pa
import pytest

import intarsia as ia
import intarsia.spark as ias

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


def test_versions_are_read(spark, tmp_path):
    path = str(tmp_path)
    for start in (0, 500):
        deltalake.write_deltalake(path, rows(start, start + 500), mode="append")
    assert ias.read_delta(spark, path).count() == 1000
    assert ias.read_delta(spark, path, version=0, reader="spark").count() == 500
