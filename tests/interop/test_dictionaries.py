"""Arrow dictionaries, written by us: other readers answer by bounds, and pay for pages."""

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
def test_a_value_that_is_not_used_is_no_bound_of_what_lists_hold(tmp_path, values):
    path, table = tmp_path / "a.parquet", pa.table({"c": values})
    ia.write_table(table, path)
    assert ia.verify(path) == []
    found = pq.read_table(path)
    assert found.schema.equals(table.schema)
    assert found.to_pylist() == table.to_pylist()


def test_a_value_left_out_of_one_chunk_costs_no_other_its_dictionary(tmp_path):
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
    found, expected = (duckdb.sql(counted.format(path)).fetchall() for path in (ours, arrows))
    assert found == expected
