"""Compares ``ias.write`` with ``df.write.parquet``, both with the rows in the same order.

The data is unsorted logs, 5,000,000 rows by default (``--rows``). Each round writes them

- with Spark: ``repartitionByRange``, ``sortWithinPartitions`` and zstd
- with ``ias.write`` and the same range sort
- the same with two indexes and page indexes
- along a Z-order curve of two columns, which Spark cannot do.

``python benchmarks/spark_write.py`` prints a line for each: the median wall time in seconds, the
size in MB, and the median of each round's ratio to Spark's time. The goal is 1.5 with two indexes.
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


def write_with_spark(df: DataFrame, tasks: int, out: Path) -> None:
    """Writes with Spark's own writer."""
    ordered = df.repartitionByRange(tasks, SORTED_BY).sortWithinPartitions(SORTED_BY)
    ordered.write.option("compression", "zstd").parquet(str(out))


def writers(df: DataFrame, tasks: int) -> dict[str, Write]:
    """Returns the writers by name. The first is the one that the others are compared with."""

    def ours(out: Path, **options: Any) -> object:
        return ias.write(df, out, **options)

    by = [SORTED_BY]
    return {
        "`df.write.parquet`, range sort": partial(write_with_spark, df, tasks),
        "`ias.write`, range sort": partial(ours, cluster_by=by),
        "… two indexes": partial(ours, cluster_by=by, indexes=INDEXES),
        "… Z-order by two columns": partial(
            ours, cluster_by=[SORTED_BY, "latency"], curve="zorder"
        ),
    }


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--cores", type=int, default=2)
    options = parser.parse_args()
    settings = {
        "spark.driver.memory": "3g",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": str(options.cores),
    }
    spark = ias.session(f"local[{options.cores}]", **settings)
    spark.sparkContext.setLogLevel("ERROR")
    with tempfile.TemporaryDirectory(prefix="intarsia-bench-") as folder:
        for part in range(4):
            rows = options.rows // 4
            pq.write_table(logs(part * rows, rows), Path(folder, f"{part}.parquet"))
        writers_by_name = writers(spark.read.parquet(folder), options.cores)
        out = Path(folder, "_out")
        seconds: dict[str, list[float]] = {name: [] for name in writers_by_name}
        sizes: dict[str, int] = {}
        for turn in range(options.rounds + 1):
            for name, write in writers_by_name.items():
                taken, _ = timed(partial(write, out))
                sizes[name] = sum(path.stat().st_size for path in out.rglob("*.parquet"))
                shutil.rmtree(out)
                if turn:  # the first round starts workers
                    seconds[name].append(taken)
    baseline = next(iter(writers_by_name))
    print(f"| {options.rows:,} rows, {options.rounds} rounds | s | MB | times |")
    print("|---|---:|---:|---:|")
    for name, taken in seconds.items():
        ratio = statistics.median(a / b for a, b in zip(taken, seconds[baseline], strict=True))
        size = sizes[name] / 1e6
        print(f"| {name} | {statistics.median(taken):.1f} | {size:.0f} | {ratio:.2f} |")
    spark.stop()


if __name__ == "__main__":
    main()
