"""Units of rows have a bounded size in memory, however few rows that is."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import intarsia as ia
from intarsia import memory
from intarsia.expr.tree import read_expression
from intarsia.file.read_options import ReadOptions
from intarsia.row_ranges import RowRanges
from intarsia.scan import units
from intarsia.scan.filter.condition import Condition, holds, rows_where
from intarsia.scan.parquet_file import open_file
from intarsia.scan.schema_adapter import roots_of


@pytest.fixture
def path(tmp_path):
    """300 strings of 10 KB, in three row groups of ten pages."""
    at = tmp_path / "a.parquet"
    table = pa.table({"i": range(300), "t": [f"{i:05}" + "ab" * 5_000 for i in range(300)]})
    pq.write_table(
        table,
        at,
        row_group_size=100,
        use_dictionary=False,
        write_page_index=True,
        write_batch_size=10,
        max_rows_per_page=10,
    )
    return at


def _roots(file, names):
    return roots_of(file, names, file.schema_arrow)


def test_few_long_rows_are_several_units(path, monkeypatch):
    file, rows = open_file(path), RowRanges.all(300)
    assert list(units.units_of(file, rows, _roots(file, ["i", "t"]))) == [rows]
    monkeypatch.setattr(units, "COSTS", replace(units.COSTS, unit_bytes=1_000_000))
    parts = list(units.units_of(file, rows, _roots(file, ["i", "t"])))
    assert RowRanges.union(parts) == rows
    assert 4 <= len(parts) <= 6
    assert list(units.units_of(file, rows, _roots(file, ["i"]))) == [rows]
    actual = ia.dataset(path).to_table(["i"], filter=pc.starts_with(pc.field("t"), "00177a"))
    assert actual.to_pydict() == {"i": [177]}


def test_rows_are_taken_of_more_text_than_one_array_holds():
    size = 1_200_000_000
    text = pa.py_buffer(np.zeros(size + 19, dtype=np.uint8))  # memory that is never written to
    offsets = np.append(0, np.arange(size, size + 20)).astype(np.int32)
    part = pa.StringArray.from_buffers(20, pa.py_buffer(offsets), text)
    numbers = pa.chunked_array([range(20), range(20, 40)])
    actual = pa.table({"i": numbers, "t": pa.chunked_array([part] * 2)})
    expression = pc.field("i") == 33
    expected = Condition.of(read_expression(expression), actual.schema)
    taken, rows = rows_where(holds(expected.comparison, actual), actual, RowRanges.all(40))
    assert taken.to_pydict() == {"i": [33], "t": ["\0"]}
    assert rows == RowRanges.of((33, 34))


@pytest.fixture(scope="module")
def coded(tmp_path_factory):
    """100,000 strings from a dictionary of 1,000, 1 KB each; and one column that Arrow keeps
    encoded.
    """
    at = tmp_path_factory.mktemp("coded") / "a.parquet"
    texts = pa.array([f"{i:05}" + "ab" * 500 for i in range(1_000)])
    codes = pa.array(np.random.default_rng(1).integers(0, 1_000, 100_000), pa.int32())
    array = pa.DictionaryArray.from_arrays(codes, texts)
    pq.write_table(
        pa.table({"t": texts.take(codes), "kept": array}),
        at,
        dictionary_pagesize_limit=1 << 24,
        max_rows_per_page=250,
        write_batch_size=250,
        write_page_index=True,
    )
    return at


def num_units(path, column, **options):
    file, rows = open_file(path, options=ReadOptions(**options)), RowRanges.all(100_000)
    parts = list(units.units_of(file, rows, _roots(file, [column])))
    assert RowRanges.union(parts) == rows
    return len(parts)


def test_what_is_read_as_dictionaries_takes_no_more_than_these(coded, monkeypatch):
    monkeypatch.setattr(units, "COSTS", replace(units.COSTS, unit_bytes=500_000))
    assert num_units(coded, "t", read_dictionary=("t",)) <= 2
    assert num_units(coded, "kept") <= 2
    assert num_units(coded, "t") >= 20


def test_strings_outside_the_dictionary_count_with_their_length(tmp_path, monkeypatch):
    at = tmp_path / "a.parquet"
    texts = [f"{i:0200}" for i in range(100_000)]  # more than a dictionary of 1 MiB
    pq.write_table(pa.table({"t": texts}), at, write_page_index=True, compression="zstd")
    monkeypatch.setattr(units, "COSTS", replace(units.COSTS, unit_bytes=2_000_000))
    many = num_units(at, "t")
    assert num_units(at, "t", read_dictionary=("t",)) == many >= 8


def test_small_row_groups_weigh_as_much_as_their_strings(tmp_path, monkeypatch):
    path = tmp_path / "a.parquet"
    short = [f"{i:0110}" for i in range(200)]
    long = [f"{i % 2:011000}" for i in range(200)]  # as long as they are stored
    pq.write_table(pa.table({"t": short + long * 19}), path, row_group_size=200)
    file, rows = open_file(path), RowRanges.all(4_000)
    stored = [group.total_byte_size for group in file.metadata.row_groups]
    assert max(stored) < 1.3 * min(stored)
    monkeypatch.setattr(units, "COSTS", replace(units.COSTS, first_unit_rows=0))
    monkeypatch.setattr(units, "COSTS", replace(units.COSTS, unit_bytes=5_000_000))
    parts = list(units.units_of(file, rows, _roots(file, ["t"])))
    assert RowRanges.union(parts) == rows
    assert 8 <= len(parts) <= 11


def test_rows_weigh_as_much_as_their_pages(path, monkeypatch):
    file, rows = open_file(path), RowRanges.from_rows(np.arange(5, 300, 10))  # one of each page
    monkeypatch.setattr(units, "COSTS", replace(units.COSTS, unit_bytes=1_000_000))
    parts = list(units.units_of(file, rows, _roots(file, ["i", "t"])))
    assert RowRanges.union(parts) == rows
    assert 4 <= len(parts) <= 6
    assert list(units.units_of(file, rows, _roots(file, ["i"]))) == [rows]
    apart = RowRanges.from_rows(np.array([5, 6, 95, 105, 295]))  # of four pages
    assert list(units.units_of(file, apart, _roots(file, ["i", "t"]))) == [apart]
    monkeypatch.setattr(units, "COSTS", replace(units.COSTS, few_ranges=0))
    monkeypatch.setattr(units, "COSTS", replace(units.COSTS, unit_bytes=210_000))  # two pages
    parts = list(units.units_of(file, apart, _roots(file, ["i", "t"])))
    assert parts == [RowRanges.of((5, 7), (95, 96)), RowRanges.of((105, 106), (295, 296))]
    monkeypatch.undo()
    few = RowRanges.of((5, 9), (205, 209))
    assert list(units.units_of(file, few, _roots(file, ["i", "t"]))) == [few]


def test_units_are_larger_where_they_cut_through_pages(tmp_path, monkeypatch):
    rows, path = 100_000, tmp_path / "a.parquet"
    rng = np.random.default_rng(1)
    table = pa.table({"x": rng.random(rows), "t": [f"{i:020}" for i in range(rows)]})
    even = {"use_dictionary": False, "write_page_index": True, "write_batch_size": 100}
    monkeypatch.setattr(units, "COSTS", replace(units.COSTS, unit_bytes=300_000))

    def cuts(**options):
        pq.write_table(table, path, **even, **options)
        file = open_file(path)
        return len(list(units.units_of(file, RowRanges.all(rows), _roots(file, ["x", "t"]))))

    aligned = cuts(max_rows_per_page=2_000)
    assert cuts(data_page_size=70_000, max_rows_per_page=rows) * 2 < aligned
    assert ia.dataset(path).to_table(filter=pc.field("x") >= 0).equals(table)


def test_row_groups_of_many_columns_are_few_units(tmp_path, monkeypatch):
    """Each column takes some time in each unit, however few rows the unit has."""
    path, names = tmp_path / "a.parquet", [f"c{i}" for i in range(100)]
    random = np.random.default_rng(2).integers(0, 10**6, (100, 2_000))
    table = pa.table(dict(zip(names, random, strict=True)))
    ia.write_table(table, path, max_rows_per_page=100, write_batch_size=100)
    file, rows = open_file(path), RowRanges.all(2_000)

    def sizes(columns, **options):
        parts = list(units.units_of(file, rows, _roots(file, columns), **options))
        assert RowRanges.union(parts) == rows
        return [part.num_rows for part in parts]

    few_bytes = {"unit_bytes": 300_000, "first_unit_rows": 100}
    monkeypatch.setattr(units, "COSTS", replace(units.COSTS, **few_bytes, unit_column_bytes=0))
    assert len(sizes(names)) >= 6
    monkeypatch.setattr(units, "COSTS", replace(units.COSTS, unit_column_bytes=6_000))
    assert 2 <= len(sizes(names)) <= 4
    assert ia.dataset(path).to_table(filter=pc.field("c0") >= 0).equals(table)
    monkeypatch.setattr(units, "COSTS", replace(units.COSTS, unit_column_bytes=12_000))
    assert sizes(names) == [2_000]
    assert len(sizes(names[:20])) >= 2
    assert sizes(names, small_first=True)[0] == 100
    assert ia.dataset(path).to_table(filter=pc.field("c0") >= 0).equals(table)
    monkeypatch.setattr(memory, "has_limit", lambda: True)
    assert len(sizes(names)) >= 6
