"""Indexes are used only if that may save more than it costs."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import intarsia as ia

ROWS, PAGE = 200_000, 2_000


@pytest.fixture(scope="module")
def scattered(tmp_path_factory):
    """Values in random order on 100 pages; the index has 20 granules for each value."""
    path = tmp_path_factory.mktemp("choice") / "a.parquet"
    values = np.random.default_rng(1).permutation(ROWS * 3)[:ROWS]
    pq.write_table(
        pa.table({"f": values}),
        path,
        max_rows_per_page=PAGE,
        write_batch_size=PAGE,
        use_dictionary=False,
        write_page_index=True,
    )
    ia.add_indexes(path, [ia.Lookup("f", granule_rows=100)])
    return path, values


@pytest.mark.parametrize(("count", "is_asked"), [(3, True), (1_000, False)])
def test_a_lookup_is_not_used_for_values_on_every_page(scattered, count, is_asked):
    path, values = scattered
    condition = pc.field("f").isin(pa.array(values[:count]))
    explained = str(ia.dataset(path).explain(filter=condition))
    assert ("index f:lookup  " in explained) == is_asked
    assert ia.dataset(path).count_rows(filter=condition) == count


@pytest.mark.parametrize("kind", [ia.Distinct, ia.DistinctIDX1])
def test_unique_values_are_not_searched_if_that_saves_less(kind, tmp_path):
    path = tmp_path / "a.parquet"
    texts = [f"/{n * 7919 % ROWS}/{n}" for n in range(ROWS)]
    pq.write_table(pa.table({"s": texts, "n": range(ROWS)}), path)
    condition = pc.match_substring(pc.field("s"), "/77/")
    expected = pq.read_table(path, filters=condition).num_rows
    assert [p.index for p in ia.advise(path, condition).proposals if "distinct" in p.index] == []
    ia.add_indexes(path, [kind("s")])
    explained = str(ia.dataset(path).explain(filter=condition))
    assert f"index s:{kind.kind} not used: it takes more to read than it could save" in explained
    assert ia.dataset(path).count_rows(filter=condition) == expected > 0


def test_nearly_unique_strings_are_not_searched_in_an_index(tmp_path):
    """Decompressing pages and searching them takes a fraction of that time."""
    path = tmp_path / "a.parquet"
    rng = np.random.default_rng(0)
    words = np.array(["alpha", "beta", "gamma", "delta", "disk", "full", "error", "warn"])
    parts = [" ".join(own) for own in words[rng.integers(0, 8, (ROWS, 4))]]
    texts = [f"{own} {n}" for own, n in zip(parts, rng.integers(0, 100_000, ROWS), strict=True)]
    pq.write_table(pa.table({"n": range(ROWS), "s": texts}), path, row_group_size=ROWS // 4)
    condition = pc.match_substring(pc.field("s"), texts[999].split()[-1])
    proposed = [p.index for p in ia.advise(path, condition).proposals]
    assert not any("distinct" in index for index in proposed)
    ia.add_indexes(path, ["s:distinct"])
    explained = str(ia.dataset(path).explain(filter=condition))
    assert "index s:distinct not used: it takes more to read than it could save" in explained
    explained = str(ia.dataset(path).explain(filter=pc.field("s") == texts[999]))
    assert "index s:distinct  " in explained
