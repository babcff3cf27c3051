"""Indexes built in parts have the same bytes as those built at once.

::

    row groups   7 rows │ 0 │ 5 │ 1 │ 300 │ …    cut anywhere between two of them
"""

from __future__ import annotations

import contextlib
import datetime as dt
import itertools
import random

import numpy as np
import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import intarsia as ia
from intarsia.errors import FormatError, IndexSpecError
from intarsia.indexing import entry_collector
from intarsia.indexing.add import change_indexes
from intarsia.indexing.build import Builder, due_indexes
from intarsia.indexing.build import gather as gather_all
from intarsia.indexing.partial_build import FromParts, cut, gather_part
from intarsia.io import external_sort
from intarsia.io.external_sort import Workspace
from intarsia.io.file_handle import version_of
from intarsia.scan.parquet_file import open_file

EMBEDDED = [
    ia.Lookup("key", granule_rows=16),
    ia.Lookup("ratio", granule_rows=7),
    ia.Lookup("text"),
    ia.Lookup("lower(text)", granule_rows=50),
    ia.Lookup("deep.leaf", granule_rows=32),
    ia.Distinct("text", granule_rows=20),
    ia.Distinct("ratio"),
    ia.MinMax("key", granule_rows=10),
    ia.MinMax("day"),
    ia.NGram("text", granule_rows=64),
    ia.Words("text"),
    ia.Elements("list", granule_rows=40),
    ia.Entries("map", granule_rows=25),
    ia.DistinctIDX1("text"),
]
STANDARD = [ia.PageIndex(), ia.Bloom("key"), ia.Bloom("text")]
SIZES = [7, 0, 5, 1, 300, 41, 0, 150]


def table(rows: int, seed: int = 5) -> pa.Table:
    draw = random.Random(seed)
    words = ["né", "Straße", "a b", "", "x" * 20, "Öl und Gas"]

    def some(make):
        return [None if draw.random() < 0.1 else make() for _ in range(rows)]

    return pa.table(
        {
            "key": pa.array(some(lambda: draw.randrange(60)), pa.int64()),
            "ratio": pa.array(
                some(lambda: draw.choice([0.0, -0.0, float("nan"), 1.5, draw.random()]))
            ),
            "text": pa.array(
                some(lambda: f"{draw.choice(words)} {draw.randrange(9)}"), pa.string()
            ),
            "day": pa.array(
                some(lambda: dt.date(2020, 1, 1) + dt.timedelta(draw.randrange(99))), pa.date32()
            ),
            "list": pa.array(
                some(lambda: [draw.randrange(9) for _ in range(draw.randrange(4))]),
                pa.list_(pa.int32()),
            ),
            "map": pa.array(
                some(lambda: [(key, draw.choice(words)) for key in words[: draw.randrange(4)]]),
                pa.map_(pa.string(), pa.string()),
            ),
            "deep": pa.array(
                some(lambda: {"leaf": draw.randrange(30)}), pa.struct([("leaf", pa.int32())])
            ),
        }
    )


def write(path, sizes=SIZES, *, page_index: bool = False):
    rows = table(sum(sizes))
    options = {"write_batch_size": 8, "max_rows_per_page": 30, "write_page_index": page_index}
    with pq.ParquetWriter(path, rows.schema, **options) as writer:
        at = 0
        for size in sizes:
            writer.write_table(rows.slice(at, size))
            at += size
    assert pq.read_metadata(path).num_row_groups == len(sizes)
    return path


def in_parts(path, indexes, groups, folder) -> FromParts:
    """Reads each part through its own file object, like separate processes."""
    for part, run in enumerate(groups):

        def create(number, part=part):
            return contextlib.nullcontext(folder / f"{part}-{number}")

        gather_part(open_file(path), indexes, run, create)
    return FromParts(indexes, len(groups), lambda part, n: pa.OSFile(str(folder / f"{part}-{n}")))


def sections(path, builder, indexes):
    with Workspace() as work:
        actual = builder.sections(open_file(path), indexes, "f" * 32, work)
        return [(bytes(one.section.data), one.section.meta_length) for one in actual]


@pytest.mark.parametrize("page_index", [False, True], ids=["plain", "page-indexed"])
@pytest.mark.parametrize(
    "edges", [(0, 8), (0, 1, 8), (0, 2, 3, 8), (0, 4, 5, 6, 7, 8), tuple(range(9))], ids=str
)
def test_sections_equal_those_built_at_once(tmp_path, edges, page_index):
    path = write(tmp_path / "f.parquet", page_index=page_index)
    groups = [range(a, b) for a, b in itertools.pairwise(edges)]
    made = sections(path, in_parts(path, EMBEDDED, groups, tmp_path), EMBEDDED)
    assert made == sections(path, Builder(), EMBEDDED)


def test_spilling_makes_no_difference(tmp_path, monkeypatch):
    monkeypatch.setattr(external_sort, "RUN_ENTRIES", 100)
    monkeypatch.setattr(external_sort, "BLOCK_ENTRIES", 16)
    monkeypatch.setattr(entry_collector, "BLOCK_ENTRIES", 64)
    path = write(tmp_path / "f.parquet")
    at_once = sections(path, Builder(), EMBEDDED)
    groups = [range(4), range(4, 5), range(5, 8)]
    assert sections(path, in_parts(path, EMBEDDED, groups, tmp_path), EMBEDDED) == at_once
    monkeypatch.setattr(external_sort, "RUN_ENTRIES", 10_000)
    assert sections(path, Builder(), EMBEDDED) == at_once
    assert sections(path, in_parts(path, EMBEDDED, groups, tmp_path), EMBEDDED) == at_once


def test_page_indexes_and_filters_equal_those_built_at_once(tmp_path):
    path = write(tmp_path / "f.parquet")
    groups = [range(3), range(3, 5), range(5, 8)]
    made = in_parts(path, STANDARD, groups, tmp_path)
    file = open_file(path)
    for index in STANDARD:
        assert list(made.standard(file, index)) == list(Builder().standard(file, index))


def test_granules_are_the_pages_of_a_page_index_that_comes_with_them(tmp_path, monkeypatch):
    monkeypatch.setattr("intarsia.indexing.file_layout.new_file_id", lambda: "a" * 32)
    indexes = [ia.PageIndex(), *EMBEDDED, ia.Bloom("key")]
    one, other = write(tmp_path / "one.parquet"), write(tmp_path / "other.parquet")
    ia.add_indexes(one, indexes)
    made = in_parts(other, indexes, [range(5), range(5, 8)], tmp_path)
    disk = pafs.LocalFileSystem()
    version = version_of(str(other), disk)
    change_indexes(open_file(other), disk, version, None, add=indexes, builder=made)
    assert other.read_bytes() == one.read_bytes()
    assert list(ia.verify(other)) == []


def test_parts_of_another_layout_are_refused(tmp_path):
    indexes = [ia.MinMax("key", granule_rows=10)]
    path = write(tmp_path / "f.parquet")
    made = in_parts(path, indexes, [range(5), range(5, 8)], tmp_path)
    other = write(tmp_path / "g.parquet", [7, 0, 6, 1, 300, 41, 0, 150])
    with pytest.raises(FormatError, match="key:minmax: a part has other granules"):
        sections(other, made, indexes)


def test_too_many_distinct_values_are_refused_when_parts_meet(tmp_path, monkeypatch):
    path = tmp_path / "f.parquet"
    pq.write_table(pa.table({"key": range(100)}), path, row_group_size=50)
    indexes = [ia.Distinct("key")]
    monkeypatch.setattr(entry_collector, "_MOST_VALUES", 60)
    made = in_parts(path, indexes, [range(1), range(1, 2)], tmp_path)
    with pytest.raises(IndexSpecError, match="too many distinct values"):
        sections(path, made, indexes)


@given(st.lists(st.integers(1, 40), min_size=1, max_size=12), st.integers(1, 2000))
def test_row_groups_are_cut_into_runs_of_about_one_size(tmp_path_factory, sizes, most):
    path = tmp_path_factory.mktemp("cut") / "f.parquet"
    with pq.ParquetWriter(path, pa.schema([("v", pa.int64())]), use_dictionary=False) as writer:
        for size in sizes:
            writer.write_table(pa.table({"v": np.arange(size)}))
    file = open_file(path)
    actual = cut(file, most)
    assert [group for run in actual for group in run] == list(range(len(sizes)))
    assert all(len(run) for run in actual)
    stored = [file.chunk(g, 0).total_compressed_size for g in range(len(sizes))]
    assert len(actual) <= max(1, min(len(sizes), -(-sum(stored) // most)))
    share = sum(stored) / -(-sum(stored) // most)
    assert all(sum(stored[g] for g in run) < share + 2 * max(stored) for run in actual)


def test_reading_some_row_groups_reads_no_others(tmp_path):
    path = write(tmp_path / "f.parquet")
    file = open_file(path)
    with Workspace() as work:
        due = due_indexes(file, [ia.Lookup("key")], range(4, 6))
        gather_all(file, due, work, groups=range(4, 6))
    assert file.groups_read == {4, 5}
