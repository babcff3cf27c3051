"""Rare options, types and names in written files, and the errors where they are impossible."""

from __future__ import annotations

import os
import warnings
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import intarsia as ia


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "a.parquet"


def test_pages_of_any_number_of_rows(path):
    table = pa.table({"a": range(9)})
    ia.write_table(table, path, max_rows_per_page=None)
    assert pq.read_table(path).equals(table)
    with pytest.raises(ValueError, match="max_rows_per_page must be at least 1, not 0"):
        ia.write_table(table, path, max_rows_per_page=0)


def test_indexes_are_of_names_and_types_as_they_are_written(path):
    table = pa.table({"a b": [1]})
    with pytest.raises(ia.IndexSpecError, match="there are: a_b"):
        ia.write_table(table, path, flavor="spark", indexes=['lookup("a b")'])
    moments = pa.table({"ts": pa.array([1], pa.timestamp("us"))})
    options = {"use_deprecated_int96_timestamps": True, "indexes": [ia.Lookup("ts")]}
    with pytest.raises(ia.IndexSpecError, match="no defined equality"):
        ia.write_table(moments, path, **options)
    assert list(path.parent.iterdir()) == []
    ia.write_table(table, path, flavor="spark", indexes=[ia.Lookup("a_b")])
    assert ia.list_indexes(path)[0].indexes[0].name == "a_b:lookup"


def test_checkpoints_of_extensions_within_structs(path):
    uuid = pa.ExtensionArray.from_storage(pa.uuid(), pa.array([b"0" * 16], pa.binary(16)))
    table = pa.table({"s": pa.StructArray.from_arrays([uuid], ["u"])})
    ia.write_table(table, path, checkpoint_row_groups=1)
    assert pq.read_table(path).equals(table)


def test_views_two_structs_down_are_taken(path):
    kind = pa.struct([("z", pa.struct([("x", pa.string_view())]))])
    table = pa.table({"c": pa.array([{"z": {"x": str(n)}} for n in range(5)], kind), "i": range(5)})
    ia.write_table(table, path)
    data = ia.dataset(path)
    assert data.take([0, 2])["c"].to_pylist() == [{"z": {"x": "0"}}, {"z": {"x": "2"}}]
    batches = data.to_batches(filter=pc.field("i") >= 2, batch_size=1)
    assert [batch["c"][0].as_py()["z"]["x"] for batch in batches] == ["2", "3", "4"]


def test_what_is_not_null_within_what_is_belies_no_page_index(path):
    inner = pa.struct([("x", pa.int32()), ("l", pa.list_(pa.int32()))])
    kind = pa.struct([pa.field("y", inner, nullable=False)])
    values = [None] * 30 + [{"y": {"x": 1, "l": [1]}}] * 10
    table = pa.table({"a": pa.array(values, kind), "i": range(40)})
    ia.write_table(table, path, max_rows_per_page=2, write_batch_size=1)
    data = ia.dataset(path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert data.to_table(filter=pc.field("i") == 3).equals(table.slice(3, 1))
        assert data.to_table(filter=pc.field("i") >= 28).equals(table.slice(28))


def test_indexes_of_texts_that_are_not_utf8(path):
    texts = pa.Array.from_buffers(pa.string(), 2, pa.array([b"\xff\xfe", b"ok"]).buffers())
    pq.write_table(pa.table({"s": texts}), path)
    with pytest.raises(ia.IndexSpecError, match="a value is not UTF-8"):
        ia.add_indexes(path, ["s:distinct_idx1"])
    ia.add_indexes(path, ["s:minmax"])
    (finding,) = ia.verify(path)
    assert finding.message == "1 of 2 strings are not UTF-8"
    actual = ia.dataset(path)
    assert actual.count_rows(filter=pc.field("s") >= "a") == 2
    assert actual.count_rows(filter=pc.field("s") == "ok") == 1


def test_files_that_are_united_have_each_name_once(tmp_path):
    twice = pa.Table.from_arrays([pa.array([1]), pa.array([2])], ["c", "c"])
    pq.write_table(twice, tmp_path / "a.parquet")
    pq.write_table(pa.table({"c": [1]}), tmp_path / "b.parquet")
    with pytest.raises(ia.UnsupportedError, match=r"a\.parquet: two columns are called 'c'"):
        ia.dataset(tmp_path, union_by_name=True)


def test_a_writer_takes_tables_and_batches_and_says_how_frames_become_them(path):
    table = pa.table({"a": [1, 2]})
    with ia.ParquetWriter(path, table.schema) as writer:
        writer.write(table)
        writer.write(table.to_batches()[0])
    assert pq.read_table(path).column("a").to_pylist() == [1, 2, 1, 2]
    frame = pytest.importorskip("polars").DataFrame({"a": [1]})
    with (
        ia.ParquetWriter(path, table.schema) as writer,
        pytest.raises(TypeError, match=r"not DataFrame; convert it with pyarrow.table\(…\)"),
    ):
        writer.write_table(frame)
    with pytest.raises(TypeError, match=r"not dict$"):
        ia.write_table({"a": [1]}, path)


@pytest.mark.parametrize("stem", ["x" * 246, "x" * 247, "\U0001f600" * 61, "日" * 82, "é" * 120])
def test_names_as_long_as_disks_take_them(stem, tmp_path):
    path, table = tmp_path / f"{stem}.parquet", pa.table({"id": range(9)})
    ia.write_table(table, path)
    ia.add_indexes(path, ["id:lookup"])
    with ia.ParquetWriter(path, table.schema) as writer:
        writer.write(table)
    ia.add_indexes(path, ["id:lookup"], sidecar=True)
    assert ia.dataset(tmp_path).to_table(filter="id = 7").num_rows == 1
    assert [one.name for one in path.parent.iterdir() if one.is_file()] == [path.name]


def test_a_pipe_is_not_written_to(tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    with pytest.raises(ia.PathError, match="it is a device or a pipe"):
        ia.write_table(pa.table({"id": [1]}), path)
    assert [one.name for one in tmp_path.iterdir()] == ["pipe"]
    assert path.is_fifo()


@pytest.mark.parametrize("group_rows", [None, 4])
@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize("indices", [[0, 1, 2, None], [2, None, 0, 3], [None, 3, 1, 0, 2, None]])
def test_bounds_of_dictionaries_are_those_of_what_is_used(indices, ordered, group_rows, path):
    """Arrow counts NULL as one more value; DuckDB answers by the bounds written."""
    texts = pa.array(["b", "c", "a", "d"])
    column = pa.DictionaryArray.from_arrays(pa.array(indices, pa.int16()), texts, ordered=ordered)
    table = pa.table({"d": pa.chunked_array([column, column[1:]])})
    ia.write_table(table, path, row_group_size=group_rows)
    values = [value for value in table["d"].to_pylist() if value is not None]
    actual = duckdb.sql(f"SELECT min(d), max(d) FROM '{path}'").fetchall()
    assert actual == [(min(values), max(values))]
    assert pq.read_table(path)["d"].to_pylist() == table["d"].to_pylist()
    assert pq.read_schema(path) == table.schema
    assert ia.verify(path) == []


def test_names_that_are_too_long_are_told_of(tmp_path):
    path, table = tmp_path / "a.parquet", pa.table({"a": [1]})
    ia.write_table(table, path)
    long = tmp_path / ("n" * 300)
    with pytest.raises(ia.PathError, match="too long"):
        ia.write_table(table, long)
    with pytest.raises(ia.PathError, match="too long"):
        ia.recover(path, long)


def test_rows_read_from_a_file_with_indexes_do_not_carry_its_pointer(tmp_path):
    path, new = tmp_path / "a.parquet", tmp_path / "b.parquet"
    pq.write_table(pa.table({"a": range(1000)}), path, store_schema=False)
    (report,) = ia.add_indexes(path, ["a:lookup"], page_index=False)
    assert repr(report) == f"<IndexReport of {path}: 1,000 rows; a:lookup>"
    data = ia.dataset(path)
    assert not data.schema.metadata
    for table in (
        data.to_table(),
        data.head(9),
        data.to_table(filter="a < 5"),
        pq.read_table(path),
    ):
        ia.write_table(table, new, indexes=["a:minmax"])
        assert ia.verify(new) == []
        assert ia.dataset(new).count_rows(filter="a = 3") == 1


def test_a_schema_is_one_of_pyarrow(tmp_path):
    with pytest.raises(TypeError, match=r"pyarrow\.Schema, not str"):
        ia.ParquetWriter(tmp_path / "a.parquet", "a int")


def test_options_of_write_table_are_not_those_of_a_writer(path: Path) -> None:
    for options in ({}, {"checkpoint_row_groups": 1}):
        with pytest.raises(TypeError, match="an option of write_table"):
            ia.ParquetWriter(path, pa.schema([("n", "int64")]), row_group_size=9, **options)
