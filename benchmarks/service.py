"""Measures how many lookups a second a process answers, beside DuckDB.

Each lookup asks for all columns of one row by another random key. The data is the table of
``logs.py`` with a lookup index on ``trace_id``. There is also a folder of 500 small files
(``--files``) with a lookup index on ``user_id`` and a catalog. DuckDB reads the same files, and a
table of its own with an ART index. All data is opened, and all queries are prepared, before the
clock starts.

``python benchmarks/service.py`` prints a line for each reader with 1, 4 and 16 threads, and with
two processes of one thread each: lookups a second, the median time of a lookup in milliseconds,
the 99th percentile, their ratio, and the processor time of a lookup. The last column has the goal
that applies, and whether it is met.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

import duckdb
import many_files
import numpy as np
import pyarrow as pa
import pyarrow.dataset as pads
import pyarrow.parquet as pq
from logs import log_file, without_indexes
from queries import DATA, Table, markdown
from workloads import ART, made, with_indexes, write_duckdb_table

import intarsia as ia

Lookup = Callable[[str | int], pa.Table]
Opener = Callable[[Path, str], Callable[[], Lookup]]
"""Opens a path, and returns a function that gives each thread its lookups by a column."""
MODES = {"1 thread": (1, 1), "4 threads": (1, 4), "16 threads": (1, 16), "2 processes": (2, 1)}
"""The numbers of processes, and of threads in each."""
PREPARED, CATALOG = "`Dataset.prepare`, one file", "`Dataset.prepare`, {} files, catalog"
SQL = "`ia.sql`, one file"
PER_SECOND = {PREPARED: 500, SQL: 500, CATALOG: 250}
"""The goals for one thread."""
TAIL = 5
"""The goal for the 99th percentile with 16 threads: at most as many times the median."""
KEYS = 2000


def prepared(path: Path, column: str) -> Callable[[], Lookup]:
    """Opens a prepared query, which threads share."""
    query = ia.dataset(path).prepare(f"{column} = ?")
    return lambda: query.to_table


def by_sql(path: Path, column: str) -> Callable[[], Lookup]:
    """Opens a data set for ``ia.sql``."""
    logs = ia.dataset(path)
    query = f"SELECT * FROM logs WHERE {column} = ?"
    return lambda: lambda key: ia.sql(query, [key], logs=logs)


def by_duckdb(path: Path, column: str) -> Callable[[], Lookup]:
    """Opens a DuckDB database, a Parquet file, or a folder of them."""
    if path.suffix == ".duckdb":
        connection, source = duckdb.connect(path, read_only=True), "logs"
    else:
        connection = duckdb.connect()
        connection.execute("SET parquet_metadata_cache = true")
        source = f"'{path}/*.parquet'" if path.is_dir() else f"'{path}'"
    query = f"SELECT * FROM {source} WHERE {column} = ?"

    def of_thread() -> Lookup:
        cursor = connection.cursor()
        return lambda key: cursor.sql(query, params=[key]).to_arrow_table()

    return of_thread


def readers(rows: int, files: int, folder: Path) -> Iterator[tuple[str, Opener, Path, str]]:
    """Makes the data. Yields the name of each reader, its opener, the path and the column."""
    plain = without_indexes(log_file(rows, folder))
    path, database = folder / f"service-{rows}.parquet", folder / f"bench-{rows}.duckdb"
    with_indexes(path, plain, [ia.Lookup("trace_id")])
    made(database, partial(write_duckdb_table, plain))
    small_files = folder / f"service-files-{files}"
    made(small_files, partial(write_small_files, files))
    yield PREPARED, prepared, path, "trace_id"
    yield SQL, by_sql, path, "trace_id"
    yield "DuckDB, one file", by_duckdb, plain, "trace_id"
    yield ART, by_duckdb, database, "trace_id"
    yield CATALOG.format(files), prepared, small_files, "user_id"
    yield f"DuckDB, {files} files", by_duckdb, small_files, "user_id"


def write_small_files(files: int, folder: Path) -> None:
    """Writes the files of ``many_files.py`` with a lookup index and a catalog."""
    folder.mkdir(exist_ok=True)
    many_files.write(folder, files, 500)
    ia.add_indexes(folder, ia.Lookup("user_id"))
    ia.build_catalog(folder)


def random_keys(path: Path, column: str) -> list[Any]:
    """Returns values of random rows."""
    if path.suffix == ".duckdb":
        with duckdb.connect(path, read_only=True) as connection:
            values = connection.sql(f"SELECT {column} FROM logs").to_arrow_table()[column]
    elif path.is_dir():
        values = pads.dataset(path).to_table([column])[column]
    else:
        values = pq.read_table(path, columns=[column])[column]
    rows = np.random.default_rng(1).integers(0, len(values), KEYS)
    return values.take(pa.array(rows)).to_pylist()


def serve(
    opener: Opener,
    path: Path,
    column: str,
    threads: int,
    seconds: float,
    barrier: Barrier,
    results: Any,
) -> None:
    """Runs lookups in a process of its own. Puts their times and the processor time as results."""
    keys, of_thread = random_keys(path, column), opener(path, column)
    times: list[float] = []

    def run(number: int, until: float) -> None:
        """Runs lookups until a time, at least one."""
        lookup, at, end = of_thread(), number * KEYS // 16, 0.0
        while not end or end < until:
            start = time.perf_counter()
            answer = lookup(keys[at % KEYS])
            end = time.perf_counter()
            times.append(end - start)
            assert answer.num_rows == 1
            at += 1

    for _ in range(3):
        run(0, 0)
    barrier.wait()
    times.clear()
    start, processor = time.perf_counter(), time.process_time()
    workers = [
        threading.Thread(target=run, args=(number, start + seconds)) for number in range(threads)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    results.put((times, time.process_time() - processor, time.perf_counter() - start))


def measure_mode(mode: str, seconds: float, *reader: Any) -> dict[str, float]:
    """Returns the figures of one reader with some number of processes and threads."""
    processes, threads = MODES[mode]
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["datafusion", "duckdb", "intarsia", "polars"])
    barrier, results = context.Barrier(processes), context.Queue()
    arguments = (*reader, threads, seconds, barrier, results)
    workers = [context.Process(target=serve, args=arguments, daemon=True) for _ in range(processes)]
    for worker in workers:
        worker.start()
    answers = [results.get(timeout=seconds + 300) for _ in workers]
    for worker in workers:
        worker.join()
    times = np.concatenate([one for one, _, _ in answers])
    median, high = np.percentile(times, [50, 99]) * 1e3
    return {
        "per_second": sum(len(one) / wall for one, _, wall in answers),
        "median_ms": float(median),
        "p99_ms": float(high),
        "processor_ms": sum(processor for _, processor, _ in answers) / len(times) * 1e3,
    }


def measure(rows: int, files: int, seconds: float, folder: Path) -> list[dict[str, Any]]:
    """Returns the figures of each reader in each mode, with the goals that apply."""
    lines = []
    for name, *reader in readers(rows, files, folder):
        print(f"  {name}", file=sys.stderr)
        figures = {mode: measure_mode(mode, seconds, *reader) for mode in MODES}
        least = {label.format(files): goal for label, goal in PER_SECOND.items()}.get(name)
        for mode, line in figures.items():
            goal, is_met = goal_of(mode, least, figures) if least else ("", None)
            lines.append({"reader": name, "mode": mode, **line, "goal": goal, "met": is_met})
    return lines


def goal_of(mode: str, least: int, figures: dict[str, dict[str, float]]) -> tuple[str, bool | None]:
    """Returns the goal of a mode in words, and whether the figures meet it."""
    line, single = figures[mode], figures["1 thread"]["per_second"]
    if mode == "1 thread":
        return f"{least} a second", line["per_second"] >= least
    if mode == "16 threads":
        return f"p99 below {TAIL} medians", line["p99_ms"] < TAIL * line["median_ms"]
    if mode == "2 processes":
        return "twice 1 thread", line["per_second"] >= 1.9 * single
    return "", None


def table_of(lines: list[dict[str, Any]]) -> Table:
    """Returns the figures as a table."""
    table = [["", "", "a second", "median, ms", "p99, ms", "p99 / median", "processor ms", "goal"]]
    for line in lines:
        cells = [line[name] for name in ("per_second", "median_ms", "p99_ms")]
        ratio = line["p99_ms"] / line["median_ms"]
        verdict = {True: ": met", False: ": missed", None: ""}[line["met"]]
        table.append(
            [
                line["reader"],
                line["mode"],
                f"{cells[0]:,.0f}",
                *(f"{cell:,.1f}" for cell in cells[1:]),
                f"{ratio:.1f}",
                f"{line['processor_ms']:,.1f}",
                line["goal"] + verdict,
            ]
        )
    return table


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--rows", type=int, default=3_000_000)
    parser.add_argument("--files", type=int, default=500)
    parser.add_argument("--seconds", type=float, default=10, help="of each measurement")
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    lines = measure(options.rows, options.files, options.seconds, options.data)
    print(json.dumps(lines, indent=1) if options.json else markdown(table_of(lines)))


if __name__ == "__main__":
    main()
