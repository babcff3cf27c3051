"""Compares filters that most rows pass, counts and aggregates, which leave little to skip.

The data is twelve Hive folders with a file each, of 500,000 rows with page indexes.

``python benchmarks/most_rows.py`` prints a line for each query: the peer's and our median wall
time in milliseconds, and the median ratio of our time to the peer's. Both run in random order in
each of 11 rounds, after one round that is not counted. The peer is pyarrow.dataset for tables
and counts, and DuckDB on the files for SQL. All readers use all cores, and data sets are opened
beforehand.
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
from queries import median_ratio, time_rounds

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
    """Writes a file for each month, in time order, with page indexes."""
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


def compare(name: str, theirs: Callable[[], Any], ours: Callable[[], Any]) -> str:
    """Returns a line: the median wall times of peer and Intarsia in ms, and their ratio."""
    times = time_rounds({"theirs": theirs, "ours": ours}, RUNS)
    peer, own = map(statistics.median, times.values())
    ratio = median_ratio(times["ours"], times["theirs"])
    return f"{name:60} {peer:8.1f} {own:8.1f} {ratio:6.2f}"


def run_duckdb(connection: duckdb.DuckDBPyConnection, query: str) -> pa.Table:
    """Runs a query in DuckDB."""
    return connection.sql(query).to_arrow_table()


def main() -> None:
    """Prints a line for each query: the peer's time, ours, and the ratio."""
    with tempfile.TemporaryDirectory() as folder, duckdb.connect() as connection:
        write(Path(folder))
        pyarrow_data, data = pads.dataset(folder, partitioning="hive"), ia.dataset(folder)
        print(f"{'ms':60} {'pyarrow':>8} {'ours':>8} {'ratio':>6}")
        for name, filter_ in FILTERS.items():
            assert pyarrow_data.count_rows(filter=filter_) == data.count_rows(filter=filter_)
            for columns in (COLUMNS, None):
                selection = "three columns" if columns else "all columns"
                theirs, ours = (partial(d.to_table, columns, filter_) for d in (pyarrow_data, data))
                print(compare(f"{name}: {selection}", theirs, ours))
            theirs, ours = (partial(d.count_rows, filter_) for d in (pyarrow_data, data))
            print(compare(f"{name}: count", theirs, ours))
        print(f"{'':60} {'DuckDB':>8}")
        for query in QUERIES:
            view = query.replace("FROM t", f"FROM read_parquet('{folder}/*/*.parquet')")
            theirs, ours = partial(run_duckdb, connection, view), partial(ia.sql, query, t=data)
            assert theirs().num_rows == ours().num_rows
            print(compare(query, theirs, ours))


if __name__ == "__main__":
    main()
