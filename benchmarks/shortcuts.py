"""Measures each step that ``ia.sql`` and ``ia.polars.scan`` take before an engine runs a query.

The data is the table of ``foreign_lakes.py``, 2,400,000 rows, in six lakes:

- by Intarsia, in pages of 2,048 and of 20,000 rows, with three indexes
- by DuckDB and by Polars, in 25 Hive folders each
- by pyarrow, in one file and in 500 files.

``remote`` is the first lake through fsspec, which no engine's own reader can use. The lakes stay in
the folder ``bench-data``.

``python benchmarks/shortcuts.py`` prints a line for each step, lake and query: the median
processor time and wall time in milliseconds, with the step and without it, and the ratio of the
latter to the former. Runs alternate. Answers are compared before the clock starts.
``python benchmarks/shortcuts.py top_k remote`` measures one step on one lake.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import statistics
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import duckdb
import fsspec
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
from foreign_lakes import ROWS_QUERY, measure

import intarsia as ia

RUNS = 5
SMALL_FILES = 500
FOLDER = Path("bench-data/shortcuts")
SQL = "intarsia.engines.duckdb.sql"
POLARS = "intarsia.engines.polars"
c = pl.col
DAY = dt.datetime(2026, 1, 5)

Step = dict[str, Any]
"""Replacements that switch a step off, by the name of what they replace."""


def unchanged(first: Any, *rest: Any, **_: Any) -> Any:
    """Returns the first argument."""
    return first


def no_first(table: Any, scan: Any, left: Any, **_: Any) -> Any:
    """Returns a scan's filter without a condition for the first rows."""
    return left


def nothing(*_: Any, **__: Any) -> None:
    """Returns None."""


def plain_filter(joined: Any, scan: Any) -> Any:
    """Returns a scan's filter without join keys."""
    return scan.filter


STEPS: dict[str, tuple[Step, tuple[str, ...]]] = {
    "offset": (
        {f"{SQL}.from_offset": lambda query, tables: (query, tables)},
        (
            "SELECT * FROM t LIMIT 10 OFFSET 1500000",
            "SELECT id, svc FROM t LIMIT 100 OFFSET 2000000",
        ),
    ),
    "scalar_subqueries": (
        {f"{SQL}.with_values": unchanged},
        (
            "SELECT * FROM t WHERE ts = (SELECT max(ts) FROM t)",
            "SELECT * FROM t WHERE ts > (SELECT max(ts) - INTERVAL 1 HOUR FROM t)",
            "SELECT count(*) FROM t WHERE lat > (SELECT avg(lat) FROM t)",
            "SELECT * FROM t WHERE u = (SELECT max(u) FROM few)",
            "SELECT * FROM t WHERE trace = (SELECT max(trace) FROM few)",
        ),
    ),
    "join_keys": (
        {"intarsia.engines.duckdb.join_keys.Joined.filter_of": plain_filter},
        (
            "SELECT t.* FROM t JOIN few ON t.u = few.u",
            "SELECT * FROM t WHERE u IN (SELECT u FROM few)",
            "SELECT b.* FROM t a JOIN t b ON a.u = b.u WHERE a.id = 123456",
            "SELECT few.u, t.lat FROM few LEFT JOIN t ON t.u = few.u",
            "SELECT count(*), avg(lat) FROM t JOIN users USING (u) WHERE users.land = 7",
            "SELECT land, count(*) FROM t JOIN users USING (u) GROUP BY land",
            "SELECT t.* FROM t JOIN few ON t.ts = few.ts",
            "SELECT t.* FROM t JOIN few ON t.trace = few.trace",
            "SELECT * FROM t WHERE trace IN (SELECT trace FROM few)",
            "SELECT b.* FROM t a JOIN t b ON a.trace = b.trace WHERE a.id = 123456",
        ),
    ),
    "top_k": (
        {f"{SQL}._first": no_first},
        (
            "SELECT * FROM t ORDER BY ts DESC LIMIT 10",
            "SELECT * FROM t WHERE status = 500 ORDER BY ts DESC LIMIT 10",
            "SELECT * FROM t WHERE svc = 'pay' ORDER BY ts DESC LIMIT 100",
            "SELECT * FROM t ORDER BY lat DESC, id LIMIT 10",
            "SELECT * FROM t ORDER BY u, id LIMIT 10",
            "SELECT min(ts), max(ts) FROM t",
            "SELECT max(ts) FROM t WHERE status = 404",
        ),
    ),
    "limit": (
        {"intarsia.sql.query.limit_pushdown._limit_of": nothing},
        (
            "SELECT * FROM t LIMIT 10",
            "SELECT * FROM t WHERE status = 500 LIMIT 10",
            "SELECT * FROM t WHERE u = 777 LIMIT 1",
            "SELECT * FROM t WHERE msg LIKE '%777 of user%' LIMIT 10",
        ),
    ),
    "count": (
        {"intarsia.sql.query.limit_pushdown._is_count": lambda _: False},
        (
            "SELECT count(*) FROM t",
            "SELECT count(*) FROM t WHERE status = 500",
            "SELECT count(*) FROM t WHERE u = 777",
            "SELECT count(*) FROM t WHERE ts >= TIMESTAMP '2026-01-20'",
        ),
    ),
    "hidden_bounds": (
        {"intarsia.engines.duckdb.native_scan._may_give_bounds": lambda _: True},
        (
            "SELECT svc, avg(lat) FROM t WHERE lat > 990 GROUP BY svc",
            "SELECT * FROM t WHERE lat > 999.9",
            "SELECT svc, avg(lat) FROM t GROUP BY svc",
            "SELECT count(*) FROM t WHERE sec BETWEEN 1000000 AND 1001000",
        ),
    ),
}
FRAMES: dict[str, tuple[Step, tuple[pl.Expr, ...]]] = {
    "predicate": (
        {f"{POLARS}.predicate.arrow_predicate": nothing},
        (c("u") == 777, c("ts").is_between(DAY, DAY + dt.timedelta(minutes=9))),
    ),
    "temporal": (
        {f"{POLARS}.operands.date_part": nothing},
        (
            c("ts").dt.date() == DAY.date(),
            c("ts").dt.truncate("1h") == DAY,
            (c("ts").dt.month() == 1) & (c("ts").dt.day() == 5),
            c("ts").dt.year() == 2025,
        ),
    ),
    "cast_ranges": (
        {f"{POLARS}.predicate._Converter._compare_in_order": nothing},
        (
            c("ts").is_between(DAY, DAY + dt.timedelta(minutes=9)),
            c("ns").is_between(DAY, DAY + dt.timedelta(minutes=9)),
            c("ts") == DAY.date(),
            c("id").is_between(1e6, 1.001e6),
            c("u") == 777.0,
            c("cost") == 7.77,
            c("ns") == DAY,
        ),
    ),
    "regex": (
        {f"{POLARS}.strings.means_the_same": lambda _: False},
        (
            c("msg").str.contains("number .* overheated"),
            c("msg").str.contains("(timeout|refused)$"),
        ),
    ),
    "strings": (
        {f"{POLARS}.predicate.convert_search": nothing},
        (
            c("msg").str.starts_with("overheat"),
            c("msg").str.contains("overheat", literal=True),
            c("msg").str.contains("overheat"),
        ),
    ),
    "lower_case": (
        {
            f"{POLARS}.predicate.convert_lower_case_search": nothing,
            f"{POLARS}.predicate.lower_case_equals": nothing,
            f"{POLARS}.predicate.upper_case_equals": nothing,
        },
        (
            c("msg").str.to_lowercase().str.contains("overheat"),
            c("msg").str.to_lowercase() == "overheated",
        ),
    ),
    "operand_casts": (
        {f"{POLARS}.operands._CASTS": {}},
        (c("u").is_in(pl.Series([777, 778])), c("status").cast(pl.String) == "500"),
    ),
}


@contextlib.contextmanager
def without(step: Step) -> Iterator[None]:
    """Switches a step off."""
    with contextlib.ExitStack() as stack:
        for name, replacement in step.items():
            stack.enter_context(mock.patch(name, replacement))
        yield


LAKES = {"2,048": "2048.parquet", "20,000": "20000.parquet", "DuckDB": "duckdb"}
LAKES |= {"Polars": "polars", "pyarrow": "one.parquet", "small": "small", "remote": "2048.parquet"}
INDEXED = ("2,048", "20,000", "remote")


def write_lakes(folder: Path) -> None:
    """Writes the lakes."""
    folder.mkdir(parents=True)
    with duckdb.connect() as connection:
        table = connection.sql(
            f"SELECT *, md5(id::VARCHAR) AS trace, id + 0.5::DOUBLE AS sec FROM ({ROWS_QUERY})"
        ).to_arrow_table()
        connection.register("lake", table)
        by_folder = "(FORMAT parquet, PARTITION_BY (svc, zone))"
        connection.execute(f"COPY lake TO '{folder / 'duckdb'}' {by_folder}")
    rich = table.append_column("ns", table["ts"].cast(pa.timestamp("ns")))
    rich = rich.append_column("cost", table["lat"].cast(pa.decimal128(9, 2)))
    for page_rows in (2_048, 20_000):
        options: dict[str, Any] = {"max_rows_per_page": page_rows, "row_group_size": 240_000}
        indexes = [ia.Lookup("trace"), ia.Lookup("u"), ia.NGram("msg")]
        ia.write_table(rich, folder / f"{page_rows}.parquet", indexes=indexes, **options)
    pq.write_table(table, folder / "one.parquet", row_group_size=200_000)
    keys = pl.PartitionBy(folder / "polars", key=["svc", "zone"], include_key=False)
    pl.DataFrame(table).lazy().sink_parquet(keys, mkdir=True)
    (folder / "small").mkdir()
    count = len(table) // SMALL_FILES
    for number in range(SMALL_FILES):
        pq.write_table(table.slice(number * count, count), folder / f"small/{number:04}.parquet")


def open_lake(lake: str) -> ia.Dataset:
    """Opens a lake. Files of a file system other than the local one are never handed over."""
    path = str((FOLDER / LAKES[lake]).absolute())
    if lake != "remote":
        return ia.dataset(path)
    return ia.dataset(path, filesystem=fsspec.filesystem("local"))


def other_tables(lake: Path) -> dict[str, pa.Table]:
    """Returns the tables in memory that the queries join with a lake."""
    sql = {
        "few": f"SELECT u, ts, trace FROM '{lake}' WHERE id IN (77, 777777, 2000000)",
        "users": "SELECT range::INT AS u, (hash(range) % 1000)::INT AS land FROM range(100000)",
        "zones": "SELECT unnest(['a', 'b', 'c', 'd', 'e']) AS zone",
    }
    with duckdb.connect() as connection:
        return {name: connection.sql(query).to_arrow_table() for name, query in sql.items()}


def rows_of(answer: pa.Table | pl.DataFrame) -> list[Any]:
    """Returns an answer in an order that does not depend on the reader."""
    return sorted(map(repr, answer.to_pylist() if isinstance(answer, pa.Table) else answer.rows()))


def print_line(name: str, step: Step, lake: str, text: str, run: Callable[[], Any]) -> None:
    """Measures ``run`` with and without a step, and prints a line."""
    with without(step):
        expected = run()
    actual = run()
    is_any = "LIMIT" in text and "ORDER" not in text
    if not (is_any or "avg" in text or rows_of(actual) == rows_of(expected)):
        raise SystemExit(f"{text}: {actual} without {name}, {expected} with it")
    pairs = []
    for _ in range(RUNS):
        with_step = measure(run)
        with without(step):
            pairs.append((with_step, measure(run)))
    cells = []
    for at in (0, 1):
        medians = [statistics.median(pair[side][at] for pair in pairs) for side in (0, 1)]
        cells += [f"{median:.1f}" for median in medians]
        cells.append(f"{medians[1] / medians[0]:.2f}")
    print(f"| {name} | {lake} | `{text}` | {' | '.join(cells)} |", flush=True)


def filtered(data: ia.Dataset, predicate: pl.Expr) -> pl.DataFrame:
    """Returns the rows of a scan that pass a predicate."""
    return ia.polars.scan(data).filter(predicate).collect()


def main() -> None:
    """Prints a line for each step, lake and query."""
    names = [name for name in sys.argv[1:] if name in {*STEPS, *FRAMES}] or [*STEPS, *FRAMES]
    print("| step | lake | query | CPU with | without | ratio | wall with | without | ratio |")
    print("|---|---|---|---:|---:|---:|---:|---:|---:|")
    if not FOLDER.exists():
        write_lakes(FOLDER)
    others = other_tables(FOLDER / LAKES["2,048"])
    for lake in [name for name in LAKES if name in sys.argv[1:]] or LAKES:
        data = open_lake(lake)
        for name in names:
            if name in STEPS:
                step, queries = STEPS[name]
                for query in queries:
                    print_line(name, step, lake, query, partial(ia.sql, query, t=data, **others))
            elif lake in INDEXED:
                step, predicates = FRAMES[name]
                for predicate in predicates:
                    text = str(predicate).replace("|", "or")
                    print_line(name, step, lake, text, partial(filtered, data, predicate))


if __name__ == "__main__":
    main()
