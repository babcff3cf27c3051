"""Long key lists, as joins make them: one pass over the keys, however many."""

import sys

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import intarsia as ia
from intarsia.expr.tree import read_expression
from intarsia.index.section import probe
from intarsia.index.section.probe import InvertedSection
from intarsia.index.section.reader import PageCache
from intarsia.io.source import BufferSource
from intarsia.pruning.builder import pruning_of
from intarsia.row_ranges import RowRanges

ROWS, FEW, MANY = 60_000, 1_000, 100_000
IDS = np.random.default_rng(7).permutation(ROWS).astype(np.int64) * 2
COLUMNS = {
    "id": pa.array(IDS),
    "text": pa.array([f"u{i}" for i in IDS]),
    "moment": pa.array(IDS, pa.timestamp("us")),
    "number": pa.array(IDS.astype(np.float64)),
    "list": pa.ListArray.from_arrays(np.arange(ROWS + 1, dtype=np.int32), pa.array(IDS)),
}


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    path = tmp_path_factory.mktemp("keys") / "t.parquet"
    kinds = {name: ia.Elements if name == "list" else ia.Lookup for name in COLUMNS}
    ia.write_table(
        pa.table(COLUMNS), path, indexes=[kind(name, 64) for name, kind in kinds.items()]
    )
    return path.read_bytes()


def keys(name, count):
    """Keys: none matches, one matches, or far more keys than there are rows."""
    absent = np.arange(count, dtype=np.int64) * 2 + 1
    return COLUMNS["id" if name == "list" else name].slice(77, 1), {
        "text": lambda: pa.array([f"u{i}" for i in absent]),
        "moment": lambda: pa.array(absent, pa.timestamp("us")),
        "number": lambda: pa.array(absent.astype(np.float64)),
    }.get(name, lambda: pa.array(absent))()


def request_for(file, name, values):
    """The rows that the index leaves, and the number of Python and C calls."""
    condition = pc.field(name).isin(values)
    if name == "list":
        condition = ia.list_contains_any(name, values)
    test = pruning_of(read_expression(condition))
    sections = file._opened.sections
    (index,) = sections.about(test.term)
    calls = 0

    def count(_frame, event, _argument):
        nonlocal calls
        calls += event in ("call", "c_call")

    everywhere = RowRanges.all(ROWS)
    sys.setprofile(count)
    try:
        rows = sections.rows_of(index, test, everywhere)
    finally:
        sys.setprofile(None)
    return rows, calls


@pytest.mark.parametrize("name", COLUMNS)
def test_the_number_of_calls_does_not_grow_with_the_keys(stored, name, monkeypatch):
    file = ia.ParquetFile(BufferSource(memoryview(stored)))
    reads = []
    real = InvertedSection.read

    def spy(self, columns, pages):
        reads.append(pages)
        return real(self, columns, pages)

    monkeypatch.setattr(InvertedSection, "read", spy)
    monkeypatch.setattr(probe, "PAGE_CACHE", PageCache(0))
    many, few = keys(name, FEW)
    request_for(file, name, few)  # fixed costs
    _, calls = request_for(file, name, few)
    reads.clear()
    rows, more = request_for(file, name, pa.concat_arrays([keys(name, MANY)[1], many]))
    assert more <= calls * 1.5 + 50
    assert len(reads) == 1  # all of its pages at once, each of them once
    assert len(np.unique(reads[0])) == len(reads[0])
    assert rows.covers(np.array([77]), np.array([78])).all()
    assert rows.num_rows <= 64 * 40  # its granule; others only if fingerprints collide


def test_a_list_of_keys_finds_its_rows(stored):
    file = ia.ParquetFile(BufferSource(memoryview(stored)))
    expected = np.concatenate([np.arange(MANY) * 2 + 1, IDS[::997]])
    actual = file.read(["id"], filter=pc.field("id").isin(pa.array(expected)))["id"]
    assert actual.to_pylist() == IDS[::997].tolist()
