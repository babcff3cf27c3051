"""VARIANT is read whole or not at all: with NULLs, within structs, lists and maps."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import PythonException, StreamingQueryException

import intarsia.spark as ias

pytestmark = pytest.mark.spark
WITH_NULLS = """SELECT id,
    IF(id = 1, NULL, parse_json(concat('{"a":', id, '}'))) v,
    IF(id = 2, NULL, named_struct('x', IF(id = 1, NULL, parse_json('7')))) s,
    IF(id = 3, NULL, array(parse_json('1'), NULL)) l,
    IF(id = 0, NULL, map('k', IF(id = 1, NULL, parse_json('"t"')))) m
FROM range(5)"""
SHOWN = ["id", *(f"to_json({name}) {name}" for name in "vslm")]


def shown(frame):
    return [tuple(row) for row in frame.selectExpr(*SHOWN).orderBy("id").collect()]


@pytest.mark.parametrize("reader", ["auto", "intarsia", "format"])
def test_null_variants_are_null(reader, spark, tmp_path):
    frame = spark.sql(WITH_NULLS).coalesce(1)
    expected = shown(frame)
    ias.write(frame, str(tmp_path / "lake"))
    if reader == "format":
        actual = spark.read.format("intarsia").load(str(tmp_path / "lake"))
    else:
        actual = ias.read(spark, str(tmp_path / "lake"), reader=reader)
    assert shown(actual) == expected
    assert actual.schema["v"].dataType == frame.schema["v"].dataType


def test_null_variants_are_null_once_they_are_sorted(spark, tmp_path):
    frame = spark.sql(WITH_NULLS).repartition(3)
    expected = shown(frame)
    ias.write(frame, str(tmp_path / "lake"))
    ias.optimize(spark, str(tmp_path / "lake"), cluster_by=["id"])
    assert shown(ias.read(spark, str(tmp_path / "lake"))) == expected
    assert shown(spark.read.schema(frame.schema).parquet(str(tmp_path / "lake"))) == expected


@pytest.fixture
def shredded(spark, tmp_path):
    """A file without a shredded VARIANT, and a second one, by Spark, with a shredded one."""
    whole = spark.sql("SELECT 0L id, parse_json('{\"a\":0}') v")
    ias.write(whole, str(tmp_path / "lake"))
    frame = spark.sql("""SELECT id, parse_json(concat('{"a":', id, '}')) v FROM range(1, 100)""")
    frame.coalesce(1).write.parquet(str(tmp_path / "spark"))
    (path,) = (tmp_path / "spark").glob("part-*.parquet")
    assert "typed_value" in str(pq.read_schema(path).field("v").type)
    path.rename(tmp_path / "lake" / "q.parquet")
    return str(tmp_path / "lake")


def test_shredded_variants_are_not_read_in_part(shredded, spark):
    way = {"schema": "id bigint, v variant"}
    for where in ("id = 7", "id >= 0"):
        actual = [ias.read(spark, shredded, where=where, **way)]
        actual.append(ias.read(spark, shredded, where=where, reader="intarsia"))
        actual.append(spark.read.format("intarsia").schema(way["schema"]).load(shredded))
        for frame in actual:
            with pytest.raises(PythonException, match="its VARIANTs are shredded"):
                frame.collect()
    rest = ias.read(spark, shredded, columns=["id"])
    assert sorted(row.id for row in rest.collect()) == list(range(100))
    assert ias.read(spark, shredded, where="id = 0").selectExpr("to_json(v) v").collect() == [
        ('{"a":0}',)
    ]


def test_streams_do_not_read_shredded_variants_in_part(shredded, spark, tmp_path):
    stream = spark.readStream.format("intarsia").schema("id bigint, v variant").load(shredded)
    writer = stream.selectExpr("to_json(v) v").writeStream.format("parquet")
    writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
    query = writer.trigger(availableNow=True).start(str(tmp_path / "out"))
    with pytest.raises(StreamingQueryException, match="its VARIANTs are shredded"):
        query.awaitTermination()


def test_other_types_are_cast(spark, tmp_path):
    pq.write_table(pa.table({"t": pa.array([1_001], pa.timestamp("ns"))}), tmp_path / "a.parquet")
    (row,) = (
        ias.read(spark, str(tmp_path), reader="intarsia").selectExpr("unix_micros(t)").collect()
    )
    assert row[0] == 1


def test_a_field_may_have_the_name_of_sparks_shredded_values(spark, tmp_path):
    frame = spark.sql("SELECT named_struct('v', parse_json('1'), 'typed_value', 5) s")
    ias.write(frame, str(tmp_path / "lake"))
    actual = ias.read(spark, str(tmp_path / "lake")).selectExpr("to_json(s.v) v", "s.typed_value t")
    assert actual.collect() == [("1", 5)]
