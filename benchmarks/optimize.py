"""What ``ias.optimize`` takes and gains, beside Spark reading and writing the same files.

``python benchmarks/optimize.py --files 500 --rows 20000``: so many small files with a lookup index
are merged, then put into another order; Spark's own way keeps no index and replaces nothing in
place. Seconds are of one run each, session and first task left out; questions are medians of five.
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
    """``files`` of ``rows`` rows each with an index; returns their bytes."""
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
    """How long ``run`` takes."""
    started = time.perf_counter()
    run()
    return time.perf_counter() - started


def question(folder: Path) -> float:
    """Seconds that one user's rows take, the data set opened anew."""
    ask = pc.field("user") == 77
    return statistics.median(
        seconds(lambda: ia.dataset(folder).to_table(filter=ask)) for _ in range(5)
    )


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=500)
    parser.add_argument("--rows", type=int, default=20_000, help="of each file")
    parser.add_argument("--master", default="local[2]")
    given = parser.parse_args()
    home = Path(tempfile.mkdtemp(prefix="intarsia-"))
    spark = ias.session(given.master, **{"spark.ui.showConsoleProgress": "false"})
    try:
        size = make(home / "lake", given.files, given.rows)
        ias.read(spark, home / "lake", columns=["id"], where="id < 0").count()  # the first task
        made = spark.read.parquet(str(home / "lake"))
        plain = seconds(lambda: made.coalesce(2).write.parquet(str(home / "merged")))
        order = made.repartitionByRange(2, "user").sortWithinPartitions("user")
        sorted_ = seconds(lambda: order.write.parquet(str(home / "sorted")))
        before = question(home / "lake")
        merge = seconds(lambda: ias.optimize(spark, home / "lake"))
        after = question(home / "lake")
        cluster = seconds(lambda: ias.optimize(spark, home / "lake", cluster_by=["user"]))
        clustered = question(home / "lake")
        count = len(list((home / "lake").glob("*.parquet")))
    finally:
        spark.stop()
        shutil.rmtree(home)
    mb = size / 1e6
    print(
        f"{given.files} files, {given.files * given.rows:,} rows, {mb:.1f} MB; {count} at the end"
    )
    print(f"merged   optimize {merge:6.1f} s  {mb / merge:6.1f} MB/s   Spark {plain:6.1f} s")
    print(f"in order optimize {cluster:6.1f} s  {mb / cluster:6.1f} MB/s   Spark {sorted_:6.1f} s")
    print(f"one user: {before:.3f} s before, {after:.3f} s merged, {clustered:.3f} s in order")


if __name__ == "__main__":
    main()
