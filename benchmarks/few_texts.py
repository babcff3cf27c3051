"""Compares filters on columns of few distinct strings, and SQL on the fields of a struct.

The data is a file of 4,000,000 rows in row groups of 1,000,000, without an index. ``level`` has
4 distinct strings, ``service`` 40 and ``path`` 2,000. The struct ``user`` has the fields
``country`` (100 distinct strings), ``id`` and ``agent``. ``latency`` is a float.

``python benchmarks/few_texts.py`` prints two tables, of conditions and of SQL queries. Cells are
median wall times in milliseconds. The readers run in a random order in each of 9 rounds, after
one round that is not counted. ``Dataset`` is compared with pyarrow.dataset, ``ia.sql`` with
DuckDB, ``ia.polars.scan`` with Polars. Behind each pair is the ratio of our time to the peer's.
All readers use all cores, and data sets are opened beforehand.
"""

import statistics
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads
from queries import median_ratio, time_rounds

import intarsia as ia

RUNS, ROWS = 9, 4_000_000
COUNTRY = pc.field("user", "country")
CONDITIONS: dict[str, tuple[pc.Expression, pl.Expr]] = {
    "level = 'ERROR'": (pc.field("level") == "ERROR", pl.col("level") == "ERROR"),
    "service IN ('s7', 's11', 's13')": (
        pc.field("service").isin(["s7", "s11", "s13"]),
        pl.col("service").is_in(["s7", "s11", "s13"]),
    ),
    "path LIKE '/api/%77%'": (
        pc.match_like(pc.field("path"), "/api/%77%"),
        pl.col("path").str.contains("^/api/.*77"),
    ),
    "level <> 'DEBUG' AND service = 's7'": (
        (pc.field("level") != "DEBUG") & (pc.field("service") == "s7"),
        (pl.col("level") != "DEBUG") & (pl.col("service") == "s7"),
    ),
    "user.country = 'c7'": (COUNTRY == "c7", pl.col("user").struct.field("country") == "c7"),
}
QUERIES = [
    "SELECT user.country, count(*) FROM t GROUP BY ALL",
    "SELECT sum(user.id) FROM t",
    "SELECT service, avg(latency) FROM t WHERE level = 'ERROR' GROUP BY ALL",
]


def write(path: Path) -> None:
    """Writes the file of log rows."""
    rng = np.random.default_rng(0)

    def draw(choices: list[str], weights: list[float] | None = None) -> pa.Array:
        return pa.array(choices).take(pa.array(rng.choice(len(choices), ROWS, p=weights)))

    user = {
        "country": draw([f"c{n}" for n in range(100)]),
        "id": pa.array(rng.integers(0, 1 << 40, ROWS)),
        "agent": draw([f"agent {n} " * 5 for n in range(5_000)]),
    }
    levels = ["DEBUG", "INFO", "WARN", "ERROR"]
    table = pa.table(
        {
            "level": draw(levels, [0.3, 0.6, 0.095, 0.005]),
            "service": draw([f"s{n}" for n in range(40)]),
            "path": draw([f"/{'api' if n % 2 else 'static'}/{n}" for n in range(2_000)]),
            "user": pa.StructArray.from_arrays([*user.values()], [*user]),
            "latency": rng.gamma(2, 30, ROWS),
        }
    )
    ia.write_table(table, path, row_group_size=1_000_000)


def compare(name: str, *pairs: tuple[Callable[[], Any], Callable[[], Any]]) -> str:
    """Returns a line of the table: for each pair, both median wall times in ms and their ratio.

    The second callable of each pair is ours; the ratio is our time to the peer's.
    """
    runs = [run for pair in pairs for run in pair]
    times = [*time_rounds({str(at): run for at, run in enumerate(runs)}, RUNS).values()]
    cells = []
    for theirs, ours in zip(times[::2], times[1::2], strict=True):
        cells += [f"{statistics.median(one):.1f}" for one in (theirs, ours)]
        cells.append(f"{median_ratio(ours, theirs):.2f}")
    return f"| {name} | {' | '.join(cells)} |"


def run_duckdb(connection: duckdb.DuckDBPyConnection, query: str) -> pa.Table:
    """Runs a query in DuckDB."""
    return connection.sql(query).to_arrow_table()


def lazy_frames(path: Path, condition: pl.Expr) -> tuple[pl.LazyFrame, pl.LazyFrame]:
    """Returns the filtered scans by Polars and by ``ia.polars.scan``."""
    return pl.scan_parquet(path).filter(condition), ia.polars.scan(path).filter(condition)


def main() -> None:
    """Prints the table of conditions, then the table of SQL queries."""
    with tempfile.TemporaryDirectory() as folder, duckdb.connect() as connection:
        path = Path(folder, "logs.parquet")
        write(path)
        pyarrow_data, data = pads.dataset(path), ia.dataset(path)
        view = f"FROM read_parquet('{path}') AS t"
        readers = (
            "pyarrow | ours | ratio | DuckDB | `ia.sql` | ratio | Polars | `ia.polars` | ratio"
        )
        print(f"| ms | {readers} |")
        print("|---|" + "---:|" * 9)

        def sql_pair(query: str) -> tuple[Callable[[], Any], Callable[[], Any]]:
            theirs = partial(run_duckdb, connection, query.replace("FROM t", view))
            return theirs, partial(ia.sql, query, t=data)

        for condition, (arrow, polars) in CONDITIONS.items():
            frames = lazy_frames(path, polars)
            counts = (
                (partial(pyarrow_data.count_rows, filter=arrow), partial(data.count_rows, arrow)),
                sql_pair(f"SELECT count(*) FROM t WHERE {condition}"),
                tuple(frame.select(pl.len()).collect for frame in frames),
            )
            (count, *_), (table, *_), (frame, *_) = counts
            assert count() == table()[0][0].as_py() == frame().item()
            print(compare(f"`count(*) … WHERE {condition}`", *counts))
            names = ["latency", "service"]
            tables = (
                (
                    partial(pyarrow_data.to_table, names, arrow),
                    partial(data.to_table, names, arrow),
                ),
                sql_pair(f"SELECT latency, service FROM t WHERE {condition}"),
                tuple(frame.select(names).collect for frame in frames),
            )
            print(compare(f"`latency, service … WHERE {condition}`", *tables))
        print("\n| ms | DuckDB | `ia.sql` | ratio |")
        print("|---|---:|---:|---:|")
        for query in QUERIES:
            theirs, ours = sql_pair(query)
            assert theirs().num_rows == ours().num_rows
            print(compare(f"`{query}`", (theirs, ours)))


if __name__ == "__main__":
    main()
