"""Compares point queries of thousands of small files with their catalog and without.

The data is 2,000 files (``--files``) of 500 log rows each (``--rows``), each with a lookup index
on the random column ``trace_id``. The files are in the page cache.

``python benchmarks/spark_catalog.py`` first prints the wall time of catalog builds in seconds.
Then come two tables of median wall times in milliseconds, and each time divided by that of the
first line. Each reader runs once in each round. In the first table, queries run through Spark; the
time includes planning, but not the start of the session. In the second, ``ia.dataset`` and
``pyarrow.dataset`` open the folder for each query. The last part has the catalog's bytes by file
and by key, and what a petabyte takes by these figures.
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pyarrow.dataset as pads
import pyarrow.fs as pafs
import pyarrow.parquet as pq
from many_files import tables
from petabyte import Figures, print_table

import intarsia as ia
import intarsia.spark as ias
from intarsia.catalog.catalog import read_pointer

Runner = Callable[[], int]


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


def seconds(run: Runner) -> float:
    """Returns the wall time of one run in seconds. The run must return one row."""
    start = time.perf_counter()
    count = run()
    if count != 1:
        raise SystemExit(f"{count} rows were returned, not 1")
    return time.perf_counter() - start


def compare(readers: dict[str, Runner], rounds: int) -> None:
    """Measures all readers in turn, after a run that is not timed, and prints a line for each."""
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
    parser.add_argument("--files", type=int, default=2000)
    parser.add_argument("--rows", type=int, default=500, help="of each file")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--master", default="local[2]")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name, "lake")
        folder.mkdir()
        write(folder, options.files, options.rows)
        quiet = {"spark.ui.showConsoleProgress": "false"}
        spark = ias.session(options.master, app_name="catalog", **quiet)
        spark.sparkContext.setLogLevel("ERROR")
        print("| build | s |\n|---|---:|")
        for label, build in (
            ("ias.build_catalog", lambda: ias.build_catalog(spark, folder)),
            ("ia.build_catalog", lambda: ia.build_catalog(folder)),
            ("nothing new: refresh", lambda: ia.build_catalog(folder, refresh=True)),
        ):
            start = time.perf_counter()
            build()
            print(f"| {label} | {time.perf_counter() - start:.2f} |", flush=True)
        middle = folder / f"{options.files // 2:06}.parquet"
        trace = pq.read_table(middle).column("trace_id")[options.rows // 3].as_py()
        for group, readers in runners(spark, folder, trace).items():
            print(f"\n| {group} | ms | times the first |\n|---|---:|---:|")
            compare(readers, options.rounds)
        data = ia.dataset(folder)
        data.plan(filter=pc.field("trace_id") == trace)
        start = time.perf_counter()
        data.plan(filter=pc.field("trace_id") == trace)
        print_sizes(folder, time.perf_counter() - start)
        spark.stop()


if __name__ == "__main__":
    main()
