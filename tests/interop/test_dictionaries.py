"""Arrow dictionaries written by Intarsia: other readers use bounds, and pages stay small."""

from __future__ import annotations

from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import intarsia as ia

HALF_USED = pa.DictionaryArray.from_arrays(pa.array([0, None], pa.int32()), ["a", "z"])
WITHIN = {
    "list": pa.ListArray.from_arrays(pa.array([0, 2], pa.int32()), HALF_USED),
    "large list": pa.LargeListArray.from_arrays(pa.array([0, 2], pa.int64()), HALF_USED),
    "list of two": pa.FixedSizeListArray.from_arrays(HALF_USED, 2),
    "map": pa.MapArray.from_arrays(pa.array([0, 2], pa.int32()), ["k", "l"], HALF_USED),
}


@pytest.mark.parametrize("values", WITHIN.values(), ids=WITHIN)
def test_an_unused_dictionary_value_is_no_bound_of_list_elements(tmp_path, values):
    path, table = tmp_path / "a.parquet", pa.table({"c": values})
    ia.write_table(table, path)
    assert ia.verify(path) == []
    actual = pq.read_table(path)
    assert actual.schema.equals(table.schema)
    assert actual.to_pylist() == table.to_pylist()


def with_dictionaries(path: Path) -> set[str]:
    group = pq.read_metadata(path).row_group(0)
    columns = [group.column(number) for number in range(group.num_columns)]
    return {column.path_in_schema for column in columns if column.has_dictionary_page}


def test_columns_get_dictionaries_of_at_most_a_page(tmp_path):
    path, rows = tmp_path / "a.parquet", 50_000
    draw = np.random.default_rng(7)
    words = pa.array([f"word-{number:040}" for number in range(6000)])
    table = pa.table(
        {
            "id": range(rows),
            "few": draw.integers(0, 9, rows),
            "many": draw.integers(0, 30_000, rows),
            "text": words.take(pa.array(draw.integers(0, 6000, rows))),
            "none": pa.nulls(rows, pa.string()),
            "a.b": [f"{row}" for row in range(rows)],
            "short": [f"{row % 10_000}" for row in range(rows)],
            "list": [[row] for row in range(rows)],
            "uuid": pa.array([row.to_bytes(16) for row in range(rows)], pa.uuid()),
            "word": words.take(pa.array(draw.integers(0, 6000, rows))).dictionary_encode(),
        }
    )
    ia.write_table(table, path)
    actual = {"few", "text", "none", "short", "list.list.element", "word"}
    assert with_dictionaries(path) | {"none"} == actual
    assert ia.dataset(path).to_table().equals(pq.read_table(path))
    assert pq.read_table(path).to_pylist() == table.to_pylist()
    assert ia.verify(path) == []
    plain = tmp_path / "plain.parquet"
    for options in ({"dictionary_pagesize_limit": 128 * 1024}, {"use_dictionary": True}):
        ia.write_table(table, plain, **options)
        assert "id" in with_dictionaries(plain)
        assert path.stat().st_size < plain.stat().st_size
    ia.write_table(table, plain, use_dictionary=False)
    assert with_dictionaries(plain) == set()


def test_pages_of_few_rows_have_smaller_dictionaries(tmp_path):
    path = tmp_path / "a.parquet"
    table = pa.table({"t": [f"{row % 5000:080}" for row in range(50_000)]})
    ia.write_table(table, path)
    assert with_dictionaries(path) == {"t"}
    ia.write_table(table, path, max_rows_per_page=1000)
    assert with_dictionaries(path) == set()
    ia.write_table(table.slice(0, 1000), path, max_rows_per_page=None)
    assert with_dictionaries(path) == {"t"}


@pytest.mark.parametrize("every", [None, 1])
def test_a_writer_chooses_dictionaries_by_its_first_rows(tmp_path, every):
    path, whole = tmp_path / "a.parquet", tmp_path / "whole.parquet"
    draw = np.random.default_rng(7)
    words = pa.array([f"word-{number:080}" for number in range(5000)])
    parts = [
        pa.table(
            {
                "id": [f"{part}-{row:040}" for row in range(30_000)],
                "text": words.take(pa.array(draw.integers(0, 5000, 30_000))),
            }
        )
        for part in range(3)
    ]
    with ia.ParquetWriter(path, parts[0].schema, checkpoint_row_groups=every) as writer:
        writer.add_key_value_metadata({"a": "1"})
        for part in parts:
            writer.write_table(part)
        writer.add_key_value_metadata({"b": "2"})
    table = pa.concat_tables(parts)
    assert pq.read_table(path) == table
    assert with_dictionaries(path) == {"text"}
    assert {b"a", b"b"} <= pq.read_metadata(path).metadata.keys()
    ia.write_table(table, whole, row_group_size=30_000)
    assert path.stat().st_size < whole.stat().st_size * 1.1
    with ia.ParquetWriter(path, table.schema, dictionary_pagesize_limit=128 * 1024) as writer:
        for part in parts:
            writer.write_table(part)
    assert path.stat().st_size > whole.stat().st_size * 1.1


def test_dictionaries_stay_as_small_as_in_the_first_rows(tmp_path):
    path = tmp_path / "a.parquet"
    few, many = ["a"] * 10_000, [f"{row:040}" for row in range(50_000)]
    with ia.ParquetWriter(path, pa.schema([("t", pa.string())])) as writer:
        writer.write_table(pa.table({"t": few}))
        writer.write_table(pa.table({"t": many}))
    chunk = pq.read_metadata(path).row_group(1).column(0)
    assert chunk.data_page_offset - chunk.dictionary_page_offset < 200_000


@pytest.mark.parametrize("every", [None, 1])
def test_columns_without_a_dictionary_make_no_other_larger(tmp_path, every):
    path = tmp_path / "a.parquet"
    names = pa.schema(
        [("t", pa.string()), ("z", pa.string()), ("s", pa.struct({"x": pa.string()}))]
    )
    first = {"t": ["a"] * 40_000, "z": [f"{row % 12_000:0100}" for row in range(40_000)]}
    later = [f"{row:040}" for row in range(40_000)]
    with ia.ParquetWriter(path, names, checkpoint_row_groups=every) as writer:
        writer.write_table(names.empty_table())
        nested = pa.array([{"x": text} for text in later])
        writer.write_table(pa.table({**first, "s": nested}, schema=names))
        writer.write_table(pa.table({**first, "t": later, "s": nested}, schema=names))
    metadata = pq.read_metadata(path)
    assert metadata.num_rows == 80_000
    group = metadata.row_group(metadata.num_row_groups - 1)
    chunks = [group.column(number) for number in range(3)]
    dictionaries = [chunk for chunk in chunks if chunk.has_dictionary_page]
    sizes = [chunk.data_page_offset - chunk.dictionary_page_offset for chunk in dictionaries]
    assert max(sizes) < 200_000


def test_a_writer_without_rows_or_with_unusual_settings(tmp_path):
    path, schema = tmp_path / "a.parquet", pa.schema([("t", pa.string())])
    ia.ParquetWriter(path, schema).close()
    assert pq.read_table(path) == schema.empty_table()
    with pytest.raises(pa.ArrowException, match="nope"):
        ia.ParquetWriter(path, schema, compression="nope")
    with pytest.raises(TypeError):
        ia.ParquetWriter(path, schema, what=1)
    actual = []
    with ia.ParquetWriter(path, schema, metadata_collector=actual) as writer:
        writer.write_table(pa.table({"t": ["a"]}))
    assert [metadata.num_rows for metadata in actual] == [1]
    many = pa.table({"t": [f"{row}" for row in range(20_000)]})
    ia.write_table(many, path, metadata_collector=actual, indexes=["t:lookup"])
    assert [metadata.num_rows for metadata in actual] == [1, 20_000]


def test_a_chunk_that_lacks_a_value_leaves_the_others_their_dictionaries(tmp_path):
    texts = pa.array([f"category-{number:05}" for number in range(2000)])
    draw = np.random.default_rng(7)
    parts = [pa.array(draw.integers(0, 2000, 100_000), pa.int32()) for _ in range(2)]
    parts.insert(1, pa.array([*range(1999), None], pa.int32()))
    chunks = [pa.DictionaryArray.from_arrays(part, texts) for part in parts]
    table = pa.table({"c": pa.chunked_array(chunks)})
    ours, arrows = tmp_path / "ours.parquet", tmp_path / "arrows.parquet"
    ia.write_table(table, ours)
    pq.write_table(table, arrows, compression="zstd")
    assert Path(ours).stat().st_size < 1.1 * Path(arrows).stat().st_size
    assert ia.verify(ours) == []
    counted = "SELECT c, count(*) FROM '{}' GROUP BY c ORDER BY c"
    actual, expected = (duckdb.sql(counted.format(path)).fetchall() for path in (ours, arrows))
    assert actual == expected
