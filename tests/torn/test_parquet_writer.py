"""Checkpoints: the layout, other readers, and what a writer leaves behind."""

import datetime
import os
import subprocess
import sys

import datafusion
import duckdb
import numpy as np
import polars
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import intarsia as ia
from intarsia.io.source import BufferSource
from intarsia.recovery.byte_scan import walk_tiles

N = 5000
TABLE = pa.table(
    {
        "n": np.arange(N),
        "s": [f"text {n % 13}" for n in range(N)],
        "l": [[n] * (n % 3) for n in range(N)],
        "t": pa.array(
            [datetime.datetime(2024, 1, 1) + datetime.timedelta(seconds=n) for n in range(N)],
            pa.timestamp("us", "Europe/Rome"),
        ),
    }
)
PAGES = {"max_rows_per_page": 100, "write_batch_size": 10}


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    path = tmp_path_factory.mktemp("checkpoints") / "t.parquet"
    indexes = [ia.Lookup("n")]
    with ia.ParquetWriter(
        path, TABLE.schema, checkpoint_row_groups=2, indexes=indexes, **PAGES
    ) as writer:
        for start in range(0, N, 1000):
            writer.write_table(TABLE.slice(start, 1000), 500)
    return path


def test_every_prefix_up_to_a_checkpoint_is_a_file_of_its_own(path):
    data = path.read_bytes()
    footers = walk_tiles(BufferSource(data)).footers
    assert [tile.metadata.num_rows for tile in footers] == [0, 1000, 2000, 3000, 4000, 5000, 5000]
    for tile in footers:
        prefix = pa.BufferReader(data[: tile.stop])
        assert pq.read_table(prefix).equals(TABLE.slice(0, tile.metadata.num_rows))


def test_a_file_with_checkpoints_has_no_findings(path):
    assert ia.verify(path) == []
    groups = ia.ParquetFile(path).metadata.row_groups
    assert [group.ordinal for group in groups] == list(range(10))


def test_other_readers_read_a_file_with_checkpoints(path):
    assert pq.read_table(path).equals(TABLE)
    assert pq.read_table(path, filters=pc.field("n") > 4990).num_rows == 9
    actual = duckdb.sql(f"SELECT sum(n), count(*) FROM '{path}' WHERE n > 4990").fetchall()
    assert actual == [(sum(range(4991, 5000)), 9)]
    assert polars.scan_parquet(path).filter(polars.col("n") > 4990).collect().height == 9
    assert polars.read_parquet(path)["l"].to_list() == TABLE["l"].to_pylist()
    context = datafusion.SessionContext()
    context.register_parquet("t", str(path))
    query = "SELECT count(*) AS c FROM t WHERE n > 4990 OR n = 17"
    assert context.sql(query).to_pydict() == {"c": [10]}


def test_page_indexes_of_all_row_groups_are_used(path):
    explained = ia.dataset(path).explain(filter=pc.field("n").isin([250, 4250]), analyze=True)
    assert explained.read.rows.selected <= 2 * 100
    actual = ia.ParquetFile(path).read(filter=pc.field("n").isin([250, 4250]))
    assert actual.equals(TABLE.take([250, 4250]))


def test_bloom_filters_are_written_too(tmp_path):
    options = {"bloom_filter_options": {"n": True}}
    with ia.ParquetWriter(
        tmp_path / "t.parquet", TABLE.schema, checkpoint_row_groups=3, **options
    ) as writer:
        writer.write_table(TABLE, 500)
    assert ia.verify(tmp_path / "t.parquet") == []
    metadata = ia.ParquetFile(tmp_path / "t.parquet").metadata
    assert all(g.columns[0].meta_data.bloom_filter_offset for g in metadata.row_groups)


def test_batches_and_key_values(tmp_path):
    path = tmp_path / "t.parquet"
    with ia.ParquetWriter(path, TABLE.schema, checkpoint_row_groups=2) as writer:
        for batch in TABLE.to_batches(max_chunksize=700):
            writer.write_batch(batch)
        writer.write_table(TABLE.slice(0, 0))
        writer.add_key_value_metadata({"who": "me"})
    assert pq.read_table(path).equals(TABLE)
    assert pq.read_metadata(path).metadata[b"who"] == b"me"
    assert pq.read_metadata(path).num_row_groups == 8


def test_a_table_is_written_with_checkpoints(tmp_path):
    path = tmp_path / "t.parquet"
    ia.write_table(TABLE, path, row_group_size=500, checkpoint_row_groups=5)
    data = path.read_bytes()
    rows = [tile.metadata.num_rows for tile in walk_tiles(BufferSource(data)).footers]
    assert rows == [0, 2500, 5000, 5000]  # the last one's page indexes are adjacent
    assert pq.read_table(path).equals(TABLE)


@pytest.mark.parametrize("every", [None, 1])
def test_a_failed_writer_leaves_nothing_unless_requested(tmp_path, every):
    path = tmp_path / "t.parquet"

    def fail(keep):
        with ia.ParquetWriter(
            path, TABLE.schema, checkpoint_row_groups=every, keep_unfinished=keep
        ) as writer:
            writer.write_table(TABLE)
            assert not path.exists()
            assert [name[0] for name in os.listdir(tmp_path)] == ["."]
            raise ZeroDivisionError

    for keep in (False, True):
        with pytest.raises(ZeroDivisionError):
            fail(keep)
        assert len(os.listdir(tmp_path)) == keep


def test_misusing_a_writer_is_an_error(tmp_path):
    path = tmp_path / "t.parquet"
    for wrong in (
        {"checkpoint_row_groups": 0},
        {"metadata_collector": [], "checkpoint_row_groups": 1},
    ):
        with pytest.raises(ValueError, match="checkpoint_row_groups"):
            ia.ParquetWriter(path, TABLE.schema, **wrong)
    writer = ia.ParquetWriter(path, TABLE.schema, checkpoint_row_groups=1)
    with pytest.raises(ValueError, match="another schema"):
        writer.write_table(TABLE.select(["n"]))
    writer.write_table(TABLE)
    writer.close()
    writer.close()
    with pytest.raises(ValueError, match="closed"):
        writer.write_table(TABLE)
    assert os.listdir(tmp_path) == ["t.parquet"]
    assert pq.read_table(path).equals(TABLE)


@pytest.mark.parametrize("settings", [{}, {"checkpoint_row_groups": 1}])
def test_rows_without_columns_are_refused_not_lost(tmp_path, settings):
    rows = TABLE.select([])
    with pytest.raises(ValueError, match="rows without a column"):
        ia.write_table(rows, tmp_path / "t.parquet", **settings)
    with (
        ia.ParquetWriter(tmp_path / "t.parquet", rows.schema, **settings) as writer,
        pytest.raises(ValueError, match="rows without a column"),
    ):
        writer.write_table(rows)
    assert pq.read_metadata(tmp_path / "t.parquet").num_rows == 0


@pytest.mark.parametrize("end", ["raise RuntimeError", "sys.exit()", "del writer"])
def test_a_writer_that_is_never_closed_leaves_its_rows(end, tmp_path):
    """As if its process was killed: a normal exit must not leave less."""
    program = f"""
import sys, pyarrow as pa, intarsia as ia
table = pa.table({{"n": range(10)}})
writer = ia.ParquetWriter(sys.argv[1], table.schema, checkpoint_row_groups=1)
writer.write_table(table)
writer.write_table(table)
{end}
"""
    command = [sys.executable, "-W", "always", "-c", program, str(tmp_path / "t.parquet")]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    (left,) = tmp_path.iterdir()
    assert f"its writer was not closed: the rows it wrote are in {left}" in ran.stderr
    assert ia.recover(left, tmp_path / "new.parquet").rows == 20


def test_the_error_about_a_failed_index_says_where_the_rows_are(tmp_path):
    rows = pa.table({"n": range(1_100_000)})  # too many values for the index

    def write():
        options = {"indexes": ["n:distinct"], "keep_unfinished": True}
        with ia.ParquetWriter(tmp_path / "t.parquet", rows.schema, **options) as writer:
            writer.write_table(rows)

    with pytest.raises(ia.IndexSpecError) as raised:
        write()
    (unfinished,) = tmp_path.iterdir()
    assert raised.value.__notes__ == [f"what was written so far is in {unfinished}"]
    assert pq.read_table(unfinished).equals(rows)


def test_a_record_batch_is_written(tmp_path):
    batch = TABLE.slice(0, 100).to_batches()[0]
    ia.write_table(batch, tmp_path / "t.parquet", indexes=["n:lookup"])
    assert pq.read_table(tmp_path / "t.parquet").equals(pa.Table.from_batches([batch]))
