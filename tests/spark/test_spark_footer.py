"""Facts that only Spark's footers state: old calendars, collations, types that Parquet lacks."""

from __future__ import annotations

import datetime as dt
import warnings
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame

import intarsia as ia
import intarsia.spark as ias

pytestmark = pytest.mark.spark

REBASE = "spark.sql.parquet.datetimeRebaseModeInWrite"
INT96 = "spark.sql.parquet.outputTimestampType"
ZONE = "spark.sql.session.timeZone"
OLD = "date'1500-02-10' AS d, timestamp'1500-02-10 00:00:00' AS ts, 1 AS x"
FAR = """1 AS id, timestamp'9990-12-31 01:02:03.000004' AS ts,
    array(timestamp'2020-01-01 00:00:00') AS a,
    named_struct('t', timestamp'2020-01-01 00:00:00') AS s,
    map('k', timestamp'0010-01-01 00:00:00') AS m"""
ODD = """id, CASE id % 3 WHEN 0 THEN 'a' WHEN 1 THEN 'A' ELSE 'b' END COLLATE UTF8_LCASE AS c,
    array(named_struct('t', 'x' COLLATE UNICODE_CI)) AS n,
    make_dt_interval(1, 2, 3, id) AS i, parse_json('{"a": 1}') AS v"""

Setting = Callable[[str, str], None]


def append(frame: DataFrame, path: Path) -> None:
    frame.coalesce(1).write.mode("append").parquet(str(path))


def rows(frame: DataFrame) -> list[str]:
    return sorted(map(str, frame.collect()))


@pytest.mark.parametrize("cluster_by", [[], ["x"]], ids=["merged", "ordered"])
def test_dates_of_the_old_calendar_do_not_change(cluster_by, spark, setting, tmp_path):
    setting(REBASE, "LEGACY")
    for _ in range(2):
        append(spark.sql(f"SELECT {OLD}"), tmp_path)
    before = rows(spark.read.parquet(str(tmp_path)))
    assert "1500, 2, 10" in before[0]
    assert ias.optimize(spark, tmp_path, cluster_by=cluster_by)
    assert rows(spark.read.parquet(str(tmp_path))) == before


def test_files_of_two_calendars_are_not_merged(spark, setting, tmp_path):
    append(spark.sql(f"SELECT {OLD}"), tmp_path)
    setting(REBASE, "LEGACY")
    append(spark.sql(f"SELECT {OLD}"), tmp_path)
    before = sorted(path.read_bytes() for path in tmp_path.glob("*.parquet"))
    with pytest.raises(ia.UnsupportedError, match="calendar in some files and not in others"):
        ias.optimize(spark, tmp_path)
    assert sorted(path.read_bytes() for path in tmp_path.glob("*.parquet")) == before


def test_requested_dates_of_the_old_calendar_cause_a_warning(spark, setting, tmp_path):
    setting(REBASE, "LEGACY")
    append(spark.sql(f"SELECT {OLD}"), tmp_path)
    for arguments in ({}, {"columns": ["d"]}, {"columns": ["x"], "where": "ts IS NOT NULL"}):
        with pytest.warns(ia.IntarsiaWarning, match="calendar before 1582's reform"):
            ias.read(spark, tmp_path, **arguments)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert ias.read(spark, tmp_path, columns=["x"]).collect() == [(1,)]


@pytest.mark.parametrize("cluster_by", [[], ["id"]], ids=["merged", "ordered"])
def test_types_that_parquet_lacks_do_not_change(cluster_by, spark, tmp_path):
    for _ in range(2):
        append(spark.range(6).selectExpr(*map(str.strip, split(ODD))), tmp_path)
    native = spark.read.parquet(str(tmp_path))
    kind, actual = native.schema.simpleString(), rows(native.selectExpr("id", "c", "n", "i"))
    assert native.where("c = 'A'").count() == 8
    assert ias.optimize(spark, tmp_path, cluster_by=cluster_by)
    native = spark.read.parquet(str(tmp_path))
    assert native.schema.simpleString() == kind
    assert rows(native.selectExpr("id", "c", "n", "i")) == actual
    assert native.where("c = 'A'").count() == 8
    assert native.selectExpr("to_json(v) AS j").distinct().collect() == [('{"a":1}',)]


def split(columns: str) -> list[str]:
    """Splits at commas that are not within parentheses."""
    parts, depth = [""], 0
    for sign in columns:
        depth += (sign == "(") - (sign == ")")
        if sign == "," and not depth:
            parts.append("")
        else:
            parts[-1] += sign
    return parts


def test_columns_with_a_collation_are_refused_and_others_read(spark, tmp_path):
    append(spark.range(6).selectExpr(*map(str.strip, split(ODD))), tmp_path)
    for arguments in (
        {},
        {"columns": ["c"]},
        {"columns": ["n"]},
        {"columns": ["id"], "where": "c = 'A'"},
    ):
        with pytest.raises(ia.UnsupportedError, match="collation"):
            ias.read(spark, tmp_path, **arguments)
    with pytest.raises(ia.UnsupportedError, match=r"column c: .* spark\.UTF8_LCASE"):
        ias.sql(spark, "SELECT id FROM t WHERE c = 'A'", t=tmp_path)
    with pytest.raises(AnalysisException, match="collation"):
        spark.read.format("intarsia").load(str(tmp_path))
    actual = ias.sql(spark, "SELECT id FROM t WHERE id > 3", t=tmp_path)
    assert rows(actual) == ["Row(id=4)", "Row(id=5)"]


@pytest.mark.parametrize("reader", ["auto", "intarsia"])
def test_int96_is_an_instant_of_any_year_at_any_depth(reader, spark, setting, tmp_path):
    setting(ZONE, "America/New_York")
    setting(INT96, "INT96")
    append(spark.sql(f"SELECT {FAR}"), tmp_path)
    append(spark.sql("SELECT 2 AS id, timestamp'0010-01-01 00:00:00' AS ts"), tmp_path)
    schema = spark.sql(f"SELECT {FAR}").schema
    native = spark.read.schema(schema).parquet(str(tmp_path))
    actual = ias.read(spark, tmp_path, reader=reader, schema=schema)
    assert actual.schema.simpleString() == native.schema.simpleString()
    assert rows(actual) == rows(native)
    later = "ts > TIMESTAMP '2100-01-01 00:00:00'"
    assert ias.read(spark, tmp_path, where=later, reader=reader).count() == 1
    query = "SELECT id FROM t WHERE s.t = timestamp'2020-01-01 00:00:00'"
    first = min(tmp_path.glob("*.parquet"), key=lambda path: -pq.read_metadata(path).num_columns)
    assert ias.sql(spark, query, t=first).collect() == [(1,)]


def test_the_format_reads_int96_of_any_year(spark, setting, tmp_path):
    setting(INT96, "INT96")
    append(spark.sql(f"SELECT {FAR}"), tmp_path)
    made = spark.read.format("intarsia").load(str(tmp_path))
    assert rows(made) == rows(spark.read.parquet(str(tmp_path)))
    assert made.first()["ts"] == dt.datetime(9990, 12, 31, 1, 2, 3, 4)
