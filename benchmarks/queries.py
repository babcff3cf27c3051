"""Selective questions asked of ten million rows, beside the peers: ``make bench``.

In each of several rounds every engine answers once, in an order drawn for the round, so that none
always comes after the same one. Medians are over rounds; so are ratios, each taken within one
round, against whichever peer was quickest in it. Beside them stand Intarsia with the file opened
anew (``cold``, the page cache still warm) and the floor: pyarrow decoding the pages a page-precise
read cannot do without.
``--grow`` asks for one row of ten times as many as well, and of nothing else.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from floor import Floor, Shares, counted, shares
from logs import facts_of, logs, without_indexes
from peers import ENGINES, OURS, Ask, Question, fingerprint, leave, questions

DATA = Path(__file__).parents[1] / "bench-data"
PACKAGES = ("duckdb", "polars", "datafusion", "pyarrow")
FLOOR, COLD = "floor", "cold"
FLOOR_TIMES, FLOOR_MS = 1.5, 1.0
"""A question of an index takes at most this many floors, and as many milliseconds on top."""
GROWTH = 1.3
"""Ten times the rows may make a lookup at most so many times slower."""


@dataclass(frozen=True)
class Result:
    """What came of one question. Times are medians in milliseconds."""

    name: str
    text: str
    rows: int
    ms: dict[str, float]
    times: float | None
    """How many times as quick as the quickest of ``against``, or of all where that is empty."""
    goal: float
    met: bool | None
    floors: float | None
    """How many times the floor's time."""
    floor_met: bool | None
    bytes_warm: int
    bytes_cold: int
    bytes_matching: int | None
    bytes_most: int | None
    bytes_met: bool | None
    shares: Shares | None


# --- measuring ----------------------------------------------------------------------------------


def rounds(actions: dict[str, Callable[[], Any]], runs: int) -> dict[str, list[float]]:
    """Milliseconds of each action in each of ``runs`` rounds, after one that does not count."""
    order = random.Random(len(actions))
    found: dict[str, list[float]] = {name: [] for name in actions}
    for run in range(-1, runs):
        for name in order.sample(list(actions), len(actions)):
            start = time.perf_counter()
            answer = actions[name]()
            took = (time.perf_counter() - start) * 1000
            del answer
            if run >= 0:
                found[name].append(took)
    return found


def ask(path: Path, asked: Question, engines: dict[str, Ask], runs: int) -> Result:
    """Put one question to all. Raises ``AssertionError`` where they disagree."""
    _check_answers(asked, engines)
    actions = {name: (lambda answer=answer: answer(asked)) for name, answer in engines.items()}

    def cold() -> Any:
        return ENGINES[OURS](path)(asked)

    with counted() as total:
        cold()
        bytes_cold = total()
    with counted() as total:
        actions[OURS]()
        bytes_warm = total()
    floor = Floor(path, asked) if asked.arrow is not None else None
    if floor is not None:
        actions |= {COLD: cold, FLOOR: floor.decode}
    found = rounds(actions, runs)
    ms = {name: statistics.median(times) for name, times in found.items()}
    times = _times(asked, engines, found)
    held = floor is not None and asked.key is not None
    return Result(
        asked.name,
        asked.text,
        asked.rows,
        ms,
        times,
        asked.times,
        None if times is None else times >= asked.times,
        floors=ratio_of(found[OURS], found[FLOOR]) if floor else None,
        floor_met=ms[OURS] <= FLOOR_TIMES * ms[FLOOR] + FLOOR_MS if held else None,
        bytes_warm=bytes_warm,
        bytes_cold=bytes_cold,
        bytes_matching=floor.matching_bytes if floor else None,
        bytes_most=floor.most_bytes if floor else None,
        bytes_met=bytes_warm <= floor.most_bytes if held else None,
        shares=shares(actions[OURS]) if floor else None,
    )


def _check_answers(asked: Question, engines: dict[str, Ask]) -> None:
    found = {name: fingerprint(answer(asked), asked.columns) for name, answer in engines.items()}
    if len(set(found.values())) != 1 or found[OURS][0] != asked.rows:
        raise AssertionError(f"{asked.text}: {asked.rows} rows were expected, found were {found}")


def _times(asked: Question, engines: dict[str, Ask], found: dict[str, list[float]]) -> float | None:
    peers = [n for n in engines if n != OURS and (not asked.against or n in asked.against)]
    if not peers:
        return None
    best = [min(times) for times in zip(*(found[name] for name in peers), strict=True)]
    return ratio_of(best, found[OURS])


def ratio_of(above: Sequence[float], below: Sequence[float]) -> float:
    """How many times as long one took as another, as the median of the rounds' own ratios."""
    return statistics.median(a / b for a, b in zip(above, below, strict=True))


def grow(rows: int, folder: Path, runs: int) -> dict[str, Any]:
    """The lookup of one row in ``rows`` and in ten times as many, in one file each."""
    actions = {}
    for count in (rows, 10 * rows):
        path = logs(count, folder)
        asked = questions(facts_of(path))[0]
        engine = ENGINES[OURS](path)
        _check_answers(asked, {OURS: engine})
        actions[f"{count:,}"] = lambda engine=engine, asked=asked: engine(asked)
    found = rounds(actions, runs)
    small, large = found.values()
    ratio = ratio_of(large, small)
    ms = {name: statistics.median(times) for name, times in found.items()}
    return {"ms": ms, "ratio": ratio, "most": GROWTH, "met": ratio <= GROWTH}


# --- telling ------------------------------------------------------------------------------------

Table = list[list[str]]
"""Rows of cells; the first has the headings."""


def times_table(results: Sequence[Result]) -> Table:
    """Everyone's medians, and the ratio there is a goal for."""
    engines = [name for name in results[0].ms if name not in (FLOOR, COLD)]
    rows = [["all columns, ms", "rows", *engines, "best peer / ours", "goal", "met"]]
    for found in results:
        medians = [_milliseconds(found.ms[name]) for name in engines]
        goal = [_number(found.times), f"{found.goal:.3g}", _verdict(found.met)]
        rows.append([found.text, f"{found.rows:,}", *medians, *goal])
    return rows


def floors_table(results: Sequence[Result]) -> Table:
    """Where our time and bytes go, of questions with a condition."""
    head = ["", "ours", "cold", "floor", "ours / floor", "met"]
    head += ["pyarrow", "storage", "Intarsia", "bytes", "at most", "met", "cold"]
    rows = [head]
    for found in results:
        if found.shares is None:
            continue
        parts = (found.shares.pyarrow, found.shares.storage, found.shares.ours)
        rows.append(
            [
                found.text,
                *(_milliseconds(found.ms[name]) for name in (OURS, COLD, FLOOR)),
                _number(found.floors),
                _verdict(found.floor_met),
                *(f"{part:.0%}" for part in parts),
                f"{found.bytes_warm:,}",
                "" if found.bytes_most is None else f"{found.bytes_most:,}",
                _verdict(found.bytes_met),
                f"{found.bytes_cold:,}",
            ]
        )
    return rows


def growth_table(growth: dict[str, Any]) -> Table:
    """One row of few and of many."""
    sizes = [f"{rows} rows, ms" for rows in growth["ms"]]
    medians = [_milliseconds(ms) for ms in growth["ms"].values()]
    verdict = [f"{growth['ratio']:.2f}", f"{growth['most']}", _verdict(growth["met"])]
    return [[*sizes, "ratio", "at most", "met"], [*medians, *verdict]]


def markdown(table: Table) -> str:
    """As it stands in ``docs/performance.md``."""
    rule = ["---", *["---:"] * (len(table[0]) - 1)]
    return "\n".join("| " + " | ".join(row) + " |" for row in [table[0], rule, *table[1:]])


def padded(table: Table) -> str:
    """For a terminal."""
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
    """Everything that was asked for, as it goes into JSON."""
    if options.grow:
        return {"growth": grow(options.rows, options.data, options.runs)}
    path = logs(options.rows, options.data)
    asked = [
        q for q in questions(facts_of(path)) if not options.queries or q.name in options.queries
    ]
    names = [n for n in ENGINES if n == OURS or not options.engines or n in options.engines]
    plain = without_indexes(path) if options.plain else path
    engines = {name: ENGINES[name](path if name == OURS else plain) for name in names}
    results = []
    for question in asked:
        print(f"asking {question.text}", file=sys.stderr)
        results.append(ask(path, question, engines, options.runs))
    versions = {name: version(name) for name in PACKAGES}
    return {
        "rows": options.rows,
        "runs": options.runs,
        "cores": os.cpu_count(),
        "bytes": path.stat().st_size,
        "versions": versions,
        "results": results,
    }


def tell(found: dict[str, Any], show: Callable[[Table], str]) -> str:
    """What was found, for people."""
    if "growth" in found:
        return show(growth_table(found["growth"]))
    versions = ", ".join(f"{name} {number}" for name, number in found["versions"].items())
    facts = f"{found['rows']:,} rows, {found['bytes']:,} bytes, {found['runs']} rounds, {versions}"
    tables = (times_table(found["results"]), floors_table(found["results"]))
    return "\n\n".join([facts, *(show(table) for table in tables if len(table) > 1)])


def names(text: str) -> list[str]:
    """Names with commas between them."""
    return [name.strip() for name in text.split(",")]


def main(arguments: Sequence[str] | None = None) -> None:
    """Print what ``arguments`` ask for."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--queries", type=names, help="trace_id, user_id, ts, status, msg, full")
    parser.add_argument("--engines", type=names, help=", ".join(ENGINES))
    parser.add_argument("--data", type=Path, default=DATA, help="folder that keeps the table")
    parser.add_argument("--plain", action="store_true", help="peers read it without our indexes")
    parser.add_argument("--grow", action="store_true", help="a lookup, in ten times the rows too")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true")
    form.add_argument("--markdown", action="store_true")
    options = parser.parse_args(arguments)
    found = run(options)
    if options.json:
        print(json.dumps(found, default=asdict, indent=1))
    else:
        print(tell(found, markdown if options.markdown else padded))


if __name__ == "__main__":
    main()
    leave()
