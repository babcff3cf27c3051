"""Measures ``Dataset.lookup`` of 1 to 1,000,000 keys beside DuckDB's join with the same file.

The keys are values of random rows of the table of ``logs.py``, which has a lookup index on the
column. Both read all columns into an Arrow table, and repeat what they did once before. They run by
turns, the runs of a size one after the other. ``python benchmarks/many_keys.py`` prints a line for
each number of keys: the rows, the median processor time of each in milliseconds, their ratio, and
Intarsia's time relative to that of one key. With ``--memory`` it prints how much the process's peak
of memory grew by one lookup, in MB.
"""

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from logs import SEED, log_file
from memory import peak_bytes

import intarsia as ia

COUNTS = [1, 10, 100, 1_000, 10_000, 100_000, 1_000_000]
Run = Callable[[], pa.Table]


def keys_of(path: Path, on: str, counts: list[int]) -> dict[int, pa.Array]:
    """Returns distinct random values of a column, for each number of keys."""
    stored = pq.read_table(path, columns=[on]).column(0)
    rows = np.random.default_rng(SEED).permutation(len(stored))[: max(counts)]
    keys = stored.take(pa.array(rows)).combine_chunks().unique()
    return {count: pa.concat_arrays([keys.slice(0, count)]) for count in counts}


def milliseconds(run: Run) -> float:
    """Returns the processor time of one run."""
    start = time.process_time()
    run()
    return (time.process_time() - start) * 1e3


def main() -> None:
    """Prints a line for each number of keys."""
    parser = argparse.ArgumentParser(description="Measures lookups of many keys.")
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--data", type=Path, default=Path("bench-data"))
    parser.add_argument("--on", choices=["trace_id", "user_id"], default="trace_id")
    parser.add_argument("--keys", type=int, nargs="+", default=COUNTS)
    parser.add_argument("--memory", action="store_true")
    options = parser.parse_args()
    path = log_file(options.rows, options.data)
    keys = keys_of(path, options.on, options.keys)
    data, engine = ia.dataset(path), duckdb.connect()
    engine.execute("SET parquet_metadata_cache = true")
    query = f"SELECT t.* FROM '{path}' t JOIN keys k ON t.{options.on} = k.key"
    print("| keys | rows | Intarsia, ms | DuckDB, ms | ratio | keys × |")
    print("|---|---|---|---|---|---|")
    first = 0.0
    for count, some in keys.items():
        table = pa.table({"key": some})

        def ours(some: pa.Array = some) -> pa.Table:
            return data.lookup(options.on, some)

        def theirs(table: pa.Table = table) -> pa.Table:
            engine.register("keys", table)
            return engine.sql(query).to_arrow_table()

        if options.memory:
            before = peak_bytes()
            rows = ours().num_rows
            print(f"{count:,} keys, {rows:,} rows: {(peak_bytes() - before) / 1e6:,.0f} MB")
            continue
        rows = ours().num_rows
        assert rows == theirs().num_rows
        times = [(milliseconds(ours), milliseconds(theirs)) for _ in range(options.runs)]
        own, other = (median(column) for column in zip(*times, strict=True))
        first = first or own
        print(
            f"| {count:,} | {rows:,} | {own:,.1f} | {other:,.0f} | {own / other:.2f} "
            f"| {own / first:,.0f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
