"""Data sets on S3, on moto's server: tasks upload files, and the driver renames them."""

from __future__ import annotations

import sys
import time

import pyarrow.fs as pafs
import pytest
from moto.server import ThreadedMotoServer

import intarsia as ia
import intarsia.spark as ias

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def server():
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    yield "{}:{}".format(*server.get_host_and_port())
    server.stop()


@pytest.fixture(scope="module")
def s3(server):
    actual = pafs.S3FileSystem(
        access_key="a",
        secret_key="b",
        region="us-east-1",
        endpoint_override=server,
        scheme="http",
        allow_bucket_creation=True,
    )
    actual.create_dir("lake")
    return actual


def keys(s3, folder):
    """Keys below a folder, without the empty objects that represent folders."""
    actual = s3.get_file_info(pafs.FileSelector(folder, recursive=True, allow_not_found=True))
    files = [info for info in actual if info.type == pafs.FileType.File]
    return sorted(info.path.removeprefix(f"{folder}/") for info in files)


def data(spark, start, stop):
    return spark.range(start, stop, 1, 2).selectExpr(
        "id", "md5(CAST(id AS STRING)) AS hash", "id % 2 AS p"
    )


def ids(frame):
    return sorted(row.id for row in frame.select("id").collect())


def test_written_rows_are_read(spark, s3):
    options = {"filesystem": s3, "indexes": "hash:lookup", "partition_by": "p"}
    written = ias.write(data(spark, 0, 100), "lake/one", cluster_by="id", **options)
    assert keys(s3, "lake/one") == sorted(["_SUCCESS", *(file.path for file in written)])
    for file in written:
        assert s3.get_file_info(f"lake/one/{file.path}").size == file.bytes
    assert ids(ias.read(spark, "lake/one", filesystem=s3)) == list(range(100))
    where = "hash = 'c4ca4238a0b923820dcc509a6f75849b'"
    assert ids(ias.read(spark, "lake/one", where=where, filesystem=s3)) == [1]
    assert ia.dataset("lake/one", filesystem=s3).count_rows() == 100


def test_overwrite_replaces_and_append_adds(spark, s3):
    for stop, mode in ((10, "error"), (7, "overwrite"), (3, "append")):
        ias.write(data(spark, 0, stop), "lake/two", mode=mode, filesystem=s3)
    assert ids(ias.read(spark, "lake/two", filesystem=s3)) == sorted([*range(7), *range(3)])
    assert not [key for key in keys(s3, "lake/two") if key.startswith(("_temp", "_commit"))]
    with pytest.raises(ia.PathError, match="there is data already"):
        ias.write(data(spark, 0, 1), "lake/two", filesystem=s3)
    options = {"mode": "overwrite", "partition_overwrite": "dynamic", "partition_by": "p"}
    ias.write(data(spark, 0, 10), "lake/three", partition_by="p", filesystem=s3)
    ias.write(data(spark, 10, 20).where("p = 1"), "lake/three", filesystem=s3, **options)
    actual = ids(ias.read(spark, "lake/three", filesystem=s3))
    assert actual == [0, 2, 4, 6, 8, 11, 13, 15, 17, 19]


def test_a_failed_job_leaves_nothing(spark, s3):
    failing = spark.range(0, 400, 1, 4).selectExpr(
        "CAST(IF(id < 390, id, raise_error('stop here')) AS BIGINT) AS id"
    )
    with pytest.raises(Exception, match="stop here"):
        ias.write(failing, "lake/four", filesystem=s3)
    quiet = 0
    for _ in range(120):  # tasks that outlive the job may upload a little longer
        ias.recover("lake/four", filesystem=s3)
        time.sleep(0.5)
        quiet = 0 if keys(s3, "lake/four") else quiet + 1
        if quiet == 6:
            break
    assert quiet == 6


def test_the_format_writes_and_reads_by_uri(spark, s3, server):
    uri = f"s3://a:b@lake/five?endpoint_override={server}&scheme=http&region=us-east-1"
    writer = data(spark, 0, 50).write.format("intarsia").mode("append")
    writer.option("indexes", "hash:lookup").save(uri)
    actual = spark.read.format("intarsia").option("where", "id < 20").load(uri)
    assert ids(actual) == list(range(20))
    assert len([key for key in keys(s3, "lake/five") if key.endswith(".parquet")]) == 2


def test_optimize_merges_and_orders_what_is_there(spark, s3):
    options = {"filesystem": s3, "indexes": "hash:lookup", "partition_by": "p", "mode": "append"}
    for start in (0, 100, 200):
        ias.write(data(spark, start, start + 100), "lake/six", **options)
    ia.add_indexes("lake/six", ["id:lookup"], filesystem=s3, sidecar=True)
    reports = ias.optimize(spark, "lake/six", filesystem=s3)
    assert [(r.folder, r.files_after, r.rows) for r in reports] == [
        ("p=0", 1, 150),
        ("p=1", 1, 150),
    ]
    written = [file.path for report in reports for file in report.written]
    assert keys(s3, "lake/six") == sorted(["_SUCCESS", *written])
    for report in ia.list_indexes("lake/six", filesystem=s3):
        assert [entry.name for entry in report.indexes] == ["hash:lookup", "id:lookup"]
    assert ias.optimize(spark, "lake/six", filesystem=s3) == []
    assert len(ias.optimize(spark, "lake/six", cluster_by=["hash"], filesystem=s3)) == 2
    assert ids(ias.read(spark, "lake/six", filesystem=s3)) == list(range(300))
    assert ia.dataset("lake/six", filesystem=s3).count_rows() == 300


def test_optimize_leaves_a_folder_in_which_an_object_was_replaced(spark, s3, monkeypatch):
    for start in (0, 100):
        ias.write(data(spark, start, start + 100), "lake/seven", mode="append", filesystem=s3)
    before = [key for key in keys(s3, "lake/seven") if key.endswith(".parquet")]
    module = sys.modules["intarsia.spark.optimize.optimize"]
    real = module.collect_written_files

    def collect_written_files(tasks):
        actual = real(tasks)
        ia.add_indexes(f"lake/seven/{before[0]}", ["id:lookup"], filesystem=s3)
        return actual

    monkeypatch.setattr(module, "collect_written_files", collect_written_files)
    with pytest.raises(ia.PathError, match=f"{before[0]} was changed meanwhile"):
        ias.optimize(spark, "lake/seven", filesystem=s3)
    assert keys(s3, "lake/seven") == sorted(["_SUCCESS", *before])


def test_a_catalog_is_built_and_used(spark, s3):
    for start in range(0, 60, 10):
        options = {"mode": "append", "filesystem": s3, "indexes": "hash:lookup"}
        ias.write(data(spark, start, start + 10).coalesce(1), "lake/known", **options)
    report = ias.build_catalog(spark, "lake/known", filesystem=s3)
    assert (report.files, report.read, report.keys) == (6, 6, 60)
    where = "hash = 'c4ca4238a0b923820dcc509a6f75849b'"
    frame = ias.read(spark, "lake/known", where=where, filesystem=s3)
    assert ids(frame) == [1]
    actual = ia.dataset("lake/known", filesystem=s3).explain(filter=where)
    assert "catalog" in str(actual)
    assert actual.plan.figures.files.selected == 1
    ias.write(data(spark, 60, 70).coalesce(1), "lake/known", **options)
    assert ias.build_catalog(spark, "lake/known", refresh=True, filesystem=s3).read == 1
    assert ids(ias.read(spark, "lake/known", filesystem=s3)) == list(range(70))
