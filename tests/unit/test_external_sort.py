"""Entries on their way to a section come out sorted and distinct, whenever they repeat."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from intarsia.indexing import entry_collector
from intarsia.io import external_sort
from intarsia.io.external_sort import Runs, Workspace

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


@given(st.lists(st.integers(1, 5), min_size=1), st.data())
def test_granules_of_rows_are_those_that_begin_before(sizes, data):
    starts = np.cumsum([0, *sizes])
    rows = np.array(sorted(data.draw(st.lists(st.integers(0, int(starts[-1]) - 1)))), np.int64)
    expected = np.searchsorted(starts, rows, side="right") - 1
    assert entry_collector._granules_of(rows, starts).tolist() == expected.tolist()
