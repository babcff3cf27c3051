"""Compares Intarsia with its peers on several workloads: ``make bench`` and ``make bench-full``.

The workloads are:

- the log table of ``logs.py``
- the same table as DuckDB and Polars write it by default: as it comes, and with lookups added
- TPC-H's line items, and its orders with lists of items
- attributes in maps, lists and JSON, a web log, and the changelogs of Debian's packages
- many small files, and a table of many columns
- the curve from few rows of the log table to all of them
- lookups a second (``service.py``), requests to S3 (``remote.py``), and more rows (``large.py``).

The peers read the same rows without Intarsia's indexes, in the longer pages that suit them. On the
log table they also run on layouts that suit them better: a copy sorted by ``trace_id`` with page
indexes and bloom filters, and a DuckDB table with an ART index on each key. All answers are
compared before anything is timed. Each engine runs once in each round, in an order drawn for the
round. Infino searches the changelogs too, if it is installed.

- *warm*: the data set is open. *cold*: it is opened for each query, with its bytes in the page
  cache.
- *ms*: median, fastest and slowest round, of wall time and of processor time.
- *reads* and *bytes*: system calls that read, and their bytes, of a cold query on Linux. Reads of
  memory-mapped files are not counted, which Polars uses.
- *peak* (``--memory``): the growth of a process that opens the data and runs all queries once.

The folder ``build/bench`` receives ``results.json``, ``results.md`` and ``curve.svg``. ``--docs``
also writes ``docs/benchmark.md`` and its plots.
"""

from __future__ import annotations

import argparse
import functools
import importlib.util
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

import bench_page
import large
import remote
import selectivity
import service
from bench_report import CURVE_ENGINES, report
from memory import growth_of
from peers import OURS, Query, Runner, fingerprint, leave
from queries import DATA, PACKAGES, measure_rounds
from workloads import SIZES, WORKLOADS, Size, SkippedError, Workload

OUTPUT = Path(__file__).parents[1] / "build" / "bench"


# --- measuring ----------------------------------------------------------------------------------


def measure(workload: Workload, runs: int) -> list[dict[str, Any]]:
    """Returns the measurements of each query. Raises ``AssertionError`` if answers differ."""
    opened = {name: open_() for name, open_ in workload.engines.items()}
    measured = []
    for query in workload.queries:
        warm = {name: run for name, run in opened.items() if name not in query.unsupported}
        measured.append(measure_query(workload, query, warm, runs))
    return measured


def measure_query(
    workload: Workload, query: Query, warm: dict[str, Runner], runs: int
) -> dict[str, Any]:
    """Returns the measurements of one query by all engines."""
    check_answers(workload, query, warm)
    reads: dict[str, dict[str, int]] = {}

    def run_cold(name: str) -> None:
        if name in reads:
            workload.engines[name]()(query)
            return
        with count_reads() as reads[name]:
            workload.engines[name]()(query)

    actions: dict[tuple[str, str], Callable[[], object]] = {}
    for name, runner in warm.items():
        actions[name, "warm"] = functools.partial(runner, query)
        actions[name, "cold"] = functools.partial(run_cold, name)
    times = measure_rounds(actions, runs)
    return {
        "query": query.text,
        "rows": query.rows,
        "columns": len(query.columns),
        "engines": {
            name: {state: times[name, state].summary() for state in ("warm", "cold")} | reads[name]
            for name in warm
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


def peak_of(workload: Workload, engine: str) -> int:
    """Returns how far this process grows when it opens the data and runs all queries once."""

    def work() -> None:
        runner = workload.engines[engine]()
        for query in workload.queries:
            if engine not in query.unsupported:
                runner(query)

    return growth_of(work)


def measure_curve(size: Size, data: Path) -> list[dict[str, Any]]:
    """Returns the points of the curve from few rows to all."""
    path = selectivity.file_of(size.rows, data)
    runs = -(-size.runs // 2)
    return [asdict(point) for point in selectivity.measure(path, runs, CURVE_ENGINES)]


def measure_service(size: Size, data: Path) -> list[dict[str, Any]]:
    """Returns the lines of ``service.py``, which forks processes that must not have threads."""
    options = {
        "rows": size.rows,
        "files": min(size.files, 500),
        "seconds": size.seconds,
        "data": data,
    }
    command = [sys.executable, service.__file__, "--json"]
    command += [f"--{name}={value}" for name, value in options.items()]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout)


PARTS: dict[str, Callable[[Size, Path], list[dict[str, Any]]]] = {
    "curve": measure_curve,
    "service": measure_service,
    "remote": lambda size, data: remote.measure(size.rows // 10, 20),
    "large": lambda size, data: large.measure(size.lakes, size.catalog_files, 50, data),
}
"""Measurements that compare other things than the time of one query."""


# --- the command --------------------------------------------------------------------------------


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Runs the selected workloads. Returns the contents of ``results.json``."""
    size = SIZES[options.size]
    workloads, skipped, parts = [], {}, {}
    for name in options.workloads:
        with print_seconds(name):
            if name in PARTS:
                parts[name] = PARTS[name](size, options.data)
                continue
            try:
                workload = WORKLOADS[name](size, options.data)
            except SkippedError as reason:
                print(f"{name} is skipped: {reason}", file=sys.stderr)
                skipped[name] = str(reason)
                continue
            queries = measure(workload, size.runs)
            peaks = measured_peaks(options, workload) if options.memory else {}
            workloads.append(
                {"name": name, "built": workload.built, "queries": queries, "peak_bytes": peaks}
            )
    optional = [name for name in ("infino",) if importlib.util.find_spec(name)]
    versions = {name: version(name) for name in ("intarsia", *PACKAGES, *optional)}
    return {
        "versions": {"Python": platform.python_version(), **versions},
        "cores": os.cpu_count(),
        "size": asdict(size),
        "workloads": workloads,
        "skipped": skipped,
        **{name: parts.get(name, []) for name in PARTS},
    }


@contextmanager
def print_seconds(name: str) -> Iterator[None]:
    """Prints when a workload begins, and how long it took."""
    print(f"running {name}", file=sys.stderr)
    start = time.perf_counter()
    yield
    print(f"{name} took {time.perf_counter() - start:.0f} s", file=sys.stderr)


def measured_peaks(options: argparse.Namespace, workload: Workload) -> dict[str, int]:
    """Returns the peak of each engine, each measured in a process of its own, on all cores."""
    command = [sys.executable, __file__, "--size", options.size, "--data", str(options.data)]

    def peak(engine: str) -> int:
        arguments = [*command, "--peak", workload.name, engine]
        done = subprocess.run(arguments, capture_output=True, text=True, check=True)
        return int(done.stdout)

    with ThreadPoolExecutor(os.cpu_count()) as processes:
        return dict(zip(workload.engines, processes.map(peak, workload.engines), strict=True))


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
    names = [*WORKLOADS, *PARTS]
    parser.add_argument("--size", choices=SIZES, default="bench")
    parser.add_argument("--data", type=Path, default=DATA, help="folder of the data, made once")
    parser.add_argument("--output", type=Path, default=OUTPUT)
    parser.add_argument("--workloads", nargs="+", choices=names, default=names)
    parser.add_argument(
        "--docs",
        nargs="?",
        type=Path,
        const=bench_page.DOCS,
        help="also write the page of the documents into this folder",
    )
    parser.add_argument("--memory", action="store_true", help="also measure peak memory")
    parser.add_argument("--peak", nargs=2, metavar=("WORKLOAD", "ENGINE"))
    options = parser.parse_args()
    if options.peak:
        name, engine = options.peak
        print(peak_of(WORKLOADS[name](SIZES[options.size], options.data), engine))
        return
    results = run(options)
    write(results, options.output)
    known = (bench_page.DOCS / bench_page.PAGE).read_text()
    if options.docs:
        bench_page.write_page(results, options.docs)
    print((options.output / "results.md").read_text())
    if options.size == "bench":  # that of the page
        print(bench_page.ratios_outside(results, known))


if __name__ == "__main__":
    main()
    leave()
