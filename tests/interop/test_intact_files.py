"""Intact files of other writers: with all page checks enabled, no row is left out."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Literal

import datafusion
import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import intarsia as ia

ROWS = 5000
TABLE = pa.table(
    {
        "i": range(ROWS),
        "s": [None if i % 7 == 0 else f"text {i % 300}" for i in range(ROWS)],
        "b": [i % 3 == 0 for i in range(ROWS)],
        "l": [None if i % 5 == 0 else [i, None][: i % 3] for i in range(ROWS)],
        "st": [{"x": i, "y": None} for i in range(ROWS)],
    }
).cast(
    pa.schema(
        [
            ("i", pa.int64()),
            ("s", pa.string()),
            ("b", pa.bool_()),
            ("l", pa.list_(pa.int64())),
            ("st", pa.struct([("x", pa.int64()), ("y", pa.string())])),
        ]
    )
)


def by_duckdb(path: Path, options: str) -> None:
    with duckdb.connect() as connection:
        connection.register("t", TABLE)
        connection.sql(f"COPY (FROM t) TO '{path}' (FORMAT parquet {options})")


def by_datafusion(path: Path) -> None:
    context = datafusion.SessionContext()
    context.from_arrow(TABLE).write_parquet(str(path))


WRITERS: dict[str, Callable[[Path], None]] = {
    "duckdb": lambda path: by_duckdb(path, ""),
    "duckdb_v2": lambda path: by_duckdb(path, ", parquet_version v2, row_group_size 2048"),
    "duckdb_plain": lambda path: by_duckdb(path, ", dictionary_size_limit 1, codec uncompressed"),
    "polars": lambda path: pl.DataFrame(pl.from_arrow(TABLE)).write_parquet(path),
    "polars_stream": lambda path: pl.LazyFrame(pl.from_arrow(TABLE)).sink_parquet(path),
    "datafusion": by_datafusion,
    "pyarrow": lambda path: pq.write_table(TABLE, path, write_page_checksum=True),
    "pyarrow_v2": lambda path: pq.write_table(TABLE, path, data_page_version="2.0"),
}


@pytest.mark.parametrize("rows", range(1, 13))
def test_padded_levels_of_duckdb_are_no_damage(rows: int, tmp_path: Path) -> None:
    """DuckDB pads the last run of levels to 256 with arbitrary values."""
    path, whole = tmp_path / "a.parquet", TABLE.slice(0, rows)
    with duckdb.connect() as connection:
        connection.register("t", whole)
        connection.sql(f"COPY (FROM t) TO '{path}' (FORMAT parquet)")
    assert ia.verify(path) == []
    ia.add_indexes(path, [ia.PageIndex()])
    assert ia.verify(path) == []
    pages = [page for leaf in range(6) for page in ia.ParquetFile(path).pages(0, leaf)]
    assert sum(page.null_count or 0 for page in pages) > 0
    assert ia.dataset(path).to_table(filter=pc.field("i") >= 0).num_rows == rows


def test_a_bloom_filter_on_booleans_is_no_finding(tmp_path: Path) -> None:
    context = datafusion.SessionContext()
    options = datafusion.ParquetWriterOptions(bloom_filter_on_write=True)
    context.from_arrow(TABLE).write_parquet_with_options(str(tmp_path / "a.parquet"), options)
    assert ia.verify(tmp_path / "a.parquet") == []


@pytest.mark.parametrize("on_corrupt", ["raise", "skip"])
@pytest.mark.parametrize("writer", WRITERS)
def test_no_row_of_an_intact_file_is_left_out(
    writer: str, on_corrupt: Literal["raise", "skip"], tmp_path: Path
) -> None:
    path = tmp_path / "a.parquet"
    WRITERS[writer](path)
    expected = pq.read_table(path)
    data = ia.dataset(tmp_path, on_corrupt=on_corrupt)
    assert data.to_table().to_pylist() == expected.to_pylist()
    assert data.count_rows() == ROWS
    assert not data.corrupt
    assert ia.verify(path) == []
