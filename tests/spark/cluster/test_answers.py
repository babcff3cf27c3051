"""A cluster gives the answers of Spark's own reader and of the rows written."""

from __future__ import annotations

import pytest

import intarsia as ia
import intarsia.spark as ias

pytestmark = [pytest.mark.spark, pytest.mark.cluster]
CONDITIONS = ["id = 7", "part = 'a' OR id > 3990", "text LIKE 'né 1%' AND part IS NULL", "id < 0"]
LAYOUT = {"indexes": "hash:lookup", "partition_by": "part", "rows_per_page": 200}


def rows(frame):
    return sorted((row.asDict(recursive=True) for row in frame.collect()), key=lambda r: r["id"])


@pytest.fixture(scope="module")
def data(spark, all_types_sql):
    return spark.range(0, 4000, 1, 3).selectExpr(*all_types_sql)


@pytest.fixture(scope="module")
def by_write(data, tmp_path_factory):
    folder = tmp_path_factory.mktemp("by-write") / "lake"
    ias.write(data, folder, cluster_by=["key", "id"], curve="zorder", **LAYOUT)
    return folder


@pytest.fixture(scope="module")
def by_format(data, tmp_path_factory):
    folder = tmp_path_factory.mktemp("by-format") / "lake"
    writer = data.write.format("intarsia").mode("append").options(cluster_by="id", **LAYOUT)
    writer.save(str(folder))
    return folder


@pytest.mark.parametrize("name", ["by_write", "by_format"])
def test_written_rows_are_read_back(name, data, spark, request):
    folder = request.getfixturevalue(name)
    expected = rows(data)
    assert rows(spark.read.parquet(str(folder)).select(data.columns)) == expected
    assert rows(ias.read(spark, folder, columns=data.columns)) == expected
    assert not ia.verify(folder)
    for report in ia.list_indexes(folder):
        assert [index.name for index in report.indexes] == ["hash:lookup"]
    assert not [path for path in folder.iterdir() if path.name.startswith(("_temp", "_commit"))]


@pytest.mark.parametrize("where", CONDITIONS)
def test_conditions_find_what_where_finds(where, data, spark, by_write):
    expected = rows(data.where(where).select("id", "hash", "part"))
    columns = ["id", "hash", "part"]
    assert rows(ias.read(spark, by_write, columns=columns, where=where)) == expected
    reader = spark.read.format("intarsia").option("where", where).option("columns", "id,hash,part")
    assert rows(reader.load(str(by_write))) == expected


def test_a_view_answers_sql(data, spark, by_format):
    spark.sql(f"CREATE OR REPLACE TEMP VIEW few USING intarsia OPTIONS (path '{by_format}')")
    query = "SELECT part, count(*), sum(key) FROM {} WHERE id >= 30 GROUP BY 1 ORDER BY 1"
    data.createOrReplaceTempView("given")
    assert spark.sql(query.format("few")).collect() == spark.sql(query.format("given")).collect()


def test_a_stream_reads_each_file_once(spark, tmp_path):
    source, sink, marks = (str(tmp_path / name) for name in ("in", "out", "checkpoint"))
    for stop in (100, 130):
        ias.write(spark.range(stop - 30, stop, 1, 2), source, mode="append", indexes="id:lookup")
        frame = spark.readStream.format("intarsia").load(source)
        writer = frame.writeStream.format("intarsia").option("checkpointLocation", marks)
        writer.trigger(availableNow=True).start(sink).awaitTermination()
        assert sorted(row.id for row in ias.read(spark, sink).collect()) == list(range(70, stop))
