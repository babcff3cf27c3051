"""Iceberg tables that Spark wrote: rows are those of Spark and of pyiceberg, at each snapshot.

``spark_tables/write_tables.py`` made them.
"""

from __future__ import annotations

import tarfile
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyiceberg.io.pyarrow import PyArrowFileIO, schema_to_pyarrow
from pyiceberg.table import StaticTable

import intarsia as ia

ARCHIVE = Path(__file__).with_name("spark_tables") / "iceberg.tar.xz"
WRITTEN_IN = "/tmp/intarsia-spark-tables"
"""The folder that the metadata of the tables name."""
with tarfile.open(ARCHIVE) as _archive:
    NAMES = sorted({name.split("/")[2] for name in _archive.getnames() if name.count("/") > 1})
READ = [name for name in NAMES if "-" not in name]


class MovedIO(PyArrowFileIO):
    """Reads the files of tables where they were unpacked."""

    place = ""

    @classmethod
    def parse_location(cls, location, properties=None):
        return super().parse_location(location.replace(WRITTEN_IN, cls.place), properties or {})


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("spark")
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(folder, filter="data")
    MovedIO.place = str(folder)
    return folder


@pytest.fixture(params=READ)
def table(folder, request):
    """A table as its last metadata describe it, and the folders of Spark's rows by snapshot."""
    metadata = max(
        folder.glob(f"t/{request.param}/metadata/v*.metadata.json"),
        key=lambda path: int(path.name.split(".")[0][1:]),
    )
    io = {"py-io-impl": f"{__name__}.MovedIO"}
    opened = StaticTable.from_metadata(str(metadata), io)
    rows = {path.name.rpartition("-")[2]: path for path in folder.glob(f"rows/{request.param}-*")}
    return opened, rows


def in_order(table):
    return sorted(table.to_pylist(), key=repr)


def spark_rows(folder, schema):
    """The rows that Spark read, in the types of a schema."""
    return in_order(pq.read_table(folder).select(schema.names).cast(schema))


def test_rows_are_those_of_spark_at_each_snapshot(table):
    opened, rows = table
    assert len(rows) > 1
    for snapshot, folder in rows.items():
        data = ia.iceberg(opened, None if snapshot == "now" else int(snapshot))
        expected = spark_rows(folder, data.schema)
        assert in_order(data.to_table()) == expected
        assert data.count_rows() == len(expected)


def test_rows_are_those_of_pyiceberg(table):
    opened, _ = table
    scan = opened.scan()
    expected = scan.to_arrow().cast(schema_to_pyarrow(scan.projection(), include_field_ids=False))
    data = ia.iceberg(opened)
    assert data.schema == expected.schema
    assert in_order(data.to_table()) == in_order(expected)


@pytest.mark.filterwarnings("ignore:index x.lookup")
def test_indexes_find_the_rows_of_spark(table):
    opened, rows = table
    data = ia.iceberg(opened)
    columns = [name for name in ("id", "k", "key", "x") if name in data.schema.names]
    expected = spark_rows(rows["now"], data.schema)
    before = ia.iceberg(opened)
    ia.add_indexes(data, [ia.Lookup(name) for name in columns])
    for name in columns:
        for value in {row[name] for row in expected} - {None}:
            expected_rows = [row for row in expected if row[name] == value]
            condition = pc.field(name) == pa.scalar(value, data.schema.field(name).type)
            assert in_order(data.to_table(filter=condition)) == expected_rows
    assert in_order(before.to_table()) == expected
