"""Formats the results of ``bench.py`` as Markdown."""

from __future__ import annotations

from typing import Any

import large
import remote
import selectivity
import service
from peers import ENGINES, OURS
from queries import Table, markdown

TIE = 1.15
"""Ratios of medians up to this, in either direction, are ties: rounds differ as much."""
CURVE_ENGINES = [selectivity.OURS_SQL, *ENGINES]


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
    size = ", ".join(f"{name} {shown(value)}" for name, value in results["size"].items())
    parts = [f"{', '.join(settings)}. {results['cores']} cores. {size}."]
    head = ["", "rows", "Intarsia", "fastest peer", "peer / ours"]
    summary: Table = [head]
    for workload in results["workloads"]:
        for query in workload["queries"]:
            word, peer, ratio = verdict(query)
            label = f"{workload['name']}: {query['query']}"
            summary.append([label, f"{query['rows']:,}", word, peer, f"{ratio:.2f}"])
    parts.append(markdown(summary))
    parts += [f"{name} is skipped: {reason}." for name, reason in results["skipped"].items()]
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
    for name, module in (("service", service), ("remote", remote), ("large", large)):
        if results[name]:
            parts += [f"## {name}", markdown(module.table_of(results[name]))]
    return "\n\n".join(parts) + "\n"


def shown(setting: Any) -> str:
    """Returns a version, a number or numbers as text."""
    if isinstance(setting, list | tuple):
        return "; ".join(map(shown, setting))
    return f"{setting:,}" if isinstance(setting, int) else str(setting)


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
