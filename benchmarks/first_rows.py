"""Compares SQL that needs few of ten million rows: LIMIT, ORDER BY, min, max and count.

The data is the table of ``logs.py``, 10,000,000 rows by default, without its lookup indexes.

``python benchmarks/first_rows.py`` runs each query with ``ia.sql``, DuckDB, Polars and
DataFusion. A line has median wall times in milliseconds over rounds in random order, and the
best peer's time divided by ours. Files are opened beforehand, with the settings of ``peers.py``.
All answers are compared before the clock starts.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
from logs import log_file, options_of, without_indexes
from peers import OURS, datafusion_of, duckdb_of, leave
from queries import median_ratio, time_rounds

import intarsia as ia

QUERIES = (
    "SELECT * FROM logs LIMIT 10",
    "SELECT * FROM logs WHERE status = 500 LIMIT 10",
    "SELECT * FROM logs ORDER BY ts DESC LIMIT 10",
    "SELECT * FROM logs WHERE status = 500 ORDER BY ts DESC LIMIT 10",
    "SELECT * FROM logs ORDER BY trace_id LIMIT 10",
    "SELECT * FROM logs ORDER BY latency DESC LIMIT 10",
    "SELECT min(ts), max(ts) FROM logs",
    "SELECT max(ts) FROM logs WHERE status = 404",
    "SELECT count(*) FROM logs WHERE status = 500",
    "SELECT count(*) FROM logs WHERE msg LIKE '%overheat%'",
)


def engines(path: Path) -> dict[str, Callable[[str], Any]]:
    """Returns the function of each engine that runs a SQL query."""
    data = ia.dataset(path)
    frames = pl.SQLContext(logs=pl.scan_parquet(path))
    return {
        OURS: lambda query: ia.sql(query, logs=data),
        "DuckDB": duckdb_of(path),
        "Polars": lambda query: frames.execute(query).collect(),
        "DataFusion": datafusion_of(path, pushdown=False),
    }


def rows_of(answer: Any) -> list[tuple[Any, ...]]:
    """Returns the rows of an engine's answer."""
    if isinstance(answer, list):
        answer = pa.Table.from_batches(answer)
    if isinstance(answer, pl.DataFrame):
        answer = answer.to_arrow()
    return [tuple(row.values()) for row in answer.to_pylist()]


def main() -> None:
    """Prints a line for each query."""
    options = options_of(__doc__.split("\n")[0])
    runners = engines(without_indexes(log_file(options.rows, options.data)))
    print(f"| ms | {' | '.join(runners)} | best peer / ours |")
    print(f"|---|{'---:|' * (len(runners) + 1)}")
    for query in QUERIES:
        answers = [rows_of(run(query)) for run in runners.values()]
        is_any = "ORDER" not in query and "LIMIT" in query
        if any(len(a) != len(answers[0]) or not (is_any or a == answers[0]) for a in answers):
            raise SystemExit(f"{query}: {answers}")
        actions = {name: partial(run, query) for name, run in runners.items()}
        times = time_rounds(actions, options.runs)
        ours, *peers = times.values()
        best = min(peers, key=statistics.median)
        cells = [f"{statistics.median(milliseconds):,.1f}" for milliseconds in times.values()]
        print(f"| `{query}` | {' | '.join(cells)} | {median_ratio(best, ours):.2g} |", flush=True)
    leave()


if __name__ == "__main__":
    main()
