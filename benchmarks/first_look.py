"""Compares SQL with conditions that only DuckDB can compute, and SQL with scalar subqueries.

The data is the table of ``logs.py``, 10,000,000 rows by default, without its lookup indexes.

``python benchmarks/first_look.py`` prints a line for each query: the number of rows, then median
wall times in milliseconds over rounds in random order, and DuckDB's time divided by ours.
"subqueries left" is ``ia.sql`` that leaves subqueries to DuckDB. The answers of all three are
compared before the clock starts.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from functools import partial
from pathlib import Path
from unittest import mock

import pyarrow as pa
from logs import log_file, options_of, without_indexes
from peers import OURS, duckdb_of, leave
from queries import median_ratio, time_rounds

import intarsia as ia

QUERIES = (
    "SELECT * FROM logs WHERE user_id % 20000 = 7 AND status = 500",
    "SELECT * FROM logs WHERE round(latency) = 170",
    "SELECT * FROM logs WHERE round(latency) = 170 LIMIT 10",
    "SELECT * FROM logs WHERE round(latency) > 60",
    "SELECT * FROM logs WHERE ts = (SELECT max(ts) FROM logs)",
    "SELECT * FROM logs WHERE ts > (SELECT max(ts) - INTERVAL 1 SECOND FROM logs)",
    "SELECT * FROM logs WHERE latency > (SELECT max(latency) * 0.9 FROM logs)",
)


def engines(path: Path) -> dict[str, Callable[[str], pa.Table]]:
    """Returns the function of each engine that runs a SQL query."""
    data = ia.dataset(path)

    def run_with_subqueries(query: str) -> pa.Table:
        with mock.patch("intarsia.engines.duckdb.sql.with_values", lambda query, *_: query):
            return ia.sql(query, logs=data)

    return {
        OURS: lambda query: ia.sql(query, logs=data),
        "subqueries left": run_with_subqueries,
        "DuckDB": duckdb_of(path),
    }


def main() -> None:
    """Prints a line for each query."""
    options = options_of(__doc__.split("\n")[0])
    runners = engines(without_indexes(log_file(options.rows, options.data)))
    print(f"| ms | rows | {' | '.join(runners)} | DuckDB / ours |")
    print(f"|---|---:|{'---:|' * (len(runners) + 1)}")
    for query in QUERIES:
        answers = [run(query) for run in runners.values()]
        counts = {answer.num_rows for answer in answers}
        sums = [answer.column("user_id").to_numpy().sum() for answer in answers]
        is_any = "LIMIT" in query
        if len(counts) > 1 or not (is_any or len(set(sums)) == 1):
            raise SystemExit(f"{query}: {answers}")
        actions = {name: partial(run, query) for name, run in runners.items()}
        times = time_rounds(actions, options.runs)
        cells = [f"{statistics.median(milliseconds):,.1f}" for milliseconds in times.values()]
        ratio = median_ratio(times["DuckDB"], times[OURS])
        print(f"| `{query}` | {counts.pop():,} | {' | '.join(cells)} | {ratio:.2g} |", flush=True)
    leave()


if __name__ == "__main__":
    main()
