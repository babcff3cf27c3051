"""Writing with indexes through Spark: ``ias.write`` beside ``df.write.parquet`` of the same order.

``python benchmarks/spark_write.py --rows 5000000`` makes unsorted logs, and writes them by turns:
as Spark sorts and writes them, ``repartitionByRange`` and ``sortWithinPartitions`` with zstd, and
by ``ias.write`` with the same range sort, without and with two indexes and page indexes, and along
a Z-order curve of two columns, for which Spark has none. Prints medians, and the medians of each
round's ratios. The goal is 1.5 times with two indexes.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
from spark_index import logs
from spark_read import timed

import intarsia.spark as ias

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

INDEXES = ("lookup(trace_id)", "minmax(latency)")
SORTED_BY = "user_id"
Write = Callable[[Path], object]


def plain(df: DataFrame, tasks: int, out: Path) -> None:
    """Spark's own writer."""
    ordered = df.repartitionByRange(tasks, SORTED_BY).sortWithinPartitions(SORTED_BY)
    ordered.write.option("compression", "zstd").parquet(str(out))


def ways(df: DataFrame, tasks: int) -> dict[str, Write]:
    """What is compared; the first is what the others are measured by."""

    def ours(out: Path, **options: Any) -> object:
        return ias.write(df, out, **options)

    by = [SORTED_BY]
    return {
        "`df.write.parquet`, range sort": partial(plain, df, tasks),
        "`ias.write`, range sort": partial(ours, cluster_by=by),
        "… two indexes": partial(ours, cluster_by=by, indexes=INDEXES),
        "… Z-order by two columns": partial(
            ours, cluster_by=[SORTED_BY, "latency"], curve="zorder"
        ),
    }


def main() -> None:
    """Prints a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--cores", type=int, default=2)
    given = parser.parse_args()
    settings = {
        "spark.driver.memory": "3g",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": str(given.cores),
    }
    spark = ias.session(f"local[{given.cores}]", **settings)
    spark.sparkContext.setLogLevel("ERROR")
    with tempfile.TemporaryDirectory(prefix="intarsia-bench-") as folder:
        for part in range(4):
            rows = given.rows // 4
            pq.write_table(logs(part * rows, rows), Path(folder, f"{part}.parquet"))
        asked = ways(spark.read.parquet(folder), given.cores)
        out = Path(folder, "_out")
        seconds: dict[str, list[float]] = {name: [] for name in asked}
        sizes: dict[str, int] = {}
        for turn in range(given.rounds + 1):
            for name, write in asked.items():
                taken, _ = timed(partial(write, out))
                sizes[name] = sum(path.stat().st_size for path in out.rglob("*.parquet"))
                shutil.rmtree(out)
                if turn:  # the first round starts workers
                    seconds[name].append(taken)
    first = next(iter(asked))
    print(f"| {given.rows:,} rows, {given.rounds} rounds | s | MB | times |")
    print("|---|---:|---:|---:|")
    for name, taken in seconds.items():
        ratio = statistics.median(a / b for a, b in zip(taken, seconds[first], strict=True))
        size = sizes[name] / 1e6
        print(f"| {name} | {statistics.median(taken):.1f} | {size:.0f} | {ratio:.2f} |")
    spark.stop()


if __name__ == "__main__":
    main()
