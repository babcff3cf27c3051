from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as pads
import pyarrow.parquet as pq
import pytest

import intarsia as ia

INDEXED = ["id", "i8", "u64", "f64", "text", "raw", "day", "ts_us", "ts_utc", "money"]
INDEXES = [ia.Lookup(name) for name in INDEXED]


@pytest.fixture
def original(writer: str, originals: dict[str, Path]) -> Path:
    return originals[writer]


@pytest.fixture(scope="module")
def copies(originals: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("copies")
    made = {name: Path(shutil.copy(path, folder)) for name, path in originals.items()}
    ia.add_indexes(folder, INDEXES)
    return made


@pytest.fixture
def copy(writer: str, copies: dict[str, Path]) -> Path:
    return copies[writer]


@pytest.fixture
def own_copy(original: Path, tmp_path: Path) -> Path:
    return Path(shutil.copy(original, tmp_path / "own.parquet"))


def same(actual: pa.Table, expected: pa.Table) -> bool:
    """Equal schemas and values, NaN equal to NaN."""
    return actual.schema.equals(expected.schema) and all(
        a.equals(b) or str(a.to_pylist()) == str(b.to_pylist())
        for a, b in zip(actual.columns, expected.columns, strict=True)
    )


def names(path: Path) -> list[str]:
    return [entry.name for entry in ia.list_indexes(path)[0].indexes]


def test_the_files_have_several_row_groups(original):
    assert pq.read_metadata(original).num_row_groups > 1


def test_a_reader_reads_an_indexed_file_as_it_read_the_original(original, copy, reader):
    assert names(copy) == [f"{name}:lookup" for name in INDEXED]
    assert same(reader(copy), reader(original))


def test_all_readers_see_the_same_ids(copy, reader):
    assert reader(copy)["id"].to_pylist() == list(range(5000))


def test_an_indexed_file_starts_with_the_whole_original(original, copy):
    old, new = original.read_bytes(), copy.read_bytes()
    assert len(new) > len(old)
    assert new[: len(old)] == old


def test_cut_to_its_old_length_an_indexed_file_is_the_original(
    original, own_copy, reader: Callable[[Path], pa.Table]
):
    ia.add_indexes(own_copy, INDEXES[:2])
    with open(own_copy, "r+b") as file:
        file.truncate(original.stat().st_size)
    assert own_copy.read_bytes() == original.read_bytes()
    assert same(reader(own_copy), reader(original))
    assert names(own_copy) == []


def test_adding_again_keeps_what_was_there_and_adds_to_it(own_copy):
    ia.add_indexes(own_copy, [ia.Lookup("id"), ia.Lookup("text")])
    before = own_copy.read_bytes()
    (report,) = ia.add_indexes(own_copy, [ia.Lookup("day")])
    assert [entry.name for entry in report.indexes] == ["id:lookup", "text:lookup", "day:lookup"]
    assert own_copy.read_bytes().startswith(before)


def test_adding_again_replaces_an_index_of_the_same_name(own_copy):
    ia.add_indexes(own_copy, [ia.Lookup("id"), ia.Lookup("text")])
    ia.add_indexes(own_copy, [ia.Lookup("id", granule_rows=512)])
    entries = {entry.name: entry for entry in ia.list_indexes(own_copy)[0].indexes}
    assert sorted(entries) == ["id:lookup", "text:lookup"]
    assert entries["id:lookup"].params == {"granule_rows": 512}


def test_a_reader_reads_a_file_indexed_twice_as_it_read_the_original(original, own_copy, reader):
    ia.add_indexes(own_copy, [ia.Lookup("id")])
    ia.add_indexes(own_copy, [ia.Lookup("id"), ia.Lookup("day")])
    assert same(reader(own_copy), reader(original))


@pytest.mark.parametrize("column", INDEXED)
def test_equality_on_an_indexed_column_finds_the_rows_pyarrow_finds(original, copy, column):
    values = [v for v in pq.read_table(original)[column].combine_chunks() if v.is_valid]
    plain, indexed = pads.dataset(original), ia.dataset(copy)
    for value in (values[0], values[1234], values[-1]):
        condition = pads.field(column) == value
        expected = plain.to_table(filter=condition)
        assert same(indexed.to_table(filter=condition), expected)


@pytest.mark.parametrize("column", INDEXED)
def test_membership_in_an_indexed_column_finds_the_rows_pyarrow_finds(original, copy, column):
    values = pq.read_table(original)[column].combine_chunks()
    members = values.take([1, 1000, 2500, 4999])
    condition = pads.field(column).isin(members.drop_null())
    expected = pads.dataset(original).to_table(filter=condition)
    assert same(ia.dataset(copy).to_table(filter=condition), expected)


def test_a_full_read_equals_pyarrows(original, copy):
    assert same(ia.dataset(copy).to_table(), pads.dataset(original).to_table())
    assert same(ia.ParquetFile(copy).read(), pq.read_table(original))
