"""Files whose columns differ: ``merge_schema``, and a given schema for such files."""

from __future__ import annotations

import datetime

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import intarsia as ia
import intarsia.spark as ias

TIMES = [datetime.datetime(2026, 1, day, 12) for day in range(1, 7)]
OLD = {"use_deprecated_int96_timestamps": True}


@pytest.fixture
def grown(tmp_path):
    """Three files of two rows, each with other columns and types, below folders of a key."""
    tables = [
        pa.table(
            {
                "id": pa.array([1, 2], pa.int32()),
                "ts": pa.array(TIMES[:2], pa.timestamp("ms")),
                "at": pa.array(TIMES[:2], pa.timestamp("us", "UTC")),
            }
        ),
        pa.table(
            {
                "id": pa.array([3, 2**40], pa.int64()),
                "ts": pa.array(TIMES[2:4], pa.timestamp("us")),
                "words": pa.array([["a"], []], pa.list_(pa.string())),
            }
        ),
        pa.table(
            {
                "words": pa.array([["b", None], None], pa.large_list(pa.large_string())),
                "id": pa.array([5, 6], pa.uint8()),
                "at": pa.array(TIMES[4:], pa.timestamp("us")),
            }
        ),
    ]
    for key, (table, options) in enumerate(zip(tables, ({}, {}, OLD), strict=True)):
        folder = tmp_path / f"key={key}"
        folder.mkdir()
        pq.write_table(table, folder / "f.parquet", **options)
    return tmp_path


COLUMNS = ["id", "ts", "at", "words", "key"]
ROWS = {
    1: (1, TIMES[0], TIMES[0], None, 0),
    2: (2, TIMES[1], TIMES[1], None, 0),
    3: (3, TIMES[2], None, ["a"], 1),
    2**40: (2**40, TIMES[3], None, [], 1),
    5: (5, None, TIMES[4], ["b", None], 2),
    6: (6, None, TIMES[5], None, 2),
}


@pytest.fixture(autouse=True)
def in_utc(setting):
    setting("spark.sql.session.timeZone", "UTC")


def rows_of(frame):
    moment = frame.selectExpr("*").withColumn("at", frame["at"].cast("timestamp_ntz"))
    return {row[0]: tuple(row) for row in moment.collect()}


@pytest.mark.parametrize("reader", ["auto", "intarsia"])
def test_read_has_all_columns_of_all_files(spark, grown, reader):
    actual = ias.read(spark, grown, merge_schema=True, reader=reader)
    assert actual.columns == COLUMNS
    assert rows_of(actual) == ROWS
    kinds = dict(actual.dtypes)
    assert [kinds[name] for name in COLUMNS[:3]] == ["bigint", "timestamp_ntz", "timestamp"]
    expected = "words IS NOT NULL OR ts < '2026-01-02'"
    actual = ias.read(spark, grown, where=expected, merge_schema=True, reader=reader)
    assert rows_of(actual) == {key: ROWS[key] for key in (1, 3, 2**40, 5)}
    explained = ias.explain(spark, grown, where="ts < '2026-01-02'", merge_schema=True)
    assert explained.text.count("f.parquet") >= 1


def test_the_format_has_sparks_own_option(spark, grown):
    options = {"mergeSchema": "true", "where": "words IS NOT NULL"}
    actual = spark.read.format("intarsia").options(**options).load(str(grown))
    assert rows_of(actual) == {key: ROWS[key] for key in (3, 2**40, 5)}
    actual = spark.read.format("intarsia").load(str(grown / "key=0"))
    assert actual.columns == ["id", "ts", "at"]


def test_incompatible_files_are_named(spark, tmp_path):
    pq.write_table(pa.table({"id": [1]}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"id": ["x"]}), tmp_path / "b.parquet")
    with pytest.raises(ia.UnsupportedError, match=r"b\.parquet: .*int64 vs string"):
        ias.read(spark, tmp_path, merge_schema=True)


@pytest.mark.parametrize("reader", ["auto", "intarsia"])
def test_a_given_type_applies_to_files_of_finer_types(spark, tmp_path, reader):
    kinds = [
        (pa.timestamp("ms"), pa.timestamp("us"), "timestamp_ntz", TIMES[0]),
        (pa.uint8(), pa.int16(), "smallint", 7),
        (pa.binary(2), pa.binary(), "binary", b"ab"),
        (pa.list_(pa.timestamp("ms")), pa.list_(pa.timestamp("us")), "array<timestamp_ntz>", TIMES),
    ]
    second = {0: TIMES[1].replace(microsecond=1), 1: -300, 2: b"abc", 3: [None]}
    for number, (first, _, _, value) in enumerate(kinds):
        folder = tmp_path / str(number)
        folder.mkdir()
        pq.write_table(pa.table({"x": pa.array([value], first)}), folder / "a.parquet")
        later = pa.table({"x": pa.array([second[number]], kinds[number][1])})
        pq.write_table(later, folder / "b.parquet")
        actual = ias.read(spark, folder, schema=f"x {kinds[number][2]}", reader=reader)
        values = [bytes(v) if isinstance(v, bytearray) else v for (v,) in actual.collect()]
        assert sorted(values, key=repr) == sorted([value, second[number]], key=repr)


def test_schemas_of_arrow_are_refused(spark, grown):
    problem = r"StructType of Spark or its DDL text, not pyarrow\.lib\.Schema"
    with pytest.raises(TypeError, match=problem):
        ias.read(spark, grown, schema=pa.schema([("id", pa.int64())]))


def test_functions_of_columns_that_some_files_lack_are_evaluated(spark, tmp_path):
    pq.write_table(pa.table({"id": [1, 2], "n": [1, 5]}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"id": [3, 4]}), tmp_path / "b.parquet")
    for where, ids in (("coalesce(n, 5) = 5", [2, 3, 4]), ("coalesce(n, id) = 3", [3])):
        actual = ias.read(spark, str(tmp_path), where=where, merge_schema=True)
        assert sorted(row.id for row in actual.collect()) == ids
