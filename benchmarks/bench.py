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
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

import selectivity
from bench_report import CURVE_ENGINES, report
from peers import OURS, Query, Runner, fingerprint, leave
from queries import DATA, PACKAGES, measure_rounds
from workloads import SIZES, WORKLOADS, Workload

OUTPUT = Path(__file__).parents[1] / "build" / "bench"


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
    reads, actions = {}, {}
    for name, open_ in workload.engines.items():
        with count_reads() as counted:
            open_()(query)
        reads[name] = counted
        actions[name, "warm"] = functools.partial(warm[name], query)
        actions[name, "cold"] = lambda open_=open_: open_()(query)
    times = measure_rounds(actions, runs)
    return {
        "query": query.text,
        "rows": query.rows,
        "columns": len(query.columns),
        "engines": {
            name: {state: times[name, state].summary() for state in ("warm", "cold")} | counted
            for name, counted in reads.items()
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
