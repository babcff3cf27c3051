"""Deeply nested filters are answered, or refused before pyarrow's stack overflows."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import intarsia as ia
from intarsia.limits import MAX_EXPRESSION_DEPTH

WORKER = Path(__file__).with_name("deep_filters.py")
WAYS, KINDS = 19, 5


def written(path, rows):
    pq.write_table(pa.table({"a": np.arange(rows)}), path, row_group_size=rows // 2)
    return path


def said(path, depth, *ways):
    """The result of each way of filtering, for a filter of ``depth`` nested calls."""
    command = [sys.executable, str(WORKER), str(path), str(depth), *ways]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, (done.stdout[-200:], done.stderr[-2000:])
    lines = [line.split("\t") for line in done.stdout.splitlines()]
    return {way: json.loads(answer) for way, answer in lines}


def test_filters_that_nest_too_deeply_are_refused_by_every_way_to_filter(tmp_path):
    actual = said(written(tmp_path / "t.parquet", 100), 10_000)
    assert len(actual) == WAYS * KINDS
    for way, answer in actual.items():
        assert answer.startswith("the Expression nests 10,0"), way
        assert "the limit is 6,000: write long lists of alternatives with isin" in answer, way


@pytest.mark.parametrize("rows", [100, 70_000])  # several threads filter the latter
def test_filters_up_to_the_limit_are_answered(tmp_path, rows):
    actual = said(written(tmp_path / "t.parquet", rows), MAX_EXPRESSION_DEPTH - 10, "to_table")
    assert len(actual) == KINDS
    assert set(actual.values()) == {"answered"}


@pytest.mark.parametrize("join", ["AND", "OR"])
def test_thousands_of_conditions_in_a_text_are_answered(tmp_path, join):
    """pyarrow's own scans, which read cached files, nest them too deeply for their stack."""
    data = ia.dataset(written(tmp_path / "t.parquet", 100))
    values = data.to_table()["a"].to_pylist()
    condition = {"AND": "a <> {0}", "OR": "(a = {0} AND a < {0} + 1)"}[join]
    count = {"AND": 10_000, "OR": 2_500}[join]
    where = f" {join} ".join(condition.format(2 * number) for number in range(count))
    excluded = set(range(0, 2 * count, 2))
    expected = [value for value in values if (value in excluded) == (join == "OR")]
    for _ in range(2):
        assert data.count_rows(where) == len(expected)
        assert data.to_table(filter=where)["a"].to_pylist() == expected
