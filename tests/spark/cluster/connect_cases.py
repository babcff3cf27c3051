"""Cases for Spark Connect, which ``test_connect.py`` runs in a separate process.

A process that has a session of Spark Connect cannot have another session.
"""

from __future__ import annotations

import os

import pyarrow.dataset as pads
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import intarsia as ia
import intarsia.spark as ias
from intarsia.spark.session import parallelism_of

LAYOUT = {"indexes": "text:lookup", "partition_by": "p", "rows_per_page": 100}


@pytest.fixture(scope="module")
def spark():
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    builder = SparkSession.builder.remote("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.sql.shuffle.partitions", "2")
    quick = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
    session = builder.config("spark.driver.extraJavaOptions", quick).getOrCreate()
    yield session
    session.stop()


@pytest.fixture(scope="module")
def data(spark):
    return spark.range(0, 2000, 1, 3).selectExpr(
        "id", "id % 3 AS p", "(id * 7919) % 1000 AS key", "concat('x', id) AS text"
    )


@pytest.fixture(scope="module")
def lake(data, tmp_path_factory):
    folder = tmp_path_factory.mktemp("connect") / "lake"
    options = {"cluster_by": ["key", "id"], "curve": "hilbert", "target_file_size": "1 MB"}
    written = ias.write(data, folder, **LAYOUT, **options)
    assert sum(file.rows for file in written) == 2000
    return folder


def rows(frame):
    return sorted((row.asDict() for row in frame.collect()), key=lambda row: row["id"])


def test_the_session_is_spark_connect(spark):
    assert type(spark).__module__.startswith("pyspark.sql.connect")
    with pytest.raises(PySparkException):
        assert spark.sparkContext


def test_tasks_are_as_many_as_cores(spark):
    assert parallelism_of(spark) == 2


def test_the_active_session_is_returned(spark):
    assert ias.session() is spark
    assert ias.session("sc://localhost") is spark


def test_rows_come_back(data, spark, lake):
    assert rows(ias.read(spark, lake, columns=data.columns)) == rows(data)
    assert not ia.verify(lake)


@pytest.mark.parametrize("where", ["key = 17 OR text = 'x3'", "p = 1 AND id < 9", "id < 0"])
def test_conditions(where, data, spark, lake):
    expected = rows(data.where(where))
    assert rows(ias.read(spark, lake, columns=data.columns, where=where)) == expected
    options = {"where": where, "columns": ",".join(data.columns)}
    assert rows(spark.read.format("intarsia").options(**options).load(str(lake))) == expected


def test_expressions_filter_with_and_without_columns(spark, lake):
    where = pads.field("key") < 100
    assert ias.read(spark, lake, where=where).count() == 200
    assert ias.read(spark, lake, columns=[], where=where).count() == 200


def test_a_schema_may_be_a_string(spark, lake):
    actual = ias.read(spark, lake, schema="id int, p string, other date", where="key = 17")
    assert actual.dtypes == [("id", "int"), ("p", "string"), ("other", "date")]
    expected = spark.read.parquet(str(lake)).where("key = 17").collect()
    assert sorted(actual.collect()) == sorted((row.id, str(row.p), None) for row in expected)


def test_columns_of_any_name_are_written(spark, data, tmp_path):
    named = data.toDF("id", "a.b", "c`d", "*")
    ias.write(named, tmp_path / "lake", partition_by="c`d", cluster_by=["a.b"])
    assert rows(ias.read(spark, tmp_path / "lake", columns=named.columns)) == rows(named)


def test_the_format_is_registered(spark, lake):
    ias.register(spark)
    actual = spark.read.format("intarsia").option("where", "id = 5").load(str(lake))
    assert actual.count() == 1


def test_the_format_writes(spark, data, tmp_path):
    writer = data.write.format("intarsia").mode("append").options(cluster_by="key", **LAYOUT)
    writer.option("checkpoint_row_groups", "1").save(str(tmp_path / "lake"))
    assert rows(spark.read.parquet(str(tmp_path / "lake")).select(data.columns)) == rows(data)


def test_rows_are_put_on_a_curve(data, tmp_path):
    for curve in ("zorder", "hilbert"):
        ordered = ias.cluster(data, ["key", "id"], curve=curve, num_partitions=1)
        ordered.write.format("intarsia").mode("overwrite").option("rows_per_page", 50).save(
            str(tmp_path / "lake")
        )
        plan = ia.dataset(tmp_path / "lake").explain(filter="key < 100 AND id < 200")
        assert plan.planned.rows.selected < 600


def test_modes(spark, tmp_path):
    ias.write(spark.range(10), tmp_path)
    with pytest.raises(ia.PathError, match="there is data already"):
        ias.write(spark.range(10), tmp_path)
    ias.write(spark.range(10, 12), tmp_path, mode="append")
    assert ias.read(spark, tmp_path).count() == 12
    ias.write(spark.range(3), tmp_path, mode="overwrite")
    assert rows(ias.read(spark, tmp_path)) == [{"id": n} for n in range(3)]


def test_views_answer_sql(spark, lake):
    spark.sql(
        f"CREATE OR REPLACE TEMP VIEW few USING intarsia OPTIONS (path '{lake}', where 'id < 60')"
    )
    ias.read(spark, lake, where="id < 60").createOrReplaceTempView("read")
    for view in ("few", "read"):
        actual = spark.sql(
            f"SELECT p, count(*) AS n FROM {view} WHERE id >= 30 GROUP BY 1 ORDER BY 1"
        )
        assert [tuple(row) for row in actual.collect()] == [(0, 10), (1, 10), (2, 10)]


def test_streams(spark, tmp_path):
    source, sink, marks = (str(tmp_path / name) for name in ("in", "out", "checkpoint"))
    for stop in (100, 130):
        ias.write(spark.range(stop - 30, stop, 1, 2), source, mode="append", indexes="id:lookup")
        frame = spark.readStream.format("intarsia").option("where", "id <> 80").load(source)
        writer = frame.writeStream.format("intarsia").option("checkpointLocation", marks)
        writer.trigger(availableNow=True).start(sink).awaitTermination()
        expected = [{"id": n} for n in range(70, stop) if n != 80]
        assert rows(ias.read(spark, sink)) == expected


def test_errors_in_tasks_are_reported(spark, tmp_path):
    folder = tmp_path / "lake"

    def in_the_way(batches):
        for job in folder.glob("_temporary-*"):
            (job / "p=1").touch()
        yield from batches

    frame = spark.range(0, 10, 1, 1).selectExpr("id", "id % 2 AS p")
    with pytest.raises(ia.PathError, match=rf"{folder}/_temporary-.*/p=1: .*File exists"):
        ias.write(frame.mapInArrow(in_the_way, "id long, p long"), folder, partition_by="p")
    assert not folder.exists()


def test_invalid_arguments_are_reported(spark, lake, tmp_path):
    with pytest.raises(ia.PredicateError, match="'nowhere' is not there"):
        ias.read(spark, lake, where="nowhere = 1")
    with pytest.raises(PySparkException, match="'nowhere' is not there"):
        spark.read.format("intarsia").option("where", "nowhere = 1").load(str(lake)).collect()
    with pytest.raises(ia.IndexSpecError, match="column 'nowhere' is not there"):
        ias.write(spark.range(3), tmp_path / "lake", indexes="nowhere:lookup")


@pytest.mark.parametrize("mode", ["append", "overwrite"])
def test_a_relative_path_of_the_format_is_refused(mode, spark, data):
    with pytest.raises(PySparkException, match=r"rel/lake: the path is relative"):
        data.write.format("intarsia").mode(mode).save("rel/lake")
    for paths in ("rel/lake", ["rel/lake", "/elsewhere"]):
        with pytest.raises(PySparkException, match=r"rel/lake: the path is relative"):
            spark.read.format("intarsia").load(paths).collect()
