"""Measures the time of ``ias.optimize`` and what it gains, next to Spark rewriting the same files.

The data is 500 files (``--files``) of 20,000 rows (``--rows``), each with a lookup index.

``python benchmarks/optimize.py`` merges the files with ``ias.optimize``, then merges them sorted
by ``user``. Spark does the same with ``coalesce`` and with ``repartitionByRange``. Spark keeps no
index and writes to a new folder. The output has wall times in seconds, and MB/s. Each is of one
run, without the start of the session and the first task. The last line has the times of a query
for one user's rows: before, merged, sorted. Each is the median of five runs that open the data
set.
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

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import intarsia as ia
import intarsia.spark as ias

INDEX = ia.Lookup("trace")


def make(folder: Path, files: int, rows: int) -> int:
    """Writes files of ``rows`` rows, each with an index. Returns their total bytes."""
    random = np.random.default_rng(7)
    folder.mkdir(parents=True)
    for number in range(files):
        traces = pa.array(random.integers(0, 2**62, rows)).cast(pa.string())
        table = pa.table(
            {"id": np.arange(rows) + number * rows, "user": random.integers(0, 10_000, rows)}
        ).append_column("trace", traces)
        ia.write_table(table, folder / f"f{number:05}.parquet", indexes=[INDEX])
    return sum(path.stat().st_size for path in folder.iterdir())


def seconds(run: Callable[[], Any]) -> float:
    """Returns the wall time of ``run`` in seconds."""
    started = time.perf_counter()
    run()
    return time.perf_counter() - started


def query_seconds(folder: Path) -> float:
    """Returns the median wall time in seconds to open the data set and read one user's rows."""
    filter_ = pc.field("user") == 77
    return statistics.median(
        seconds(lambda: ia.dataset(folder).to_table(filter=filter_)) for _ in range(5)
    )


def main() -> None:
    """Runs all measurements and prints them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=500)
    parser.add_argument("--rows", type=int, default=20_000, help="of each file")
    parser.add_argument("--master", default="local[2]")
    args = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="intarsia-"))
    spark = ias.session(args.master, **{"spark.ui.showConsoleProgress": "false"})
    try:
        size = make(folder / "lake", args.files, args.rows)
        ias.read(spark, folder / "lake", columns=["id"], where="id < 0").count()  # the first task
        frame = spark.read.parquet(str(folder / "lake"))
        spark_merge = seconds(lambda: frame.coalesce(2).write.parquet(str(folder / "merged")))
        sorted_frame = frame.repartitionByRange(2, "user").sortWithinPartitions("user")
        spark_sort = seconds(lambda: sorted_frame.write.parquet(str(folder / "sorted")))
        before = query_seconds(folder / "lake")
        merge = seconds(lambda: ias.optimize(spark, folder / "lake"))
        merged = query_seconds(folder / "lake")
        sort = seconds(lambda: ias.optimize(spark, folder / "lake", cluster_by=["user"]))
        clustered = query_seconds(folder / "lake")
        count = len(list((folder / "lake").glob("*.parquet")))
    finally:
        spark.stop()
        shutil.rmtree(folder)
    mb = size / 1e6
    print(f"{args.files} files, {args.files * args.rows:,} rows, {mb:.1f} MB; {count} at the end")
    print(f"merged   optimize {merge:6.1f} s  {mb / merge:6.1f} MB/s   Spark {spark_merge:6.1f} s")
    print(f"in order optimize {sort:6.1f} s  {mb / sort:6.1f} MB/s   Spark {spark_sort:6.1f} s")
    print(f"one user: {before:.3f} s before, {merged:.3f} s merged, {clustered:.3f} s in order")


if __name__ == "__main__":
    main()
