"""Folders of other table formats are read only on request, and not written to."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import PySparkException

import intarsia as ia
import intarsia.spark as ias

pytestmark = pytest.mark.spark

MANY = 40
"""Number of files. For more than 32, Spark's reader gets their folder if that is equivalent."""


@pytest.fixture
def streamed(spark, tmp_path):
    """A folder that a Spark stream wrote to."""
    source, sink = tmp_path / "source", tmp_path / "sink"
    spark.range(2).coalesce(1).write.parquet(str(source))
    query = (
        spark.readStream.schema("id bigint")
        .parquet(str(source))
        .writeStream.option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start(str(sink), format="parquet")
    )
    query.awaitTermination()
    assert (sink / "_spark_metadata").is_dir()
    return sink


def test_files_that_a_log_does_not_list_are_read(spark, streamed):
    for number in range(MANY):
        pq.write_table(pa.table({"id": [100 + number]}), streamed / f"x{number}.parquet")
    assert spark.read.parquet(str(streamed)).count() == 2
    with pytest.raises(ia.PathError, match="a stream of Spark's writes to"):
        ias.read(spark, streamed)
    for reader in ("auto", "spark", "intarsia"):
        frame = ias.read(spark, streamed, reader=reader, table_format="ignore")
        assert frame.count() == MANY + 2
    listed = spark.read.parquet(str(streamed)).inputFiles()
    assert ias.read(spark, listed).count() == ia.dataset(listed).count_rows() == 2


def make_log(folder, log):
    """Writes a log that makes a folder a table."""
    (folder / log).mkdir()
    if log == "metadata":
        (folder / log / "v1.metadata.json").write_text("{}")


@pytest.mark.parametrize("log", ["_delta_log", "_spark_metadata", ".hoodie", "metadata"])
@pytest.mark.parametrize("part", ["", "p=1", "data", "data/0a/p=1"])
def test_nothing_is_written_into_a_table_with_a_log(spark, tmp_path, log, part):
    make_log(tmp_path, log)
    folder = tmp_path / part
    folder.mkdir(exist_ok=True, parents=True)
    for name in "ab":
        pq.write_table(pa.table({"id": [1]}), folder / f"{name}.parquet")
    before = sorted(tmp_path.rglob("*"))
    message = rf"whose log \({log}\)"
    with pytest.raises(ia.PathError, match=message):
        ias.optimize(spark, folder)
    for mode in ("append", "overwrite"):
        with pytest.raises(ia.PathError, match=message):
            ias.write(spark.range(1), folder, mode=mode)
        with pytest.raises(PySparkException, match=message):
            spark.range(1).write.format("intarsia").mode(mode).save(str(folder))
    assert sorted(tmp_path.rglob("*")) == before
    with pytest.raises(ia.PathError, match="is not read here"):
        ias.read(spark, folder)
    assert ias.read(spark, folder, columns=["id"], table_format="ignore").count() == 2


def test_tables_below_a_folder_are_not_overwritten(spark, tmp_path):
    table = tmp_path / "lake" / "t"
    table.mkdir(parents=True)
    make_log(table, "_delta_log")
    pq.write_table(pa.table({"id": [1]}), table / "a.parquet")
    with pytest.raises(ia.PathError, match="whose log"):
        ias.write(spark.range(1), tmp_path / "lake", mode="overwrite")
    with pytest.raises(ia.PathError, match="is not read here"):
        ias.optimize(spark, tmp_path / "lake")
    assert (table / "a.parquet").exists()


def test_every_way_to_read_refuses_and_takes_the_option(spark, tmp_path):
    make_log(tmp_path, "metadata")
    (tmp_path / "data").mkdir()
    pq.write_table(pa.table({"id": [1, 2]}), tmp_path / "data" / "a.parquet")
    deletes = pa.table({"file_path": ["a"], "pos": pa.array([0], pa.int64())})
    pq.write_table(deletes, tmp_path / "data" / "0.parquet")
    path = str(tmp_path)

    def loaded(**options):
        return spark.read.format("intarsia").options(**options).load(path).count()

    def streamed(**options):
        stream = spark.readStream.format("intarsia").schema("id bigint").options(**options)
        query = stream.load(path).writeStream.format("memory").queryName("found")
        query.trigger(availableNow=True).start().awaitTermination()
        return spark.table("found").count()

    calls = {
        "read": lambda **o: ias.read(spark, path, **o).count(),
        "explain": lambda **o: ias.explain(spark, path, **o),
        "sql": lambda **o: ias.sql(
            spark, "SELECT id FROM t", t=ias.read(spark, path, **o) if o else path
        ).count(),
        "add": lambda **o: ias.add_indexes(spark, path, ["id:lookup"], **o).count(),
        "drop": lambda **o: ias.drop_indexes(spark, path, ["id:lookup"], **o).count(),
        "catalog": lambda **o: ias.build_catalog(spark, path, **o).files,
        "load": loaded,
        "stream": streamed,
    }
    counts = {"read": 2, "sql": 2, "load": 2, "stream": 2, "add": 1, "drop": 1, "catalog": 1}
    for name, call in calls.items():
        with pytest.raises((ia.PathError, PySparkException), match="is not read here"):
            call()
        actual = call(table_format="ignore")
        assert actual == counts.get(name, actual), name
    with pytest.raises(PySparkException, match="table_format is 'auto' or 'ignore'"):
        loaded(table_format="plain")
