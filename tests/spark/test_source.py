"""``format("intarsia")``: batch reads and writes."""

from __future__ import annotations

import datetime as dt
import time

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import PySparkException
from pyspark.sql.types import ArrayType, LongType, MapType, StringType, StructField, StructType

import intarsia as ia
import intarsia.spark as ias

pytestmark = pytest.mark.spark

INDEXES = "lookup(hash, granule_rows=100), key:lookup, page_index(id, text)"


@pytest.fixture(scope="module")
def lake(all_types, tmp_path_factory):
    """Rows of all types, written by the format."""
    folder = tmp_path_factory.mktemp("format") / "lake"
    writer = all_types.write.format("intarsia").mode("append").option("indexes", INDEXES)
    writer.options(partition_by="part", cluster_by="key, id", rows_per_page=200).save(str(folder))
    return folder


@pytest.fixture(scope="module")
def plain(spark, all_types, tmp_path_factory):
    """The same rows without folders, and so without the two partition columns."""
    folder = tmp_path_factory.mktemp("format") / "plain"
    all_types.write.format("intarsia").mode("append").save(str(folder))
    return folder


def rows(frame):
    return sorted((row.asDict(recursive=True) for row in frame.collect()), key=lambda r: r["id"])


def load(spark, folder, **options):
    return spark.read.format("intarsia").options(**options).load(str(folder))


def everything_under(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


# --- reading ------------------------------------------------------------------------------------


def test_all_types_come_back_as_they_were(spark, all_types, plain):
    actual = load(spark, plain)
    assert actual.schema.simpleString() == all_types.schema.simpleString()
    assert rows(actual) == rows(all_types)


def test_rows_are_those_spark_reads(spark, lake):
    actual = load(spark, lake)
    expected = spark.read.parquet(str(lake))
    assert actual.schema.simpleString() == expected.select(actual.columns).schema.simpleString()
    assert rows(actual) == rows(expected)


@pytest.mark.parametrize(
    "where",
    [
        "key = 3919 OR key = 12",
        "part = 'a' AND id < 100",
        "part IS NULL AND text LIKE 'né 1%'",
        "day = '2013-06-01'",
        "id < 0",
    ],
)
def test_a_condition_as_an_option_finds_what_where_finds(where, spark, lake, all_types):
    actual = load(spark, lake, where=where, columns="id, hash, part")
    assert actual.columns == ["id", "hash", "part"]
    assert rows(actual) == rows(all_types.where(where).select("id", "hash", "part"))


def test_a_schema_picks_columns(spark, lake, all_types):
    reader = spark.read.format("intarsia").schema("part string, id long").option("where", "id < 9")
    assert rows(reader.load(str(lake))) == rows(all_types.where("id < 9").select("part", "id"))


@pytest.mark.parametrize("streamed", [False, True], ids=["batch", "stream"])
def test_a_schema_may_be_not_nullable(streamed, spark, tmp_path):
    frame = spark.range(40).selectExpr(
        "id", "named_struct('x', id) AS s", "array(id) AS l", "map('k', id) AS m"
    )
    frame.write.format("intarsia").mode("append").save(str(tmp_path / "a"))
    assert not frame.schema["id"].nullable
    assert not frame.schema["l"].dataType.containsNull
    if streamed:
        reader = spark.readStream.format("intarsia").schema(frame.schema)
        stream = reader.load(str(tmp_path / "a")).writeStream.format("intarsia")
        stream = stream.option("checkpointLocation", str(tmp_path / "c"))
        stream.trigger(availableNow=True).start(str(tmp_path / "b")).awaitTermination()
        actual = load(spark, tmp_path / "b")
    else:
        actual = spark.read.format("intarsia").schema(frame.schema).load(str(tmp_path / "a"))
        assert actual.schema == frame.schema
    assert rows(actual) == rows(frame)


@pytest.mark.parametrize(
    ("column", "kind"),
    [
        ("if(id = 3, NULL, id) AS x", "x bigint not null"),
        ("named_struct('y', if(id = 3, NULL, id)) AS x", "x struct<y: bigint not null>"),
        ("array(1, if(id = 3, NULL, id)) AS x", ArrayType(LongType(), containsNull=False)),
        (
            "map('k', if(id = 3, NULL, id)) AS x",
            MapType(StringType(), LongType(), valueContainsNull=False),
        ),
    ],
    ids=["column", "struct", "array", "map"],
)
def test_nulls_in_not_nullable_columns_are_an_error(column, kind, spark, tmp_path):
    spark.range(5).selectExpr(column).write.format("intarsia").mode("append").save(str(tmp_path))
    schema = kind if isinstance(kind, str) else StructType([StructField("x", kind)])
    actual = spark.read.format("intarsia").schema(schema).load(str(tmp_path))
    with pytest.raises(PySparkException, match="column x: it contains NULL"):
        actual.collect()


def test_fields_of_a_null_struct_may_be_null(spark, tmp_path):
    frame = spark.range(5).selectExpr(
        "if(id = 3, NULL, named_struct('a', id)) AS s",
        "array(if(id = 3, NULL, named_struct('a', id))) AS l",
    )
    frame.write.format("intarsia").mode("append").save(str(tmp_path))
    struct_type = StructType([StructField("a", LongType(), nullable=False)])
    schema = StructType([StructField("s", struct_type), StructField("l", ArrayType(struct_type))])
    actual = spark.read.format("intarsia").schema(schema).load(str(tmp_path))
    assert sorted(actual.collect(), key=str) == sorted(frame.collect(), key=str)


def test_a_stated_collation_is_kept_or_refused(spark, tmp_path):
    frame = spark.range(60).selectExpr("id", "if(id % 2 = 0, 'Ab', 'aB') AS s")
    frame.write.format("intarsia").mode("append").save(str(tmp_path))
    for schema in ("s string collate UTF8_LCASE", "n struct<s: array<string collate UNICODE_CI>>"):
        with pytest.raises(
            ia.UnsupportedError, match=r"column [sn]: the collation .* would be lost"
        ):
            ias.read(spark, tmp_path, schema=schema)
    actual = spark.read.format("intarsia").schema("s string collate UTF8_LCASE").load(str(tmp_path))
    assert actual.where("s = 'ab'").count() == 60


def test_uses_of_one_dataframe_do_not_disturb_each_other(spark, lake):
    actual = load(spark, lake, where="id < 100")
    assert [actual.count(), actual.where("id > 50").count(), actual.count()] == [100, 49, 100]
    both = actual.where("id < 10").union(actual.where("id >= 95"))
    assert sorted(row.id for row in both.collect()) == [*range(10), *range(95, 100)]


def test_a_view_answers_sql(spark, lake):
    spark.sql(
        "CREATE OR REPLACE TEMP VIEW few USING intarsia "
        f"""OPTIONS (path '{lake}', where "id < 60", columns 'id,part')"""
    )
    actual = spark.sql("SELECT part, count(*) AS n FROM few WHERE id >= 30 GROUP BY 1 ORDER BY 1")
    assert [tuple(row) for row in actual.collect()] == [(None, 10), ("a", 10), ("b & c", 10)]


def test_several_paths_are_read(spark, lake):
    paths = [str(lake / "part=a"), str(lake / "part=b & c")]
    actual = spark.read.format("intarsia").option("columns", "id").load(paths)
    assert actual.count() == 2667


def test_types_spark_lacks_are_read_as_its_nearest(spark, tmp_path):
    table = pa.table(
        {
            "u32": pa.array([2**32 - 1, None], pa.uint32()),
            "ns": pa.array([1_500, None], pa.timestamp("ns", "UTC")),
            "word": pa.array(["a", None]).dictionary_encode(),
            "long": pa.array(["b", None], pa.large_string()),
            "must": pa.array([1, 2], pa.int32()),
            "list": pa.array([[1, None], None], pa.large_list(pa.uint8())),
        },
    )
    schema = table.schema.set(4, table.schema.field(4).with_nullable(False))
    pq.write_table(table.cast(schema), tmp_path / "a.parquet")
    first, second = load(spark, tmp_path).collect()
    assert (first.u32, first.word, first.long, first.must) == (2**32 - 1, "a", "b", 1)
    assert first.list == [1, None]
    assert (second.u32, second.must) == (None, 2)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"where": "nowhere = 1"}, "'nowhere' is not there"),
        ({"columns": "id,nowhere"}, "'nowhere' is not there"),
        ({"where": "id = 'x'"}, "'x' cannot be read as int64"),
        ({"wher": "id = 1"}, "option 'wher' is unknown"),
        ({"parallelism": "many"}, "'parallelism' is a number from 1 on"),
    ],
)
def test_invalid_options_are_refused(options, message, spark, lake):
    with pytest.raises(PySparkException, match=message):
        load(spark, lake, **options).collect()


def test_a_missing_path_option_is_refused(spark, tmp_path):
    with pytest.raises(PySparkException, match="no path was given"):
        spark.read.format("intarsia").load()
    with pytest.raises(PySparkException, match="no such file or folder"):
        load(spark, tmp_path / "nowhere")


def test_the_format_can_be_registered_in_a_session(spark, lake):
    ias.register(spark)
    assert load(spark, lake, where="id = 5").count() == 1


# --- writing ------------------------------------------------------------------------------------


def test_files_equal_those_of_write(lake):
    folders = {path.name for path in lake.iterdir() if path.is_dir()}
    assert len(folders) == 3
    assert not [name for name in everything_under(lake) if "_temporary" in name]
    assert (lake / "_SUCCESS").exists()
    for report in ia.list_indexes(lake):
        assert [index.name for index in report.indexes] == ["hash:lookup", "key:lookup"]
    assert not ia.verify(lake)


def test_tasks_sort_their_rows(spark, lake):
    for file in lake.rglob("*.parquet"):
        table = pq.read_table(file, columns=["key", "id"], partitioning=None)
        keys = [
            (key is not None, key or 0, i)
            for key, i in zip(*table.to_pydict().values(), strict=True)
        ]
        assert keys == sorted(keys)
    assert ia.dataset(lake).explain(filter="key = 12").planned.rows.selected < 1000


def test_rows_on_a_curve_stay_in_their_order(spark, tmp_path):
    points = spark.range(0, 20_000, 1, 2).selectExpr(
        "id", "abs(hash(id)) % 1000 AS a", "abs(hash(id, 1)) % 1000 AS b"
    )
    ordered = ias.cluster(points, ["a", "b"], curve="hilbert")
    for name, frame in (("as-it-comes", points), ("curve", ordered)):
        writer = frame.write.format("intarsia").mode("append").option("rows_per_page", 100)
        writer.save(str(tmp_path / name))
    box = "a < 100 AND b < 100"
    came, curve = (
        ia.dataset(tmp_path / name).explain(filter=box).planned.rows.selected
        for name in ("as-it-comes", "curve")
    )
    assert curve < 0.2 * came
    assert load(spark, tmp_path / "curve", where=box).count() == points.where(box).count()


def test_append_and_overwrite(spark, tmp_path):
    def write(frame, mode):
        return frame.write.format("intarsia").mode(mode).save(str(tmp_path / "l"))

    write(spark.range(10), "overwrite")
    write(spark.range(10, 15), "append")
    assert [row["id"] for row in rows(load(spark, tmp_path / "l"))] == list(range(15))
    write(spark.range(3), "overwrite")
    assert [row["id"] for row in rows(load(spark, tmp_path / "l"))] == [0, 1, 2]


def test_dynamic_overwrite(spark, tmp_path):
    frame = spark.range(9).selectExpr("id", "id % 3 AS p")
    path = str(tmp_path / "lake")
    frame.write.format("intarsia").mode("append").option("partition_by", "p").save(path)
    writer = frame.where("p = 1").selectExpr("id + 100 AS id", "p").write.format("intarsia")
    options = {"partition_by": "p", "partitionOverwriteMode": "dynamic"}
    writer.mode("overwrite").options(**options).save(path)
    assert [r["id"] for r in rows(load(spark, path))] == [0, 2, 3, 5, 6, 8, 101, 104, 107]


def test_inserting_into_a_view_appends(spark, tmp_path):
    path = str(tmp_path / "lake")
    spark.range(3).write.format("intarsia").mode("append").save(path)
    spark.sql(f"CREATE OR REPLACE TEMP VIEW sink USING intarsia OPTIONS (path '{path}')")
    spark.sql("INSERT INTO sink SELECT id + 10 FROM range(2)")
    assert [row["id"] for row in rows(load(spark, path))] == [0, 1, 2, 10, 11]


def test_an_empty_dataframe_leaves_its_schema(spark, all_types, tmp_path):
    all_types.where("id < 0").write.format("intarsia").mode("append").save(str(tmp_path / "l"))
    actual = load(spark, tmp_path / "l")
    assert actual.schema.simpleString() == all_types.schema.simpleString()
    assert actual.count() == 0


def test_files_have_the_requested_sizes(spark, tmp_path):
    frame = spark.range(0, 20_000, 1, 1).selectExpr("id", "md5(CAST(id AS STRING)) AS h")
    writer = frame.write.format("intarsia").mode("append").option("target_file_size", "100 KB")
    writer.save(str(tmp_path / "lake"))
    sizes = [file.stat().st_size for file in (tmp_path / "lake").glob("*.parquet")]
    assert len(sizes) > 3
    assert max(sizes) < 1.5 * 100 * 1024


@pytest.mark.parametrize("mode", ["append", "overwrite"])
def test_a_failed_job_leaves_nothing(mode, spark, tmp_path):
    failing = spark.range(0, 400, 1, 4).selectExpr(
        "CAST(IF(id < 390, id, raise_error('stop here')) AS BIGINT) AS id"
    )
    with pytest.raises(PySparkException, match="stop here"):
        failing.write.format("intarsia").mode(mode).save(str(tmp_path / "new" / "lake"))
    time.sleep(0.5)
    assert everything_under(tmp_path) == []
    spark.range(3).write.format("intarsia").mode("append").save(str(tmp_path))
    before = everything_under(tmp_path)
    with pytest.raises(PySparkException, match="stop here"):
        failing.write.format("intarsia").mode(mode).save(str(tmp_path))
    time.sleep(0.5)
    assert everything_under(tmp_path) == before


@pytest.mark.parametrize("mode", ["error", "ignore"])
def test_modes_that_spark_refuses(mode, spark, tmp_path):
    with pytest.raises(PySparkException, match="UNSUPPORTED_DATA_SOURCE_SAVE_MODE"):
        spark.range(3).write.format("intarsia").mode(mode).save(str(tmp_path / "lake"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"curve": "hilbert"}, "intarsia.spark.cluster"),
        ({"cluster": "id"}, "option 'cluster' is unknown"),
        ({"indexes": "lookup(nowhere)"}, "column 'nowhere' is not there"),
        ({"cluster_by": '["id"'}, "option 'cluster_by' is no list in JSON"),
        ({"cluster_by": "nowhere"}, "'nowhere' is not there"),
        ({"partition_by": "ts"}, "timeZone"),
        ({"partitionOverwriteMode": "dynamic"}, "goes with mode 'overwrite'"),
        ({"target_file_size": "much"}, "target_file_size"),
        ({"compression": "lzo"}, "compression must be one of"),
    ],
)
def test_invalid_writes_are_refused_and_leave_nothing(options, message, spark, all_types, tmp_path):
    writer = all_types.select("id", "ts").write.format("intarsia").mode("append")
    with pytest.raises(PySparkException, match=message):
        writer.options(**options).save(str(tmp_path / "lake"))
    assert everything_under(tmp_path) == []


def test_timestamps_in_folder_names_are_in_the_requested_zone(spark, tmp_path):
    frame = spark.createDataFrame([(1, dt.datetime(2013, 6, 1, 12))], "id long, at timestamp")
    options = {"partition_by": "at", "timeZone": "Asia/Tokyo"}
    writer = frame.write.format("intarsia").mode("append").options(**options)
    writer.save(str(tmp_path / "lake"))
    (folder,) = (path.name for path in (tmp_path / "lake").iterdir() if path.is_dir())
    moment = frame.selectExpr("date_format(from_utc_timestamp(at, 'Asia/Tokyo'), 'HH') AS h")
    assert folder == f"at=2013-06-01 {moment.first().h}%3A00%3A00"
