"""Makes the data and the queries of the workloads of ``bench.py``.

Each workload is a function of the sizes and of a folder, where files stay once they are made.
"""

from __future__ import annotations

import functools
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import many_files
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads
import pyarrow.parquet as pq
from layout import load_tpch
from logs import facts_of, log_file, without_indexes
from peers import ENGINES, OURS, Query, Runner, queries_of

import intarsia as ia

KEYS = ("trace_id", "user_id")
ART, SORTED = "DuckDB, table with ART", "sorted, bloom filters"


@dataclass(frozen=True)
class Size:
    """The numbers of rows and files of all workloads, and the number of rounds."""

    rows: int
    tpch_scale: str
    files: int
    columns: int
    runs: int


SIZES = {
    "smoke": Size(rows=20_000, tpch_scale="0.01", files=10, columns=50, runs=1),
    "bench": Size(rows=2_000_000, tpch_scale="0.2", files=500, columns=2_000, runs=5),
    "full": Size(rows=10_000_000, tpch_scale="1", files=2_000, columns=2_000, runs=9),
}


@dataclass(frozen=True)
class Workload:
    """Data, queries, and a function for each engine that opens the data."""

    name: str
    schema: pa.Schema
    queries: list[Query]
    engines: dict[str, Callable[[], Runner]]
    built: list[dict[str, Any]]
    """Seconds and bytes of each file that was made."""


def made(path: Path, write: Callable[[Path], object]) -> dict[str, Any]:
    """Writes ``path`` unless it exists. Returns what it cost then, and its size."""
    record = path.with_name(f"{path.name}.built.json")
    if not record.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        start, processor = time.perf_counter(), time.process_time()
        write(path)
        processor_seconds = time.process_time() - processor
        seconds = time.perf_counter() - start
        record.write_text(json.dumps([seconds, processor_seconds]))
    seconds, processor_seconds = json.loads(record.read_text())
    files = path.rglob("*") if path.is_dir() else [path]
    size = sum(file.stat().st_size for file in files if file.is_file())
    return {
        "file": path.name,
        "bytes": size,
        "seconds": seconds,
        "processor_seconds": processor_seconds,
    }


def with_indexes(path: Path, plain: Path, specs: Sequence[Any]) -> dict[str, Any]:
    """Copies ``plain`` to ``path`` and adds indexes. Counts only the indexes as built."""

    def write(to: Path) -> None:
        ia.add_indexes(to, specs)

    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(plain.read_bytes())
    before = plain.stat().st_size
    built = made(path, write)
    return built | {"index_bytes": built["bytes"] - before}


def on(path: Path) -> dict[str, Callable[[], Runner]]:
    """Returns the engines that open one file or folder."""
    return {name: functools.partial(open_, path) for name, open_ in ENGINES.items()}


def log_workload(size: Size, folder: Path) -> Workload:
    """Returns the queries of ``peers.py``, with the peers' better layouts."""
    source = log_file(size.rows, folder)
    plain = without_indexes(source)
    path = folder / f"bench-indexed-{size.rows}.parquet"
    built = with_indexes(path, plain, [ia.Lookup(key) for key in KEYS])
    ordered = folder / f"bench-sorted-{size.rows}.parquet"
    table = folder / f"bench-{size.rows}.duckdb"

    def write_sorted(to: Path) -> None:
        rows = pq.read_table(plain).sort_by("trace_id")
        pq.write_table(rows, to, compression="zstd", write_page_index=True, row_group_size=122_880)
        ia.add_indexes(to, [ia.Bloom(key) for key in KEYS])

    def write_table(to: Path) -> None:
        with duckdb.connect(to) as connection:
            connection.execute(f"CREATE TABLE logs AS FROM '{plain}'")
            for key in KEYS:
                connection.execute(f"CREATE INDEX {key}_art ON logs ({key})")

    built_by_peers = [made(ordered, write_sorted), made(table, write_table)]
    engines = on(plain) | {OURS: functools.partial(ENGINES[OURS], path)}
    for name, open_ in ENGINES.items():
        if name != OURS:
            engines[f"{name}, {SORTED}"] = functools.partial(open_, ordered)
    engines[ART] = functools.partial(by_duckdb_table, table)
    schema = pq.read_schema(plain)
    return Workload("logs", schema, queries_of(facts_of(source)), engines, [built, *built_by_peers])


def by_duckdb_table(path: Path) -> Runner:
    """Returns a runner on a DuckDB database that has the table ``logs``."""
    connection = duckdb.connect(path, read_only=True)
    return lambda query: connection.sql(query.select).to_arrow_table()


def line_item_workload(size: Size, folder: Path) -> Workload:
    """Returns lookups and ranges on TPC-H's line items, in the order of ``l_orderkey``."""
    tpch = folder / f"tpch-{size.tpch_scale}"
    tpch.mkdir(parents=True, exist_ok=True)
    plain, path = tpch / "plain.parquet", tpch / "indexed.parquet"

    def write(to: Path) -> None:
        rows = load_tpch("FROM lineitem ORDER BY l_orderkey, l_linenumber", tpch, size.tpch_scale)
        ia.write_table(rows, to)

    built = [made(plain, write), with_indexes(path, plain, [ia.Lookup("l_partkey")])]
    keys = pq.read_table(plain, columns=["l_orderkey", "l_partkey"])
    schema = pq.read_schema(plain)
    queries = [
        equal_query(keys, "l_partkey", schema),
        equal_query(keys, "l_orderkey", schema),
    ]
    engines = on(plain) | {OURS: functools.partial(ENGINES[OURS], path)}
    return Workload("lineitem", schema, queries, engines, built)


def equal_query(table: pa.Table, column: str, schema: pa.Schema) -> Query:
    """Returns the query for the rows that equal the value in the middle of the table."""
    value = table[column][len(table) // 2].as_py()
    count = pc.sum(pc.equal(table[column], value)).as_py()
    return number_query(column, value, count, schema.names)


def number_query(column: str, value: int, count: int, columns: Sequence[str]) -> Query:
    """Returns the query for ``column = value``, a number."""
    condition = f"{column} = {value}"
    return Query(
        column,
        f"`{column} = …`",
        count,
        0,
        sql=condition,
        arrow=pc.field(column) == value,
        polars=pl.col(column) == value,
        columns=tuple(columns),
    )


def small_file_workload(size: Size, folder: Path) -> Workload:
    """Returns the conditions of ``many_files.py`` on its files."""
    path = folder / f"small-files-{size.files}"

    def write(to: Path) -> None:
        to.mkdir(exist_ok=True)
        many_files.write(to, size.files, 500)

    built = made(path, write)
    data = pads.dataset(path)
    table = data.to_table(columns=["ts", "user_id"])
    queries = [equal_query(table, name, data.schema) for name in ("ts", "user_id")]
    return Workload("small files", data.schema, queries, on(path), [built])


def wide_workload(size: Size, folder: Path) -> Workload:
    """Returns one row of a table of many columns: of three of them, and of all."""
    path = folder / f"wide-{size.columns}.parquet"
    rows = 10_000

    def write(to: Path) -> None:
        random_values = np.random.default_rng(1)
        columns = {f"c{n}": random_values.random(rows) for n in range(size.columns)}
        ia.write_table(pa.table({"id": random_values.permutation(rows)} | columns), to)

    built = made(path, write)
    schema = pq.read_schema(path)
    queries = [number_query("id", 77, 1, names) for names in (schema.names[:3], schema.names)]
    return Workload("wide table", schema, queries, on(path), [built])


def foreign_workload(writer: str, size: Size, folder: Path) -> Workload:
    """Returns the queries of the log table on a file of another tool's, without an index."""
    source = log_file(size.rows, folder)
    path = folder / f"{writer}-{size.rows}.parquet"

    def by_duckdb(to: Path) -> None:
        duckdb.sql(f"COPY (FROM '{source}') TO '{to}' (FORMAT parquet)")

    def by_polars(to: Path) -> None:
        pl.scan_parquet(source).sink_parquet(to)

    built = made(path, {"DuckDB": by_duckdb, "Polars": by_polars}[writer])
    schema = pq.read_schema(source)
    return Workload(f"file by {writer}", schema, queries_of(facts_of(source)), on(path), [built])


WORKLOADS: dict[str, Callable[[Size, Path], Workload]] = {
    "logs": log_workload,
    "lineitem": line_item_workload,
    "small files": small_file_workload,
    "wide table": wide_workload,
    "file by DuckDB": functools.partial(foreign_workload, "DuckDB"),
    "file by Polars": functools.partial(foreign_workload, "Polars"),
}
