"""The driver reads small results itself; large or failing reads are left to tasks."""

import datetime as dt
import decimal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import intarsia.spark as ias
from intarsia.spark.read import driver_read
from intarsia.spark.read.dataset_files import Source
from intarsia.spark.read.driver_read import read_on_driver
from intarsia.spark.read.query import query_of
from intarsia.spark.read.read import opened

pytestmark = pytest.mark.spark

ROWS = 100_000


def write(path, start=0):
    """Writes consecutive numbers in pages of some thousand rows, with bounds."""
    table = pa.table(
        {
            "n": np.arange(start, start + ROWS),
            "noise": np.random.default_rng(start).random(ROWS),
        }
    )
    options = {"write_page_index": True, "write_page_checksum": True, "data_page_size": 10_000}
    pq.write_table(table, path, use_dictionary=False, **options)


@pytest.fixture
def numbers(tmp_path):
    for number in range(3):
        write(tmp_path / f"{number}.parquet", number * ROWS)
    return tmp_path


def planned(path, where, columns=None):
    source = Source(opened(path), str(path))
    query = query_of(source.data, columns, where)
    return source, query, query.plan(source.data)


def is_local(frame):
    return "LocalTableScan" in frame._jdf.queryExecution().executedPlan().toString()


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("n = 150000", [150_000]),
        ("n IN (299999, 7, 100000)", [7, 100_000, 299_999]),
        ("n = 7 AND noise > 2", []),
        ("n < 0", []),
    ],
    ids=["one_row", "rows_of_several_files_in_their_order", "no_row_left", "no_file_left"],
)
def test_few_rows_are_read_by_the_driver(where, expected, spark, numbers):
    actual = ias.read(spark, numbers, where=where)
    assert is_local(actual)
    assert [row.n for row in actual.collect()] == expected
    assert actual.groupBy().count().first()[0] == len(expected)
    by_tasks = ias.read(spark, numbers, where=where, reader="intarsia")
    assert actual.schema == by_tasks.schema
    assert actual.collect() == by_tasks.collect()


@pytest.mark.parametrize("columns", [["noise", "n"], []], ids=str)
def test_columns_are_those_asked_for(columns, spark, numbers):
    actual = ias.read(spark, numbers, columns=columns, where="n IN (5, 6)")
    by_tasks = ias.read(spark, numbers, columns=columns, where="n IN (5, 6)", reader="intarsia")
    assert actual.columns == columns
    assert actual.collect() == by_tasks.collect()


@pytest.mark.parametrize(
    ("limit", "most"), [("MAX_DRIVER_BYTES", 1000), ("MOST_ROWS", 100), ("SPLIT_BYTES", 50_000)]
)
def test_many_rows_are_left_to_tasks(limit, most, spark, numbers, monkeypatch):
    where = "n >= 1000 AND n < 1100"
    source, query, plan = planned(numbers, where)
    assert read_on_driver(source, query, plan).num_rows == 100
    monkeypatch.setattr(driver_read, limit, most)
    assert read_on_driver(source, query, plan) is None
    assert not is_local(ias.read(spark, numbers, where=where))
    explained = ias.explain(spark, numbers, where=where)
    assert explained.driver_rows is None
    assert len(explained.task_bytes) == 1


def test_the_rows_are_those_at_planning_time(spark, numbers):
    actual = ias.read(spark, numbers, where="n = 7")
    (numbers / "0.parquet").unlink()
    assert [row.n for row in actual.collect()] == [7]


def test_a_file_replaced_since_it_was_planned_is_planned_again(numbers):
    source, query, plan = planned(numbers, "n = 7 OR n = 99", ["n"])
    table = pa.table({"n": np.arange(ROWS)[::-1].copy(), "noise": np.zeros(ROWS)})
    pq.write_table(table, numbers / "new")
    (numbers / "new").replace(numbers / "0.parquet")
    assert read_on_driver(source, query, plan)["n"].to_pylist() == [99, 7]


def test_the_job_reports_a_deleted_file(spark, numbers):
    source, query, plan = planned(numbers, "n = 7")
    (numbers / "0.parquet").unlink()
    assert read_on_driver(source, query, plan) is None


def test_types_are_converted_as_in_tasks(spark, tmp_path):
    instant = dt.datetime(2020, 2, 3, 4, 5, 6, 700, tzinfo=dt.UTC)
    naive = instant.replace(tzinfo=None)
    table = pa.table(
        {
            "k": [1, 2],
            "u64": pa.array([2**64 - 1, None], pa.uint64()),
            "ns": pa.array([instant, None], pa.timestamp("ns", "Europe/Paris")),
            "local": pa.array([naive, None], pa.timestamp("us")),
            "word": pa.array(["a", None]).dictionary_encode(),
            "money": pa.array([decimal.Decimal("1.50"), None], pa.decimal128(9, 2)),
            "each": pa.array([[instant], None], pa.list_(pa.timestamp("ms", "UTC"))),
            "pair": pa.array([{"a": naive, "b": b"x"}, None]),
        }
    )
    pq.write_table(table, tmp_path / "a.parquet")
    before = spark.conf.get("spark.sql.session.timeZone")
    try:
        for zone in ("UTC", "America/New_York"):
            spark.conf.set("spark.sql.session.timeZone", zone)
            actual = ias.read(spark, tmp_path, where="k < 2")
            by_tasks = ias.read(spark, tmp_path, where="k < 2", reader="intarsia")
            assert is_local(actual)
            assert actual.schema == by_tasks.schema
            assert actual.collect() == by_tasks.collect()
            assert (
                actual.selectExpr("unix_micros(ns)").first()[0]
                == int(instant.timestamp()) * 10**6 + 700
            )
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)


@pytest.mark.parametrize("where", ["k = 1", "k.a = 1"])
def test_lists_and_maps_with_nulls_are_read_by_the_driver(where, spark, tmp_path):
    kind = "id % 3 AS k" if where == "k = 1" else "struct(id % 3 AS a) AS k"
    lists = ["array(t)", "map('k', t)", "map('k', array(id))", "array(struct(id))"]
    nested = [f"if(id % 5 = 0, NULL, {one}) AS c{number}" for number, one in enumerate(lists)]
    moment = "if(id = 3, NULL, timestamp_micros(id)) AS t"
    data = spark.range(100).selectExpr("id", kind, moment)
    data.selectExpr("id", "k", *nested).coalesce(1).write.parquet(f"{tmp_path}/lake")
    columns = ["id", *(f"c{number}" for number in range(len(lists)))]
    actual = ias.read(spark, tmp_path / "lake", columns=columns, where=where)
    expected = spark.read.parquet(f"{tmp_path}/lake").where(where).select(*columns)
    assert is_local(actual)
    assert actual.sort("id").collect() == expected.sort("id").collect()
