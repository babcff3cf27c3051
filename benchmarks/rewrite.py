"""Compares ``ia.rewrite`` with DuckDB's ``COPY`` of the same file.

``python benchmarks/rewrite.py`` writes 4,800,000 rows (``--rows``) of a log with DuckDB: one file,
and 48 files in 12 Hive folders. Each line is the median of 3 alternating runs (``--runs``) to a new
folder. It has seconds of processor time and of wall time, by all cores. Ratios are those to
``COPY`` with the same codec and order. The lines are

- the file with the codec of DuckDB (Snappy), and with Zstandard
- the same with two ``lookup`` indexes
- the file sorted by ``u``, and sorted in 256 MB of memory (``memory_limit``)
- the folders.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb

import intarsia as ia

ROWS = """
    SELECT range AS id, TIMESTAMP '2026-01-01' + INTERVAL (range) SECOND AS ts,
        ['api', 'auth', 'cart', 'pay', 'web'][1 + (hash(range) % 5)::INT] AS svc,
        [200, 200, 200, 200, 404, 500][1 + (hash(range + 1) % 6)::INT]::INT AS status,
        (hash(range + 2) % 100000) / 100.0::DOUBLE AS lat, (hash(range + 3) % 100000)::INT AS u,
        'message number ' || (hash(range + 4) % 1000000) || ' of user ' || u AS msg,
        (range % 12)::INT AS month
    FROM range({rows})
"""
INDEXES = ["id:lookup", "u:lookup"]


def seconds(run: Callable[[], Any]) -> tuple[float, float]:
    """Returns the processor time and the wall time of ``run`` in seconds."""
    wall, processor = time.perf_counter(), time.process_time()
    run()
    return time.process_time() - processor, time.perf_counter() - wall


def main() -> None:
    """Runs all measurements and prints them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=4_800_000)
    parser.add_argument("--runs", type=int, default=3)
    args = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="intarsia-"))
    database = duckdb.connect()
    rows, file, lake = ROWS.format(rows=args.rows), folder / "one.parquet", folder / "lake"
    database.sql(f"COPY ({rows}) TO '{file}' (FORMAT parquet)")
    for part in range(4):
        database.sql(
            f"COPY (SELECT * FROM ({rows}) WHERE id % 4 = {part}) TO '{lake}' (FORMAT parquet, "
            f"PARTITION_BY month, OVERWRITE_OR_IGNORE, FILENAME_PATTERN 'part-{part}')"
        )

    def copied(of: str, order: str = "", to: str = "") -> Callable[[], Any]:
        target = folder / ("copy" if "PARTITION_BY" in to else "copy/copy.parquet")
        query = f"SELECT * FROM read_parquet('{of}') {order}"
        options = f"FORMAT parquet{to}, OVERWRITE_OR_IGNORE"
        return lambda: database.sql(f"COPY ({query}) TO '{target}' ({options})")

    def rewritten(source: Path, **options: Any) -> Callable[[], Any]:
        return lambda: ia.rewrite(source, output=folder / "new", rows_per_page=8192, **options)

    by_month = ", PARTITION_BY month"
    zstd = ", COMPRESSION zstd"
    lines = {
        "snappy": (copied(str(file)), rewritten(file)),
        "zstd": (copied(str(file), to=zstd), rewritten(file, compression="zstd")),
        "snappy, two indexes": (copied(str(file)), rewritten(file, indexes=INDEXES)),
        "sorted": (copied(str(file), "ORDER BY u"), rewritten(file, sort_by=["u"])),
        "sorted in 256 MB": (
            copied(str(file), "ORDER BY u"),
            rewritten(file, sort_by=["u"], memory_limit="256MB"),
        ),
        "folders": (copied(f"{lake}/*/*.parquet", to=by_month), rewritten(lake)),
    }
    try:
        size = file.stat().st_size
        print(f"{args.rows:,} rows, {size:,} bytes; seconds of processor / wall time")
        for name, (copy, rewrite) in lines.items():
            (folder / "copy").mkdir(exist_ok=True)
            times: tuple[list[tuple[float, float]], ...] = ([], [])
            for _ in range(args.runs):
                for run, own_times in zip((copy, rewrite), times, strict=True):
                    own_times.append(seconds(run))
                    shutil.rmtree(folder / "new", ignore_errors=True)
            shutil.rmtree(folder / "copy")
            theirs, ours = (
                [statistics.median(values) for values in zip(*own_times, strict=True)]
                for own_times in times
            )
            pairs = zip(ours, theirs, strict=True)
            ratios = " / ".join(f"{our / their:.2f}" for our, their in pairs)
            shown = [f"{processor:6.2f} / {wall:6.2f}" for processor, wall in (theirs, ours)]
            print(f"{name:20} COPY {shown[0]}   rewrite {shown[1]}   ratio {ratios}", flush=True)
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
