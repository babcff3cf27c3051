"""Makes the data and the queries of the workloads of ``bench.py``.

Each workload is a function of the sizes and of a folder, where files stay once they are made.
"""

from __future__ import annotations

import functools
import glob
import importlib.util
import json
import re
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import attributes
import duckdb
import many_files
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads
import pyarrow.parquet as pq
import text
import text_keys
from layout import ORDERS, load_tpch
from logs import facts_of, log_file, without_indexes
from peers import (
    DATAFUSION,
    ENGINES,
    OURS,
    PYARROW,
    Query,
    Runner,
    duckdb_of,
    queries_of,
)

import intarsia as ia
from intarsia.writer.defaults import INDEXED_PAGE_ROWS

KEYS = ("trace_id", "user_id")
ART, SORTED = "DuckDB, table with ART", "sorted, bloom filters"
CHANGELOGS = "/usr/share/doc/*/changelog*.gz"


class SkippedError(Exception):
    """Raised if the machine lacks the data of a workload."""


@dataclass(frozen=True)
class Size:
    """The numbers of rows and files of all workloads, and the number of rounds."""

    rows: int
    tpch_scale: str
    files: int
    columns: int
    lakes: tuple[int, ...]
    """The numbers of rows of the tables of ``large.py``."""
    catalog_files: int
    seconds: float
    """The time of each measurement of ``service.py``."""
    runs: int


SIZES = {
    "smoke": Size(20_000, "0.01", 10, 50, (2_000, 20_000), 10, 0.2, 1),
    "bench": Size(2_000_000, "0.2", 500, 2_000, (300_000, 3_000_000), 2_000, 2, 4),
    "full": Size(10_000_000, "1", 2_000, 2_000, (10**7, 10**8, 10**9), 10_000, 10, 5),
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
    """Writes the rows of ``plain`` in short pages, and adds indexes, whose cost it returns."""

    def write(to: Path) -> None:
        ia.add_indexes(to, specs)

    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        file = pq.ParquetFile(plain)
        rows = pa.RecordBatchReader.from_batches(file.schema_arrow, file.iter_batches())
        ia.write_table(rows, path, max_rows_per_page=INDEXED_PAGE_ROWS)
    built = made(path, write)
    (report,) = ia.list_indexes(path)
    return built | {"index_bytes": sum(index.length for index in report.indexes)}


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

    write_table = functools.partial(write_duckdb_table, plain)
    built_by_peers = [made(ordered, write_sorted), made(table, write_table)]
    engines = on(plain) | {OURS: functools.partial(ENGINES[OURS], path)}
    for name, open_ in ENGINES.items():
        if name != OURS:
            engines[f"{name}, {SORTED}"] = functools.partial(open_, ordered)
    engines[ART] = functools.partial(by_duckdb_table, table)
    schema = pq.read_schema(plain)
    return Workload("logs", schema, queries_of(facts_of(source)), engines, [built, *built_by_peers])


def write_duckdb_table(rows: Path, path: Path) -> None:
    """Writes a DuckDB database with the rows of a file, and an ART index on each key."""
    with duckdb.connect(path) as connection:
        connection.execute(f"CREATE TABLE logs AS FROM '{rows}'")
        for key in KEYS:
            connection.execute(f"CREATE INDEX {key}_art ON logs ({key})")


def by_duckdb_table(path: Path) -> Runner:
    """Returns a runner on a DuckDB database that has the table ``logs``."""
    connection = duckdb.connect(path, read_only=True)
    return lambda query: connection.sql(query.select).to_arrow_table()


def tpch_workload(
    name: str, query: str, lookup: str, key: str, size: Size, folder: Path
) -> Workload:
    """Returns the rows of a value in two columns of a table of TPC-H in the order of ``key``."""
    tpch = folder / f"tpch-{size.tpch_scale}"
    tpch.mkdir(parents=True, exist_ok=True)
    plain, path = tpch / f"{name}-plain.parquet", tpch / f"{name}-indexed.parquet"

    def write(to: Path) -> None:
        ia.write_table(load_tpch(query, tpch, size.tpch_scale), to)

    built = [made(plain, write), with_indexes(path, plain, [ia.Lookup(lookup)])]
    keys, schema = pq.read_table(plain, columns=[lookup, key]), pq.read_schema(plain)
    queries = [equal_query(keys, column, schema) for column in (lookup, key)]
    engines = on(plain) | {OURS: functools.partial(ENGINES[OURS], path)}
    return Workload(name, schema, queries, engines, built)


def condition_query(
    path: Path,
    label: str,
    sql: str,
    arrow: Any,
    polars: pl.Expr,
    columns: Sequence[str],
    unsupported: tuple[str, ...] = (),
) -> Query:
    """Returns the query for a condition, whose rows DuckDB counts."""
    count = duckdb_of(path)(f"SELECT count(*) FROM logs WHERE {sql}")[0][0].as_py()
    query = Query(label, label, count, 0, sql=sql, arrow=arrow, polars=polars)
    return replace(query, columns=tuple(columns), unsupported=unsupported)


def attribute_workload(size: Size, folder: Path) -> Workload:
    """Returns lookups of one value in a map, in a list and in JSON text."""
    rows = size.rows // 4
    plain, path = (folder / f"attributes-{kind}{rows}.parquet" for kind in ("", "indexed-"))

    def write(to: Path) -> None:
        table = attributes.table_of(rows)
        maps = table["attrs"].combine_chunks()
        users = pc.map_lookup(maps, attributes.USER, "first")
        table = table.append_column("tags", pa.ListArray.from_arrays(maps.offsets, maps.items))
        payload = pc.binary_join_element_wise('{"user": "', users, '", "version": 2}', "")
        ia.write_table(table.append_column("payload", payload), to)

    indexes = ["entries(attrs)", "elements(tags)", "lookup(payload->>'$.user')"]
    built = [made(plain, write), with_indexes(path, plain, indexes)]
    key, (attrs, tags, payload) = attributes.USER, map(pl.col, ("attrs", "tags", "payload"))
    user = duckdb_of(plain)(f"SELECT attrs['{key}'] FROM logs LIMIT 1 OFFSET {rows // 5}")[0][0]
    user = user.as_py()
    in_list, in_json = f"list_contains(tags, '{user}')", f"payload->>'$.user' = '{user}'"
    json_value = payload.str.json_path_match("$.user")
    queries = [
        condition_query(plain, label, sql, arrow, polars, ("id", "duration"), unsupported)
        for label, sql, arrow, polars, unsupported in (
            (
                f"`attrs['{key}'] = …`",
                f"attrs['{key}'] = '{user}'",
                attributes.value(key) == user,
                attrs.map.get(key) == user,
                (),
            ),
            ("`list_contains(tags, …)`", in_list, in_list, tags.list.contains(user), (PYARROW,)),
            (
                "`payload->>'$.user' = …`",
                in_json,
                in_json,
                json_value == user,
                (PYARROW, *DATAFUSION),
            ),
        )
    ]
    engines = on(plain) | {OURS: functools.partial(ENGINES[OURS], path)}
    return Workload("attributes", pq.read_schema(plain), queries, engines, built)


def web_log_table(rows: int) -> pa.Table:
    """Returns requests for 50,000 paths by Zipf's law; every tenth address has a new session."""
    random = np.random.default_rng(3)
    words = ("shoes", "coats", "lamps", "chairs", "books", "games", "phones", "tools")
    kinds = ("/shop/{}/{:05}", "/blog/{}-{:05}", "/api/v1/{}/{:05}", "/static/{}.{:05}.js")
    paths = [kinds[n % 4].format(words[n // 4 % 8], n * 7919 % 100_003) for n in range(50_000)]
    shares = 1 / np.arange(1, len(paths) + 1)
    ranks = random.choice(len(paths), rows, p=shares / shares.sum())
    url = pa.array(["/", *paths[1:]]).take(pa.array(ranks))
    is_session = random.random(rows) < 0.1
    sessions = pa.array([random.bytes(8).hex() for _ in range(int(is_session.sum()))])
    query = pc.binary_join_element_wise("?session=", sessions, "")
    url = pc.binary_join_element_wise(
        url, pc.replace_with_mask(pa.array([""] * rows), pa.array(is_session), query), ""
    )
    return pa.table(
        {
            "ts": pa.array(np.cumsum(random.integers(1, 20_000, rows)), pa.timestamp("us")),
            "client": random.integers(0, max(rows // 10, 1), rows),
            "url": url,
            "status": random.choice(
                np.array([200, 301, 404, 500]), rows, p=[0.9, 0.05, 0.04, 0.01]
            ),
            "bytes": random.lognormal(8, 2, rows).astype(np.int64),
        }
    )


def web_log_workload(size: Size, folder: Path) -> Workload:
    """Returns searches in addresses: a rare and a frequent one, one session, and a folder."""
    plain, path = (folder / f"web-log-{kind}{size.rows}.parquet" for kind in ("", "indexed-"))
    built = [
        made(plain, lambda to: ia.write_table(web_log_table(size.rows), to)),
        with_indexes(path, plain, [ia.Lookup("url"), ia.NGram("url", granule_rows=256)]),
    ]
    schema, url, frame = pq.read_schema(plain), pc.field("url"), pl.col("url")
    run_sql = duckdb_of(plain)
    few = "NOT LIKE '%?%' GROUP BY url ORDER BY count(*), url"
    rare, address = (
        run_sql(f"SELECT url FROM logs WHERE url {condition} LIMIT 1")[0][0].as_py()
        for condition in (few, "LIKE '%session%' ORDER BY url")
    )
    session = address[-16:]
    tools = "/static/tools."
    queries = [
        condition_query(plain, label, sql, arrow, polars, schema.names)
        for label, sql, arrow, polars in (
            ("`url = …`, rare", f"url = '{rare}'", url == rare, frame == rare),
            ("`url = '/'`, the most frequent", "url = '/'", url == "/", frame == "/"),
            (
                "`url LIKE '%session%'`, one session",
                f"url LIKE '%{session}%'",
                pc.match_substring(url, session),
                frame.str.contains(session, literal=True),
            ),
            (
                f"`url LIKE '{tools}%'`",
                f"url LIKE '{tools}%'",
                pc.starts_with(url, tools),
                frame.str.starts_with(tools),
            ),
        )
    ]
    engines = on(plain) | {OURS: functools.partial(ENGINES[OURS], path)}
    return Workload("web log", schema, queries, engines, built)


def changelog_workload(size: Size, folder: Path) -> Workload:
    """Returns the searches of ``text.py`` in lines of Debian's changelogs."""
    if not glob.glob(CHANGELOGS):
        raise SkippedError(f"no file is called {CHANGELOGS}")
    path = folder / f"changelogs-indexed-{size.rows}.parquet"
    plain = text_keys.table_of(CHANGELOGS, size.rows, folder)

    queries = [
        condition_query(plain, q.name, q.datafusion, q.ours, q.polars, ["text"], unsupported)
        for q in text.QUERIES
        for unsupported in [(PYARROW,) if "contains_words" in str(q.ours) else ()]
    ]
    engines = on(plain) | {OURS: functools.partial(ENGINES[OURS], path)}
    built = [with_indexes(path, plain, [ia.NGram("text"), ia.Words("text")])]
    if importlib.util.find_spec("infino"):
        table = folder / f"changelogs-infino-{size.rows}"
        built.append(made(table, functools.partial(write_infino_table, plain)))
        engines["infino"] = functools.partial(by_infino, table)
    return Workload("changelogs", pq.read_schema(plain), queries, engines, built)


def write_infino_table(rows: Path, path: Path) -> None:
    """Writes Infino's table with the lines of a file, and an index on their words."""
    import infino

    schema = pa.schema([pa.field("text", pa.large_string(), nullable=False)])
    indexes = infino.IndexSpec().fts("text")
    table = infino.connect(str(path)).create_table("logs", schema, indexes)
    table.append(pq.read_table(rows).cast(schema))
    table.optimize()


def by_infino(path: Path) -> Runner:
    """Returns a runner on Infino's table, which searches words by its index."""
    import infino

    connection = infino.connect(str(path))
    table = connection.open_table("logs")

    def run(query: Query) -> pa.Table:
        words = re.search(r'contains_words\(text, "(.*)"\)', str(query.arrow))
        if words:
            return table.token_match("text", words[1], mode="and", projection=["text"])
        return connection.query_sql(query.select)

    return run


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
    queries = [
        replace(number_query("id", 77, 1, names), text=f"`id = …`, {len(names):,} columns")
        for names in (schema.names[:3], schema.names)
    ]
    return Workload("wide table", schema, queries, on(path), [built])


def foreign_file(writer: str, size: Size, folder: Path) -> tuple[Path, dict[str, Any]]:
    """Returns the log table as another tool writes it by default, and what that cost."""
    source = log_file(size.rows, folder)
    path = folder / f"{writer}-{size.rows}.parquet"

    def by_duckdb(to: Path) -> None:
        duckdb.sql(f"COPY (FROM '{source}') TO '{to}' (FORMAT parquet)")

    def by_polars(to: Path) -> None:
        pl.scan_parquet(source).sink_parquet(to)

    return path, made(path, {"DuckDB": by_duckdb, "Polars": by_polars}[writer])


def foreign_workload(writer: str, size: Size, folder: Path) -> Workload:
    """Returns the queries of the log table on a file of another tool's, as it comes."""
    path, built = foreign_file(writer, size, folder)
    source = log_file(size.rows, folder)
    queries = [
        replace(query, text=re.sub(", (lookup index|page index only)", ", no index", query.text))
        for query in queries_of(facts_of(source))
    ]
    return Workload(f"file by {writer}", pq.read_schema(source), queries, on(path), [built])


def foreign_lookup_workload(writer: str, size: Size, folder: Path) -> Workload:
    """Returns the queries of keys on the same file, to which lookup indexes were added."""
    plain, built = foreign_file(writer, size, folder)
    path = folder / f"{writer}-indexed-{size.rows}.parquet"
    if not path.exists():
        shutil.copyfile(plain, path)
    added = with_indexes(path, plain, [ia.Lookup(key) for key in KEYS])
    source = log_file(size.rows, folder)
    queries = [query for query in queries_of(facts_of(source)) if query.name in KEYS]
    engines = on(plain) | {OURS: functools.partial(ENGINES[OURS], path)}
    name = f"file by {writer}, lookups added"
    return Workload(name, pq.read_schema(source), queries, engines, [built, added])


WORKLOADS: dict[str, Callable[[Size, Path], Workload]] = {
    "logs": log_workload,
    "lineitem": functools.partial(
        tpch_workload,
        "lineitem",
        "FROM lineitem ORDER BY l_orderkey, l_linenumber",
        "l_partkey",
        "l_orderkey",
    ),
    "orders": functools.partial(tpch_workload, "orders", ORDERS, "o_custkey", "o_orderkey"),
    "attributes": attribute_workload,
    "web log": web_log_workload,
    "changelogs": changelog_workload,
    "small files": small_file_workload,
    "wide table": wide_workload,
    **{
        f"file by {writer}{what}": functools.partial(make, writer)
        for writer in ("DuckDB", "Polars")
        for what, make in (("", foreign_workload), (", lookups added", foreign_lookup_workload))
    },
}
