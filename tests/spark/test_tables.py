"""The lists of files of Delta Lake and Iceberg tables, read through Spark."""

from __future__ import annotations

import deltalake
import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.io.pyarrow import PyArrowFileIO

import intarsia as ia
import intarsia.spark as ias

pytestmark = pytest.mark.spark

TABLE = pa.table({"id": range(1000), "k": [f"k{i:04}" for i in range(1000)]})


def test_spark_reads_the_files_of_a_delta_table(spark, tmp_path):
    path = str(tmp_path / "table")
    days = pa.array([f"2013-01-0{1 + i % 2}" for i in range(1000)])
    deltalake.write_deltalake(path, TABLE.append_column("day", days), partition_by=["day"])
    files = deltalake.DeltaTable(path).file_uris()
    deltalake.DeltaTable(path).delete("id = 8")
    now = deltalake.DeltaTable(path).file_uris()
    ia.add_indexes(sorted({*files, *now}), ["k:lookup"])
    where = "k IN ('k0007', 'k0008', 'k0009')"
    assert sorted(row.id for row in ias.read(spark, now, where=where).collect()) == [7, 9]
    assert sorted(row.id for row in ias.read(spark, files, where=where).collect()) == [7, 8, 9]


def test_spark_reads_the_files_of_an_iceberg_table(spark, tmp_path):
    with SqlCatalog("c", uri=f"sqlite:///{tmp_path}/c.db", warehouse=f"file://{tmp_path}") as made:
        made.create_namespace("n")
        table = made.create_table("n.t", schema=TABLE.schema)
        table.append(TABLE)
        table.delete("id = 8")
        tasks = made.load_table("n.t").scan().plan_files()
        files = [PyArrowFileIO.parse_location(task.file.file_path)[2] for task in tasks]
    where = "k IN ('k0007', 'k0008', 'k0009')"
    assert sorted(row.id for row in ias.read(spark, files, where=where).collect()) == [7, 9]
