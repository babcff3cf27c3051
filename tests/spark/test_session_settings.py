"""Settings ``spark.intarsia.*`` are defaults; and what a read leaves out is shown to the caller."""

from __future__ import annotations

import logging

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import intarsia as ia
import intarsia.spark as ias
from intarsia.spark.session_settings import PREFIX

pytestmark = pytest.mark.spark


def write_lake(folder, **columns):
    """Writes four files of 100 rows into folders of ``part``, and returns ``folder``."""
    for number in range(4):
        below = folder / f"part={number}"
        below.mkdir(parents=True)
        rows = {"k": range(number * 100, number * 100 + 100)}
        rows |= {name: [f"{value}{number}"] * 100 for name, value in columns.items()}
        pq.write_table(pa.table(rows), below / "0.parquet")
    ia.add_indexes(folder, ["k:lookup"])
    return folder


@pytest.fixture
def lake(tmp_path):
    return write_lake(tmp_path / "lake")


@pytest.fixture
def configure(spark):
    """Sets ``spark.intarsia.<name>`` for one test."""
    names = []

    def change(name, value):
        names.append(name)
        spark.conf.set(PREFIX + name, value)

    yield change
    for name in names:
        spark.conf.unset(PREFIX + name)


def test_a_session_sets_defaults_of_reads(spark, lake, configure):
    configure("reader", "intarsia")
    assert ias.explain(spark, lake, where="k < 300").reason == "as asked for"
    assert ias.explain(spark, lake, where="k = 3", reader="auto").driver_rows == 1
    configure("page_size_limit", "many")
    with pytest.raises(ValueError, match=r"spark\.intarsia\.page_size_limit is a whole number"):
        ias.read(spark, lake)


def test_a_session_sets_defaults_of_writes_below_the_policy(spark, tmp_path, configure):
    def codec_in(folder):
        file = next(folder.glob("part-*.parquet"))
        return pq.ParquetFile(file).metadata.row_group(0).column(0).compression

    configure("compression", "gzip")
    ias.write(spark.range(10), tmp_path / "own")
    assert codec_in(tmp_path / "own") == "GZIP"
    ias.write(spark.range(10), tmp_path / "argument", compression="snappy")
    assert codec_in(tmp_path / "argument") == "SNAPPY"
    ia.rewrite(tmp_path / "own", compression="zstd", keep=True)
    ias.write(spark.range(10), tmp_path / "own", mode="overwrite")
    assert codec_in(tmp_path / "own") == "ZSTD"


@pytest.mark.parametrize("reader", ["auto", "intarsia", "spark"])
def test_folders_are_ignored_on_request(spark, tmp_path, reader):
    """Files store a column of the folder's name, in another type."""
    lake = write_lake(tmp_path / "lake", part="p")
    with pytest.raises(ia.FormatError, match="incompatible types"):
        ias.read(spark, lake)
    frame = ias.read(spark, lake, partitioning=None, where="k >= 150", reader=reader)
    rows = {(row.k, row.part) for row in frame.collect()}
    assert rows == {(k, f"p{k // 100}") for k in range(150, 400)}
    with pytest.raises(ValueError, match="partitioning is 'hive' or None, not 'part'"):
        ias.read(spark, lake, partitioning="part")


def test_the_plan_and_the_log_show_what_is_left_to_read(spark, lake, capsys, caplog):
    with caplog.at_level(logging.INFO, "intarsia"):
        frame = ias.read(spark, lake, columns=["k"], where="k = 3", reader="intarsia")
        ias.read(spark, lake, columns=["k"], where="k = 3")
        ias.read(spark, lake, columns=["k"], reader="spark")
    by_tasks, by_driver, by_spark = caplog.messages
    assert by_tasks.startswith("read: 1 of 4 files, ")
    assert by_tasks.endswith(" bytes of their columns, by 1 task: as asked for")
    assert by_driver.endswith(" bytes of their columns, by the driver: little is left to read")
    assert by_spark == "read: 4 of 4 files, by Spark's own reader: as asked for"
    frame.explain()
    left = by_tasks.removeprefix("read: ").rpartition(", by ")[0]
    assert f"intarsia: {left}" in capsys.readouterr().out
    assert [row.k for row in frame.collect()] == [3]
