"""The cost of finding one row by a ``Lookup``, in figures that do not depend on the machine."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import intarsia as ia
from intarsia.io.storage import FileSource

SOURCE = str(Path(ia.__file__).parent)
ROWS = 60_000
KEY, ABSENT = f"{41_234 * 7919 % ROWS:016x}", "absent"


class Cost(NamedTuple):
    """Calls of our functions, our modules that they are in, requests, bytes and pages read."""

    calls: int
    modules: int
    requests: int
    bytes: int
    pages: int


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    path = tmp_path_factory.mktemp("point") / "logs.parquet"
    numbers = np.arange(ROWS)
    table = pa.table(
        {
            "trace_id": [f"{i * 7919 % ROWS:016x}" for i in numbers],
            "ts": pa.array(numbers, pa.timestamp("us")),
            "user_id": numbers % 1_000,
            "status": pa.array(numbers % 5 * 100, pa.int32()),
            "latency": numbers / 7,
            "msg": [f"request {i} done" for i in numbers],
        }
    )
    ia.write_table(table, path, indexes=[ia.Lookup("trace_id")])
    return path


def counted(run):
    """Returns the result of a function, and the calls of our functions by module."""
    calls = Counter()

    def count(frame, event, _):
        if event == "call" and frame.f_code.co_filename.startswith(SOURCE):
            calls[frame.f_code.co_filename] += 1

    sys.setprofile(count)
    try:
        return run(), calls
    finally:
        sys.setprofile(None)


def cost_of(data, run, monkeypatch):
    """Returns the result of a second, equal query and its cost."""
    run()
    file, read_at = data.scan_source.cache.get(data.files[0]), FileSource._read_at
    pages_before, lengths = file.pages_read, []

    def read(source, offset, length):
        lengths.append(length)
        return read_at(source, offset, length)

    monkeypatch.setattr(FileSource, "_read_at", read)
    result, calls = counted(run)
    pages = file.pages_read - pages_before
    return result, Cost(calls.total(), len(calls), len(lengths), sum(lengths), pages)


@pytest.mark.parametrize(
    ("is_prepared", "key", "rows", "most"),
    [
        (False, KEY, 1, Cost(1_030, 81, 6, 30_000, 6)),
        (False, ABSENT, 0, Cost(340, 52, 0, 0, 0)),
        (True, KEY, 1, Cost(960, 79, 6, 30_000, 6)),
        (True, ABSENT, 0, Cost(270, 50, 0, 0, 0)),
    ],
    ids=["row", "no row", "prepared: row", "prepared: no row"],
)
def test_a_lookup_takes_few_calls_requests_bytes_and_pages(
    path, is_prepared, key, rows, most, monkeypatch
):
    data = ia.dataset(path)
    query = data.prepare("trace_id = ?")

    def run():
        if is_prepared:
            return query.to_table(key)
        return data.to_table(filter=pc.field("trace_id") == key)

    table, cost = cost_of(data, run, monkeypatch)
    assert table.num_rows == rows
    assert all(actual <= limit for actual, limit in zip(cost, most, strict=True)), cost
    assert cost.calls > 100, "calls are counted"


def test_calls_of_a_lookup_by_a_catalog_do_not_grow_with_the_files(tmp_path):
    calls = []
    for files in (6, 60):
        folder = tmp_path / f"{files} files"
        folder.mkdir()
        for number in range(files):
            keys = pa.array([number * 1_000 + i * 7 for i in range(50)])
            ia.write_table(pa.table({"k": keys}), folder / f"{number}.parquet", indexes="lookup(k)")
        ia.build_catalog(folder)
        query = ia.dataset(folder, catalog=True).prepare("k = ?")
        assert query.to_table(2_007).num_rows == 1
        table, calls_by_module = counted(lambda query=query: query.to_table(2_014))
        assert table["k"].to_pylist() == [2_014]
        calls.append(calls_by_module.total())
    assert calls[1] <= calls[0] + 10, calls
    assert 100 < calls[0] <= 850, calls


def test_a_lookup_by_sql_takes_few_calls_in_the_callers_thread(path):
    data, query = ia.dataset(path), "SELECT * FROM logs WHERE trace_id = ?"
    ia.sql(query, [ABSENT], logs=data)
    ia.sql(query, [KEY], logs=data)
    table, calls = counted(lambda: ia.sql(query, [KEY], logs=data))
    assert table["ts"].cast(pa.int64()).to_pylist() == [41_234]
    assert 500 < calls.total() <= 2_050, calls.total()
