"""Compares ``ias.read`` with ``spark.read.parquet`` on the same files and conditions.

The data is the same number of rows (``--rows``) in folders of 1, 10 and 100 files (``--files``),
with a lookup index on ``key``.

``python benchmarks/spark_read.py`` prints a line for each query and folder: median wall times in
seconds of alternating runs, and the ratio of Spark's time to ours. The time includes planning, but
not the start of the session. Then comes a line for each goal: a full scan within 5 % of Spark's
time, and a point query 5 times as fast.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import intarsia as ia
import intarsia.spark as ias

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FILES = (1, 10, 100)
GROUP_ROWS = 500_000
WORDS = np.array([f"word {number}" for number in range(5000)])
Run = Callable[[], float]


@dataclass(frozen=True)
class Case:
    """One query with both readers. Each returns its result, and the results are compared.

    ``goal`` is the least ratio of Spark's time to ours; None if there is no goal.
    """

    name: str
    files: int
    ours: Callable[[], object]
    theirs: Callable[[], object]
    goal: float | None = None


def make(folder: Path, rows: int, files: int) -> None:
    """Writes a data set: dates in order, an unsorted key, numbers, words and random floats."""
    folder.mkdir()
    random = np.random.default_rng(9)
    for number, part in enumerate(np.array_split(np.arange(rows), files)):
        size = len(part)
        table = pa.table(
            {
                "at": pa.array(part * 1000, pa.timestamp("us", "UTC")),
                "key": [f"{value:032x}" for value in random.integers(0, 2**62, size)],
                "amount": random.integers(0, 10**6, size),
                "ratio": random.random(size),
                "word": pa.array(WORDS[random.integers(0, len(WORDS), size)]),
            }
        )
        path = folder / f"{number:03}.parquet"
        options = {"row_group_size": GROUP_ROWS, "write_page_index": True}
        pq.write_table(table, path, dictionary_pagesize_limit=128 * 1024, **options)
    ia.add_indexes(folder, [ia.Lookup("key")])


def scan(frame: DataFrame) -> None:
    """Reads all rows and columns, and drops them."""
    frame.write.format("noop").mode("overwrite").save()


def cases(spark: SparkSession, base: Path, rows: int, counts: Sequence[int]) -> list[Case]:
    """Returns, for each number of files, a full scan, a grouping of two columns, a point query."""
    all_cases = []
    for files in counts:
        folder = str(base / str(files))
        key = str(ia.dataset(folder).take([rows // 2], columns=["key"])["key"][0])
        where = f"key = '{key}'"

        def full(folder: str = folder) -> object:
            return scan(ias.read(spark, folder))

        def own_full(folder: str = folder) -> object:
            return scan(spark.read.parquet(folder))

        def two(folder: str = folder) -> object:
            return ias.read(spark, folder, columns=["amount", "word"]).groupBy("word").sum().count()

        def own_two(folder: str = folder) -> object:
            frame = spark.read.parquet(folder).select("amount", "word")
            return frame.groupBy("word").sum().count()

        def point(folder: str = folder, where: str = where) -> object:
            return ias.read(spark, folder, where=where).collect()

        def own_point(folder: str = folder, where: str = where) -> object:
            return spark.read.parquet(folder).where(where).collect()

        all_cases += [
            Case("full scan", files, full, own_full, goal=0.95),
            Case("two columns, grouped", files, two, own_two),
            Case("point query", files, point, own_point, goal=5),
        ]
    return all_cases


def timed(run: Callable[[], object]) -> tuple[float, object]:
    """Returns the wall time of a run in seconds, and its result."""
    start = time.perf_counter()
    result = run()
    return time.perf_counter() - start, result


def measure(case: Case, repeats: int) -> tuple[float, float]:
    """Returns median wall times of ours and theirs in seconds. Their first runs do not count."""
    ours, theirs = [], []
    for turn in range(repeats + 1):
        sides = [(case.ours, ours), (case.theirs, theirs)]
        results = []
        for run, seconds in sides if turn % 2 else sides[::-1]:
            elapsed, result = timed(run)
            results.append(result)
            if turn:
                seconds.append(elapsed)
        assert results[0] == results[1], case.name
    return statistics.median(ours), statistics.median(theirs)


def verdict(what: str, value: float, bound: float, unit: str, *, at_most: bool = False) -> str:
    """Returns a line that says whether a figure meets its goal."""
    is_met = value <= bound if at_most else value >= bound
    goal = f"at {'most' if at_most else 'least'} {bound:g} {unit}"
    return f"goal: {what}: {value:.3g} {unit}, {goal}: {'met' if is_met else 'missed'}"


def report(rows: int, measurements: Sequence[tuple[Case, float, float]]) -> str:
    """Formats the table and a line for each goal."""
    lines = [
        f"| {rows:,} rows | files | `ias.read` s | `spark.read.parquet` s | theirs / ours |",
        "|---|---|---|---|---|",
    ]
    for case, ours, theirs in measurements:
        lines.append(
            f"| {case.name} | {case.files} | {ours:.3f} | {theirs:.3f} | {theirs / ours:.2f} × |"
        )
    lines += [
        verdict(f"{case.name}, files: {case.files}", theirs / ours, case.goal, "×")
        for case, ours, theirs in measurements
        if case.goal is not None
    ]
    return "\n".join(lines)


def main() -> None:
    """Writes the data, runs all cases and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--files", type=int, nargs="+", default=FILES)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--master", default="local[2]")
    options = parser.parse_args()
    settings = {"spark.driver.memory": "2g", "spark.ui.showConsoleProgress": "false"}
    spark = ias.session(options.master, **settings)
    spark.sparkContext.setLogLevel("ERROR")
    with tempfile.TemporaryDirectory() as folder:
        for files in options.files:
            make(Path(folder) / str(files), options.rows, files)
        queries = cases(spark, Path(folder), options.rows, options.files)
        measurements = [(case, *measure(case, options.repeats)) for case in queries]
    print(report(options.rows, measurements))
    spark.stop()


if __name__ == "__main__":
    main()
