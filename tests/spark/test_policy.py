"""Spark's writers follow the policy of the folder that they write to."""

from __future__ import annotations

import pyarrow.fs as pafs
import pyarrow.parquet as pq
import pytest

import intarsia as ia
import intarsia.spark as ias
from intarsia.indexing.policy import Policy, read_policy, write_policy

pytestmark = pytest.mark.spark

POLICY = Policy(("id:lookup", "part:bloom", "other:lookup"))


def indexes_of(folder):
    """Returns the names of the indexes of each file, without page indexes."""
    return [
        {entry.name for entry in report.entries}
        | {own.name for own in report.standard if own.name != "page_index"}
        for report in ia.list_indexes(folder)
    ]


@pytest.fixture
def lake(tmp_path):
    lake = tmp_path / "lake"
    lake.mkdir()
    write_policy(pafs.LocalFileSystem(), str(lake), POLICY)
    return lake


def test_writes_appends_and_overwrites_need_no_indexes(spark, lake):
    rows = spark.range(0, 20, 1, 2).selectExpr("id", "id % 3 AS part")
    expected = {"id:lookup", "part:bloom"}
    for mode in ("append", "append", "overwrite"):
        ias.write(rows, lake, mode=mode)
        assert all(names == expected for names in indexes_of(lake))
    rows.write.format("intarsia").mode("append").save(str(lake))
    assert len(indexes_of(lake)) == 4
    assert all(names == expected for names in indexes_of(lake))
    assert read_policy(pafs.LocalFileSystem(), str(lake)) == POLICY
    assert ia.maintain(lake).changed == ()


def test_partition_columns_get_no_index_and_an_empty_list_asks_for_none(spark, lake):
    rows = spark.range(0, 20, 1, 1).selectExpr("id", "id % 3 AS part")
    ias.write(rows, lake, partition_by=["part"])
    assert indexes_of(lake) == [{"id:lookup"}] * 3
    ias.write(rows, lake, mode="overwrite", indexes=[])
    assert indexes_of(lake) == [set()]


def test_streams_follow_the_policy(spark, lake, tmp_path):
    source = tmp_path / "source"
    ias.write(spark.range(10), source, indexes=[])
    stream = spark.readStream.format("intarsia").load(str(source))
    query = (
        stream.writeStream.format("intarsia")
        .option("path", str(lake))
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    names = [one for one in indexes_of(lake) if one]
    assert names
    assert all(one == {"id:lookup"} for one in names)


def layouts_of(lake):
    """Returns the codec, the largest page and row group, and whether rows are sorted, by file."""
    layouts = []
    for path in sorted(lake.rglob("*.parquet")):
        file, metadata = ia.ParquetFile(path), pq.read_metadata(path)
        groups = range(metadata.num_row_groups)
        pages = [page.num_rows or 0 for group in groups for page in file.pages(group, "id")]
        ids = pq.read_table(path)["id"].to_pylist()
        codec = metadata.row_group(0).column(0).compression
        most = max(metadata.row_group(group).num_rows for group in groups)
        layouts.append((codec, max(pages), most, ids == sorted(ids)))
    return layouts


def test_writes_follow_the_layout_and_the_order_of_the_policy(spark, lake):
    layout = {"rows_per_page": 50, "row_group_rows": 300, "compression": "gzip"}
    policy = Policy(("id:lookup",), sort_by=("id",), layout=layout)
    write_policy(pafs.LocalFileSystem(), str(lake), policy)
    rows = spark.range(0, 1000, 1, 1).selectExpr("id * 7 % 1000 AS id", "id AS v")
    for _ in range(2):
        ias.write(rows, lake, mode="overwrite")
        assert layouts_of(lake) == [("GZIP", 50, 300, True)]
    writer = rows.write.format("intarsia")
    for mode, count in (("append", 2), ("overwrite", 1)):
        writer.mode(mode).save(str(lake))
        assert layouts_of(lake) == [("GZIP", 50, 300, True)] * count
    ias.write(rows, lake, mode="overwrite", compression="zstd", rows_per_page=40, sort_within=["v"])
    assert layouts_of(lake) == [("ZSTD", 40, 300, False)]
    writer.mode("overwrite").option("compression", "snappy").option("rows_per_page", "30").save(
        str(lake)
    )
    assert layouts_of(lake) == [("SNAPPY", 30, 300, True)]
    assert ia.dataset(lake).count_rows() == 1000
