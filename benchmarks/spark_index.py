"""Measures the speed of Spark jobs that add indexes, and what a second core gains.

The data is logs without indexes:

- *many*: 8 files (``--files``) of 500,000 rows (``--rows``)
- *one*: the same rows as one file. Several tasks read its row groups, and one task merges each
  index.
- *small*: 1,000 files (``--small-files``) of 2,000 rows, about 120 KB each.

Each job runs on a new copy of the data, in the page cache.

``python benchmarks/spark_index.py`` prints wall times in seconds, medians over rounds, and MB a
second and core. The speed-up is the median of the rounds' own ratios. Each round starts a session
with one core and a session with two. Tasks have one thread each. Then comes a line for each goal.

Before the clock starts, each session has run the same jobs once. In a new JVM, compilers and
garbage collectors use up to a second of processor time. For them local[1] has the other core, and
local[2] has none.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession
from spark_read import verdict

import intarsia.spark as ias

INDEXES = ("lookup(trace_id)", "lookup(user_id)", "minmax(latency)")
CORES = (1, 2)
MB = 1024 * 1024
SMALL_ROWS = 2_000
GOAL_SPEED, GOAL_SPEED_UP = 20, 1.7
"""MB a second of small files on two cores, and the least gain by the second core."""


def logs(first: int, rows: int) -> pa.Table:
    """Returns logs in time order: random ids, few levels, and text that compresses well."""
    noise = np.random.default_rng(first)
    offsets = pa.py_buffer(np.arange(0, 32 * rows + 1, 32, dtype=np.int32))
    digits = pa.py_buffer(noise.bytes(16 * rows).hex().encode())
    words = noise.integers(0, 1 << 12, (rows, 2))
    return pa.table(
        {
            "ts": np.arange(first, first + rows),
            "trace_id": pa.StringArray.from_buffers(rows, offsets, digits),
            "user_id": noise.integers(0, 1 << 20, rows),
            "status": noise.choice([200, 404, 500], rows).astype("int32"),
            "latency": noise.exponential(20, rows),
            "msg": [f"request {a} took a while, then {b} was answered" for a, b in words.tolist()],
        }
    )


def write(folder: Path, files: int, rows: int, group_rows: int, small_files: int) -> None:
    """Writes the files in ``many/``, the same rows as one file in ``one/``, and ``small/``."""
    for name in ("many", "one", "small"):
        (folder / name).mkdir(parents=True)
    for number in range(small_files):
        table = logs(number * SMALL_ROWS, SMALL_ROWS)
        pq.write_table(table, folder / "small" / f"{number:05}.parquet")
    with pq.ParquetWriter(folder / "one" / "0.parquet", logs(0, 1).schema) as one:
        for number in range(files):
            table = logs(number * rows, rows)
            path = folder / "many" / f"{number:05}.parquet"
            pq.write_table(table, path, row_group_size=group_rows)
            one.write_table(table, row_group_size=group_rows)


def seconds(spark: SparkSession, data: Path, scratch: Path, indexes: Sequence[str]) -> float:
    """Returns the wall time in seconds of a job on a copy of ``data``. Raises if a file fails."""
    shutil.rmtree(scratch, ignore_errors=True)
    shutil.copytree(data, scratch)
    os.sync()
    size = sum(path.stat().st_size for path in scratch.iterdir())
    split = size // 8 if data.name == "one" else None
    start = time.perf_counter()
    report = ias.add_indexes(spark, scratch, indexes, split_bytes=split)
    elapsed = time.perf_counter() - start
    failures = [row for row in report.collect() if row.status != "done"]
    if failures:
        raise RuntimeError(str(failures[0]))
    return elapsed


def measure(
    data: Path, scratch: Path, rounds: int, indexes: Sequence[str]
) -> dict[tuple[str, int], list[float]]:
    """Returns the wall times in seconds of each round, by data and number of cores."""
    seconds_of: dict[tuple[str, int], list[float]] = {}
    warm_up = scratch / "warm"
    warm_up.mkdir(parents=True)
    for number in range(2 * max(CORES)):  # so that every core's worker has something to do
        pq.write_table(logs(0, 50_000), warm_up / f"{number}.parquet")
    for _ in range(rounds):
        for cores in CORES:
            config = {"spark.ui.showConsoleProgress": "false"}
            spark = ias.session(f"local[{cores}]", app_name="index", **config)
            spark.sparkContext.setLogLevel("ERROR")
            for _ in range(2):
                seconds(spark, warm_up, scratch / "copy", indexes)
            for is_timed in (False, True):
                for name in ("many", "one", "small") if is_timed else ("many", "one"):
                    elapsed = seconds(spark, data / name, scratch / "copy", indexes)
                    if is_timed:
                        seconds_of.setdefault((name, cores), []).append(elapsed)
            spark.stop()
    return seconds_of


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=8)
    parser.add_argument("--rows", type=int, default=500_000, help="of each file")
    parser.add_argument("--group-rows", type=int, default=250_000, help="of each row group")
    parser.add_argument("--small-files", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--indexes", nargs="+", default=list(INDEXES))
    args = parser.parse_args()
    labels = {"many": f"{args.files}", "one": "1, by parts", "small": f"{args.small_files}, small"}
    goals = []
    with tempfile.TemporaryDirectory(prefix="intarsia-bench-") as folder:
        data, scratch = Path(folder, "data"), Path(folder, "scratch")
        write(data, args.files, args.rows, args.group_rows, args.small_files)
        seconds_of = measure(data, scratch, args.rounds, args.indexes)
        print(f"{args.files} × {args.rows:,} rows, {args.rounds} rounds: {', '.join(args.indexes)}")
        print()
        print("| files | MB | local[1] | MB/s a core | local[2] | MB/s a core | speed-up |")
        print("| --- | ---: | ---: | ---: | ---: | ---: | ---: |")
        for name, label in labels.items():
            size = sum(path.stat().st_size for path in (data / name).iterdir()) / MB
            one, two = (seconds_of[name, cores] for cores in CORES)
            ratio = statistics.median(a / b for a, b in zip(one, two, strict=True))
            times = [statistics.median(taken) for taken in (one, two)]
            cells = " | ".join(
                f"{taken:.2f} s | {size / taken / cores:.0f}"
                for taken, cores in zip(times, CORES, strict=True)
            )
            print(f"| {label} | {size:.0f} | {cells} | {ratio:.2f} × |")
            if name == "small":
                goals.append(verdict("small files, two cores", size / times[1], GOAL_SPEED, "MB/s"))
            if name != "one":
                goals.append(verdict(f"{name} files, speed-up", ratio, GOAL_SPEED_UP, "×"))
    print("\n".join(goals))


if __name__ == "__main__":
    main()
