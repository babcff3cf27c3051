"""Files of Iceberg tables: read by page, given indexes, and read whole by Iceberg's own readers.

Manifests record each file's length, and identify columns by field ids.
"""

from __future__ import annotations

import datetime as dt
import os

import polars
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.io.pyarrow import PyArrowFileIO, schema_to_pyarrow
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, StringType

import intarsia as ia

ROWS = 6000
TABLE = pa.table(
    {
        "id": range(ROWS),
        "k": [f"k{i * 7919 % ROWS:05}" for i in range(ROWS)],
        "day": [i % 2 for i in range(ROWS)],
    }
)
WANTED = pc.field("k") == "k00007"
INDEXES = [ia.Lookup("k", granule_rows=100), ia.PageIndex(), ia.Bloom("id")]
# Polars says how it could plan faster.
pytestmark = pytest.mark.filterwarnings("ignore::polars.exceptions.PerformanceWarning")


@pytest.fixture
def catalog(tmp_path):
    made = SqlCatalog("c", uri=f"sqlite:///{tmp_path}/c.db", warehouse=f"file://{tmp_path}")
    made.create_namespace("n")
    yield made
    made.close()


@pytest.fixture
def table(catalog):
    made = catalog.create_table("n.t", schema=TABLE.schema)
    with made.update_spec() as spec:
        spec.add_field("day", IdentityTransform(), "day")
    made.append(TABLE)
    return catalog.load_table("n.t")


def rows(table):
    return sorted(pa.table(table).to_pylist(), key=lambda row: row["id"])


def plan_of(table, **scan):
    """The data files of a scan, without delete files, whose rows belong to other files."""
    tasks = list(table.scan(**scan).plan_files())
    assert not any(task.delete_files for task in tasks)
    return [task.file for task in tasks]


def files_of(table, **scan):
    return [local(file.file_path) for file in plan_of(table, **scan)]


def local(location):
    """Removes the scheme of a location, which is not percent-encoded like a URI."""
    return PyArrowFileIO.parse_location(location)[2]


def opened(table):
    """Opens files without partitioning: they hold the partition values themselves."""
    return ia.dataset(files_of(table), partitioning=None)


# --- reading ------------------------------------------------------------------------------------


def test_the_files_of_a_table_are_a_data_set(table):
    source = opened(table)
    assert source.schema.names == ["id", "k", "day"]
    assert rows(source.to_table()) == rows(TABLE)
    assert rows(source.to_table(filter=WANTED)) == rows(TABLE.filter(WANTED))


def test_folders_have_any_name(catalog):
    data = pa.table({"id": range(6), "c": ["New York", "a/b", "50%", "x=y", None, "né"]})
    table = catalog.create_table("n.named", schema=data.schema)
    with table.update_spec() as spec:
        spec.add_field("c", IdentityTransform(), "c")
    table.append(data)
    assert rows(opened(table).to_table()) == data.to_pylist()
    ia.add_indexes(files_of(table), ["c:lookup"])
    assert rows(table.scan().to_arrow()) == data.to_pylist()


def test_icebergs_plan_selects_the_files(table):
    files = files_of(table, row_filter="day = 1")
    assert len(files) == 1
    actual = ia.dataset(files, partitioning=None).to_table(filter=WANTED)
    assert rows(actual) == rows(TABLE.filter(WANTED & (pc.field("day") == 1)))


def test_an_older_snapshot_is_another_list_of_files(table):
    first = table.current_snapshot().snapshot_id
    table.delete("id >= 100")
    assert opened(table).count_rows() == 100
    files = files_of(table, snapshot_id=first)
    assert ia.dataset(files, partitioning=None).count_rows() == ROWS


def test_columns_have_the_names_they_had_when_the_file_was_written(table):
    """One column was renamed, another added. Their names are found by Iceberg's field ids."""
    with table.update_schema() as update:
        update.rename_column("k", "key")
        update.add_column("note", StringType())
    assert opened(table).schema.names == ["id", "k", "day"]
    numbers = {field.field_id: field.name for field in table.schema().fields}
    source = opened(table)
    theirs = [int(f.metadata[b"PARQUET:field_id"]) for f in source.schema]
    actual = source.to_table(filter=WANTED).rename_columns([numbers[n] for n in theirs])
    assert rows(actual) == rows(TABLE.filter(WANTED).rename_columns(["id", "key", "day"]))
    expected = table.scan(row_filter="key = 'k00007'", selected_fields=("id", "key", "day"))
    assert rows(actual) == rows(expected.to_arrow())


def test_types_that_were_widened_are_read_by_the_tables_schema(catalog):
    small = pa.table({"id": pa.array([1, 2], pa.int32())})
    table = catalog.create_table("n.small", schema=small.schema)
    table.append(small)
    with table.update_schema() as update:
        update.update_column("id", LongType())
    table.append(pa.table({"id": pa.array([2**40], pa.int64())}))
    schema = schema_to_pyarrow(table.schema(), include_field_ids=False)
    source = ia.dataset(files_of(table), schema=schema, partitioning=None)
    assert source.to_table(filter=pc.field("id") > 1).to_pylist() == [{"id": 2**40}, {"id": 2}]


# --- indexes in the files -----------------------------------------------------------------------


@pytest.fixture
def indexed(table, catalog):
    """A table whose files were given indexes without Iceberg's knowledge."""
    ia.add_indexes(files_of(table), INDEXES)
    for file in plan_of(table):
        assert os.path.getsize(local(file.file_path)) > file.file_size_in_bytes
    return catalog.load_table("n.t")


def by_pyiceberg(table, k):
    return table.scan(row_filter=f"k = '{k}'").to_arrow()


def by_duckdb(table, k):
    connection = table.scan().to_duckdb("t")
    return connection.sql(f"SELECT * FROM t WHERE k = '{k}'").to_arrow_table()


def by_polars(table, k, reader="native"):
    frame = polars.scan_iceberg(table, reader_override=reader)
    return frame.filter(polars.col("k") == k).collect().to_arrow()


def by_polars_with_pyiceberg(table, k):
    return by_polars(table, k, "pyiceberg")


def by_length(table, k):
    """Opens a file like a reader that uses the recorded length as the length of the file."""
    actual = []
    for one in plan_of(table):
        with open(local(one.file_path), "rb") as file:
            actual.append(pq.read_table(pa.BufferReader(file.read(one.file_size_in_bytes))))
    return pa.concat_tables(actual).filter(pc.field("k") == k)


def by_intarsia(table, k):
    source = opened(table)
    assert source.plan(filter=pc.field("k") == k).figures.rows.selected <= 200
    return source.to_table(filter=pc.field("k") == k)


READERS = [by_pyiceberg, by_duckdb, by_polars, by_polars_with_pyiceberg, by_length, by_intarsia]


@pytest.mark.parametrize("read", READERS, ids=lambda read: read.__name__)
def test_every_reader_reads_files_with_indexes(read, indexed):
    assert rows(read(indexed, "k00007")) == rows(TABLE.filter(WANTED))


@pytest.mark.parametrize("read", READERS[:-1], ids=lambda read: read.__name__)
def test_every_reader_reads_them_by_a_plan_made_before(read, table):
    planned = list(table.scan().plan_files())
    ia.add_indexes(files_of(table), INDEXES)
    assert [local(task.file.file_path) for task in planned] == files_of(table)
    assert rows(read(table, "k00007")) == rows(TABLE.filter(WANTED))


def test_a_reader_with_the_file_open_reads_on_as_it_was(table):
    path = files_of(table)[0]
    with open(path, "rb") as handle:
        before = handle.read()
        ia.add_indexes(files_of(table), INDEXES)
        handle.seek(0)
        assert handle.read() == before
    assert os.path.getsize(path) > len(before)


def test_the_table_remains_usable(indexed, catalog):
    """Appends, deletes and overwrites rows; expires snapshots."""
    indexed.append(TABLE.slice(0, 10))
    ia.add_indexes(files_of(indexed), INDEXES)
    indexed.delete("id = 5")
    changed = TABLE.slice(100, 5).set_column(1, "k", pa.array(["new"] * 5))
    indexed.overwrite(changed, overwrite_filter="id >= 100 and id < 105")
    now = dt.datetime.now() + dt.timedelta(days=1)
    indexed.maintenance.expire_snapshots().older_than(now).commit()
    after = catalog.load_table("n.t")
    assert after.scan().count() == ROWS + 8
    assert rows(opened(after).to_table()) == rows(after.scan().to_arrow())
    assert by_pyiceberg(after, "new").num_rows == 5


def test_files_with_indexes_become_a_table(catalog, tmp_path):
    path = tmp_path / "own.parquet"
    ia.write_table(TABLE, path, indexes=[ia.Lookup("k", granule_rows=100)])
    table = catalog.create_table("n.own", schema=TABLE.schema)
    table.add_files([f"file://{path}"])
    for read in READERS:
        assert rows(read(table, "k00007")) == rows(TABLE.filter(WANTED))


# --- sidecars -----------------------------------------------------------------------------------


def test_sidecars_change_no_file(table, catalog):
    before = {path: os.stat(path) for path in files_of(table)}
    ia.add_indexes(files_of(table), [ia.Lookup("k", granule_rows=100)], sidecar=True)
    for path, stat in before.items():
        now = os.stat(path)
        assert (now.st_ino, now.st_size, now.st_mtime_ns) == (
            stat.st_ino,
            stat.st_size,
            stat.st_mtime_ns,
        )
    for read in READERS:
        assert rows(read(catalog.load_table("n.t"), "k00007")) == rows(TABLE.filter(WANTED))
