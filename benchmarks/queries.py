"""Compares selective queries of ten million rows in Intarsia and its peers.

The data is the table of ``logs.py``, 10,000,000 rows by default, with its lookup indexes.
Each engine runs once in each of several rounds, in an order drawn for the round. All times are
wall time in milliseconds, medians over rounds. Ratios are medians of the rounds' own ratios, each
against the peer that was fastest in the round.

Two more columns are times of Intarsia. ``cold`` opens the file for each query, with its bytes
still in the page cache. ``floor`` is pyarrow decoding only the pages that must be decoded.
``python benchmarks/queries.py --grow`` instead compares the lookup of one row in a table with the
lookup in one ten times as large. ``--json`` and ``--markdown`` choose the format.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import sys
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeVar

from floor import Floor, Shares, count_bytes, shares
from logs import facts_of, log_file, without_indexes
from peers import ENGINES, OURS, Query, Runner, fingerprint, leave, queries_of

DATA = Path(__file__).parents[1] / "bench-data"
PACKAGES = ("duckdb", "polars", "datafusion", "pyarrow")
FLOOR, COLD = "floor", "cold"
FLOOR_TIMES, FLOOR_MS = 1.5, 1.0
"""A query of an index may take this multiple of the floor, and these milliseconds on top."""
GROWTH = 1.3
"""Maximum ratio of a lookup's time in ten times the rows to its time in the rows."""
Name = TypeVar("Name", bound=Hashable)


@dataclass(frozen=True)
class Result:
    """The measurements of one query. Times are medians of wall times in milliseconds."""

    name: str
    text: str
    rows: int
    ms: dict[str, float]
    times: float | None
    """The fastest peer's time divided by ours. Only the peers in ``against`` count, if any."""
    goal: float
    met: bool | None
    floors: float | None
    """Our time divided by the floor's time."""
    floor_met: bool | None
    bytes_warm: int
    bytes_cold: int
    bytes_matching: int | None
    bytes_most: int | None
    bytes_met: bool | None
    shares: Shares | None


# --- measuring ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Times:
    """Milliseconds of the rounds of one action."""

    wall: list[float] = field(default_factory=list)
    processor: list[float] = field(default_factory=list)

    def add(self, action: Callable[[], object]) -> None:
        """Runs ``action`` and adds its times."""
        start, processor = time.perf_counter(), time.process_time()
        answer = action()
        self.processor.append((time.process_time() - processor) * 1e3)
        self.wall.append((time.perf_counter() - start) * 1e3)
        del answer

    def summary(self) -> dict[str, dict[str, float]]:
        """Returns the median, the minimum and the maximum of both."""
        return {
            name: {"median": statistics.median(ms), "min": min(ms), "max": max(ms)}
            for name, ms in asdict(self).items()
        }


def measure_rounds(actions: Mapping[Name, Callable[[], object]], runs: int) -> dict[Name, Times]:
    """Runs each action once a round, in an order drawn for the round. Returns their times."""
    order = random.Random(len(actions))
    times = {name: Times() for name in actions}
    for _ in range(runs):
        for name in order.sample(list(actions), len(actions)):
            times[name].add(actions[name])
    return times


def time_rounds(actions: dict[str, Callable[[], Any]], runs: int) -> dict[str, list[float]]:
    """Returns each action's wall times in ms, by round, after a round that is not counted."""
    return {name: times.wall[1:] for name, times in measure_rounds(actions, runs + 1).items()}


def measure(path: Path, query: Query, engines: dict[str, Runner], runs: int) -> Result:
    """Runs one query in all engines.

    Raises ``AssertionError`` if their answers differ.
    """
    _check_answers(query, engines)
    actions = {name: (lambda runner=runner: runner(query)) for name, runner in engines.items()}

    def cold() -> Any:
        return ENGINES[OURS](path)(query)

    with count_bytes() as total:
        cold()
        bytes_cold = total()
    with count_bytes() as total:
        actions[OURS]()
        bytes_warm = total()
    floor = Floor(path, query) if query.arrow is not None else None
    if floor is not None:
        actions |= {COLD: cold, FLOOR: floor.decode}
    times_of = time_rounds(actions, runs)
    ms = {name: statistics.median(times) for name, times in times_of.items()}
    times = _times(query, engines, times_of)
    has_goals = floor is not None and query.key is not None
    return Result(
        query.name,
        query.text,
        query.rows,
        ms,
        times,
        query.times,
        None if times is None else times >= query.times,
        floors=median_ratio(times_of[OURS], times_of[FLOOR]) if floor else None,
        floor_met=ms[OURS] <= FLOOR_TIMES * ms[FLOOR] + FLOOR_MS if has_goals else None,
        bytes_warm=bytes_warm,
        bytes_cold=bytes_cold,
        bytes_matching=floor.matching_bytes if floor else None,
        bytes_most=floor.most_bytes if floor else None,
        bytes_met=bytes_warm <= floor.most_bytes if has_goals else None,
        shares=shares(actions[OURS]) if floor else None,
    )


def _check_answers(query: Query, engines: dict[str, Runner]) -> None:
    fingerprints = {
        name: fingerprint(answer(query), query.columns) for name, answer in engines.items()
    }
    if len(set(fingerprints.values())) != 1 or fingerprints[OURS][0] != query.rows:
        raise AssertionError(f"{query.text}: expected {query.rows} rows, not {fingerprints}")


def _times(
    query: Query, engines: dict[str, Runner], times_of: dict[str, list[float]]
) -> float | None:
    peers = [n for n in engines if n != OURS and (not query.against or n in query.against)]
    if not peers:
        return None
    best = [min(times) for times in zip(*(times_of[name] for name in peers), strict=True)]
    return median_ratio(best, times_of[OURS])


def median_ratio(above: Sequence[float], below: Sequence[float]) -> float:
    """Returns how many times as long one took as another: the median of the rounds' ratios."""
    return statistics.median(a / b for a, b in zip(above, below, strict=True))


def grow(rows: int, folder: Path, runs: int) -> dict[str, Any]:
    """Compares the lookup of one row in ``rows`` and in ten times as many, in one file each."""
    actions = {}
    for count in (rows, 10 * rows):
        path = log_file(count, folder)
        query = queries_of(facts_of(path))[0]
        runner = ENGINES[OURS](path)
        _check_answers(query, {OURS: runner})
        actions[f"{count:,}"] = lambda runner=runner, query=query: runner(query)
    times_of = time_rounds(actions, runs)
    small, large = times_of.values()
    ratio = median_ratio(large, small)
    ms = {name: statistics.median(times) for name, times in times_of.items()}
    return {"ms": ms, "ratio": ratio, "most": GROWTH, "met": ratio <= GROWTH}


# --- reporting ----------------------------------------------------------------------------------

Table = list[list[str]]
"""Rows of cells; the first has the headings."""


def times_table(results: Sequence[Result]) -> Table:
    """Returns the table of all median times, and of the ratios with their goals."""
    engines = [name for name in results[0].ms if name not in (FLOOR, COLD)]
    rows = [["all columns, ms", "rows", *engines, "best peer / ours", "goal", "met"]]
    for result in results:
        medians = [_milliseconds(result.ms[name]) for name in engines]
        goal = [_number(result.times), f"{result.goal:.3g}", _verdict(result.met)]
        rows.append([result.text, f"{result.rows:,}", *medians, *goal])
    return rows


def floors_table(results: Sequence[Result]) -> Table:
    """Returns the table of how our time and bytes are divided, for queries with a condition."""
    head = ["", "ours", "cold", "floor", "ours / floor", "met"]
    head += ["pyarrow", "storage", "Intarsia", "bytes", "at most", "met", "cold"]
    rows = [head]
    for result in results:
        if result.shares is None:
            continue
        parts = (result.shares.pyarrow, result.shares.storage, result.shares.ours)
        rows.append(
            [
                result.text,
                *(_milliseconds(result.ms[name]) for name in (OURS, COLD, FLOOR)),
                _number(result.floors),
                _verdict(result.floor_met),
                *(f"{part:.0%}" for part in parts),
                f"{result.bytes_warm:,}",
                "" if result.bytes_most is None else f"{result.bytes_most:,}",
                _verdict(result.bytes_met),
                f"{result.bytes_cold:,}",
            ]
        )
    return rows


def growth_table(growth: dict[str, Any]) -> Table:
    """Returns the table of one lookup in few rows and in many."""
    sizes = [f"{rows} rows, ms" for rows in growth["ms"]]
    medians = [_milliseconds(ms) for ms in growth["ms"].values()]
    verdict = [f"{growth['ratio']:.2f}", f"{growth['most']}", _verdict(growth["met"])]
    return [[*sizes, "ratio", "at most", "met"], [*medians, *verdict]]


def markdown(table: Table) -> str:
    """Formats a table as in ``docs/performance.md``. Columns of sentences are at the left."""
    columns = [*zip(*table, strict=True)][1:]
    is_prose = [any(cell.endswith(".") for cell in column) for column in columns]
    rule = ["---", *("---" if prose else "---:" for prose in is_prose)]
    return "\n".join("| " + " | ".join(row) + " |" for row in [table[0], rule, *table[1:]])


def padded(table: Table) -> str:
    """Formats a table for a terminal."""
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    lines = []
    for first, *rest in table:
        cells = [cell.rjust(width) for cell, width in zip(rest, widths[1:], strict=True)]
        lines.append("  ".join([first.ljust(widths[0]), *cells]))
    return "\n".join(lines)


def _milliseconds(value: float) -> str:
    return f"{value:.1f}" if value < 100 else f"{value:,.0f}"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}" if value < 10 else f"{value:.1f}"


def _verdict(met: bool | None) -> str:
    return "" if met is None else "yes" if met else "no"


# --- the command --------------------------------------------------------------------------------


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Runs the benchmark that the options select. Returns the contents of the JSON output."""
    if options.grow:
        return {"growth": grow(options.rows, options.data, options.runs)}
    path = log_file(options.rows, options.data)
    selected = [
        q for q in queries_of(facts_of(path)) if not options.queries or q.name in options.queries
    ]
    names = [n for n in ENGINES if n == OURS or not options.engines or n in options.engines]
    plain = without_indexes(path) if options.plain else path
    engines = {name: ENGINES[name](path if name == OURS else plain) for name in names}
    results = []
    for query in selected:
        print(f"running {query.text}", file=sys.stderr)
        results.append(measure(path, query, engines, options.runs))
    versions = {name: version(name) for name in PACKAGES}
    return {
        "rows": options.rows,
        "runs": options.runs,
        "cores": os.cpu_count(),
        "bytes": path.stat().st_size,
        "versions": versions,
        "results": results,
    }


def report_of(output: dict[str, Any], show: Callable[[Table], str]) -> str:
    """Returns the results as text, with tables formatted by ``show``."""
    if "growth" in output:
        return show(growth_table(output["growth"]))
    versions = ", ".join(f"{name} {number}" for name, number in output["versions"].items())
    facts = (
        f"{output['rows']:,} rows, {output['bytes']:,} bytes, {output['runs']} rounds, {versions}"
    )
    tables = (times_table(output["results"]), floors_table(output["results"]))
    return "\n\n".join([facts, *(show(table) for table in tables if len(table) > 1)])


def names(text: str) -> list[str]:
    """Splits names at commas."""
    return [name.strip() for name in text.split(",")]


def main(arguments: Sequence[str] | None = None) -> None:
    """Prints the results that ``arguments`` select."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--queries", type=names, help="trace_id, user_id, ts, status, msg, full")
    parser.add_argument("--engines", type=names, help=", ".join(ENGINES))
    parser.add_argument(
        "--data", type=Path, default=DATA, help="folder of the table, which is made once"
    )
    parser.add_argument(
        "--plain", action="store_true", help="peers read a copy without lookup indexes"
    )
    parser.add_argument(
        "--grow",
        action="store_true",
        help="only compare one lookup in the rows and in ten times as many",
    )
    formats = parser.add_mutually_exclusive_group()
    formats.add_argument("--json", action="store_true")
    formats.add_argument("--markdown", action="store_true")
    options = parser.parse_args(arguments)
    results = run(options)
    if options.json:
        print(json.dumps(results, default=asdict, indent=1))
    else:
        print(report_of(results, markdown if options.markdown else padded))


if __name__ == "__main__":
    main()
    leave()
