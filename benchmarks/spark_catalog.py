"""Point queries over thousands of small files, with their catalog and without.

``python benchmarks/spark_catalog.py --files 2000`` writes its own data, files that each have a
lookup on a random ``trace_id``, builds the catalog, and prints medians of alternating rounds: a
query through Spark (planned and carried out, without the session's start) beside Spark's own
reader, and one through ``ia.dataset``, opened anew, beside ``pyarrow.dataset``. Then come bytes of
the catalog a file and a row, and what these make of a petabyte. Files are in the page cache.
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

import intarsia as ia
import intarsia.spark as ias
from intarsia.catalog.catalog import read_pointer

Ask = Callable[[], int]
PETABYTE = 10**15
ROW_BYTES, FILE_BYTES = 100, 512 * 1024**2
"""Of the petabyte: what a row takes, and a file."""


def write(folder: Path, files: int, rows: int) -> None:
    """A file of each of the ``tables``, with an index."""
    for number, table in enumerate(tables(files, rows)):
        path = folder / f"{number:06}.parquet"
        ia.write_table(table, path, compression="zstd", indexes=[ia.Lookup("trace_id")])


def asks(spark: Any, folder: Path, trace: str) -> dict[str, dict[str, Ask]]:
    """Ways to ask for one row, the first of each group with the catalog."""
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


def seconds(ask: Ask) -> float:
    """One run, which has to find one row."""
    start = time.perf_counter()
    found = ask()
    if found != 1:
        raise SystemExit(f"{found} rows were found")
    return time.perf_counter() - start


def compare(ways: dict[str, Ask], rounds: int) -> None:
    """Ask in all ways in turn, once without looking at the clock; print a line each."""
    times: dict[str, list[float]] = {way: [] for way in ways}
    for number in range(rounds + 1):
        for way, ask in ways.items():
            took = seconds(ask)
            if number:
                times[way].append(took)
    first = next(iter(times.values()))
    for way, found in times.items():
        ratio = statistics.median(b / a for a, b in zip(first, found, strict=True))
        print(f"| {way} | {statistics.median(found) * 1e3:,.0f} | {ratio:.1f} |", flush=True)


def sizes(folder: Path, rows: int, planning: float) -> None:
    """What the catalog takes, by its tables, and by these figures for a petabyte."""
    (segment,) = read_pointer(pafs.LocalFileSystem(), str(folder)).segments
    keys = [part.table for index in segment.keys for part in index.parts]
    tails = sum(part.table.size for part in segment.tails)
    small = sum(t.size for t in (segment.files, segment.bounds, segment.covers))
    per_key = sum(table.size for table in keys) / sum(table.rows for table in keys)
    n, r = segment.num_files, segment.num_files * rows
    print("\n| catalog | bytes | a file | a row |\n|---|---:|---:|---:|")
    print(f"| files, bounds, covers | {small:,} | {small / n:,.0f} | |")
    print(f"| ends of files | {tails:,} | {tails / n:,.0f} | |")
    print(f"| keys | {sum(t.size for t in keys):,} | | {per_key:.2f} |")
    files, total = PETABYTE / FILE_BYTES, PETABYTE / ROW_BYTES
    print(
        f"\nA petabyte of {ROW_BYTES} bytes a row and {FILE_BYTES >> 20} MiB a file: "
        f"{files / 1e6:.2f} M files, {total:.1e} rows; files, bounds and covers "
        f"{files * small / n / 1e9:.2f} GB, ends as long as these {files * tails / n / 1e9:.2f} GB,"
        f" keys of one unique column {total * per_key / 1e12:.0f} TB "
        f"({total * per_key / PETABYTE:.1%}); building reads that much of sections, in "
        f"{files / 256:,.0f} tasks of 256 files. Fingerprints of 32 bits: of {total:.0e} unique "
        f"keys a point query finds {total / 2**32:,.0f} by chance. Here, planning took "
        f"{planning * 1e3:.0f} ms, {planning / n * 1e6:.1f} µs a file of {r:,} rows in all; as "
        f"that grows with the files, {planning / n * files:.0f} s."
    )


def main() -> None:
    """Print the tables."""
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
        for what, build in (
            ("ias.build_catalog", lambda: ias.build_catalog(spark, folder)),
            ("ia.build_catalog", lambda: ia.build_catalog(folder)),
            ("nothing new: refresh", lambda: ia.build_catalog(folder, refresh=True)),
        ):
            start = time.perf_counter()
            build()
            print(f"| {what} | {time.perf_counter() - start:.2f} |", flush=True)
        middle = folder / f"{options.files // 2:06}.parquet"
        trace = pq.read_table(middle).column("trace_id")[options.rows // 3].as_py()
        for group, ways in asks(spark, folder, trace).items():
            print(f"\n| {group} | ms | times the first |\n|---|---:|---:|")
            compare(ways, options.rounds)
        plan = ia.dataset(folder)
        plan.plan(filter=pc.field("trace_id") == trace)
        start = time.perf_counter()
        plan.plan(filter=pc.field("trace_id") == trace)
        sizes(folder, options.rows, time.perf_counter() - start)
        spark.stop()


if __name__ == "__main__":
    main()
