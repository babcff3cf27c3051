"""Save modes on existing data, and tasks that fail or run twice."""

from __future__ import annotations

import os
import subprocess
import sys

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import PySparkException

import intarsia as ia
import intarsia.spark as ias
from intarsia.commit import commit
from intarsia.dataset.commit_log import PUBLISHING, CommitEntry

pytestmark = pytest.mark.spark


def contents(folder):
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def data(contents):
    return {name: actual for name, actual in contents.items() if name.endswith(".parquet")}


def ids(spark, folder):
    return sorted(row.id for row in ias.read(spark, folder, columns=["id"]).collect())


def by_part(spark, start, stop):
    return spark.range(start, stop, 1, 2).selectExpr("id", "id % 3 AS part")


@pytest.fixture
def failing(spark):
    return spark.range(0, 400, 1, 4).selectExpr(
        "CAST(IF(id < 390, id, raise_error('stop here')) AS BIGINT) AS id", "id % 3 AS part"
    )


@pytest.mark.parametrize("mode", ["ignore", "error", "errorifexists", "append", "overwrite"])
def test_every_mode_writes_to_a_new_path(mode, spark, tmp_path):
    assert ias.write(spark.range(10), tmp_path / "lake", mode=mode)
    assert ids(spark, tmp_path / "lake") == list(range(10))


@pytest.mark.parametrize("mode", ["ignore", "error"])
def test_files_of_a_dead_writer_are_no_data(mode, spark, tmp_path):
    ias.write(spark.range(3), tmp_path / "lake")
    files = [file.name for file in (tmp_path / "lake").glob("*.parquet")]
    left = CommitEntry("dead", PUBLISHING, (*files, "other.parquet"), ())
    (tmp_path / "lake" / left.name).write_text(left.encode())
    with pytest.warns(ia.IntarsiaWarning, match="under way, or was interrupted"):
        assert ias.write(spark.range(5), tmp_path / "lake", mode=mode)
    assert ia.dataset(tmp_path / "lake").count_rows() == 5


def test_ignore_keeps_existing_data(spark, tmp_path):
    ias.write(spark.range(10), tmp_path)
    before = contents(tmp_path)
    assert ias.write(spark.range(20), tmp_path, mode="ignore") == []
    assert contents(tmp_path) == before


def test_errorifexists_is_error_by_sparks_name(spark, tmp_path):
    ias.write(spark.range(10), tmp_path)
    with pytest.raises(ia.PathError, match="there is data already"):
        ias.write(spark.range(20), tmp_path, mode="errorifexists")


def test_overwrite_replaces_all_data_files_and_nothing_else(spark, tmp_path):
    ias.write(by_part(spark, 0, 30), tmp_path, partition_by="part")
    (tmp_path / "_notes").write_text("mine")
    old = data(contents(tmp_path))
    written = ias.write(spark.range(5), tmp_path, mode="overwrite", indexes="id:lookup")
    new = contents(tmp_path)
    assert set(data(new)) == {file.path for file in written}
    assert not set(data(new)) & set(old)
    assert set(new) - set(data(new)) == {"_SUCCESS", "_notes"}
    assert [path.name for path in tmp_path.iterdir() if path.is_dir()] == []
    assert ids(spark, tmp_path) == list(range(5))


def test_the_data_read_may_be_overwritten(spark, tmp_path):
    ias.write(spark.range(100), tmp_path)
    ias.write(ias.read(spark, tmp_path, where="id < 20 OR id > 90"), tmp_path, mode="overwrite")
    assert ids(spark, tmp_path) == [i for i in range(100) if i < 20 or i > 90]


def test_files_of_spark_go_with_their_checksums(spark, tmp_path):
    spark.range(10).write.parquet(str(tmp_path / "lake"))
    assert list(tmp_path.rglob(".*.parquet.crc"))
    ias.write(spark.range(5), tmp_path / "lake", mode="overwrite")
    assert not list(tmp_path.rglob(".*.parquet.crc"))
    assert spark.read.parquet(str(tmp_path / "lake")).count() == 5


def test_overwriting_with_nothing_leaves_the_schema(spark, tmp_path):
    ias.write(spark.range(10), tmp_path)
    ias.write(spark.range(10).where("id < 0"), tmp_path, mode="overwrite")
    assert ids(spark, tmp_path) == []


def test_dynamic_overwrite_replaces_the_folders_that_get_rows(spark, tmp_path):
    ias.write(by_part(spark, 0, 30), tmp_path, partition_by="part")
    before = data(contents(tmp_path))
    again = by_part(spark, 100, 110).where("part <> 1")
    options = {"mode": "overwrite", "partition_overwrite": "dynamic"}
    ias.write(again, tmp_path, partition_by="part", **options)
    after = data(contents(tmp_path))
    assert set(before) & set(after) == {name for name in before if name.startswith("part=1/")}
    expected = [i for i in range(30) if i % 3 == 1] + [i for i in range(100, 110) if i % 3 != 1]
    assert ids(spark, tmp_path) == expected


def test_dynamic_overwrite_is_what_spark_does(spark, tmp_path):
    again = by_part(spark, 100, 110).where("part <> 1")
    for folder in ("ours", "sparks"):
        by_part(spark, 0, 30).write.partitionBy("part").parquet(str(tmp_path / folder))
    options = {"mode": "overwrite", "partition_overwrite": "dynamic"}
    ias.write(again, tmp_path / "ours", partition_by="part", **options)
    writer = again.write.mode("overwrite").option("partitionOverwriteMode", "dynamic")
    writer.partitionBy("part").parquet(str(tmp_path / "sparks"))
    actual, expected = (
        sorted(spark.read.parquet(str(tmp_path / folder)).collect())
        for folder in ("ours", "sparks")
    )
    assert actual == expected


def test_the_session_setting_decides_whether_overwrites_are_dynamic(spark, tmp_path, setting):
    def written(rows, **options):
        ias.write(by_part(spark, 0, 9), tmp_path, partition_by="part", mode="overwrite")
        ias.write(rows, tmp_path, partition_by="part", mode="overwrite", **options)
        return ids(spark, tmp_path)

    one = by_part(spark, 100, 103).where("part = 1")
    assert written(one) == [100]
    setting("spark.sql.sources.partitionOverwriteMode", "DYNAMIC")
    one_and_others = [0, 2, 3, 5, 6, 8, 100]
    assert written(one) == one_and_others
    assert written(one, partition_overwrite="static") == [100]
    ias.write(spark.range(2), tmp_path / "flat")
    ias.write(spark.range(2, 4), tmp_path / "flat", mode="overwrite")
    assert ids(spark, tmp_path / "flat") == [2, 3]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mode": "overwrite", "partition_overwrite": "some"}, "must be one of static, dynamic"),
        ({"mode": "append", "partition_overwrite": "dynamic"}, "goes with mode='overwrite'"),
    ],
)
def test_incompatible_modes_are_refused(options, message, spark, tmp_path):
    with pytest.raises(ValueError, match=message):
        ias.write(by_part(spark, 0, 3), tmp_path, partition_by="part", **options)


@pytest.mark.parametrize("options", [{}, {"partition_overwrite": "dynamic"}], ids=["all", "some"])
def test_a_failed_overwrite_keeps_all_data(options, spark, failing, tmp_path):
    ias.write(by_part(spark, 0, 30), tmp_path, partition_by="part")
    before = contents(tmp_path)
    with pytest.raises(PySparkException, match="stop here"):
        ias.write(failing, tmp_path, mode="overwrite", partition_by="part", **options)
    assert contents(tmp_path) == before
    assert {path.name for path in tmp_path.iterdir()} == {"_SUCCESS", "part=0", "part=1", "part=2"}


def test_a_writer_finishes_the_commit_of_another(spark, tmp_path, monkeypatch):
    ias.write(spark.range(10), tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(commit, "_finish", lambda *_: None)  # it died before old files were removed
        ias.write(spark.range(10, 15, 1, 2), tmp_path, mode="overwrite")
    assert sorted(pq.read_table(tmp_path)["id"].to_pylist()) == list(range(15))
    assert ids(spark, tmp_path) == [10, 11, 12, 13, 14]
    ias.write(spark.range(20, 22), tmp_path, mode="append")
    assert sorted(pq.read_table(tmp_path)["id"].to_pylist()) == [10, 11, 12, 13, 14, 20, 21]
    assert not list(tmp_path.glob("_commit-*"))


def test_a_writer_warns_of_files_that_were_half_published(spark, tmp_path, monkeypatch):
    ias.write(spark.range(10), tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(commit, "_undo", lambda *_: None)
        patch.setattr(commit.Place, "move", None)
        (tmp_path / "_temporary-x").mkdir()
        with pytest.raises(ia.PathError):
            commit.publish(commit.Place.of(tmp_path), "x", ["a.parquet", "b.parquet"])
    with pytest.warns(ia.IntarsiaWarning, match="under way, or was interrupted"):
        ias.write(spark.range(10, 12), tmp_path, mode="append")
    assert ids(spark, tmp_path) == list(range(12))
    assert ias.recover(tmp_path) == ["_temporary-x"]
    assert not list(tmp_path.glob("_commit-*"))


@pytest.mark.parametrize("partition_by", [[], ["part"]])
def test_rows_of_other_columns_are_appended_with_a_warning(partition_by, spark, tmp_path):
    ias.write(by_part(spark, 0, 9), tmp_path, partition_by=partition_by)
    ias.write(by_part(spark, 9, 12), tmp_path, partition_by=partition_by, mode="append")
    other = spark.range(12, 15).selectExpr("CAST(id AS INT) AS id", "id % 3 AS part", "'a' AS host")
    message = r"\.parquet: it has no column 'host'; column 'id' is bigint there, and int here\. .*"
    with pytest.warns(ia.IntarsiaWarning, match=message + "merge_schema=True.*union_by_name=True"):
        ias.write(other, tmp_path, partition_by=partition_by, mode="append")
    actual = ias.read(spark, tmp_path, columns=["id", "host"], merge_schema=True).collect()
    assert sorted(row.id for row in actual) == list(range(15))
    assert [row.host for row in sorted(actual)].count("a") == 3


def test_rows_that_lack_a_column_cause_a_warning_for_every_writer(spark, tmp_path):
    texts = pa.array(["a"], pa.large_string())
    there = {"id": [1], "s": texts.dictionary_encode(), "ts": pa.array([1], pa.timestamp("ns"))}
    pq.write_table(pa.table(there), tmp_path / "a.parquet")
    same = spark.sql("SELECT 2L AS id, 'b' AS s, TIMESTAMP_NTZ '2020-01-01' AS ts")
    ias.write(same, tmp_path, mode="append")
    with pytest.warns(ia.IntarsiaWarning, match="the new rows have no columns 's', 'ts'"):
        ias.write(spark.range(1), tmp_path, mode="append")
    (tmp_path / "a.parquet").write_bytes(b"no Parquet")
    ias.write(spark.range(1), tmp_path, mode="append")


BY_PATH = {
    "write": lambda df, path: ias.write(df, path, mode="append"),
    "format": lambda df, path: df.write.format("intarsia").mode("append").save(str(path)),
}


@pytest.mark.parametrize("append", BY_PATH.values(), ids=BY_PATH)
def test_a_column_that_differs_by_case_alone_is_not_added(spark, tmp_path, append):
    """Otherwise readers would find NULL in either column, because Spark takes both for one."""
    ias.write(spark.range(3), tmp_path)
    renamed = spark.range(3).selectExpr("id AS ID")
    with pytest.raises(Exception, match="the column 'ID' of the new rows is 'id' there"):
        append(renamed, tmp_path)
    assert ia.dataset(tmp_path).count_rows() == 3
    ias.write(renamed, tmp_path, mode="overwrite")
    assert ia.dataset(tmp_path).schema.names == ["ID"]


RETRIED = """
import sys, pathlib
import pyarrow as pa
import intarsia as ia, intarsia.spark as ias
from pyspark import TaskContext

spark = ias.session("local[2,3]", **{"spark.sql.shuffle.partitions": "2"})
spark.sparkContext.setLogLevel("OFF")

def fails_once(batches):
    first = TaskContext.get().attemptNumber() == 0
    for batch in batches:
        yield batch
        if first and TaskContext.get().partitionId() == 1:
            raise RuntimeError("once")

data = spark.range(0, 100, 1, 2).selectExpr("id", "id % 50 DIV 25 AS part")
data = data.mapInArrow(fails_once, "id long, part long")
folder = pathlib.Path(sys.argv[1])
ias.write(data.coalesce(2), folder / "write", indexes=["id:lookup"], target_file_size="1 MB")
writer = data.write.format("intarsia").mode("append").option("indexes", "id:lookup")
writer.save(str(folder / "format"))
writer.option("partition_by", "part").save(str(folder / "folders"))
# The first attempt gets some of its many files written before it fails.
many = spark.range(0, 400_000, 1, 2).selectExpr("id", "id AS part")
many = many.mapInArrow(fails_once, "id long, part long")
writer = many.write.format("intarsia").mode("append").option("target_file_size", "100 KB")
writer.save(str(folder / "many"))
for name, files in (("write", 2), ("format", 2), ("folders", 4), ("many", None)):
    lake = folder / name
    found = sorted(str(path.relative_to(lake)) for path in lake.rglob("*.parquet"))
    assert len(found) == files if files else len(found) > 4, found
    count = 100 if files else 400_000
    ids = ia.dataset(lake).to_table(["id"]).column("id").to_pylist()
    assert sorted(ids) == list(range(count)), len(ids)
    left = {path.name for path in lake.iterdir() if not path.suffix and "=" not in path.name}
    assert left == {"_SUCCESS"}, left
print("done")
"""


def test_a_retried_task_leaves_its_files_once(preloaded_python, tmp_path):
    run = subprocess.run(
        [sys.executable, "-c", RETRIED, str(tmp_path)],
        env=os.environ | {"PYSPARK_PYTHON": preloaded_python},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.stdout.strip().endswith("done"), run.stderr[-3000:]
