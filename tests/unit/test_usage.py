"""``ia.usage`` counts what indexes save, and never changes or fails a query."""

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest

import intarsia as ia
from intarsia.usage_counts.usage_file import add_counts

ROWS = 5_000
FILES = 3


@pytest.fixture
def lake(tmp_path):
    lake = tmp_path / "lake"
    for number in range(FILES):
        ids = range(number * ROWS, (number + 1) * ROWS)
        table = pa.table({"id": [f"k{n * 7919 % 1_000_003}" for n in ids], "n": ids})
        (lake / f"day={number}").mkdir(parents=True)
        path = lake / f"day={number}" / "a.parquet"
        ia.write_table(table, path, indexes=["id:lookup", "n:minmax"], max_rows_per_page=500)
    return lake


@pytest.fixture(autouse=True)
def disabled_afterwards():
    yield
    ia.usage.disable()


def key(number):
    return f"id = 'k{number * 7919 % 1_000_003}'"


def counts(lake, **options):
    """Returns the queries and rows of each index."""
    used = ia.usage.report(lake, **options)
    return {one.name: (one.queries, one.rows) for one in used.indexes}


def test_queries_rows_and_bytes_are_counted_by_index(lake):
    ia.usage.enable()
    data = ia.dataset(lake)
    for number in (7, 8, 9_999):
        plan = data.plan(filter=key(number))
        assert data.to_table(filter=key(number))["n"].to_pylist() == [number]
    assert data.to_table(filter="n = 7").num_rows == 1
    ia.usage.disable()
    left = plan.figures.rows.selected
    assert 0 < left <= 1_000
    used = counts(lake)
    assert used["id:lookup"] == (3, 3 * (FILES * ROWS - left))
    assert used["n:minmax"][0] == 1
    (lookup,) = [one for one in ia.usage.report(lake).indexes if one.name == "id:lookup"]
    sizes = [path.stat().st_size for path in lake.rglob("*.parquet")]
    assert sum(sizes) < lookup.bytes < 3 * sum(sizes)
    data.to_table(filter=key(7))
    assert counts(lake) == used  # no longer enabled


def test_threads_files_and_engines_count_each_query_once(lake):
    ia.usage.enable()
    data = ia.dataset(lake)
    with ThreadPoolExecutor(4) as pool:
        tables = list(pool.map(lambda n: data.to_table(filter=key(n)), range(20)))
    assert [table["n"].to_pylist() for table in tables] == [[n] for n in range(20)]
    rows = ia.sql(f"SELECT n FROM data WHERE {key(70)}", data=data)
    assert rows["n"].to_pylist() == [70]
    ia.usage.disable()
    assert counts(lake)["id:lookup"][0] == 21


def test_processes_add_to_one_file_and_a_forked_child_counts_its_own(lake, tmp_path):
    folder = tmp_path / "counts"
    code = (
        "import os, sys, intarsia as ia; data = ia.dataset(sys.argv[1])\n"
        "for n in range(5): data.to_table(filter=f\"id = 'k{n * 7919 % 1_000_003}'\")\n"
        "if sys.argv[2] == 'fork':\n"
        "    child = os.fork()\n"
        "    if child == 0:\n"
        "        data.to_table(filter=\"id = 'k7919'\"); ia.usage.disable(); os._exit(0)\n"
        "    os.waitpid(child, 0)\n"
    )
    environment = {**os.environ, "INTARSIA_USAGE": str(folder)}
    command = [sys.executable, "-W", "ignore", "-c", code, str(lake)]
    begun = [subprocess.Popen([*command, kind], env=environment) for kind in ("fork", "", "")]
    assert [process.wait() for process in begun] == [0, 0, 0]
    assert counts(lake, folder=folder)["id:lookup"][0] == 16
    assert counts(lake) == {}
    assert not (lake / "_intarsia").exists()


@pytest.mark.parametrize("data", [b"{", b'{"datasets": {"": {"indexes": {"a": {"b": [1]}}}}}'])
def test_a_damaged_file_fails_no_query_and_is_replaced(lake, data):
    (lake / "_intarsia").mkdir()
    file = lake / "_intarsia" / "usage.json"
    file.write_bytes(data)
    with pytest.raises(ia.FormatError, match=r"usage\.json"):
        ia.usage.report(lake)
    assert any("usage.json" in problem for problem in ia.status(lake).problems)
    ia.usage.enable()
    assert ia.dataset(lake).count_rows(key(7)) == 1
    ia.usage.disable()
    assert counts(lake)["id:lookup"][0] == 1


def test_counts_that_cannot_be_written_fail_no_query(lake):
    (lake / "_intarsia").write_text("not a folder")
    ia.usage.enable()
    assert ia.dataset(lake).count_rows(key(7)) == 1
    ia.usage.disable()
    assert counts(lake) == {}


def test_reports_sum_up_the_last_days_and_name_what_was_not_used(say, lake):
    assert "nothing was counted" in str(ia.usage.report(lake))
    assert ia.status(lake).usage is None
    file = lake / "_intarsia" / "usage.json"
    add_counts(str(file), {"": {"id:lookup": [2, 100, 5_000_000], "old:ngram": [1, 1, 1]}})
    document = json.loads(file.read_bytes())
    known = document["datasets"][""]
    known["since"] = "2020-01-01"
    (known["indexes"]["old:ngram"],) = [{"2020-01-01": [9, 9, 9]}]
    file.write_text(json.dumps(document))
    used = ia.usage.report(lake)
    assert [(one.name, one.queries, one.last_used) for one in used.indexes][1] == (
        "old:ngram",
        0,
        "2020-01-01",
    )
    assert used.of_index("id:lookup") == "2 queries, 5.0 MB not read"
    assert used.of_index("old:ngram") == used.of_index("n:minmax") == "not used in 30 days"
    assert ia.usage.report(lake, days=5000).indexes[1].queries == 9
    lines = str(ia.status(lake)).splitlines()
    assert any("id:lookup" in line and "2 queries, 5.0 MB not read" in line for line in lines)
    assert any("n:minmax" in line and "not used in 30 days" in line for line in lines)
    assert "id:lookup: 2 queries, 5.0 MB not read" in str(ia.advise(lake, ["n = 3"]))
    assert "id:lookup: 2 queries" in say("usage", lake).out
    assert json.loads(say("usage", lake, "--json", "--days", "7").out)["days"] == 7


def test_old_days_leave_the_file(tmp_path):
    file = tmp_path / "usage.json"
    add_counts(str(file), {"": {"a:lookup": [1, 1, 1]}})
    document = json.loads(file.read_bytes())
    document["datasets"][""]["indexes"]["a:lookup"]["2020-01-01"] = [1, 1, 1]
    file.write_text(json.dumps(document))
    add_counts(str(file), {"": {"a:lookup": [1, 2, 3]}})
    (by_day,) = json.loads(file.read_bytes())["datasets"][""]["indexes"].values()
    assert list(by_day.values()) == [[2, 3, 4]]
