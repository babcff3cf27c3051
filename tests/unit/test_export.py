"""Indexes as Parquet files of their own."""

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import intarsia as ia

ROWS = 20_000


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "a.parquet"
    table = pa.table({"k": [f"key {i % 977}" for i in range(ROWS)], "n": range(ROWS)})
    indexes = [ia.Lookup("k"), ia.Distinct("k"), ia.MinMax("n", 1000), ia.NGram("lower(k)")]
    ia.write_table(table, path, indexes=[*indexes, ia.DistinctIDX1("k")], max_rows_per_page=8192)
    return path


def test_an_index_is_a_file_that_other_tools_read(file, tmp_path):
    out = tmp_path / "out.parquet"
    ia.export_index(file, "k:distinct", out)
    keys = set(duckdb.sql(f"SELECT key FROM '{out}'").fetchnumpy()["key"])
    assert keys == {f"key {i}" for i in range(977)}
    ia.export_index(file, ia.MinMax("n"), out)
    summary = pq.read_table(out)
    lows = summary["min"].to_pylist()
    assert lows[0] == 0
    assert [high + 1 for high in summary["max"].to_pylist()] == [*lows[1:], ROWS]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.parquet", "out.parquet"]


@pytest.mark.parametrize("name", ["k:lookup", "k:distinct", "n:minmax", "lower(k):ngram"])
def test_exported_files_are_valid_and_read_without_warnings(name, file, tmp_path):
    out = tmp_path / "out.parquet"
    ia.export_index(file, name, out)
    (entry,) = (e for e in ia.list_indexes(file)[0].indexes if e.name == name)
    section = file.read_bytes()[entry.offset : entry.offset + entry.length]
    assert out.read_bytes() == section + b"PAR1"
    assert ia.verify(out) == []
    assert ia.dataset(out).to_table().equals(pq.read_table(out))
    assert ia.list_indexes(out)[0].indexes == ()


def test_an_index_is_named_as_in_add_indexes(file, tmp_path):
    for index in ("NGram(LOWER(k))", ia.NGram("lower(k)"), "lower(k):ngram"):
        ia.export_index(file, index, tmp_path / "out.parquet")


def test_sidecars_and_other_folders(tmp_path):
    table = pa.table({"k": range(100)})
    pq.write_table(table, tmp_path / "b.parquet")
    ia.add_indexes(tmp_path / "b.parquet", "k:lookup", sidecar=True)
    ia.export_index(tmp_path / "b.parquet", "k:lookup", tmp_path / "out.parquet")
    assert pq.read_metadata(tmp_path / "out.parquet").num_rows == 100


def test_what_cannot_be_exported(file, tmp_path):
    out = tmp_path / "out.parquet"
    with pytest.raises(ia.IndexSpecError, match="k:distinct, k:distinct_idx1, k:lookup"):
        ia.export_index(file, "n:lookup", out)
    with pytest.raises(ia.IndexSpecError, match="not stored as Parquet"):
        ia.export_index(file, "k:distinct_idx1", out)
    (tmp_path / "link").symlink_to("a.parquet")
    before = file.read_bytes()
    for same in (file, tmp_path / "link"):
        with pytest.raises(ia.PathError, match="write it to another one"):
            ia.export_index(file, "k:lookup", same)
    assert file.read_bytes() == before
    with pytest.raises(ia.PathError):
        ia.export_index(file, "k:lookup", tmp_path / "nowhere" / "out.parquet")
    assert not out.exists()


def test_a_damaged_index_is_not_exported(file, tmp_path):
    (entry,) = (e for e in ia.list_indexes(file)[0].indexes if e.name == "k:lookup")
    data = bytearray(file.read_bytes())
    data[entry.offset + entry.length - 20] ^= 1
    file.write_bytes(data)
    with pytest.raises(ia.FormatError, match="checksum"):
        ia.export_index(file, "k:lookup", tmp_path / "out.parquet")
    assert not (tmp_path / "out.parquet").exists()


def test_the_command_exports_indexes(say, file, tmp_path):
    out = tmp_path / "out.parquet"
    assert say("index", "export", file, "k:lookup", out) == ("", "", 0)
    assert pq.read_metadata(out).num_rows == 977 * 3
    said = say("index", "export", file, "nothing:lookup", out)
    assert (said.code, "no index nothing:lookup" in said.err) == (2, True)
