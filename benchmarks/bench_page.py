"""Writes the page of the documents that says where Intarsia wins, ties and loses, and why."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import large
import remote
import selectivity
import service
from bar_plot import bar_plot
from bench_report import CURVE_ENGINES, TIE, built_table, shown, verdict
from peers import OURS
from queries import Table, markdown
from workloads import ART, SORTED

DOCS = Path(__file__).parents[1] / "docs"
PAGE, RATIOS, CURVE = "benchmark.md", "benchmark-ratios.svg", "benchmark-curve.svg"
EVERYWHERE = "Matching rows lie on every page, so no page can be skipped."
DECOMPRESSION = (
    "All pages of the column are decompressed and searched. That alone takes Arrow about as long "
    "as the peer's query."
)
PYTHON = "Planning in Python takes more than half of the time."
REASONS = (
    ("", "trace_id", ART, "DuckDB's table: its index leads to the row, and no page is decoded."),
    ("", "user_id", ART, "DuckDB's table: its index leads to the rows, and no page is decoded."),
    ("", "trace_id", SORTED, "The peer's file is sorted by the key: statistics leave one place."),
    (
        "",
        "status = 500 AND latency",
        "",
        f"{EVERYWHERE} pyarrow decodes all their values, the peers skip some.",
    ),
    ("", "full read", "", "Nothing can be skipped, so pyarrow's own scanner reads the columns."),
    (
        "small files",
        "",
        "",
        "Each file costs planning in Python, and a check whether it was replaced.",
    ),
    ("logs", "ts", ART, f"DuckDB's table: no page is decompressed. {PYTHON}"),
    ("logs", "msg LIKE", "", DECOMPRESSION),
    ("lineitem", "l_orderkey", "", PYTHON),
    (
        "lineitem",
        "l_partkey",
        "",
        "Nearly each match lies on a page of its own, and decoding these takes two thirds of the "
        "time.",
    ),
    (
        "orders",
        "",
        "",
        "Planning, and counting the rows on pages of the list column, are done in Python and take "
        "half of the time.",
    ),
    ("wide table", "3 columns", "", "Planning in Python takes most of the time."),
    (
        "wide table",
        "2,001",
        "",
        "Pages would skip a fifth of a column, so pyarrow decodes the columns whole. That alone "
        "takes twice the peer's time.",
    ),
    (
        "lookups added",
        "",
        "",
        "The matches' row groups have long pages, which are decompressed whole. That alone takes "
        "Arrow about as long as the peer's query.",
    ),
    (
        "file by",
        "ts",
        "",
        "Pages are long, and those of the matching row group are decompressed whole. That takes "
        "most of the time.",
    ),
    ("file by", "", "", f"There is no index. {DECOMPRESSION}"),
    ("web log", "most frequent", "", EVERYWHERE),
    ("web log", "tools", "", EVERYWHERE),
    ("changelogs", "frequent", "", EVERYWHERE),
    ("changelogs", "everywhere", "", EVERYWHERE),
)
"""Reasons of losses. Each has parts of the workload's name, of the query and of the peer's name.

``decompression.py`` measures the time for decompression. Profiles gave the shares of Python.
"""
INTRODUCTION = """# Benchmark

One run of one command wrote this page. It leaves nothing out that is lost.

```sh
make bench BENCH=--docs
```
"""
SMOKE = "This run had the size `smoke`, which only tests the command. Its times mean nothing.\n"
METHOD = f"""- Each query is compared with its fastest peer, in the layout that suits the peer best.
- "Intarsia" is `Dataset.to_table` with Intarsia's own readers. `ia.sql` and `ia.polars.scan` leave
  files of which little can be skipped to DuckDB and Polars.
- Times are medians of processor time in milliseconds. Data is open, or newly opened for each
  query. The rounds of all engines take turns, and all answers are compared before.
- The ratio is the peer's time by ours with open data. In parentheses are the lowest and the
  highest ratio of any two rounds. Ratios up to {TIE} in either direction are ties.
- If a DuckDB table is the fastest peer, the fastest one on Parquet is named as well.
- `benchmarks/decompression.py` measures the decompression that some reasons name.
- [Performance](performance.md) has longer comparisons, and says how to run one yourself."""


def reason_of(workload: str, query: str, peer: str) -> str:
    """Returns why Intarsia loses a query against a peer, in words."""
    labels = workload, query, peer
    for *parts, reason in REASONS:
        if all(part in label for part, label in zip(parts, labels, strict=True)):
            return reason
    return "Not known yet."


def queries_table(results: dict[str, Any], word: str) -> Table:
    """Returns the queries with one verdict. Losses have a reason."""
    head = ["query", "rows", OURS, "newly opened", "fastest peer", "ms", "newly opened", "ratio"]
    table: Table = [[*head, "why"] if word == "loses" else head]
    for workload in results["workloads"]:
        for query in workload["queries"]:
            actual, peer, ratio = verdict(query)
            if actual == word:
                ours, theirs = (query["engines"][name] for name in (OURS, peer))
                own, other = (times["warm"]["processor"] for times in (ours, theirs))
                low, high = other["min"] / own["max"], other["max"] / own["min"]
                label = f"{workload['name']}: {query['query']}"
                line = [label, f"{query['rows']:,}", *medians(ours)]
                line += [peer_label(query, peer), *medians(theirs)]
                line.append(f"{ratio:.2f} ({low:.2f}–{high:.2f})")
                if word == "loses":
                    line.append(reason_of(workload["name"], query["query"], peer))
                table.append(line)
    return table


def ratios_outside(results: dict[str, Any], page: str) -> str:
    """Returns which queries have a ratio outside of the spread that a page gives, in words."""
    spreads = {
        label: (float(low), float(high))
        for label, low, high in re.findall(
            r"^\| (.+?) \| .* \| [\d.]+ \(([\d.]+)–([\d.]+)\) \|", page, re.MULTILINE
        )
    }
    outside, count = [], 0
    for workload in results["workloads"]:
        for query in workload["queries"]:
            label, ratio = f"{workload['name']}: {query['query']}", verdict(query)[2]
            if label in spreads:
                low, high = spreads[label]
                count += 1
                if not low <= round(ratio, 2) <= high:
                    outside.append(f"- {label}: {ratio:.2f}, not {low:.2f} to {high:.2f}")
    within = f"{count - len(outside)} of {count} ratios lie within the spreads of docs/{PAGE}."
    return "\n".join([within, *outside])


def peer_label(query: dict[str, Any], peer: str) -> str:
    """Returns the fastest peer's name; for DuckDB's table also the fastest peer on Parquet."""
    if peer != ART:
        return peer
    engines = {name: times for name, times in query["engines"].items() if name != ART}
    _, other, _ = verdict({"engines": engines})
    return f"{peer} (on Parquet {other}, {medians(engines[other])[0]})"


def medians(times: dict[str, Any]) -> list[str]:
    """Returns the median processor times with open data, and with newly opened data."""
    return [f"{times[state]['processor']['median']:,.1f}" for state in ("warm", "cold")]


def page(results: dict[str, Any]) -> str:
    """Returns the page as Markdown."""
    tables = {word: queries_table(results, word) for word in ("wins", "ties", "loses")}
    wins, ties, losses = (len(table) - 1 for table in tables.values())
    parts = [INTRODUCTION.strip(), *([SMOKE.strip()] if results["size"]["rows"] < 10**6 else [])]
    parts += [
        f"Intarsia wins {wins} of {wins + ties + losses} queries, ties in {ties}, and loses "
        f"{losses}.",
        f"![The fastest peer's processor time by Intarsia's, for each query.](images/{RATIOS})",
        METHOD,
    ]
    for title, table in zip(("Wins", "Ties", "Losses"), tables.values(), strict=True):
        parts += [f"## {title}", markdown(table) if len(table) > 1 else "None."]
    parts += [f"{name} is skipped: {reason}." for name, reason in results["skipped"].items()]
    points = [selectivity.Point(**point) for point in results["curve"]]
    if points:
        parts += ["## From few rows to all", f"![Processor time by rows.](images/{CURVE})"]
        parts.append(markdown(selectivity.table_of(points, CURVE_ENGINES)))
    for name, title, module in (
        ("service", "Lookups a second", service),
        ("remote", "Requests to S3", remote),
        ("large", "More rows and files", large),
    ):
        if results[name]:
            parts += [f"## {title}", markdown(module.table_of(results[name]))]
    return "\n\n".join([*parts, *costs(results)]) + "\n"


def costs(results: dict[str, Any]) -> list[str]:
    """Returns the sections on files, memory, versions and sizes."""
    built = [built_table(workload) for workload in results["workloads"]]
    parts = [
        "## Files",
        markdown([*built[0][:1], *(line for table in built for line in table[1:])]),
    ]
    peaks = {w["name"]: w["peak_bytes"] for w in results["workloads"] if w["peak_bytes"]}
    if peaks:
        names = list(dict.fromkeys(name for engines in peaks.values() for name in engines))
        table = [["peak, MB", *peaks]]
        for name in names:
            cells = [engines.get(name) for engines in peaks.values()]
            table.append([name, *("" if n is None else f"{n / 1e6:,.0f}" for n in cells)])
        parts += ["## Memory", markdown(table)]
    settings = {**results["versions"], "cores": results["cores"], **results["size"]}
    lines = [[name, shown(value)] for name, value in settings.items()]
    return [*parts, "## Versions and sizes", markdown([["", ""], *lines])]


def plot_ratios(results: dict[str, Any]) -> str:
    """Returns the ratios of all queries as SVG, the highest first."""
    ratios = [
        (f"{workload['name']}: {query['query']}".replace("`", ""), verdict(query)[2])
        for workload in results["workloads"]
        for query in workload["queries"]
    ]
    ratios.sort(key=lambda pair: pair[1], reverse=True)
    return bar_plot(ratios, "the fastest peer's processor time by Intarsia's", TIE)


def write_page(results: dict[str, Any], docs: Path) -> None:
    """Writes the page and its plots into the folder of the documents."""
    images = docs / "images"
    images.mkdir(parents=True, exist_ok=True)
    (docs / PAGE).write_text(page(results))
    (images / RATIOS).write_text(plot_ratios(results))
    if results["curve"]:
        points = [selectivity.Point(**point) for point in results["curve"]]
        (images / CURVE).write_text(selectivity.plot(points))
