"""Some rows, the first ones, or how many: SQL that needs little of ten million rows.

``python benchmarks/first_rows.py`` asks ``ia.sql``, DuckDB, Polars and DataFusion of the table of
``logs.py``, without its lookup indexes, and prints medians of alternating rounds. What is open, and
whose settings, is as in ``peers.py``; all answers are compared before.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
from logs import logs, options_of, without_indexes
from peers import OURS, datafusion_of, duckdb_of, leave
from queries import ratio_of, rounds

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
    """What each is asked with."""
    data = ia.dataset(path)
    frames = pl.SQLContext(logs=pl.scan_parquet(path))
    return {
        OURS: lambda query: ia.sql(query, logs=data),
        "DuckDB": duckdb_of(path),
        "Polars": lambda query: frames.execute(query).collect(),
        "DataFusion": datafusion_of(path, pushdown=False),
    }


def rows_of(answer: Any) -> list[tuple[Any, ...]]:
    """An answer's rows."""
    if isinstance(answer, list):
        answer = pa.Table.from_batches(answer)
    if isinstance(answer, pl.DataFrame):
        answer = answer.to_arrow()
    return [tuple(row.values()) for row in answer.to_pylist()]


def main() -> None:
    """Print a line for each query."""
    options = options_of(__doc__.split("\n")[0])
    everyone = engines(without_indexes(logs(options.rows, options.data)))
    print(f"| ms | {' | '.join(everyone)} | best peer / ours |")
    print(f"|---|{'---:|' * (len(everyone) + 1)}")
    for query in QUERIES:
        answers = [rows_of(ask(query)) for ask in everyone.values()]
        is_any = "ORDER" not in query and "LIMIT" in query
        if any(len(a) != len(answers[0]) or not (is_any or a == answers[0]) for a in answers):
            raise SystemExit(f"{query}: {answers}")
        actions = {name: partial(ask, query) for name, ask in everyone.items()}
        times = rounds(actions, options.runs)
        ours, *peers = times.values()
        best = min(peers, key=statistics.median)
        cells = [f"{statistics.median(found):,.1f}" for found in times.values()]
        print(f"| `{query}` | {' | '.join(cells)} | {ratio_of(best, ours):.2g} |", flush=True)
    leave()


if __name__ == "__main__":
    main()
