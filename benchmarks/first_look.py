"""Conditions that only DuckDB can compute, and subqueries of one value: ten million rows.

``python benchmarks/first_look.py`` asks ``ia.sql`` and DuckDB of the table of ``logs.py``, without
its lookup indexes, and prints medians of alternating rounds. Beside them stands ``ia.sql`` where
subqueries are left to DuckDB. All answers are compared before.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from functools import partial
from pathlib import Path
from unittest import mock

import pyarrow as pa
from logs import logs, options_of, without_indexes
from peers import OURS, duckdb_of, leave
from queries import ratio_of, rounds

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
    """What each is asked with."""
    data = ia.dataset(path)

    def whole(query: str) -> pa.Table:
        with mock.patch("intarsia.engines.duckdb.sql.with_values", lambda query, *_: query):
            return ia.sql(query, logs=data)

    return {
        OURS: lambda query: ia.sql(query, logs=data),
        "subqueries left": whole,
        "DuckDB": duckdb_of(path),
    }


def main() -> None:
    """Print a line for each query."""
    options = options_of(__doc__.split("\n")[0])
    everyone = engines(without_indexes(logs(options.rows, options.data)))
    print(f"| ms | rows | {' | '.join(everyone)} | DuckDB / ours |")
    print(f"|---|---:|{'---:|' * (len(everyone) + 1)}")
    for query in QUERIES:
        answers = [ask(query) for ask in everyone.values()]
        counts = {answer.num_rows for answer in answers}
        sums = [answer.column("user_id").to_numpy().sum() for answer in answers]
        is_any = "LIMIT" in query
        if len(counts) > 1 or not (is_any or len(set(sums)) == 1):
            raise SystemExit(f"{query}: {answers}")
        actions = {name: partial(ask, query) for name, ask in everyone.items()}
        times = rounds(actions, options.runs)
        cells = [f"{statistics.median(found):,.1f}" for found in times.values()]
        ratio = ratio_of(times["DuckDB"], times[OURS])
        print(f"| `{query}` | {counts.pop():,} | {' | '.join(cells)} | {ratio:.2g} |", flush=True)
    leave()


if __name__ == "__main__":
    main()
