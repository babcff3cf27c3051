"""Entries on their way to a section come out sorted and distinct, whenever they repeat."""

import os

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from intarsia.errors import PathError
from intarsia.indexing import entry_collector
from intarsia.io import external_sort
from intarsia.io.external_sort import Runs, Workspace, merged_blocks

SOME = np.random.default_rng(5)
UNIQUE = SOME.permutation(5000).astype(np.uint64)
REPEATED = SOME.integers(0, 7, 5000, dtype=np.uint64)


@pytest.mark.parametrize("run", [100, 3000, 1 << 23])
@pytest.mark.parametrize("order", ["UR", "RU", "URUR", "RRRU", "UUUU"])
def test_entries_come_out_once_and_in_order(monkeypatch, run, order):
    monkeypatch.setattr(external_sort, "RUN_ENTRIES", run)
    monkeypatch.setattr(external_sort, "BLOCK_ENTRIES", 64)
    parts = [{"U": UNIQUE, "R": REPEATED}[which] + np.uint64(i) for i, which in enumerate(order)]
    expected = np.unique(np.concatenate(parts))
    for whole in (False, True):
        with Workspace() as work:
            runs = Runs(work)
            for part in parts:
                for piece in np.array_split(part, 9):
                    runs.add(piece.copy())
            actual = runs.whole() if whole else np.concatenate(list(runs.blocks()))
            assert actual.tolist() == expected.tolist()
            assert not work._open


class CountedRun:
    """A run that counts the entries that are read of it."""

    def __init__(self, entries):
        self.entries, self.count = entries, 0

    def __len__(self):
        return len(self.entries)

    def __getitem__(self, part):
        entries = self.entries[part]
        self.count += len(entries)
        return entries


@pytest.mark.parametrize("apart", [True, False])
@pytest.mark.parametrize("entries", [100, 1000, 1 << 23])
def test_each_entry_of_a_run_is_read_once(monkeypatch, apart, entries):
    monkeypatch.setattr(external_sort, "RUN_ENTRIES", entries)
    monkeypatch.setattr(external_sort, "BLOCK_ENTRIES", 64)
    numbers = np.arange(5000, dtype=np.uint64)
    runs = [CountedRun(numbers[i * 250 :][:250] if apart else numbers[i::20]) for i in range(20)]
    blocks = list(merged_blocks(runs))
    assert np.concatenate(blocks).tolist() == list(range(5000))
    assert [run.count for run in runs] == [250] * 20


def test_a_run_that_cannot_be_read_is_an_error(monkeypatch):
    monkeypatch.setattr(external_sort, "RUN_ENTRIES", 100)
    for damage, message in ((lambda path: os.truncate(path, 800), "shorter"), (None, "read")):
        with Workspace() as work:
            runs = Runs(work)
            for part in np.array_split(UNIQUE, 9):
                runs.add(part.copy())
            path = runs._runs[0].path
            if damage is None:
                work.release(path)
            else:
                damage(path)
            with pytest.raises(PathError, match=message):
                list(runs.blocks())


@given(st.lists(st.integers(1, 5), min_size=1), st.data())
def test_granules_of_rows_are_those_that_begin_before(sizes, data):
    starts = np.cumsum([0, *sizes])
    rows = np.array(sorted(data.draw(st.lists(st.integers(0, int(starts[-1]) - 1)))), np.int64)
    expected = np.searchsorted(starts, rows, side="right") - 1
    assert entry_collector._granules_of(rows, starts).tolist() == expected.tolist()
