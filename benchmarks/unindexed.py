"""Compares reads of few rows of files without page indexes, as most writers write them.

The data is 4,000,000 rows (``--rows``) as pyarrow writes them by default: in row groups of about a
million rows, and in a single one. A copy of each has lookup indexes on ``id`` and ``user``.

``python benchmarks/unindexed.py`` prints a line for each query: median wall times in milliseconds,
and the best peer's time divided by ours. The engines run in random order in each round, and each
run opens the file. The numbers of rows are compared before.
(pyarrow is left out: its ``head`` goes on decoding after it returns, in the others' time.)
"""

from __future__ import annotations

import argparse
import shutil
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from queries import median_ratio, time_rounds

import intarsia as ia

_SEED = 7


def write_files(rows: int, group: int, folder: Path) -> tuple[Path, Path]:
    """Writes the file and its copy with lookup indexes, unless they exist. Returns the paths."""
    folder.mkdir(parents=True, exist_ok=True)
    plain, indexed = (folder / f"unindexed-{rows}-{group}{end}.parquet" for end in ("", "-lookup"))
    if not indexed.exists():
        rng = np.random.default_rng(_SEED)
        users = pa.array([f"user-{number:09}" for number in rng.integers(0, rows // 4, rows)])
        texts = pa.array([f"message {row} of {row * 7919 % 100_003}" for row in range(rows)])
        numbers = {"id": rng.permutation(rows), "x": rng.random(rows)}
        pq.write_table(
            pa.table({**numbers, "user": users, "msg": texts}), plain, row_group_size=group
        )
        shutil.copy(plain, indexed)
        ia.add_indexes(indexed, ["id:lookup", "user:lookup"])
    return plain, indexed


def runners(plain: Path, indexed: Path) -> dict[str, dict[str, Callable[[], Any]]]:
    """Returns for each query the function of each engine that runs it."""
    half, point = pc.field("x") > 0.5, pc.field("id") == 1234
    user = pq.ParquetFile(plain).read_row_group(0, ["user"])["user"][77].as_py()

    def sql(condition: str) -> Callable[[], Any]:
        return lambda: duckdb.sql(f"SELECT * FROM '{plain}' {condition}").to_arrow_table()

    return {
        "`LIMIT 10`": {
            "Intarsia": lambda: ia.dataset(plain).head(10),
            "Polars": lambda: pl.scan_parquet(plain).head(10).collect(),
            "DuckDB": sql("LIMIT 10"),
        },
        "`x > 0.5 LIMIT 10`": {
            "Intarsia": lambda: ia.dataset(plain).head(10, filter=half),
            "Polars": lambda: pl.scan_parquet(plain).filter(pl.col("x") > 0.5).head(10).collect(),
            "DuckDB": sql("WHERE x > 0.5 LIMIT 10"),
        },
        "`id = …`, lookup": {
            "Intarsia": lambda: ia.dataset(indexed).to_table(filter=point),
            "Polars": lambda: pl.scan_parquet(indexed).filter(pl.col("id") == 1234).collect(),
            "DuckDB": sql("WHERE id = 1234"),
        },
        "`user = …`, lookup": {
            "Intarsia": lambda: ia.dataset(indexed).to_table(filter=pc.field("user") == user),
            "Polars": lambda: pl.scan_parquet(indexed).filter(pl.col("user") == user).collect(),
            "DuckDB": sql(f"WHERE user = '{user}'"),
        },
    }


def main() -> None:
    """Prints a line for each query."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rows", type=int, default=4_000_000)
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--data", type=Path, default=Path("bench-data"))
    options = parser.parse_args()
    print("| ms | row groups | Intarsia | Polars | DuckDB | best peer / ours |")
    print("|---|---:|---:|---:|---:|---:|")
    for group in (1 << 20, options.rows):
        for label, actions in runners(*write_files(options.rows, group, options.data)).items():
            counts = {name: len(run()) for name, run in actions.items()}
            if len({*counts.values()}) > 1:
                raise SystemExit(f"{label}: {counts}")
            ours, *peers = times = list(time_rounds(actions, options.runs).values())
            best = min(peers, key=statistics.median)
            cells = " | ".join(f"{statistics.median(milliseconds):,.1f}" for milliseconds in times)
            groups = -(-options.rows // group)
            print(f"| {label} | {groups} | {cells} | {median_ratio(best, ours):.2g} |", flush=True)


if __name__ == "__main__":
    main()
