"""Tasks of about equal work: every candidate row is in one task, and no task reads much more."""

import pickle

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark import cloudpickle

import intarsia as ia
from intarsia.row_ranges import RowRanges
from intarsia.spark.read import partition_packing
from intarsia.spark.read.dataset_files import Source
from intarsia.spark.read.partition_packing import pack
from intarsia.spark.read.query import query_of
from intarsia.spark.read.read import _runner, execute, opened


def written(folder, sizes, *, page_index=True, row_group_size=50_000):
    """Writes files of the given row counts: numbered rows of 16 incompressible bytes."""
    random, start = np.random.default_rng(7), 0
    for number, size in enumerate(sizes):
        numbers = np.arange(start, start + size)
        table = pa.table({"n": numbers, "noise": random.integers(0, 2**62, size)})
        pq.write_table(
            table,
            folder / f"{number:03}.parquet",
            row_group_size=row_group_size,
            write_page_index=page_index,
            data_page_size=16_384,
            use_dictionary=False,
            compression="none",
        )
        start += size
    return Source(opened(folder), str(folder))


def packed(source, parallelism, where=None):
    query = query_of(source.data, None, where)
    return pack(query.plan(source.data).files, parallelism, source.opened), query


def loads(partitions):
    return [sum(piece.num_bytes for piece in task) for task in partitions]


@pytest.fixture(autouse=True)
def splits_early(monkeypatch):
    monkeypatch.setattr(partition_packing, "SPLIT_BYTES", 100_000)
    monkeypatch.setattr(partition_packing, "OPENING_BYTES", 1000)


@pytest.mark.parametrize("parallelism", [1, 2, 3, 8])
@pytest.mark.parametrize(
    "sizes", [(200_000,), (150_000, 1000, 1000, 1000), (1000,) * 5 + (120_000,), (30_000,) * 7]
)
def test_tasks_have_equal_work_for_any_files(sizes, parallelism, tmp_path):
    actual, query = packed(written(tmp_path, sizes), parallelism)
    assert len(actual) == parallelism
    mean = sum(loads(actual)) / len(actual)
    assert max(loads(actual)) < 1.15 * mean + 20_000
    numbers = [
        batch["n"].to_numpy() for task in actual for p in task for batch in execute(p, query)
    ]
    assert np.array_equal(np.concatenate(numbers), np.arange(sum(sizes)))


def test_selected_bytes_count_instead_of_file_sizes(tmp_path):
    source = written(tmp_path, (100_000, 100_000))
    actual, query = packed(source, 2, pc.field("n") < 110_000)
    assert len(actual) == 2
    assert max(loads(actual)) < 1.2 * min(loads(actual))
    numbers = [
        batch["n"].to_numpy() for task in actual for p in task for batch in execute(p, query)
    ]
    assert np.array_equal(np.concatenate(numbers), np.arange(110_000))


def test_without_page_indexes_row_groups_stay_whole(tmp_path):
    source = written(tmp_path, (100_000,), page_index=False, row_group_size=25_000)
    actual, _ = packed(source, 3)
    assert [piece.within for task in actual for piece in task] == [
        (0, 25_000),
        (25_000, 75_000),
        (75_000, 100_000),
    ]


def test_small_reads_are_not_split(tmp_path):
    actual, _ = packed(written(tmp_path, (1000, 1000, 1000)), 8)
    assert [len(task) for task in actual] == [1, 1, 1]


def test_without_candidates_there_are_no_tasks(tmp_path):
    actual, _ = packed(written(tmp_path, (1000,)), 4, pc.field("n") < 0)
    assert actual == []


def test_a_piece_gives_the_rows_of_its_part(tmp_path):
    source = written(tmp_path, (100_000,))
    actual, query = packed(source, 2)
    first, second = (task[0] for task in actual)
    assert first.within[1] == second.within[0]
    for piece in (first, second):
        got = pa.Table.from_batches(list(execute(piece, query)))["n"].to_numpy()
        assert (got[0], got[-1] + 1) == piece.within


@settings(max_examples=60, deadline=None)
@given(
    candidates=st.lists(st.integers(0, 59_999), max_size=40),
    parallelism=st.integers(1, 9),
)
def test_every_candidate_is_in_one_task(candidates, parallelism, tmp_path_factory):
    folder = tmp_path_factory.getbasetemp() / "pieces"
    if not folder.exists():
        folder.mkdir()
        written(folder, (20_000, 500, 39_500))
    source = Source(opened(folder), str(folder))
    actual, query = packed(
        source, parallelism, pc.field("n").isin(pa.array(candidates, pa.int64()))
    )
    by_file: dict[str, list] = {}
    for task in actual:
        for piece in task:
            assert piece.rows
            assert piece.rows == piece.rows.clip(*piece.within)
            by_file.setdefault(piece.path, []).append(piece)
    planned = query.plan(source.data).files
    assert {file.path for file in planned} == set(by_file)
    for file in planned:
        pieces = by_file[file.path]
        assert RowRanges.union([piece.rows for piece in pieces]) == file.rows
        assert sum(piece.rows.num_rows for piece in pieces) == file.rows.num_rows


def test_an_index_reduces_the_estimated_work(tmp_path):
    source = written(tmp_path, (200_000,))
    ia.add_indexes(tmp_path, [ia.Lookup("noise")])
    value = int(ia.dataset(tmp_path).head(1)["noise"][0].as_py())
    actual, _ = packed(Source(opened(tmp_path), source.base), 4, pc.field("noise") == value)
    assert len(actual) == 1
    assert sum(loads(actual)) < 50_000


def test_a_task_decodes_only_its_own_pieces(tmp_path, monkeypatch):
    actual, query = packed(written(tmp_path, (30_000,) * 6), 4, "n >= 1000")
    run = cloudpickle.loads(cloudpickle.dumps(_runner(actual, query)))
    made, original = [], pickle.loads
    monkeypatch.setattr(pickle, "loads", lambda data: made.append(original(data)) or made[-1])
    for number, task in enumerate(actual):
        got = list(run(iter([pa.record_batch({"id": [number]})])))
        own = [batch for piece in task for batch in execute(piece, query)]
        assert pa.Table.from_batches(got).equals(pa.Table.from_batches(own))
        assert [piece.path for piece in made.pop()] == [piece.path for piece in task]
        assert not made
