"""Files of Delta Lake tables: read by page, given indexes, and read whole by Delta's own readers.

Delta's log records each file's length, and its readers expect the footer at that place.
"""

from __future__ import annotations

import json
import os
import urllib.parse

import delta_log
import deltalake
import polars
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

import intarsia as ia

ROWS = 6000
TABLE = pa.table(
    {
        "id": range(ROWS),
        "k": [f"k{i * 7919 % ROWS:05}" for i in range(ROWS)],
        "day": [f"2013-01-0{1 + i % 2}" for i in range(ROWS)],
    }
)
WANTED = pc.field("k") == "k00007"
INDEXES = [ia.Lookup("k", granule_rows=100), ia.PageIndex(), ia.Bloom("id")]


@pytest.fixture
def table(tmp_path):
    path = str(tmp_path / "table")
    deltalake.write_deltalake(path, TABLE, partition_by=["day"])
    return DeltaTable(path)


def again(table):
    """The table as opened now."""
    return DeltaTable(table.table_uri)


def rows(table):
    """The rows sorted by id; Delta does not keep the order of files."""
    return sorted(pa.table(table).to_pylist(), key=lambda row: row["id"])


def lengths(table):
    return pa.table(table.get_add_actions(flatten=True))["size_bytes"].to_pylist()


def paths(table):
    return [uri.removeprefix("file://") for uri in table.file_uris()]


def schema_of(table):
    """The schema in the log, partition columns included."""
    return pa.schema(table.schema().to_arrow())


# --- reading ------------------------------------------------------------------------------------


def test_the_files_of_a_table_are_a_data_set(table):
    source = ia.dataset(table.file_uris(), schema=schema_of(table))
    assert rows(source.to_table()) == rows(TABLE)
    where = WANTED & (pc.field("day") == "2013-01-02")
    assert rows(source.to_table(filter=where)) == rows(TABLE.filter(where))
    assert source.plan(filter=pc.field("day") == "2013-01-02").figures.files.selected == 1


VALUES = ["New York", "a/b", "50%", "x=y", None, "né"]


@pytest.mark.parametrize("name", ["table", "a table of 50%"])
def test_folders_have_any_name(name, tmp_path):
    """The log's paths are percent-encoded once more than the names on disk."""
    data = pa.table({"id": range(6), "c": VALUES})
    path = str(tmp_path / name)
    deltalake.write_deltalake(path, data, partition_by=["c"])
    table = DeltaTable(path)
    logged = pa.table(table.get_add_actions(flatten=True))["path"].to_pylist()
    files = [f"{path}/{urllib.parse.unquote(one)}" for one in logged]
    source = ia.dataset(files, schema=schema_of(table))
    assert rows(source.to_table()) == data.to_pylist()
    for number, value in enumerate(VALUES[:4]):
        actual = source.to_table(filter=pc.field("c") == value)
        assert actual["id"].to_pylist() == [number]
    if name == "table":
        assert sorted(table.file_uris()) == sorted(files)


def test_an_older_version_is_another_list_of_files(table):
    table.delete("id >= 100")
    old = DeltaTable(table.table_uri, version=0)
    assert ia.dataset(table.file_uris()).count_rows() == 100
    assert ia.dataset(old.file_uris()).count_rows() == ROWS


def test_columns_that_came_later_are_null_in_older_files(table):
    wider = TABLE.slice(0, 10).append_column("note", pa.array(["x"] * 10))
    deltalake.write_deltalake(table.table_uri, wider, mode="append", schema_mode="merge")
    now = again(table)
    source = ia.dataset(now.file_uris(), schema=schema_of(now))
    assert source.count_rows(filter=pc.field("note") == "x") == 10
    assert source.count_rows(filter=pc.field("note").is_null()) == ROWS


def test_files_rewritten_by_delta_have_string_views_unless_a_schema_is_given(table):
    """pyarrow has no IN for views."""
    table.delete("id = 5")
    condition = pc.field("k").isin(["k00007", "k00008"])
    source = ia.dataset(table.file_uris())
    assert source.schema.field("k").type == pa.string_view()
    source = ia.dataset(table.file_uris(), schema=schema_of(table))
    assert rows(source.to_table(filter=condition)) == rows(TABLE.filter(condition))


def test_mapped_columns_have_their_physical_names_in_files(tmp_path):
    path = str(tmp_path / "mapped")
    deltalake.write_deltalake(path, TABLE, configuration={"delta.columnMapping.mode": "name"})
    table = DeltaTable(path)
    physical = {
        field["name"]: field["metadata"]["delta.columnMapping.physicalName"]
        for field in json.loads(table.schema().to_json())["fields"]
    }
    ia.add_indexes(paths(table), [ia.Lookup(physical["k"])])
    source = ia.dataset(table.file_uris())
    actual = source.to_table(filter=pc.field(physical["k"]) == "k00007")
    names = {theirs: name for name, theirs in physical.items()}
    actual = actual.rename_columns([names[name] for name in actual.column_names])
    assert rows(actual) == rows(TABLE.filter(WANTED))


def test_rows_deleted_by_a_deletion_vector_are_still_in_the_file(tmp_path):
    path = str(tmp_path / "vectors")
    features = {"delta.enableDeletionVectors": "true"}
    deltalake.write_deltalake(path, TABLE, configuration=features)
    (file,) = [one["add"]["path"] for one in delta_log.actions(path) if "add" in one]
    delta_log.delete_rows(path, file, [3, 4, 3753])
    table = DeltaTable(path)
    assert ia.dataset(table.file_uris()).count_rows() == ROWS
    vectors = pa.table(table.deletion_vectors()).to_pylist()
    assert len(vectors) == 1
    remaining_rows = ia.RowRanges.from_mask(pad(vectors[0]["selection_vector"], ROWS))
    file = ia.ParquetFile(vectors[0]["filepath"].removeprefix("file://"))
    actual = file.read(rows=remaining_rows, filter=pc.field("id") < 10)
    assert actual["id"].to_pylist() == [0, 1, 2, 5, 6, 7, 8, 9]


def pad(selection, num_rows):
    """Pads the vector, which ends at the last deleted row."""
    return [*selection, *[True] * (num_rows - len(selection))]


# --- indexes in the files -----------------------------------------------------------------------


@pytest.fixture
def indexed(table):
    """A table whose files were given indexes without Delta's knowledge."""
    ia.add_indexes(table.file_uris(), INDEXES)
    for path, length in zip(paths(table), lengths(table), strict=True):
        assert os.path.getsize(path) > length
    return again(table)


def by_pyarrow(table, k):
    return table.to_pyarrow_dataset().to_table(filter=pc.field("k") == k)


def by_datafusion(table, k):
    builder = deltalake.QueryBuilder().register("t", table)
    return builder.execute(f"SELECT id, k, day FROM t WHERE k = '{k}'").read_all()


def by_polars(table, k):
    return polars.scan_delta(table.table_uri).filter(polars.col("k") == k).collect().to_arrow()


def by_length(table, k):
    """Opens a file like a reader that uses the recorded length as the length of the file."""
    actual = []
    for path, length in zip(paths(table), lengths(table), strict=True):
        with open(path, "rb") as file:
            rows = pq.read_table(pa.BufferReader(file.read(length)))
        day = path.split("day=")[1][:10]
        actual.append(rows.append_column("day", pa.array([day] * len(rows))))
    return pa.concat_tables(actual).filter(pc.field("k") == k)


def by_intarsia(table, k):
    source = ia.dataset(table.file_uris(), schema=schema_of(table))
    plan = source.plan(filter=pc.field("k") == k)
    assert plan.figures.rows.selected <= 200
    return source.to_table(filter=pc.field("k") == k)


READERS = [by_pyarrow, by_datafusion, by_polars, by_length, by_intarsia]


@pytest.mark.parametrize("read", READERS, ids=lambda read: read.__name__)
def test_every_reader_reads_files_with_indexes(read, indexed):
    assert rows(read(indexed, "k00007")) == rows(TABLE.filter(WANTED))


@pytest.mark.parametrize("read", READERS[:-1], ids=lambda read: read.__name__)
def test_every_reader_reads_them_as_they_were_when_opened(read, table):
    """A plan made before indexes were added is executed afterwards."""
    before = DeltaTable(table.table_uri)
    before.get_add_actions()
    ia.add_indexes(table.file_uris(), INDEXES)
    assert rows(read(before, "k00007")) == rows(TABLE.filter(WANTED))


def test_a_reader_with_the_file_open_reads_on_as_it_was(table):
    path = paths(table)[0]
    with open(path, "rb") as handle:
        before = handle.read()
        ia.add_indexes(table.file_uris(), INDEXES)
        handle.seek(0)
        assert handle.read() == before
        handle.seek(0)
        ids = pq.read_table(handle, columns=["id"])
        assert ids.equals(pq.read_table(path, columns=["id"], partitioning=None))
    assert os.path.getsize(path) > len(before)


def test_the_table_remains_usable(indexed):
    """Appends, deletes and merges rows; compacts and vacuums files; makes and restores a
    checkpoint.
    """
    indexed.optimize.compact()
    deltalake.write_deltalake(indexed.table_uri, TABLE.slice(0, 10), mode="append")
    now = again(indexed)
    ia.add_indexes(now.file_uris(), INDEXES)
    now.delete("id = 5")
    update = TABLE.slice(100, 5).set_column(1, "k", pa.array(["new"] * 5))
    now.merge(
        update, "s.id = t.id", source_alias="s", target_alias="t"
    ).when_matched_update_all().execute()
    now.create_checkpoint()
    assert again(now).count() == ROWS + 8
    actual = again(now).to_pyarrow_dataset().to_table()
    assert actual.filter(pc.field("k") == "new").num_rows == 5
    now.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
    now = again(now)
    assert now.repair(dry_run=True)["files_removed"] == []
    source = ia.dataset(now.file_uris(), schema=schema_of(now))
    assert rows(source.to_table()) == rows(actual.select(TABLE.column_names))


def test_a_restored_version_has_its_indexes(indexed):
    indexed.delete("id >= 0")
    indexed.restore(0)
    now = again(indexed)
    for read in READERS:
        assert rows(read(now, "k00007")) == rows(TABLE.filter(WANTED))


# --- sidecars -----------------------------------------------------------------------------------


def test_sidecars_change_no_file(table):
    before = {path: (os.stat(path).st_mtime_ns, os.path.getsize(path)) for path in paths(table)}
    ia.add_indexes(table.file_uris(), [ia.Lookup("k", granule_rows=100)], sidecar=True)
    assert before == {p: (os.stat(p).st_mtime_ns, os.path.getsize(p)) for p in before}
    for read in READERS:
        assert rows(read(again(table), "k00007")) == rows(TABLE.filter(WANTED))


def vacuumed(table, **options):
    table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False, **options)
    return again(table)


def test_a_vacuum_leaves_sidecars(table):
    ia.add_indexes(table.file_uris(), [ia.Lookup("k", granule_rows=100)], sidecar=True)
    assert rows(by_intarsia(vacuumed(table), "k00007")) == rows(TABLE.filter(WANTED))


def test_a_full_vacuum_removes_sidecars_beside_their_files_which_costs_time_only(table):
    ia.add_indexes(table.file_uris(), [ia.Lookup("k", granule_rows=100)], sidecar=True)
    source = ia.dataset(vacuumed(table, full=True).file_uris(), schema=schema_of(table))
    assert rows(source.to_table(filter=WANTED)) == rows(TABLE.filter(WANTED))
    assert source.plan(filter=WANTED).figures.rows.selected == ROWS


def test_a_full_vacuum_leaves_sidecars_elsewhere(table, tmp_path):
    beside = tmp_path / "indexes"
    ia.add_indexes(table.file_uris(), [ia.Lookup("k", granule_rows=100)], sidecar=beside)
    files = vacuumed(table, full=True).file_uris()
    source = ia.dataset(files, schema=schema_of(table), sidecar=beside)
    assert rows(source.to_table(filter=WANTED)) == rows(TABLE.filter(WANTED))
    assert source.plan(filter=WANTED).figures.rows.selected <= 200
