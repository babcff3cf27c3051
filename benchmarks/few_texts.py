"""Conditions on texts that are few, without an index, and queries of structs' fields.

``python benchmarks/few_texts.py`` prints medians of alternating runs, in milliseconds, over a file
of 4,000,000 rows in row groups of 1,000,000: ``level`` of 4 texts, ``service`` of 40, ``path`` of
2,000, a struct ``user`` of ``country``, of 100, ``id`` and ``agent``, and ``latency``. All read by
all cores; data sets are open, DuckDB and Polars read the file.
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
from queries import ratio_of, rounds

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
    """The file."""
    rng = np.random.default_rng(0)

    def drawn(texts: list[str], weights: list[float] | None = None) -> pa.Array:
        return pa.array(texts).take(pa.array(rng.choice(len(texts), ROWS, p=weights)))

    user = {
        "country": drawn([f"c{n}" for n in range(100)]),
        "id": pa.array(rng.integers(0, 1 << 40, ROWS)),
        "agent": drawn([f"agent {n} " * 5 for n in range(5_000)]),
    }
    levels = ["DEBUG", "INFO", "WARN", "ERROR"]
    table = pa.table(
        {
            "level": drawn(levels, [0.3, 0.6, 0.095, 0.005]),
            "service": drawn([f"s{n}" for n in range(40)]),
            "path": drawn([f"/{'api' if n % 2 else 'static'}/{n}" for n in range(2_000)]),
            "user": pa.StructArray.from_arrays([*user.values()], [*user]),
            "latency": rng.gamma(2, 30, ROWS),
        }
    )
    ia.write_table(table, path, row_group_size=1_000_000)


def compared(name: str, *runs: Callable[[], Any]) -> str:
    """Medians of everyone's times, after a round that warms up; the last are ours."""
    *theirs, ours = rounds({str(at): run for at, run in enumerate(runs)}, RUNS).values()
    cells = " | ".join(f"{statistics.median(times):.1f}" for times in (*theirs, ours))
    best = [min(times) for times in zip(*theirs, strict=True)]
    return f"| {name} | {cells} | {ratio_of(best, ours):.2f} |"


def answer(connection: duckdb.DuckDBPyConnection, query: str) -> pa.Table:
    """DuckDB's answer."""
    return connection.sql(query).to_arrow_table()


def main() -> None:
    """Print two tables, of conditions and of SQL."""
    with tempfile.TemporaryDirectory() as folder, duckdb.connect() as connection:
        path = Path(folder, "logs.parquet")
        write(path)
        peer, own, lazy = pads.dataset(path), ia.dataset(path), pl.scan_parquet(path)
        view = f"FROM read_parquet('{path}') AS t"
        print("| ms | pyarrow | DuckDB | Polars | Intarsia | best peer / ours |")
        print("|---|---:|---:|---:|---:|---:|")
        for condition, (arrow, polars) in CONDITIONS.items():
            counts = (
                partial(peer.count_rows, filter=arrow),
                partial(answer, connection, f"SELECT count(*) {view} WHERE {condition}"),
                lazy.filter(polars).select(pl.len()).collect,
                partial(own.count_rows, arrow),
            )
            assert counts[0]() == counts[1]()[0][0].as_py() == counts[2]().item() == counts[3]()
            print(compared(f"`count(*) … WHERE {condition}`", *counts))
            tables = (
                partial(peer.to_table, ["latency", "service"], arrow),
                partial(answer, connection, f"SELECT latency, service {view} WHERE {condition}"),
                lazy.filter(polars).select("latency", "service").collect,
                partial(own.to_table, ["latency", "service"], arrow),
            )
            print(compared(f"`latency, service … WHERE {condition}`", *tables))
        print("\n| ms | DuckDB | Intarsia | DuckDB / ours |")
        print("|---|---:|---:|---:|")
        for query in QUERIES:
            theirs = partial(answer, connection, query.replace("FROM t", view))
            ours = partial(ia.sql, query, t=own)
            assert theirs().num_rows == ours().num_rows
            print(compared(f"`{query}`", theirs, ours))


if __name__ == "__main__":
    main()
