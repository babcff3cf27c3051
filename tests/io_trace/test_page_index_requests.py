"""All page indexes are adjacent, for readers that fetch them as one range, as DataFusion does."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import intarsia as ia
from intarsia.index.directory import page_index_places
from intarsia.scan.parquet_file import open_file

ROWS = 4000


def strangers(path: Path) -> int:
    """Counts the bytes between the first and the last page index that belong to none."""
    places = [place for _, place in page_index_places(open_file(path).metadata)]
    first = min(offset for offset, _ in places)
    stop = max(offset + length for offset, length in places)
    return stop - first - sum(length for _, length in places)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    draw = random.Random(7)
    rows = [draw.randrange(2**60) for _ in range(ROWS)]
    table = pa.table({"id": range(ROWS), "u": rows, "v": [row // 3 for row in rows]})
    path = tmp_path / "a.parquet"
    pq.write_table(table, path, row_group_size=500, write_page_index=False)
    return path


ADDED = [ia.PageIndex(), ia.Bloom("u"), ia.Bloom("v"), ia.Lookup("id")]
STEPS = {
    "replaced": [ADDED, [ia.Lookup("id", granule_rows=100)]],
    "bloom replaced": [ADDED, [ia.Bloom("u", fpp=0.1)]],
    "bloom first": [[ia.Bloom("u"), ia.PageIndex()], [ia.Lookup("id"), ia.Bloom("v")]],
    "page index after": [[ia.Lookup("id"), ia.Bloom("u")], [ia.PageIndex()]],
    "one column after the other": [
        [ia.PageIndex(["id"])],
        [ia.Lookup("u"), ia.Bloom("v")],
        [ia.PageIndex()],
    ],
}


@pytest.mark.parametrize("steps", STEPS.values(), ids=STEPS)
def test_page_indexes_stay_adjacent(path, steps):
    written = path.read_bytes()
    table = pq.read_table(path)
    for indexes in steps:
        ia.add_indexes(path, indexes)
    assert strangers(path) == 0
    assert ia.verify(path) == []
    named = [report.name for report in ia.list_indexes(path)[0].standard]
    assert "page_index" in named
    for index in ("id:lookup", "u:bloom"):
        if index in named or index in [entry.name for entry in ia.list_indexes(path)[0].indexes]:
            ia.drop_indexes(path, [index])
            assert strangers(path) == 0
    assert ia.verify(path) == []
    assert ia.dataset(path).to_table().equals(table)
    ia.drop_indexes(path, ["page_index"])
    left = [entry.name for entry in ia.list_indexes(path)[0].indexes]
    left += [report.name for report in ia.list_indexes(path)[0].standard]
    if left:
        ia.drop_indexes(path, left)
    assert path.read_bytes() == written


@pytest.mark.parametrize("every", [1, 3, 100])
def test_files_with_checkpoints_have_adjacent_page_indexes_in_the_end(tmp_path, path, every):
    table, told = pq.read_table(path), tmp_path / "told.parquet"
    options = {"row_group_size": 500, "bloom_filter_options": {"u": {"ndv": 500, "fpp": 0.1}}}
    ia.write_table(table, told, checkpoint_row_groups=every, **options)
    assert strangers(told) == 0
    assert len(page_index_places(open_file(told).metadata)) == 2 * 3 * 8
    assert ia.verify(told) == []
    assert pq.read_table(told, page_checksum_verification=True).equals(table)
