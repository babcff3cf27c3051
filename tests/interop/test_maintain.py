"""A lake that several writers append to, and ``maintain`` that is killed."""

import random
import signal
import subprocess
import sys
import time

import duckdb
import polars
import pyarrow as pa
import pyarrow.parquet as pq

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
    code = (
        "import sys, intarsia as ia; ia.maintain; print('ready', flush=True); "
        "ia.maintain(sys.argv[1])"
    )
    choice = random.Random(48)
    for _ in range(6):
        process = subprocess.Popen(
            [sys.executable, "-c", code, str(lake)], stdout=subprocess.PIPE, text=True
        )
        assert process.stdout.readline() == "ready\n"
        time.sleep(choice.uniform(0, 0.4))
        process.send_signal(signal.SIGKILL)
        process.communicate()
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
