"""Reading through Spark: ``ias.read`` beside ``spark.read.parquet``, the same files and conditions.

``python benchmarks/spark_read.py --rows 10000000`` makes data sets of 1, 10 and 100 files of so
many rows in all, with an index on ``key``, and prints a table: medians of alternating runs, whose
session has started and that begin with planning. Goals: a full scan within 5 % of Spark's own, a
point query 5 times as fast.
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
    """One thing to do with both readers; each gives what it found, to be compared."""

    name: str
    files: int
    ours: Callable[[], object]
    theirs: Callable[[], object]


def make(folder: Path, rows: int, files: int) -> None:
    """A data set: dates along the files, an unsorted key, numbers, words and noise."""
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
    """Every row, every column, handed to nobody."""
    frame.write.format("noop").mode("overwrite").save()


def cases(spark: SparkSession, base: Path, rows: int, counts: Sequence[int]) -> list[Case]:
    """A full scan and a point query for each number of files, and two of its columns."""
    found = []
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

        found += [
            Case("full scan", files, full, own_full),
            Case("two columns, grouped", files, two, own_two),
            Case("point query", files, point, own_point),
        ]
    return found


def timed(run: Callable[[], object]) -> tuple[float, object]:
    """Seconds, and what was found."""
    start = time.perf_counter()
    answer = run()
    return time.perf_counter() - start, answer


def measure(case: Case, repeats: int) -> tuple[float, float]:
    """Medians of ours and theirs in seconds, run by turns; the first run of each does not count."""
    ours, theirs = [], []
    for turn in range(repeats + 1):
        pair = [(case.ours, ours), (case.theirs, theirs)]
        answers = []
        for run, seconds in pair if turn % 2 else pair[::-1]:
            spent, answer = timed(run)
            answers.append(answer)
            if turn:
                seconds.append(spent)
        assert answers[0] == answers[1], case.name
    return statistics.median(ours), statistics.median(theirs)


def report(rows: int, found: Sequence[tuple[Case, float, float]]) -> str:
    """The table."""
    lines = [
        f"| {rows:,} rows | files | `ias.read` s | `spark.read.parquet` s | theirs / ours |",
        "|---|---|---|---|---|",
    ]
    for case, ours, theirs in found:
        lines.append(
            f"| {case.name} | {case.files} | {ours:.3f} | {theirs:.3f} | {theirs / ours:.2f} × |"
        )
    return "\n".join(lines)


def main() -> None:
    """Make data, run all cases, print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--files", type=int, nargs="+", default=FILES)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--master", default="local[2]")
    given = parser.parse_args()
    settings = {"spark.driver.memory": "2g", "spark.ui.showConsoleProgress": "false"}
    spark = ias.session(given.master, **settings)
    spark.sparkContext.setLogLevel("ERROR")
    with tempfile.TemporaryDirectory() as folder:
        for files in given.files:
            make(Path(folder) / str(files), given.rows, files)
        asked = cases(spark, Path(folder), given.rows, given.files)
        found = [(case, *measure(case, given.repeats)) for case in asked]
    print(report(given.rows, found))
    spark.stop()


if __name__ == "__main__":
    main()
