"""``format("intarsia")`` in streams: each file is read once, and each batch is written once."""

from __future__ import annotations

import json
import os
import shutil

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql.types import LongType, StructField, StructType, TimestampNTZType

import intarsia as ia
import intarsia.spark as ias
from intarsia.spark.data_source.stream_reader import StreamReader

pytestmark = pytest.mark.spark


@pytest.fixture
def paths(tmp_path):
    """The folders a stream reads from, writes to, and keeps its checkpoint in."""
    return [str(tmp_path / name) for name in ("in", "out", "checkpoint")]


def publish(spark, folder, start, stop, **options):
    data = spark.range(start, stop, 1, 2).selectExpr("id", "id % 2 AS p", "CAST(id AS STRING) AS t")
    ias.write(data, folder, mode="append", indexes="t:lookup", **options)


def run(spark, source, sink, checkpoint, *, form="intarsia", mode="append", shape=None, **options):
    """Runs a stream over all files; returns the number of rows of each batch."""
    frame = spark.readStream.format("intarsia").options(**options).load(source)
    frame = frame if shape is None else shape(frame)
    writer = frame.writeStream.format(form).outputMode(mode)
    writer = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True)
    if form == "intarsia":
        writer = writer.option("indexes", "lookup(t)") if shape is None else writer
    query = writer.start(sink)
    try:
        query.awaitTermination()
        return [actual.numInputRows for actual in query.recentProgress if actual.numInputRows]
    finally:
        query.stop()


def ids(spark, folder):
    return sorted(row.id for row in ias.read(spark, folder, columns=["id"]).collect())


def test_files_are_read_once_as_they_are_published(spark, paths):
    source, sink, _ = paths
    publish(spark, source, 0, 100)
    assert run(spark, *paths) == [100]
    assert ids(spark, sink) == list(range(100))
    publish(spark, source, 100, 130)
    assert run(spark, *paths) == [30]
    assert run(spark, *paths) == []
    assert ids(spark, sink) == list(range(130))
    reports = ia.list_indexes(sink)
    assert all([index.name for index in report.indexes] == ["t:lookup"] for report in reports)
    left = {name.split("-")[0] for name in os.listdir(sink)}
    assert left == {"part", "_SUCCESS", "_stream"}


def test_files_without_a_time_are_read(spark, paths):
    source, sink, _ = paths
    publish(spark, source, 0, 10)
    for name in os.listdir(source):
        os.utime(os.path.join(source, name), (0, 0))
    assert run(spark, *paths) == [10]
    assert ids(spark, sink) == list(range(10))


def test_int96_of_distant_years_is_read(spark, paths):
    source, sink, checkpoint = paths
    moment = pa.array([-(10**16)], pa.timestamp("us"))  # of the year 1653
    os.makedirs(source)
    pq.write_table(
        pa.table({"id": [1], "t": moment}),
        f"{source}/a.parquet",
        use_deprecated_int96_timestamps=True,
    )
    run(spark, source, sink, checkpoint, form="parquet")
    actual = spark.read.parquet(sink).selectExpr("unix_micros(t) AS t").collect()
    assert [row.t for row in actual] == [-(10**16)]


def test_folders_conditions_and_columns(spark, paths):
    publish(spark, paths[0], 0, 100, partition_by="p")
    run(spark, *paths, where="p = 1 AND t <> '7'", columns="id, t")
    actual = ias.read(spark, paths[1])
    assert actual.columns == ["id", "t"]
    assert ids(spark, paths[1]) == [i for i in range(100) if i % 2 == 1 and i != 7]


def put(path, changed):
    """Writes a file with a modification time of ``seconds`` after 1970."""
    pq.write_table(pa.table({"id": [changed]}), path)
    os.utime(path, (changed, changed))


def reader_of_ten_seconds(folder):
    options = {"path": str(folder), "max_file_age": "10s"}
    return StreamReader(options, StructType([StructField("id", LongType())]))


def test_files_added_while_a_batch_is_planned_are_left_to_the_next(tmp_path):
    def latest(start):
        return reader.latestOffset(start, reader.getDefaultReadLimit())

    put(tmp_path / "a.parquet", 1_000)
    reader = reader_of_ten_seconds(tmp_path)
    reader.prepareForTriggerAvailableNow()
    put(tmp_path / "b.parquet", 1_040)
    put(tmp_path / "c.parquet", 1_100)
    first = latest(reader.initialOffset())
    assert list(first["files"]) == ["a.parquet"]
    reader.prepareForTriggerAvailableNow()
    tasks = reader.partitions(first, second := latest(first))
    assert sorted(name for task in tasks for name in task.paths) == ["b.parquet", "c.parquet"]
    assert second["since"] == 1_090_000
    assert latest(second) == second


def test_a_replaced_file_is_recognized_by_its_new_time(tmp_path):
    reader = reader_of_ten_seconds(tmp_path)
    offset = reader.initialOffset()
    for name, changed in [("a", 1_000), ("b", 1_008), ("c", 1_020), ("d", 1_021)]:
        put(tmp_path / f"{name}.parquet", changed)
        before, offset = offset, reader.latestOffset(offset, reader.getDefaultReadLimit())
        read = [path for task in reader.partitions(before, offset) for path in task.paths]
        assert read == [f"{name}.parquet"]
        put(tmp_path / "a.parquet", changed + 5)  # as adding indexes does


def test_the_current_time_is_that_of_planning_a_batch(tmp_path):
    ia.write_table(pa.table({"ts": pa.array([0], pa.timestamp("us"))}), tmp_path / "a.parquet")
    options = {"path": str(tmp_path), "where": "ts > now() - INTERVAL 1 HOUR"}
    reader = StreamReader(options, StructType([StructField("ts", TimestampNTZType())]))
    start, end = reader.initialOffset(), reader.latestOffset(reader.initialOffset(), None)
    (first,) = reader.partitions(start, end)
    (second,) = reader.partitions(start, end)
    assert str(first.where) < str(second.where)
    assert list(reader.read(first)) == []


def test_the_parquet_sink_gets_the_same_rows(spark, paths):
    publish(spark, paths[0], 0, 50)
    run(spark, *paths, form="parquet")
    assert sorted(row.id for row in spark.read.parquet(paths[1]).collect()) == list(range(50))


def test_a_trigger_reads_no_more_files_than_allowed(spark, paths):
    for start in range(0, 50, 10):
        publish(spark, paths[0], start, start + 10)
    assert run(spark, *paths, maxFilesPerTrigger="4") == [20, 20, 10]
    assert ids(spark, paths[1]) == list(range(50))


def test_files_that_are_given_indexes_are_not_read_again(spark, paths):
    publish(spark, paths[0], 0, 20)
    run(spark, *paths)
    ia.add_indexes(paths[0], ["id:lookup"])
    publish(spark, paths[0], 20, 25)
    assert run(spark, *paths) == [5]
    assert ids(spark, paths[1]) == list(range(25))


def test_new_files_are_read_though_older_ones_are_beyond_the_greatest_age(spark, paths):
    publish(spark, paths[0], 0, 20)
    for name in os.listdir(paths[0]):
        os.utime(os.path.join(paths[0], name), (1_000_000_000, 1_000_000_000))
    assert run(spark, *paths, maxFileAge="1h", maxFilesPerTrigger="1") == [10, 10]
    publish(spark, paths[0], 20, 30)
    assert run(spark, *paths, maxFileAge="1h") == [10]
    publish(spark, paths[0], 30, 40)
    assert run(spark, *paths, maxFileAge="1h") == [10]
    assert ids(spark, paths[1]) == list(range(40))
    folder = os.path.join(paths[2], "offsets")
    last = max((name for name in os.listdir(folder) if name.isdigit()), key=int)
    with open(os.path.join(folder, last)) as file:
        offset = json.loads(file.read().splitlines()[-1])
    assert len(offset["files"]) == 4  # those of 1970 count as read without being listed


def forget_commit(checkpoint):
    """Imitates a Spark that died after the sink's commit, before its own commit of the batch."""
    folder = os.path.join(checkpoint, "commits")
    last = max((name for name in os.listdir(folder) if name.isdigit()), key=int)
    os.remove(os.path.join(folder, last))
    os.remove(os.path.join(folder, f".{last}.crc"))


def test_a_batch_that_is_run_again_leaves_its_rows_once(spark, paths):
    publish(spark, paths[0], 0, 30)
    run(spark, *paths)
    before = sorted(os.listdir(paths[1]))
    forget_commit(paths[2])
    assert run(spark, *paths) == [30]
    assert sorted(os.listdir(paths[1])) == before
    publish(spark, paths[0], 30, 40)
    assert run(spark, *paths) == [10]
    assert ids(spark, paths[1]) == list(range(40))


def test_a_new_query_into_the_same_folder_adds_its_rows(spark, paths):
    publish(spark, paths[0], 0, 30)
    run(spark, *paths)
    shutil.rmtree(paths[2])
    run(spark, *paths)
    assert ids(spark, paths[1]) == sorted([*range(30), *range(30)])


def test_a_batch_that_fails_is_run_again(spark, paths, tmp_path):
    publish(spark, paths[0], 0, 30)
    fuse = tmp_path / "fuse"

    def fails(batches):
        for batch in batches:
            yield batch
            if not fuse.exists():
                raise RuntimeError("boom")

    def shape(frame):
        return frame.mapInArrow(fails, "id long, p long, t string")

    with pytest.raises(StreamingQueryException, match="boom"):
        run(spark, *paths, shape=shape)
    assert not [name for name in os.listdir(paths[1]) if name.endswith(".parquet")]
    fuse.touch()
    run(spark, *paths, shape=shape)
    assert ids(spark, paths[1]) == list(range(30))
    assert not [name for name in os.listdir(paths[1]) if name.startswith("_temporary")]


@pytest.mark.parametrize("mode", ["append", "complete"])
def test_a_batch_without_rows_leaves_its_schema(mode, spark, paths):
    def shape(frame):
        actual = frame.where("id < 0")
        return actual if mode == "append" else actual.groupBy("p").count()

    publish(spark, paths[0], 0, 10)
    run(spark, *paths, mode=mode, shape=shape)
    actual = ias.read(spark, paths[1])
    assert actual.columns == (["id", "p", "t"] if mode == "append" else ["p", "count"])
    assert actual.count() == 0
    names = sorted(os.listdir(paths[1]))
    publish(spark, paths[0], 10, 20)
    run(spark, *paths, mode=mode, shape=shape)
    if mode == "append":  # one attempt is enough
        assert [name for name in names if name.endswith(".parquet")] == [
            name for name in sorted(os.listdir(paths[1])) if name.endswith(".parquet")
        ]
    assert ias.read(spark, paths[1]).count() == 0


def test_complete_mode_replaces_existing_rows(spark, paths):
    def shape(frame):
        return frame.groupBy("p").count()

    for start in (0, 10):
        publish(spark, paths[0], start, start + 10)
        run(spark, *paths, mode="complete", shape=shape)
        actual = sorted(map(tuple, ias.read(spark, paths[1]).collect()))
        assert actual == [(0, (start + 10) // 2), (1, (start + 10) // 2)]


def test_a_stream_waits_for_files_where_its_schema_is_given(spark, paths):
    os.makedirs(paths[0])
    frame = spark.readStream.format("intarsia").schema("id long, t string").load(paths[0])
    writer = frame.writeStream.format("intarsia").option("checkpointLocation", paths[2])
    query = writer.trigger(processingTime="200 milliseconds").start(paths[1])
    try:
        publish(spark, paths[0], 0, 10)
        query.processAllAvailable()
        assert ids(spark, paths[1]) == list(range(10))
        publish(spark, paths[0], 10, 15)
        query.processAllAvailable()
        assert ids(spark, paths[1]) == list(range(15))
    finally:
        query.stop()


def test_unsupported_stream_options_are_refused(spark, paths):
    reader = spark.readStream.format("intarsia")
    with pytest.raises(PySparkException, match="no such file or folder"):
        reader.load(paths[0])
    publish(spark, paths[0], 0, 10)
    for options, message in (
        ({"where": "nowhere = 1"}, "'nowhere' is not there"),
        ({"maxFileAge": "long"}, "a time such as 7d"),
        ({"latestFirst": "true"}, "option 'latestfirst' is unknown"),
    ):
        with pytest.raises(PySparkException, match=message):
            run(spark, *paths, **options)
