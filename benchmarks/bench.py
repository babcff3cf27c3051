"""Compares Intarsia with its peers on several workloads: ``make bench`` and ``make bench-full``.

The workloads are:

- the log table of ``logs.py``, and the same table as DuckDB and Polars write it by default
- TPC-H's line items, many small files, and a table of many columns
- the curve from few rows of the log table to all of them.

The peers run on the same file. On the log table they also run on layouts that suit them better: a
copy sorted by ``trace_id`` with page indexes and bloom filters, and a DuckDB table with an ART
index on each key. All answers are compared before anything is timed. Each engine runs once in each
round, in an order drawn for the round.

- *warm*: the data set is open. *cold*: it is opened for each query, with its bytes in the page
  cache.
- *ms*: median, fastest and slowest round, of wall time and of processor time.
- *reads* and *bytes*: system calls that read, and their bytes, of one cold query on Linux. Reads
  of memory-mapped files are not counted, which Polars uses.
- *peak* (``--memory``): the growth of a process that opens the data and runs all queries once.

The folder ``build/bench`` receives ``results.json``, ``results.md`` and ``curve.svg``.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import platform
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

import duckdb
import many_files
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads
import pyarrow.parquet as pq
import selectivity
from layout import load_tpch
from logs import facts_of, log_file, without_indexes
from peers import ENGINES, OURS, Query, Runner, fingerprint, leave, queries_of
from queries import DATA, PACKAGES, Table, markdown

import intarsia as ia

OUTPUT = Path(__file__).parents[1] / "build" / "bench"
TIE = 1.15
"""Ratios of medians up to this, in either direction, are ties: rounds differ as much."""
KEYS = ("trace_id", "user_id")
ART, SORTED = "DuckDB, table with ART", "sorted, bloom filters"
CURVE_ENGINES = [selectivity.OURS_SQL, *ENGINES]


@dataclass(frozen=True)
class Size:
    """The numbers of rows and files of all workloads, and the number of rounds."""

    rows: int
    tpch_scale: str
    files: int
    columns: int
    runs: int


SIZES = {
    "smoke": Size(rows=20_000, tpch_scale="0.01", files=10, columns=50, runs=1),
    "bench": Size(rows=2_000_000, tpch_scale="0.2", files=500, columns=2_000, runs=5),
    "full": Size(rows=10_000_000, tpch_scale="1", files=2_000, columns=2_000, runs=9),
}


@dataclass(frozen=True)
class Workload:
    """Data, queries, and a function for each engine that opens the data."""

    name: str
    schema: pa.Schema
    queries: list[Query]
    engines: dict[str, Callable[[], Runner]]
    built: list[dict[str, Any]]
    """Seconds and bytes of each file that was made."""


@dataclass(frozen=True)
class Times:
    """Milliseconds of the rounds of one engine."""

    wall: list[float] = field(default_factory=list)
    processor: list[float] = field(default_factory=list)

    def summary(self) -> dict[str, dict[str, float]]:
        """Returns the median, the minimum and the maximum of both."""
        return {
            name: {"median": statistics.median(ms), "min": min(ms), "max": max(ms)}
            for name, ms in asdict(self).items()
        }


# --- data ---------------------------------------------------------------------------------------


def made(path: Path, write: Callable[[Path], object]) -> dict[str, Any]:
    """Writes ``path`` unless it exists. Returns what it cost then, and its size."""
    record = path.with_name(f"{path.name}.built.json")
    if not record.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        start, processor = time.perf_counter(), time.process_time()
        write(path)
        processor_seconds = time.process_time() - processor
        seconds = time.perf_counter() - start
        record.write_text(json.dumps([seconds, processor_seconds]))
    seconds, processor_seconds = json.loads(record.read_text())
    files = path.rglob("*") if path.is_dir() else [path]
    size = sum(file.stat().st_size for file in files if file.is_file())
    return {
        "file": path.name,
        "bytes": size,
        "seconds": seconds,
        "processor_seconds": processor_seconds,
    }


def with_indexes(path: Path, plain: Path, specs: Sequence[Any]) -> dict[str, Any]:
    """Copies ``plain`` to ``path`` and adds indexes. Counts only the indexes as built."""

    def write(to: Path) -> None:
        ia.add_indexes(to, specs)

    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(plain.read_bytes())
    before = plain.stat().st_size
    built = made(path, write)
    return built | {"index_bytes": built["bytes"] - before}


def on(path: Path) -> dict[str, Callable[[], Runner]]:
    """Returns the engines that open one file or folder."""
    return {name: functools.partial(open_, path) for name, open_ in ENGINES.items()}


def log_workload(size: Size, folder: Path) -> Workload:
    """Returns the queries of ``peers.py``, with the peers' better layouts."""
    source = log_file(size.rows, folder)
    plain = without_indexes(source)
    path = folder / f"bench-indexed-{size.rows}.parquet"
    built = with_indexes(path, plain, [ia.Lookup(key) for key in KEYS])
    ordered = folder / f"bench-sorted-{size.rows}.parquet"
    table = folder / f"bench-{size.rows}.duckdb"

    def write_sorted(to: Path) -> None:
        rows = pq.read_table(plain).sort_by("trace_id")
        pq.write_table(rows, to, compression="zstd", write_page_index=True, row_group_size=122_880)
        ia.add_indexes(to, [ia.Bloom(key) for key in KEYS])

    def write_table(to: Path) -> None:
        with duckdb.connect(to) as connection:
            connection.execute(f"CREATE TABLE logs AS FROM '{plain}'")
            for key in KEYS:
                connection.execute(f"CREATE INDEX {key}_art ON logs ({key})")

    built_by_peers = [made(ordered, write_sorted), made(table, write_table)]
    engines = on(plain) | {OURS: functools.partial(ENGINES[OURS], path)}
    for name, open_ in ENGINES.items():
        if name != OURS:
            engines[f"{name}, {SORTED}"] = functools.partial(open_, ordered)
    engines[ART] = functools.partial(by_duckdb_table, table)
    schema = pq.read_schema(plain)
    return Workload("logs", schema, queries_of(facts_of(source)), engines, [built, *built_by_peers])


def by_duckdb_table(path: Path) -> Runner:
    """Returns a runner on a DuckDB database that has the table ``logs``."""
    connection = duckdb.connect(path, read_only=True)
    return lambda query: connection.sql(query.select).to_arrow_table()


def line_item_workload(size: Size, folder: Path) -> Workload:
    """Returns lookups and ranges on TPC-H's line items, in the order of ``l_orderkey``."""
    tpch = folder / f"tpch-{size.tpch_scale}"
    tpch.mkdir(parents=True, exist_ok=True)
    plain, path = tpch / "plain.parquet", tpch / "indexed.parquet"

    def write(to: Path) -> None:
        rows = load_tpch("FROM lineitem ORDER BY l_orderkey, l_linenumber", tpch, size.tpch_scale)
        ia.write_table(rows, to)

    built = [made(plain, write), with_indexes(path, plain, [ia.Lookup("l_partkey")])]
    keys = pq.read_table(plain, columns=["l_orderkey", "l_partkey"])
    schema = pq.read_schema(plain)
    queries = [
        equal_query(keys, "l_partkey", schema),
        equal_query(keys, "l_orderkey", schema),
    ]
    engines = on(plain) | {OURS: functools.partial(ENGINES[OURS], path)}
    return Workload("lineitem", schema, queries, engines, built)


def equal_query(table: pa.Table, column: str, schema: pa.Schema) -> Query:
    """Returns the query for the rows that equal the value in the middle of the table."""
    value = table[column][len(table) // 2].as_py()
    count = pc.sum(pc.equal(table[column], value)).as_py()
    return number_query(column, value, count, schema.names)


def number_query(column: str, value: int, count: int, columns: Sequence[str]) -> Query:
    """Returns the query for ``column = value``, a number."""
    condition = f"{column} = {value}"
    return Query(
        column,
        f"`{column} = …`",
        count,
        0,
        sql=condition,
        arrow=pc.field(column) == value,
        polars=pl.col(column) == value,
        columns=tuple(columns),
    )


def small_file_workload(size: Size, folder: Path) -> Workload:
    """Returns the conditions of ``many_files.py`` on its files."""
    path = folder / f"small-files-{size.files}"

    def write(to: Path) -> None:
        to.mkdir(exist_ok=True)
        many_files.write(to, size.files, 500)

    built = made(path, write)
    data = pads.dataset(path)
    table = data.to_table(columns=["ts", "user_id"])
    queries = [equal_query(table, name, data.schema) for name in ("ts", "user_id")]
    return Workload("small files", data.schema, queries, on(path), [built])


def wide_workload(size: Size, folder: Path) -> Workload:
    """Returns one row of a table of many columns: of three of them, and of all."""
    path = folder / f"wide-{size.columns}.parquet"
    rows = 10_000

    def write(to: Path) -> None:
        random_values = np.random.default_rng(1)
        columns = {f"c{n}": random_values.random(rows) for n in range(size.columns)}
        ia.write_table(pa.table({"id": random_values.permutation(rows)} | columns), to)

    built = made(path, write)
    schema = pq.read_schema(path)
    queries = [number_query("id", 77, 1, names) for names in (schema.names[:3], schema.names)]
    return Workload("wide table", schema, queries, on(path), [built])


def foreign_workload(writer: str, size: Size, folder: Path) -> Workload:
    """Returns the queries of the log table on a file of another tool's, without an index."""
    source = log_file(size.rows, folder)
    path = folder / f"{writer}-{size.rows}.parquet"

    def by_duckdb(to: Path) -> None:
        duckdb.sql(f"COPY (FROM '{source}') TO '{to}' (FORMAT parquet)")

    def by_polars(to: Path) -> None:
        pl.scan_parquet(source).sink_parquet(to)

    built = made(path, {"DuckDB": by_duckdb, "Polars": by_polars}[writer])
    schema = pq.read_schema(source)
    return Workload(f"file by {writer}", schema, queries_of(facts_of(source)), on(path), [built])


WORKLOADS: dict[str, Callable[[Size, Path], Workload]] = {
    "logs": log_workload,
    "lineitem": line_item_workload,
    "small files": small_file_workload,
    "wide table": wide_workload,
    "file by DuckDB": functools.partial(foreign_workload, "DuckDB"),
    "file by Polars": functools.partial(foreign_workload, "Polars"),
}


# --- measuring ----------------------------------------------------------------------------------


def measure(workload: Workload, runs: int) -> list[dict[str, Any]]:
    """Returns the measurements of each query. Raises ``AssertionError`` if answers differ."""
    warm = {name: open_() for name, open_ in workload.engines.items()}
    return [measure_query(workload, query, warm, runs) for query in workload.queries]


def measure_query(
    workload: Workload, query: Query, warm: dict[str, Runner], runs: int
) -> dict[str, Any]:
    """Returns the measurements of one query by all engines."""
    check_answers(workload, query, warm)
    times = {name: {"warm": Times(), "cold": Times()} for name in warm}
    reads = {}
    for name, open_ in workload.engines.items():
        with count_reads() as counted:
            open_()(query)
        reads[name] = counted
    for _ in range(runs):
        for name in random.sample(list(warm), len(warm)):
            add_time(times[name]["warm"], functools.partial(warm[name], query))
            open_ = workload.engines[name]
            add_time(times[name]["cold"], lambda open_=open_: open_()(query))
    return {
        "query": query.text,
        "rows": query.rows,
        "columns": len(query.columns),
        "engines": {
            name: {state: rounds.summary() for state, rounds in of_engine.items()} | reads[name]
            for name, of_engine in times.items()
        },
    }


def check_answers(workload: Workload, query: Query, runners: dict[str, Runner]) -> None:
    """Raises ``AssertionError`` if answers differ, or have another number of rows."""
    answers = {
        name: fingerprint(run(query), query.columns, workload.schema)
        for name, run in runners.items()
    }
    if len(set(answers.values())) != 1 or answers[OURS][0] != query.rows:
        raise AssertionError(f"{workload.name}, {query.text}: expected {query.rows}, not {answers}")


def add_time(times: Times, action: Callable[[], object]) -> None:
    """Runs ``action`` and adds its milliseconds to ``times``."""
    start, processor = time.perf_counter(), time.process_time()
    answer = action()
    times.processor.append((time.process_time() - processor) * 1e3)
    times.wall.append((time.perf_counter() - start) * 1e3)
    del answer


@contextmanager
def count_reads() -> Iterator[dict[str, int]]:
    """Counts the process's reading system calls and their bytes. Empty if not on Linux."""
    counted: dict[str, int] = {}
    before = process_reads()
    yield counted
    counted |= {name: count - before[name] for name, count in process_reads().items()}


def process_reads() -> dict[str, int]:
    """Returns the process's reading system calls and their bytes so far. Empty if not on Linux."""
    path = Path("/proc/self/io")
    if not path.exists():
        return {}
    lines = dict(line.split(": ") for line in path.read_text().splitlines())
    return {"reads": int(lines["syscr"]), "bytes": int(lines["rchar"])}


def peak_bytes() -> int:
    """Returns the largest resident size of this process so far, on Linux."""
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) * 1024


def peak_of(workload: Workload, engine: str) -> int:
    """Returns how far this process grows when it opens the data and runs all queries once."""
    before = peak_bytes()
    runner = workload.engines[engine]()
    for query in workload.queries:
        runner(query)
    return peak_bytes() - before


# --- reporting ----------------------------------------------------------------------------------


def verdict(query: dict[str, Any]) -> tuple[str, str, float]:
    """Returns wins, ties or loses, the fastest peer, and its warm processor time over ours."""
    medians = {
        name: times["warm"]["processor"]["median"] for name, times in query["engines"].items()
    }
    ours = medians.pop(OURS)
    peer = min(medians, key=medians.__getitem__)
    ratio = medians[peer] / max(ours, 1e-6)
    return ("wins" if ratio > TIE else "loses" if ratio < 1 / TIE else "ties"), peer, ratio


def report(results: dict[str, Any]) -> str:
    """Returns all results as Markdown."""
    settings = [f"{name} {value}" for name, value in results["versions"].items()]
    size = ", ".join(f"{name} {value}" for name, value in results["size"].items())
    parts = [f"{', '.join(settings)}. {results['cores']} cores. {size}."]
    head = ["", "rows", "Intarsia", "fastest peer", "peer / ours"]
    summary: Table = [head]
    for workload in results["workloads"]:
        for query in workload["queries"]:
            word, peer, ratio = verdict(query)
            label = f"{workload['name']}: {query['query']}"
            summary.append([label, f"{query['rows']:,}", word, peer, f"{ratio:.2f}"])
    parts.append(markdown(summary))
    for workload in results["workloads"]:
        parts += [f"## {workload['name']}", markdown(built_table(workload))]
        parts += [times_of_query(query) for query in workload["queries"]]
        if workload["peak_bytes"]:
            peaks = [["", "peak, MB"]]
            peaks += [[name, f"{n / 1e6:,.1f}"] for name, n in workload["peak_bytes"].items()]
            parts.append(markdown(peaks))
    points = [selectivity.Point(**point) for point in results["curve"]]
    if points:
        parts += ["## From few rows to many", "![Processor time by rows.](curve.svg)"]
        parts.append(markdown(selectivity.table_of(points, CURVE_ENGINES)))
    return "\n\n".join(parts) + "\n"


def built_table(workload: dict[str, Any]) -> Table:
    """Returns the table of sizes and build times."""
    table: Table = [["file", "MB", "index, MB", "s", "processor s"]]
    for built in workload["built"]:
        index = f"{built['index_bytes'] / 1e6:,.1f}" if "index_bytes" in built else ""
        seconds = [f"{built[name]:,.1f}" for name in ("seconds", "processor_seconds")]
        table.append([built["file"], f"{built['bytes'] / 1e6:,.1f}", index, *seconds])
    return table


def times_of_query(query: dict[str, Any]) -> str:
    """Returns the table of one query: median (minimum–maximum) in milliseconds."""
    kinds = [(state, kind) for state in ("warm", "cold") for kind in ("processor", "wall")]
    title = f"{query['query']}, {query['rows']:,} rows, {query['columns']} columns"
    table: Table = [[title, *(f"{state}, {kind} ms" for state, kind in kinds), "reads", "bytes"]]
    for name, times in query["engines"].items():
        cells = []
        for state, kind in kinds:
            ms = times[state][kind]
            cells.append(f"{ms['median']:,.1f} ({ms['min']:,.1f}–{ms['max']:,.1f})")
        counts = [f"{times[key]:,}" if key in times else "" for key in ("reads", "bytes")]
        table.append([name, *cells, *counts])
    return markdown(table)


# --- the command --------------------------------------------------------------------------------


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Runs the selected workloads. Returns the contents of ``results.json``."""
    size = SIZES[options.size]
    workloads = []
    for name in options.workloads:
        print(f"running {name}", file=sys.stderr)
        workload = WORKLOADS[name](size, options.data)
        queries = measure(workload, size.runs)
        peaks = measured_peaks(options, workload) if options.memory else {}
        workloads.append(
            {"name": name, "built": workload.built, "queries": queries, "peak_bytes": peaks}
        )
    curve = []
    if options.curve:
        path = selectivity.file_of(size.rows, options.data)
        curve = [asdict(p) for p in selectivity.measure(path, size.runs, CURVE_ENGINES)]
    versions = {name: version(name) for name in ("intarsia", *PACKAGES)}
    return {
        "versions": {"Python": platform.python_version(), **versions},
        "cores": os.cpu_count(),
        "size": asdict(size),
        "workloads": workloads,
        "curve": curve,
    }


def measured_peaks(options: argparse.Namespace, workload: Workload) -> dict[str, int]:
    """Returns the peak of each engine, each measured in a process of its own."""
    command = [sys.executable, __file__, "--size", options.size, "--data", str(options.data)]
    peaks = {}
    for engine in workload.engines:
        arguments = [*command, "--peak", workload.name, engine]
        done = subprocess.run(arguments, capture_output=True, text=True, check=True)
        peaks[engine] = int(done.stdout)
    return peaks


def write(results: dict[str, Any], folder: Path) -> None:
    """Writes JSON, Markdown and, with a curve, SVG into ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "results.json").write_text(json.dumps(results, indent=1))
    (folder / "results.md").write_text(report(results))
    if results["curve"]:
        points = [selectivity.Point(**point) for point in results["curve"]]
        (folder / "curve.svg").write_text(selectivity.plot(points))


def main() -> None:
    """Runs the selected workloads, prints the report and writes the files."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--size", choices=SIZES, default="bench")
    parser.add_argument("--data", type=Path, default=DATA, help="folder of the data, made once")
    parser.add_argument("--output", type=Path, default=OUTPUT)
    parser.add_argument("--workloads", nargs="+", choices=WORKLOADS, default=list(WORKLOADS))
    parser.add_argument("--no-curve", dest="curve", action="store_false")
    parser.add_argument("--memory", action="store_true", help="also measure peak memory")
    parser.add_argument("--peak", nargs=2, metavar=("WORKLOAD", "ENGINE"))
    options = parser.parse_args()
    if options.peak:
        name, engine = options.peak
        print(peak_of(WORKLOADS[name](SIZES[options.size], options.data), engine))
        return
    write(run(options), options.output)
    print((options.output / "results.md").read_text())


if __name__ == "__main__":
    main()
    leave()
