"""The cache of decoded index pages is bounded, and never serves another file."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import intarsia as ia
from intarsia.index.section import probe
from intarsia.index.section.reader import Entries, PageCache


def entries(count):
    return Entries(np.arange(count, dtype=np.uint32), np.zeros(count, np.uint32))


def test_the_pages_used_last_are_cached():
    page_cache = PageCache(100)
    page_cache.put("a", {0: entries(4), 1: entries(4), 2: entries(4)})
    assert page_cache.get("a", [0]).keys() == {0}
    page_cache.put("b", {0: entries(4)})
    assert page_cache.get("a", [0, 1, 2]).keys() == {0, 2}
    assert page_cache.get("b", [0, 1]).keys() == {0}


def test_a_page_cached_again_counts_once():
    page_cache = PageCache(100)
    for _ in range(9):
        page_cache.put("a", {0: entries(4), 1: entries(4)})
    assert page_cache.get("a", [0, 1]).keys() == {0, 1}
    page_cache.clear()
    assert not page_cache.get("a", [0, 1])


def test_a_page_above_the_bound_is_not_cached():
    page_cache = PageCache(100)
    page_cache.put("a", {0: entries(4), 1: entries(99)})
    assert not page_cache.get("a", [0, 1])


@pytest.fixture
def page_cache(monkeypatch):
    pages = PageCache(2**20)
    monkeypatch.setattr(probe, "PAGE_CACHE", pages)
    return pages


def test_another_file_at_the_path_is_read_itself(tmp_path, page_cache):
    path = tmp_path / "a.parquet"
    filter_ = pc.field("a") == "x77"
    data = None
    for shift in (0, 500):
        table = pa.table({"a": [f"x{number + shift}" for number in range(1000)]})
        pq.write_table(table, path)
        ia.add_indexes(path, [ia.Lookup("a", granule_rows=10)])
        data = data or ia.dataset(path)
        for _ in range(2):
            actual = data.to_table(filter=filter_)
            assert actual.equals(table.filter(filter_))


def test_cached_entries_are_not_read_again(tmp_path, page_cache, monkeypatch):
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"a": [f"x{number}" for number in range(1000)]}), path)
    ia.add_indexes(path, [ia.Lookup("a", granule_rows=10)])
    data, reads = ia.dataset(path), []
    stored = probe.InvertedSection._read_stored
    monkeypatch.setattr(
        probe.InvertedSection, "_read_stored", lambda self, at: reads.append(at) or stored(self, at)
    )
    for number in (5, 5, 6, 1000):
        assert data.count_rows(filter=pc.field("a") == f"x{number}") == (number < 1000)
    assert len(reads) == 1
