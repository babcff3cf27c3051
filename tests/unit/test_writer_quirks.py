"""Counts that a known writer gets wrong are not used."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads
import pyarrow.parquet as pq
import pytest

import intarsia as ia
from intarsia.file.writer_quirks import miscounts_nulls
from intarsia.parquet.metadata import SizeStatistics
from intarsia.parquet.statistics import UNKNOWN
from intarsia.scan.parquet_file import open_file

WORDS = pa.dictionary(pa.int32(), pa.string())
ROWS = [{"word": "x", "text": "y", "n": 1}, None, {"word": None, "text": None, "n": None}] * 50
CITY = pa.struct([("word", WORDS), ("text", pa.string()), ("n", pa.int64())])
CONDITIONS = {
    "equal": lambda column: column == "x",
    "null": lambda column: column.is_null(),
    "valid": lambda column: column.is_valid(),
    "not in": lambda column: ~column.isin(["x"]),
}


@pytest.fixture(params=[True, False], ids=["stored", "not stored"])
def path(request, tmp_path):
    """Dictionaries below nullable structs, with and without stored Arrow types."""
    at = tmp_path / "a.parquet"
    table = pa.table({"s": pa.array(ROWS, CITY), "t": pa.array([None, "x", "x"] * 50, WORDS)})
    pq.write_table(
        table,
        at,
        row_group_size=60,
        write_page_index=True,
        write_batch_size=1,
        max_rows_per_page=10,
        store_schema=request.param,
    )
    return at


@pytest.mark.parametrize("condition", CONDITIONS.values(), ids=CONDITIONS)
@pytest.mark.parametrize("column", [("s", "word"), ("s", "text"), "t"], ids=str)
def test_nulls_of_structs_above_dictionaries(column, condition, path):
    counted = pq.ParquetFile(path).metadata.row_group(0).column(0).statistics.null_count
    assert counted == 20, "there are 40, as this Arrow counts: only older ones are to be doubted"
    expression = condition(pc.field(column))
    expected = pads.dataset(path).to_table().filter(expression)
    data = ia.dataset(path)
    assert data.to_table(filter=expression) == expected
    assert data.count_rows(filter=expression) == expected.num_rows


def test_nulls_are_counted_by_histograms_of_levels(path):
    file = open_file(path)
    expected = pq.read_table(path)["s"].combine_chunks()
    for leaf in range(3):
        nulls = pc.struct_field(expected, leaf).is_null().to_numpy(zero_copy_only=False)
        assert file.row_group_bounds(leaf).null_counts.tolist() == [
            part.sum() for part in np.split(nulls, [60, 120])
        ]
        pages = file.page_indexes.bounds(1, leaf).null_counts.tolist()
        assert pages == [part.sum() for part in np.split(nulls[60:120], 6)]


@pytest.mark.parametrize("levels", [None, [1, 59], [3, -1, 58], [20, 20, 21], [2**63 - 1] * 3])
def test_histograms_that_cannot_be_count_nothing(path, levels):
    file = open_file(path)
    chunk, index = file.chunk(0, 0), file.page_indexes.columns(0, 0)
    sizes = SizeStatistics(definition_level_histogram=levels)
    bounds = file.bounds_of(0, [replace(chunk, size_statistics=sizes)])
    assert bounds.null_counts.tolist() == [UNKNOWN]
    pages = None if levels is None or sum(levels) == 61 else np.array(levels * 6)
    bounds = file.bounds_of(0, replace(index, definition_level_histograms=pages))
    assert bounds.null_counts.tolist() == [UNKNOWN] * 6


def test_other_counts_are_used(path):
    file = open_file(path)
    stored = file.templates.has_stored_schema
    doubted = [miscounts_nulls(file.file_footer, leaf) for leaf in range(4)]
    assert doubted == [True, not stored, False, False]
    plain = path.with_name("plain.parquet")
    pq.write_table(pa.table({"s": pa.array([{"a": "x"}, None])}), plain, store_schema=stored)
    assert miscounts_nulls(open_file(plain).file_footer, 0) is not stored
    expected = pc.field("s", "a").is_valid()
    assert ia.dataset(plain).count_rows(filter=expected) == 1


@pytest.mark.parametrize(
    "options", [{}, {"checkpoint_row_groups": 2}, {"flavor": "spark"}], ids=str
)
def test_all_nulls_are_counted_in_what_is_written(options, tmp_path):
    items = pa.list_(pa.field("element", pa.struct([("d", WORDS)])))
    kind = pa.struct([("word", WORDS), ("l", items)])
    rows = [{"word": "x", "l": [{"d": "y"}, None]}, None, {"word": None, "l": []}] * 50
    schema = pa.schema([pa.field("s", kind, metadata={"k": "v"}), ("t", WORDS)], {b"\xff": b"\xfe"})
    table = pa.table([pa.array(rows, kind), pa.array([None, "x", "x"] * 50, WORDS)], schema=schema)
    path = tmp_path / "a.parquet"
    ia.write_table(table, path, row_group_size=60, **options)
    group = pq.read_metadata(path).row_group(1)
    assert [group.column(at).statistics.null_count for at in range(3)] == [40, 60, 20]
    file = open_file(path)
    assert file.page_indexes.columns(1, 0).null_counts.sum() == 40
    read = pq.read_table(path)
    assert read == table
    assert read.schema.equals(table.schema, check_metadata=True)
    for size in (0, -5):
        with pytest.raises((ValueError, pa.ArrowException)):
            ia.write_table(table, path, row_group_size=size, **options)
    ia.write_table(table, path, store_schema=False, **options)
    assert not pa.types.is_dictionary(pq.read_schema(path).field("t").type)
    assert pq.read_table(path).cast(table.schema) == table
    ia.write_table(table.slice(0, 0), path, **options)
    assert pq.read_table(path) == table.slice(0, 0)
