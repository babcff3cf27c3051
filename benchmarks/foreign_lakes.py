"""Compares queries of folders that other tools wrote, with DuckDB's and Polars' own readers.

``python benchmarks/foreign_lakes.py`` writes the same 2,400,000 rows, without an index, with

- DuckDB, Polars and Spark, each in 25 Hive folders (Spark only if pyspark and Java are there)
- pyarrow in one file
- pyarrow in 2,000 files, each of 500 rows of the first million
- DuckDB in one file, to which two ``lookup`` indexes are added.

For each lake it prints two tables. The first compares ``ia.sql`` with DuckDB's ``read_parquet``,
the second ``ia.polars.scan`` with ``polars.scan_parquet``. A cell is the median of 7 alternating
runs in milliseconds: the processor times of peer and Intarsia with their ratio, then the wall
times with theirs. Ratios are our time divided by the peer's. Our data set is opened beforehand;
both scans are made in each run. All readers use all cores.

The lake of Polars has a third table, of 32 predicates. ``python benchmarks/foreign_lakes.py
Polars`` runs one lake.
"""

import datetime as dt
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
import intarsia.spark as ias

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
c = pl.col
DAY = dt.datetime(2026, 1, 5)
FrameQuery = Callable[[pl.LazyFrame], pl.LazyFrame]
FRAME_QUERIES: dict[str, FrameQuery] = {
    "count, status = 500": lambda f: f.filter(c("status") == 500).select(pl.len()),
    "mean of lat by svc and zone": lambda f: f.group_by("svc", "zone").agg(c("lat").mean()),
    "u = 777": lambda f: f.filter(c("u") == 777),
    "id = 123456": lambda f: f.filter(c("id") == 123_456),
    "nine minutes": lambda f: f.filter(c("ts").is_between(DAY, DAY + dt.timedelta(minutes=9))),
    "count, msg contains": lambda f: f.filter(
        c("msg").str.contains("777 of user", literal=True)
    ).select(pl.len()),
    "status = 500 and lat > 990": lambda f: f.filter(c("status") == 500, c("lat") > 990),
    "status = 500": lambda f: f.filter(c("status") == 500),
    "one svc and zone": lambda f: f.filter(c("svc") == "pay", c("zone") == "a"),
    "count, min and max of ts": lambda f: f.select(
        pl.len(), c("ts").min().alias("first"), c("ts").max().alias("last")
    ),
    "top 5 by lat": lambda f: f.sort("lat", "id", descending=[True, False]).head(5),
    "head": lambda f: f.head(10),
    "count": lambda f: f.select(pl.len()),
}
PREDICATES: dict[str, pl.Expr] = {
    "id = ": c("id") == 123_456,
    "id in": c("id").is_in([7, 77_777, 2_399_999]),
    "id between": c("id").is_between(1_000_000, 1_000_900),
    "id <": c("id") < 500,
    "id is odd": c("id") % 2 == 1,
    "ts =": c("ts") == DAY,
    "ts between": c("ts").is_between(DAY, DAY + dt.timedelta(hours=1)),
    "ts on a day": c("ts").dt.date() == DAY.date(),
    "ts in an hour": c("ts").dt.hour() == 7,
    "svc =": c("svc") == "pay",
    "svc in": c("svc").is_in(["pay", "web"]),
    "svc and zone": (c("svc") == "pay") & (c("zone") == "a"),
    "svc or zone": (c("svc") == "pay") | (c("zone") == "a"),
    "svc <>": c("svc") != "pay",
    "status =": c("status") == 404,
    "status in": c("status").is_in([404, 500]),
    "status <>": c("status") != 200,
    "status >": c("status") > 600,
    "status is null": c("status").is_null(),
    "lat >": c("lat") > 999.9,
    "lat between": c("lat").is_between(10.0, 10.1),
    "lat < 500": c("lat") < 500,
    "lat is nan": c("lat").is_nan(),
    "u =": c("u") == 777,
    "u in": c("u").is_in([777, 7_777, 77_777]),
    "u = or lat =": (c("u") == 777) | (c("lat") == 7.77),
    "msg =": c("msg") == "message number 7 of user 7",
    "msg starts with": c("msg").str.starts_with("message number 77777"),
    "msg ends with": c("msg").str.ends_with("of user 777"),
    "msg contains": c("msg").str.contains("777 of user", literal=True),
    "msg matches": c("msg").str.contains("number 7+ of"),
    "status and lat": (c("status") == 500) & (c("lat") > 990),
}


def write_by_spark(rows: Path, folder: Path) -> None:
    """Writes the rows of a file with Spark's default settings, one file in each of 25 Hive folders.

    Raises ``MissingDependencyError`` if pyspark or Java is missing.
    """
    settings = {"spark.driver.memory": "2g", "spark.ui.showConsoleProgress": "false"}
    spark = ias.session("local[2]", **settings)
    try:
        spark.sparkContext.setLogLevel("ERROR")
        lake = spark.read.parquet(str(rows)).coalesce(1).write.partitionBy("svc", "zone")
        lake.parquet(str(folder))
    finally:
        spark.stop()


def write_lakes(folder: Path) -> dict[str, tuple[Path, str]]:
    """Writes the lakes. Returns the path of each, and the pattern of its files, by name."""
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
    lakes = {
        "DuckDB": (folder / "duckdb", f"{folder / 'duckdb'}/{nested}"),
        "Polars": (folder / "polars", f"{folder / 'polars'}/{nested}"),
        "pyarrow": (folder / "one.parquet", f"{folder / 'one.parquet'}"),
        "small files": (folder / "small", f"{folder / 'small'}/{flat}"),
        "indexed": (folder / "indexed.parquet", f"{folder / 'indexed.parquet'}"),
    }
    try:
        write_by_spark(folder / "one.parquet", folder / "spark")
        lakes["Spark"] = folder / "spark", f"{folder / 'spark'}/{nested}"
    except ia.MissingDependencyError as error:
        print(f"The lake of Spark is skipped: {error}")
    return lakes


def measure(run: Callable[[], Any]) -> tuple[float, float]:
    """Returns processor time and wall time of one run, in milliseconds."""
    processor, wall = time.process_time(), time.perf_counter()
    run()
    return (time.process_time() - processor) * 1e3, (time.perf_counter() - wall) * 1e3


def compare(theirs: Callable[[], Any], ours: Callable[[], Any]) -> list[float]:
    """Returns medians: both processor times in ms and their ratio, then the same of wall times."""
    theirs(), ours()
    pairs = [(measure(theirs), measure(ours)) for _ in range(RUNS)]
    cells = []
    for at in (0, 1):
        medians = [statistics.median(pair[side][at] for pair in pairs) for side in (0, 1)]
        ratios = [pair[1][at] / pair[0][at] for pair in pairs]
        cells += [*medians, statistics.median(ratios)]
    return cells


def main() -> None:
    """Prints the tables of each lake."""
    with tempfile.TemporaryDirectory() as scratch:
        for name, (path, pattern) in write_lakes(Path(scratch)).items():
            if name in (sys.argv[1:] or [name]):
                print_duckdb(name, path, pattern)
                print_polars(name, path, pattern, FRAME_QUERIES)
                if name == "Polars":
                    filters = {
                        text: partial(filter_rows, predicate)
                        for text, predicate in PREDICATES.items()
                    }
                    print_polars(f"{name}, filtered", path, pattern, filters)


def filter_rows(predicate: pl.Expr, frame: pl.LazyFrame) -> pl.LazyFrame:
    """Returns all columns of the rows that pass a predicate."""
    return frame.filter(predicate)


def print_duckdb(name: str, path: Path, pattern: str) -> None:
    """Prints a table of DuckDB and ``ia.sql`` on one lake."""
    print_header(name, "DuckDB")
    data = ia.dataset(path)
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.execute(
            f"CREATE VIEW t AS FROM read_parquet('{pattern}', hive_partitioning = true)"
        )

        def theirs(query: str) -> pa.Table:
            return connection.sql(query).to_arrow_table()

        for query in QUERIES:
            ours = partial(ia.sql, query, t=data)
            assert theirs(query).num_rows == ours().num_rows
            print_line(query.removeprefix("SELECT "), partial(theirs, query), ours)


def print_polars(name: str, path: Path, pattern: str, queries: dict[str, FrameQuery]) -> None:
    """Prints a table of Polars and ``ia.polars.scan`` on one lake."""
    print_header(name, "Polars")
    data, is_hive = ia.dataset(path), "**" in pattern

    def theirs(query: FrameQuery) -> pl.DataFrame:
        return query(pl.scan_parquet(pattern, hive_partitioning=is_hive)).collect()

    def ours(query: FrameQuery) -> pl.DataFrame:
        return query(ia.polars.scan(data)).collect()

    for text, query in queries.items():
        assert theirs(query).height == ours(query).height
        print_line(text, partial(theirs, query), partial(ours, query))


def print_header(name: str, peer: str) -> None:
    """Prints the header of a table."""
    print(f"\n| {name} | CPU: {peer} | ours | ratio | wall: {peer} | ours | ratio |")
    print("|---|---:|---:|---:|---:|---:|---:|")


def print_line(text: str, theirs: Callable[[], Any], ours: Callable[[], Any]) -> None:
    """Measures both callables and prints a line of a table."""
    cells = compare(theirs, ours)
    line = " | ".join(
        f"{cell:.2f}" if at % 3 == 2 else f"{cell:.1f}" for at, cell in enumerate(cells)
    )
    print(f"| `{text}` | {line} |", flush=True)


if __name__ == "__main__":
    main()
