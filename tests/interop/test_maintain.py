"""A lake that several writers append to, and ``maintain`` that is killed."""

import json
import random
import time

import duckdb
import polars
import pyarrow as pa
import pyarrow.parquet as pq
from forked import running

import intarsia as ia

ROWS = 3_000


def day_table(day):
    start = day * ROWS
    return pa.table(
        {
            "k": [f"k{n * 7919 % 1_000_003}" for n in range(start, start + ROWS)],
            "n": range(start, start + ROWS),
        }
    )


def append(day, lake):
    """Writes one day's file by DuckDB, Polars, pyarrow or Intarsia in turn."""
    rows, path = day_table(day), lake / f"day={day:02}" / "part.parquet"
    path.parent.mkdir()
    match day % 4:
        case 0:
            duckdb.sql(f"COPY (FROM rows) TO '{path}' (FORMAT parquet)")
        case 1:
            polars.from_arrow(rows).write_parquet(path)
        case 2:
            pq.write_table(rows, path)
        case 3:
            ia.write_table(rows, path)


def kill_maintain(lake, seconds):
    """Begins ``maintain`` in a process, which is killed after some time."""
    with running("ia.maintain(path)", lake) as process:
        time.sleep(seconds)
        process.kill()


def test_maintain_keeps_full_coverage_of_a_month_of_appends_by_four_writers(tmp_path):
    lake = tmp_path / "lake"
    lake.mkdir()
    append(0, lake)
    ia.add_indexes(lake, ["k:lookup"], keep=True)
    changed = 0
    for day in range(1, 30):
        append(day, lake)
        report = ia.maintain(lake)
        changed += len(report.changed)
        assert report.failed == ()
        state = ia.status(lake)
        assert [one.share for one in state.indexes] == [1.0, 1.0]
    assert changed == 22  # not the days of Intarsia's own writer
    for day in (0, 1, 2, 3, 29):
        key = day_table(day)["k"][17].as_py()
        matching = ia.dataset(lake).to_table(filter=f"k = '{key}'")
        assert matching["n"].to_pylist() == [day * ROWS + 17]


def test_a_killed_maintain_is_completed_by_the_next_one(tmp_path):
    lake = tmp_path / "lake"
    lake.mkdir()
    append(0, lake)
    ia.add_indexes(lake, ["k:lookup", "n:minmax"], keep=True)
    for day in range(1, 29):
        append(day, lake)
    before = {path: path.read_bytes() for path in lake.rglob("*.parquet")}
    choice = random.Random(48)
    for _ in range(6):
        kill_maintain(lake, choice.uniform(0, 0.4))
        assert ia.dataset(lake).count_rows() == 29 * ROWS
    assert ia.maintain(lake).failed == ()
    for path, data in before.items():
        assert path.read_bytes().startswith(data)
    assert {path for path in lake.rglob("*") if path.is_file()} == {
        *before,
        lake / "_intarsia" / "policy.json",
    }
    assert [one.share for one in ia.status(lake).indexes] == [1.0] * 3
    assert ia.verify(lake) == []
    assert ia.maintain(lake).changed == ()


def tables_of(lake):
    rows = ia.dataset(lake).to_table()
    return rows.sort_by("n")


def test_maintain_merges_small_files_and_shortens_long_pages(tmp_path):
    lake = tmp_path / "lake"
    lake.mkdir()
    big = pa.table({"k": [f"k{n}" for n in range(-90_000, 0)], "n": range(-90_000, 0)})
    (lake / "day=00").mkdir()
    pq.write_table(big, lake / "day=00" / "big.parquet", max_rows_per_page=90_000)
    options = {"rows_per_page": 1_024, "target_file_size": 400_000, "compression": "zstd"}
    ia.rewrite(lake, indexes=["k:lookup"], keep=True, **options)
    assert json.loads((lake / "_intarsia" / "policy.json").read_bytes()) == {
        "version": 1,
        "indexes": ["k:lookup"],
        "sort_by": [],
        "page_index": True,
        "layout": options,
        "sidecar": False,
    }
    for n in range(6):
        pq.write_table(day_table(n), lake / "day=00" / f"{n}.parquet")
    (lake / "day=01").mkdir()
    pq.write_table(big, lake / "day=01" / "long.parquet", max_rows_per_page=90_000)
    before = {path: path.read_bytes() for path in lake.rglob("*.parquet")}
    expected = tables_of(lake)
    planned = ia.maintain(lake, dry_run=True)
    assert {path: path.read_bytes() for path in lake.rglob("*.parquet")} == before
    report = ia.maintain(lake)
    assert (planned.rewritten, report.rewritten, report.failed) == (7, 7, ())
    assert tables_of(lake) == expected
    unchanged = lake / "day=00" / "big.parquet"
    assert unchanged.read_bytes() == before[unchanged]
    assert sorted(path.stat().st_size < 400_000 for path in lake.rglob("*.parquet")) == [
        *[False] * 2,
        *[True] * 1,
    ]
    for path in lake.rglob("*.parquet"):
        file = ia.ParquetFile(path)
        assert max(page.num_rows or 0 for page in file.pages(0, "k")) == 1_024
        assert [entry.name for entry in ia.list_indexes(path)[0].indexes] == ["k:lookup"]
    again = ia.maintain(lake)
    assert (again.rewritten, again.changed, again.failed) == (0, (), ())


def test_a_killed_maintain_loses_and_doubles_no_row_of_small_files(tmp_path):
    lake = tmp_path / "lake"
    lake.mkdir()
    append(0, lake)
    ia.rewrite(lake, indexes=["k:lookup"], keep=True, target_file_size="1 MB")
    choice, num_files = random.Random(47), 0
    for _ in range(12):
        for _ in range(3):
            num_files += 1
            pq.write_table(day_table(num_files), lake / "day=00" / f"{num_files}.parquet")
        kill_maintain(lake, choice.uniform(0, 0.4))
        assert ia.dataset(lake).count_rows() == (num_files + 1) * ROWS
    assert ia.maintain(lake).failed == ()
    assert not [*lake.rglob("_commit-*"), *lake.rglob("_temporary-*"), *lake.rglob("_lock-*")]
    rows = ia.dataset(lake).to_table(["n"])["n"].to_pylist()
    assert sorted(rows) == list(range((num_files + 1) * ROWS))
    assert [one.share for one in ia.status(lake).indexes] == [1.0, 1.0]
    assert ia.verify(lake) == []


def test_a_policy_of_sidecars_changes_no_file(tmp_path):
    lake = tmp_path / "lake"
    (lake / "day=00").mkdir(parents=True)
    for n in range(3):
        pq.write_table(day_table(n), lake / "day=00" / f"{n}.parquet")
    ia.rewrite(lake, keep=True, target_file_size=1)
    ia.add_indexes(lake, ["k:lookup"], keep=True, sidecar=True)
    policy = lake / "_intarsia" / "policy.json"
    policy.write_text(
        policy.read_text().replace('"target_file_size": 1', '"target_file_size": 1000000')
    )
    before = {path: path.read_bytes() for path in lake.rglob("*.parquet")}
    assert ia.maintain(lake).rewritten == 0
    assert {path: path.read_bytes() for path in lake.rglob("*.parquet")} == before
