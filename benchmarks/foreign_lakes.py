"""SQL over lakes that other tools wrote, beside DuckDB's own reader.

``python benchmarks/foreign_lakes.py`` writes the same 2,400,000 rows with DuckDB (25 Hive folders),
Polars (25 Hive folders), pyarrow (one file) and pyarrow again (2,000 files of 500 rows each), none
with an index of ours, and a copy of a DuckDB file to which two ``lookup`` indexes are added. It
prints medians of alternating runs, in milliseconds: processor time and wall time of DuckDB over
``read_parquet``, and of ``ia.sql`` over a data set that is open, then their ratio, ours to
DuckDB's. Both use all cores. ``python benchmarks/foreign_lakes.py DuckDB`` runs one lake.
"""

import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

import intarsia as ia

RUNS, ROWS, SMALL_FILES, SMALL_ROWS = 7, 2_400_000, 2_000, 500
ROWS_QUERY = f"""
    SELECT range AS id, TIMESTAMP '2026-01-01' + INTERVAL (range) SECOND AS ts,
        ['api', 'auth', 'cart', 'pay', 'web'][1 + (hash(range) % 5)::INT] AS svc,
        ['a', 'b', 'c', 'd', 'e'][1 + (hash(range + 7) % 5)::INT] AS zone,
        [200, 200, 200, 200, 404, 500][1 + (hash(range + 1) % 6)::INT]::INT AS status,
        (hash(range + 2) % 100000) / 100.0::DOUBLE AS lat, (hash(range + 3) % 100000)::INT AS u,
        'message number ' || (hash(range + 4) % 1000000) || ' of user ' || u AS msg
    FROM range({ROWS})
"""
QUERIES = [
    "SELECT count(*) FROM t WHERE status = 500",
    "SELECT svc, zone, avg(lat) FROM t GROUP BY svc, zone",
    "SELECT * FROM t WHERE u = 777",
    "SELECT * FROM t WHERE id = 123456",
    "SELECT * FROM t WHERE ts BETWEEN TIMESTAMP '2026-01-05' AND TIMESTAMP '2026-01-05 00:09:00'",
    "SELECT count(*) FROM t WHERE msg LIKE '%777 of user%'",
    "SELECT * FROM t WHERE status = 500 AND lat > 990",
    "SELECT count(*), min(ts), max(ts) FROM t",
    "SELECT * FROM t ORDER BY lat DESC, id LIMIT 5",
    "SELECT * FROM t LIMIT 10",
    "SELECT * FROM t USING SAMPLE 3",
]
Times = dict[str, list[tuple[float, float]]]


def write_lakes(folder: Path) -> dict[str, tuple[Path, str]]:
    """Writes the lakes; returns their paths, and DuckDB's pattern of their files, by name."""
    with duckdb.connect() as connection:
        table = connection.sql(ROWS_QUERY).to_arrow_table()
        connection.register("rows_of_lake", table)
        by_folder = "(FORMAT parquet, PARTITION_BY (svc, zone))"
        connection.execute(f"COPY rows_of_lake TO '{folder / 'duckdb'}' {by_folder}")
        connection.execute(f"COPY rows_of_lake TO '{folder / 'indexed.parquet'}' (FORMAT parquet)")
    ia.add_indexes(folder / "indexed.parquet", [ia.Lookup("id"), ia.Lookup("u")])
    frame = pl.DataFrame(table)
    keys = pl.PartitionBy(folder / "polars", key=["svc", "zone"], include_key=False)
    frame.lazy().sink_parquet(keys, mkdir=True)
    pq.write_table(table, folder / "one.parquet")
    (folder / "small").mkdir()
    for number in range(SMALL_FILES):
        part = table.slice(number * SMALL_ROWS, SMALL_ROWS)
        pq.write_table(part, folder / "small" / f"{number:04}.parquet")
    nested, flat = "**/*.parquet", "*.parquet"
    return {
        "DuckDB": (folder / "duckdb", f"{folder / 'duckdb'}/{nested}"),
        "Polars": (folder / "polars", f"{folder / 'polars'}/{nested}"),
        "pyarrow": (folder / "one.parquet", f"{folder / 'one.parquet'}"),
        "small files": (folder / "small", f"{folder / 'small'}/{flat}"),
        "indexed": (folder / "indexed.parquet", f"{folder / 'indexed.parquet'}"),
    }


def timed(run: Callable[[], Any]) -> tuple[float, float]:
    """Processor time and wall time of one run, in milliseconds."""
    processor, wall = time.process_time(), time.perf_counter()
    run()
    return (time.process_time() - processor) * 1e3, (time.perf_counter() - wall) * 1e3


def compared(theirs: Callable[[], Any], ours: Callable[[], Any]) -> list[float]:
    """Medians: processor times of both and their ratio, then wall times and their ratio."""
    theirs(), ours()
    pairs = [(timed(theirs), timed(ours)) for _ in range(RUNS)]
    cells = []
    for at in (0, 1):
        both = [statistics.median(pair[who][at] for pair in pairs) for who in (0, 1)]
        ratios = [pair[1][at] / pair[0][at] for pair in pairs]
        cells += [*both, statistics.median(ratios)]
    return cells


def main() -> None:
    """Print a table for each lake."""
    with tempfile.TemporaryDirectory() as scratch:
        for name, (path, pattern) in write_lakes(Path(scratch)).items():
            if name in (sys.argv[1:] or [name]):
                print_lake(name, path, pattern)


def print_lake(name: str, path: Path, pattern: str) -> None:
    """Print the table of one lake."""
    print(f"\n| {name} | CPU: DuckDB | ours | ratio | wall: DuckDB | ours | ratio |")
    print("|---|---:|---:|---:|---:|---:|---:|")
    own = ia.dataset(path)
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.execute(
            f"CREATE VIEW t AS FROM read_parquet('{pattern}', hive_partitioning = true)"
        )

        def theirs(query: str) -> pa.Table:
            return connection.sql(query).to_arrow_table()

        for query in QUERIES:
            ours = partial(ia.sql, query, t=own)
            assert theirs(query).num_rows == ours().num_rows
            cells = compared(partial(theirs, query), ours)
            shown = " | ".join(
                f"{cell:.2f}" if at % 3 == 2 else f"{cell:.1f}" for at, cell in enumerate(cells)
            )
            print(f"| `{query.removeprefix('SELECT ')}` | {shown} |", flush=True)


if __name__ == "__main__":
    main()
