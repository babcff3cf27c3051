"""Conditions on texts that are few, without an index, and queries of structs' fields.

``python benchmarks/few_texts.py`` prints medians of alternating runs, in milliseconds, over a file
of 4,000,000 rows in row groups of 1,000,000: ``level`` of 4 texts, ``service`` of 40, ``path`` of
2,000, a struct ``user`` of ``country``, of 100, ``id`` and ``agent``, and ``latency``. All read by
all cores. Every peer is beside its own door: ``pyarrow.dataset`` and ``Dataset``, DuckDB and
``ia.sql``, Polars and ``ia.polars.scan``. Data sets are open; ratios are ours to theirs.
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


def compared(name: str, *pairs: tuple[Callable[[], Any], Callable[[], Any]]) -> str:
    """Medians of everyone's times, after a round that warms up; of each pair, the second is ours.

    Behind each pair is the ratio of ours to theirs.
    """
    runs = [run for pair in pairs for run in pair]
    times = [*rounds({str(at): run for at, run in enumerate(runs)}, RUNS).values()]
    cells = []
    for theirs, ours in zip(times[::2], times[1::2], strict=True):
        cells += [f"{statistics.median(one):.1f}" for one in (theirs, ours)]
        cells.append(f"{ratio_of(ours, theirs):.2f}")
    return f"| {name} | {' | '.join(cells)} |"


def answer(connection: duckdb.DuckDBPyConnection, query: str) -> pa.Table:
    """DuckDB's answer."""
    return connection.sql(query).to_arrow_table()


def frames_of(path: Path, condition: pl.Expr) -> tuple[pl.LazyFrame, pl.LazyFrame]:
    """The rows that match, as scanned by Polars and by us."""
    return pl.scan_parquet(path).filter(condition), ia.polars.scan(path).filter(condition)


def main() -> None:
    """Print two tables, of conditions and of SQL."""
    with tempfile.TemporaryDirectory() as folder, duckdb.connect() as connection:
        path = Path(folder, "logs.parquet")
        write(path)
        peer, own = pads.dataset(path), ia.dataset(path)
        view = f"FROM read_parquet('{path}') AS t"
        doors = "pyarrow | ours | ratio | DuckDB | `ia.sql` | ratio | Polars | `ia.polars` | ratio"
        print(f"| ms | {doors} |")
        print("|---|" + "---:|" * 9)

        def in_sql(query: str) -> tuple[Callable[[], Any], Callable[[], Any]]:
            theirs = partial(answer, connection, query.replace("FROM t", view))
            return theirs, partial(ia.sql, query, t=own)

        for condition, (arrow, polars) in CONDITIONS.items():
            frames = frames_of(path, polars)
            counts = (
                (partial(peer.count_rows, filter=arrow), partial(own.count_rows, arrow)),
                in_sql(f"SELECT count(*) FROM t WHERE {condition}"),
                tuple(frame.select(pl.len()).collect for frame in frames),
            )
            (count, *_), (table, *_), (frame, *_) = counts
            assert count() == table()[0][0].as_py() == frame().item()
            print(compared(f"`count(*) … WHERE {condition}`", *counts))
            names = ["latency", "service"]
            tables = (
                (partial(peer.to_table, names, arrow), partial(own.to_table, names, arrow)),
                in_sql(f"SELECT latency, service FROM t WHERE {condition}"),
                tuple(frame.select(names).collect for frame in frames),
            )
            print(compared(f"`latency, service … WHERE {condition}`", *tables))
        print("\n| ms | DuckDB | `ia.sql` | ratio |")
        print("|---|---:|---:|---:|")
        for query in QUERIES:
            theirs, ours = in_sql(query)
            assert theirs().num_rows == ours().num_rows
            print(compared(f"`{query}`", (theirs, ours)))


if __name__ == "__main__":
    main()
