"""Compares catalogs built by Spark and by one process, and point queries with and without them.

The data is folders of 500 and 2,000 files (``--files``) of 500 log rows each (``--rows``). Each
file has a lookup index on the random column ``trace_id``, and is in the page cache.

``python benchmarks/spark_catalog.py`` first prints the median wall times of catalog builds in
seconds: by one process and by Spark with two cores, by turns, then by Spark with one core. Each
session has built a catalog before the clock starts.

The queries are of the last folder. Two tables have median wall times in milliseconds, and each time
divided by that of the first line. Each reader runs once in each round. In the first table, queries
run through Spark; the time includes planning, but not the start of the session. In the second,
``ia.dataset`` and ``pyarrow.dataset`` open the folder for each query. Then come the catalog's bytes
by file and by key, what a petabyte takes by these figures, and a line for each goal.

``--linked 100000`` measures a folder of that many files instead: a build by Spark, a refresh after
1 % more files, and one that finds nothing new, with the peak memory of the driver so far. The files
are hard links of 100 different ones.
"""

import argparse
import os
import statistics
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pyarrow.dataset as pads
import pyarrow.fs as pafs
import pyarrow.parquet as pq
from many_files import tables
from memory import peak_bytes
from petabyte import Figures, print_table
from spark_read import timed, verdict

import intarsia as ia
import intarsia.spark as ias
from intarsia.catalog.catalog import read_pointer

Runner = Callable[[], int]
CORES = (2, 1)
GOAL_FILES, GOAL_SECONDS = 2000, 5
"""The goal for a build by Spark on two cores: seconds for this number of files."""
GOAL_SPEED_UP = 1.7
"""The least gain by the second core."""
GOAL_QUERY = 0.2
"""The longest time of a point query by the catalog, in seconds."""


def write(folder: Path, files: int, rows: int) -> None:
    """Writes one file for each of the ``tables``, with an index."""
    for number, table in enumerate(tables(files, rows)):
        path = folder / f"{number:06}.parquet"
        ia.write_table(table, path, compression="zstd", indexes=[ia.Lookup("trace_id")])


def runners(spark: Any, folder: Path, trace: str) -> dict[str, dict[str, Runner]]:
    """Returns the readers of one row by group; the first of each group uses the catalog."""
    expression, sql, path = pc.field("trace_id") == trace, f"trace_id = '{trace}'", str(folder)
    return {
        "Spark": {
            "ias.read, catalog": lambda: len(ias.read(spark, path, where=sql).collect()),
            "ias.read, no catalog": lambda: len(
                ias.read(spark, path, where=sql, catalog=False).collect()
            ),
            "spark.read.parquet": lambda: len(spark.read.parquet(path).where(sql).collect()),
        },
        "one machine": {
            "ia.dataset, catalog": lambda: len(ia.dataset(path).to_table(filter=expression)),
            "ia.dataset, no catalog": lambda: len(
                ia.dataset(path, catalog=False).to_table(filter=expression)
            ),
            "pyarrow.dataset": lambda: len(pads.dataset(path).to_table(filter=expression)),
        },
    }


def session(cores: int) -> Any:
    """Returns a quiet session with a number of cores."""
    quiet = {"spark.ui.showConsoleProgress": "false"}
    spark = ias.session(f"local[{cores}]", app_name="catalog", **quiet)
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def measure_builds(lakes: dict[int, Path], rounds: int) -> list[str]:
    """Prints a line for each folder, and returns the lines of the goals."""
    times_of: dict[tuple[int, int], list[float]] = {}
    for cores in CORES:
        spark = session(cores)
        ias.build_catalog(spark, next(iter(lakes.values())))
        for _ in range(rounds):
            for files, folder in lakes.items():
                if cores > 1:
                    taken, _ = timed(partial(ia.build_catalog, folder))
                    times_of.setdefault((files, 0), []).append(taken)
                taken, _ = timed(partial(ias.build_catalog, spark, folder))
                times_of.setdefault((files, cores), []).append(taken)
        spark.stop()
    goals = []
    print("| files | one process, s | local[2], s | times | local[1], s | speed-up |")
    print("|---|---:|---:|---:|---:|---:|")
    for files in lakes:
        alone, two, one = (times_of[files, cores] for cores in (0, *CORES))
        times = statistics.median(a / b for a, b in zip(two, alone, strict=True))
        speed_up = statistics.median(a / b for a, b in zip(one, two, strict=True))
        alone_s, two_s, one_s = map(statistics.median, (alone, two, one))
        print(
            f"| {files:,} | {alone_s:.2f} | {two_s:.2f} | {times:.2f} | {one_s:.2f} "
            f"| {speed_up:.2f} |",
            flush=True,
        )
        name = f"catalog of {files:,} files by Spark"
        goals.append(verdict(f"{name} beside one process", times, 1, "×", at_most=True))
        goals.append(verdict(f"{name}, speed-up", speed_up, GOAL_SPEED_UP, "×"))
        if files == GOAL_FILES:
            goals.append(verdict(name, two_s, GOAL_SECONDS, "s", at_most=True))
    return goals


def link(folder: Path, sources: Sequence[Path], numbers: range) -> None:
    """Links a file for each number, 1,000 to a folder."""
    for number in numbers:
        below = folder / f"day={number // 1000:04}"
        below.mkdir(exist_ok=True)
        os.link(sources[number % len(sources)], below / f"{number:06}.parquet")


def measure_linked(folder: Path, count: int, rows: int) -> None:
    """Prints seconds and the driver's memory for a build and two refreshes of ``count`` files."""
    (folder / "different").mkdir()
    write(folder / "different", 100, rows)
    sources = sorted((folder / "different").iterdir())
    lake = folder / "lake"
    lake.mkdir()
    spark = session(max(CORES))
    jvm = spark.sparkContext._gateway.proc.pid
    print(
        f"| {count:,} files | s | driver, MB | Java and workers, MB |\n|---|---:|---:|---:|",
        flush=True,
    )
    added = max(count // 100, 1)
    for name, numbers in (
        ("build", range(count)),
        (f"refresh, {added:,} more files", range(count, count + added)),
        ("refresh, nothing new", range(0)),
    ):
        link(lake, sources, numbers)
        taken, report = timed(partial(ias.build_catalog, spark, lake, refresh=True))
        if report.read != len(numbers):
            raise SystemExit(f"{report.read:,} files were read, not {len(numbers):,}")
        peaks = [f"{peak / 1e6:,.0f}" for peak in (peak_bytes(), peak_with_children(jvm))]
        print(f"| {name} | {taken:.1f} | {' | '.join(peaks)} |", flush=True)
    spark.stop()


def peak_with_children(process: int) -> int:
    """Returns the sum of the peaks of a process and of the processes below it that run now."""
    children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    return peak_bytes(process) + sum(map(peak_with_children, map(int, children)))


def seconds(run: Runner) -> float:
    """Returns the wall time of one run in seconds. The run must return one row."""
    taken, count = timed(run)
    if count != 1:
        raise SystemExit(f"{count} rows were returned, not 1")
    return taken


def compare(readers: dict[str, Runner], rounds: int) -> float:
    """Measures all readers in turn, after a run that is not timed, and prints a line for each.

    Returns the median wall time of the first reader in seconds.
    """
    times: dict[str, list[float]] = {name: [] for name in readers}
    for number in range(rounds + 1):
        for name, run in readers.items():
            took = seconds(run)
            if number:
                times[name].append(took)
    first = next(iter(times.values()))
    for name, of_reader in times.items():
        ratio = statistics.median(b / a for a, b in zip(first, of_reader, strict=True))
        print(f"| {name} | {statistics.median(of_reader) * 1e3:,.0f} | {ratio:.1f} |", flush=True)
    return statistics.median(first)


def print_sizes(folder: Path, planning: float) -> None:
    """Prints the bytes of the catalog's tables, and what a petabyte takes by these figures."""
    (segment,) = read_pointer(pafs.LocalFileSystem(), str(folder)).segments
    keys = [part.table for index in segment.keys for part in index.parts]
    tails = sum(part.table.size for part in segment.tails)
    fixed = sum(t.size for t in (segment.files, segment.bounds, segment.covers))
    per_key = sum(table.size for table in keys) / sum(table.rows for table in keys)
    count = segment.num_files
    print("\n| catalog | bytes | a file | a key |\n|---|---:|---:|---:|")
    print(f"| files, bounds, covers | {fixed:,} | {fixed / count:,.0f} | |")
    print(f"| ends of files | {tails:,} | {tails / count:,.0f} | |")
    print(f"| keys | {sum(t.size for t in keys):,} | | {per_key:.2f} |")
    print()
    print_table(
        Figures(
            identity=fixed / count,
            footer=tails / count,
            key=per_key,
            planning=planning / count,
        )
    )


def main() -> None:
    """Prints all tables."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--files", type=int, nargs="+", default=(500, GOAL_FILES))
    parser.add_argument("--rows", type=int, default=500, help="of each file")
    parser.add_argument("--builds", type=int, default=3, help="rounds of builds")
    parser.add_argument("--rounds", type=int, default=5, help="of queries")
    parser.add_argument("--linked", type=int, help="files of a folder of links")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        if options.linked:
            measure_linked(Path(name), options.linked, options.rows)
            return
        lakes = {files: Path(name, f"{files}") for files in options.files}
        for files, folder in lakes.items():
            folder.mkdir()
            write(folder, files, options.rows)
        goals = measure_builds(lakes, options.builds)
        files, folder = [*lakes.items()][-1]
        taken, _ = timed(partial(ia.build_catalog, folder, refresh=True))
        print(f"a refresh of {files:,} files that finds nothing new: {taken:.2f} s")
        middle = folder / f"{files // 2:06}.parquet"
        trace = pq.read_table(middle).column("trace_id")[options.rows // 3].as_py()
        spark = session(max(CORES))
        medians = []
        for group, readers in runners(spark, folder, trace).items():
            print(f"\n| {group} | ms | times the first |\n|---|---:|---:|")
            medians.append(compare(readers, options.rounds))
        goal = f"point query of {files:,} files through Spark, catalog"
        goals.append(verdict(goal, medians[0], GOAL_QUERY, "s", at_most=True))
        data = ia.dataset(folder)
        data.plan(filter=pc.field("trace_id") == trace)
        planning, _ = timed(partial(data.plan, filter=pc.field("trace_id") == trace))
        print_sizes(folder, planning)
        spark.stop()
    print("\n" + "\n".join(goals))


if __name__ == "__main__":
    main()
