"""Filters that most rows pass, counts by them, and aggregates: where there is little to skip.

``python benchmarks/most_rows.py`` prints, for a lake of a dozen Hive folders with a file each,
medians of alternating runs and of their ratios: to ``pyarrow.dataset`` for tables and counts, and
for SQL to DuckDB, which reads the files itself. All read by all cores; data sets are open.
"""

import statistics
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads
from queries import ratio_of, rounds

import intarsia as ia

RUNS = 11
FILES, ROWS = 12, 500_000
FILTERS: dict[str, pc.Expression] = {
    "latency > 10, 95 %": pc.field("latency") > 10,
    "status = 200, 90 %": pc.field("status") == 200,
    "both": (pc.field("latency") > 10) & (pc.field("status") == 200),
    "user < 50,000, 50 %": pc.field("user") < 50_000,
    "service = 'api', 25 %": pc.field("service") == "api",
    "msg like '%99%', 6 %": pc.match_substring(pc.field("msg"), "99"),
}
COLUMNS = ["ts", "user", "latency"]
QUERIES = [
    "SELECT avg(latency) FROM t",
    "SELECT service, count(*) FROM t GROUP BY service",
    "SELECT sum(latency) FROM t WHERE status = 200",
    "SELECT month, avg(latency) FROM t GROUP BY month",
    "SELECT max(user) FROM t WHERE latency > 10",
]


def write(folder: Path) -> None:
    """A file a month, in order of time, with page indexes."""
    rng = np.random.default_rng(0)
    for month in range(1, FILES + 1):
        at = folder / f"month={month}" / "a.parquet"
        at.parent.mkdir()
        times = np.sort(rng.integers(0, 2_500_000_000_000, ROWS))
        services = rng.choice(["api", "web", "db", "auth"], ROWS)
        table = pa.table(
            {
                "ts": pa.array(times, pa.timestamp("us")),
                "latency": rng.gamma(2, 30, ROWS),
                "status": rng.choice([200, 404, 500], ROWS, p=[0.9, 0.07, 0.03]).astype(np.int32),
                "service": services,
                "user": rng.integers(0, 100_000, ROWS),
                "msg": np.char.add("message ", rng.integers(0, 10**7, ROWS).astype(str)),
            }
        )
        ia.write_table(table, at)


def compared(name: str, theirs: Callable[[], Any], ours: Callable[[], Any]) -> str:
    """Medians in milliseconds, and of the ratios, after a run that warms up."""
    found = rounds({"theirs": theirs, "ours": ours}, RUNS)
    peer, own = map(statistics.median, found.values())
    ratio = ratio_of(found["ours"], found["theirs"])
    return f"{name:60} {peer:8.1f} {own:8.1f} {ratio:6.2f}"


def answer(connection: duckdb.DuckDBPyConnection, query: str) -> pa.Table:
    """DuckDB's answer."""
    return connection.sql(query).to_arrow_table()


def main() -> None:
    """Print a line a question: the peer's time, ours, and the ratio."""
    with tempfile.TemporaryDirectory() as folder, duckdb.connect() as connection:
        write(Path(folder))
        peer, own = pads.dataset(folder, partitioning="hive"), ia.dataset(folder)
        print(f"{'ms':60} {'pyarrow':>8} {'ours':>8} {'ratio':>6}")
        for name, wanted in FILTERS.items():
            assert peer.count_rows(filter=wanted) == own.count_rows(filter=wanted)
            for columns in (COLUMNS, None):
                what = "three columns" if columns else "all columns"
                theirs, ours = (partial(d.to_table, columns, wanted) for d in (peer, own))
                print(compared(f"{name}: {what}", theirs, ours))
            theirs, ours = (partial(d.count_rows, wanted) for d in (peer, own))
            print(compared(f"{name}: count", theirs, ours))
        print(f"{'':60} {'DuckDB':>8}")
        for query in QUERIES:
            view = query.replace("FROM t", f"FROM read_parquet('{folder}/*/*.parquet')")
            theirs, ours = partial(answer, connection, view), partial(ia.sql, query, t=own)
            assert theirs().num_rows == ours().num_rows
            print(compared(query, theirs, ours))


if __name__ == "__main__":
    main()
