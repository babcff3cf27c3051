"""Defines the queries of the log table, and one small function for each engine that runs them.

All engines run under the same conditions:

- All read the same file from the page cache. The peers ignore its lookup indexes, which no other
  reader knows. Page indexes and statistics belong to the format, and all engines may use them.
- Warm means opened beforehand. pyarrow keeps its data set, Polars its lazy frame, DataFusion its
  registered table and metadata cache. DuckDB keeps its connection and, by the setting
  ``parquet_metadata_cache``, footers. Intarsia keeps its data set, with footer and indexes.
- All other settings are the defaults, the number of threads too. DataFusion runs a second time
  with ``pushdown_filters`` and ``reorder_filters``.
- An answer is complete, in memory, in the engine's own form: an Arrow table for pyarrow, Intarsia
  and DuckDB, record batches for DataFusion, a data frame for Polars.
- Before any clock starts, all answers are checked to have the same rows.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NoReturn

import datafusion
import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads
from logs import RANGE_ROWS, RARE, RARE_ROWS, SCHEMA, SLOW_MS, Facts

import intarsia as ia

OURS = "Intarsia"
PYARROW = "pyarrow"
DATAFUSION = ("DataFusion", "DataFusion+")
"""With default settings, and with filters pushed down."""
_TS = SCHEMA.field("ts").type


@dataclass(frozen=True)
class Query:
    """One query in each engine's terms, its number of rows, and the goal for its speed.

    ``times`` is the goal: the best peer's time divided by ours. ``against`` has the peers that
    count for the goal, all if it is empty. Without a condition the query reads all of ``columns``.
    """

    name: str
    text: str
    rows: int
    times: float
    sql: str | None = None
    arrow: pc.Expression | None = None
    polars: pl.Expr | None = None
    columns: tuple[str, ...] = tuple(SCHEMA.names)
    filtered: tuple[str, ...] = ()
    """The columns of the condition."""
    against: tuple[str, ...] = ()
    key: str | None = None
    """The column whose index answers the query. The goals for floor and bytes apply then."""
    unsupported: tuple[str, ...] = ()
    """The engines that cannot run the query."""

    @property
    def select(self) -> str:
        """The query in SQL on the table ``logs``."""
        names = ", ".join(f'"{name}"' for name in self.columns)
        return f"SELECT {names} FROM logs" + (f" WHERE {self.sql}" if self.sql else "")


def queries_of(facts: Facts) -> list[Query]:
    """Returns the queries of a table of ``logs.py``."""
    low, high = (_moment(at) for at in facts.ts)
    ts, slow = pc.field("ts"), pc.field("latency") > SLOW_MS
    return [
        Query(
            "trace_id",
            "`trace_id = …`, lookup index",
            rows=1,
            times=40,
            sql=f"trace_id = '{facts.trace_id}'",
            arrow=pc.field("trace_id") == facts.trace_id,
            polars=pl.col("trace_id") == facts.trace_id,
            filtered=("trace_id",),
            key="trace_id",
        ),
        Query(
            "user_id",
            "`user_id = …`, 3 row groups, lookup index",
            rows=3,
            times=25,
            sql=f"user_id = {facts.user_id}",
            arrow=pc.field("user_id") == facts.user_id,
            polars=pl.col("user_id") == facts.user_id,
            filtered=("user_id",),
            key="user_id",
        ),
        Query(
            "ts",
            "`ts` range, page index only",
            rows=RANGE_ROWS,
            times=1,
            sql=f"ts >= TIMESTAMP '{low}' AND ts <= TIMESTAMP '{high}'",
            arrow=(ts >= pa.scalar(low, _TS)) & (ts <= pa.scalar(high, _TS)),
            polars=(pl.col("ts") >= low) & (pl.col("ts") <= high),
            filtered=("ts",),
            against=DATAFUSION,
            key="ts",
        ),
        Query(
            "status",
            f"`status = 500 AND latency > {SLOW_MS}`, no index",
            rows=facts.slow_errors,
            times=1,
            sql=f"status = 500 AND latency > {SLOW_MS}",
            arrow=(pc.field("status") == 500) & slow,
            polars=(pl.col("status") == 500) & (pl.col("latency") > SLOW_MS),
            filtered=("status", "latency"),
        ),
        Query(
            "msg",
            f"`msg LIKE '%{RARE}%'`, no index",
            rows=RARE_ROWS,
            times=1,
            sql=f"msg LIKE '%{RARE}%'",
            arrow=pc.match_substring(pc.field("msg"), RARE),
            polars=pl.col("msg").str.contains(RARE, literal=True),
            filtered=("msg",),
        ),
        Query(
            "full",
            "full read of 3 columns",
            rows=facts.rows,
            times=1 / 1.05,
            columns=("ts", "status", "msg"),
            against=(PYARROW,),
        ),
    ]


def _moment(microseconds: int) -> datetime:
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    return (epoch + timedelta(microseconds=microseconds)).replace(tzinfo=None)


# --- engines ------------------------------------------------------------------------------------

Runner = Callable[[Query], Any]


def by_intarsia(path: Path) -> Runner:
    """Returns a runner on ``ia.dataset``, which is opened once."""
    return _by_dataset(ia.dataset(path))


def by_pyarrow(path: Path) -> Runner:
    """Returns a runner on ``pyarrow.dataset``, which is opened once."""
    return _by_dataset(pads.dataset(path))


def _by_dataset(data: pads.Dataset) -> Runner:
    return lambda query: data.to_table(columns=list(query.columns), filter=query.arrow)


def by_duckdb(path: Path) -> Runner:
    """Returns a runner on one DuckDB connection, which caches footers."""
    run_sql = duckdb_of(path)
    return lambda query: run_sql(query.select)


def duckdb_of(path: Path) -> Callable[[str], pa.Table]:
    """Returns the function that runs SQL on ``logs`` in DuckDB."""
    connection = duckdb.connect()
    connection.execute("SET parquet_metadata_cache = true")
    files = f"{path}/*.parquet" if path.is_dir() else path
    connection.execute(
        "CREATE MACRO regexp_like(s, re) AS regexp_matches(s, re)"
    )  # DataFusion's name
    connection.execute(f"CREATE VIEW logs AS SELECT * FROM read_parquet('{files}')")
    return lambda query: connection.sql(query).to_arrow_table()


def by_polars(path: Path) -> Runner:
    """Returns a runner on one lazy frame."""
    frame = pl.scan_parquet(path)
    frame.collect_schema()

    def run(query: Query) -> pl.DataFrame:
        rows = frame if query.polars is None else frame.filter(query.polars)
        return rows.select(query.columns).collect()

    return run


def by_datafusion(path: Path, *, pushdown: bool = False) -> Runner:
    """Returns a runner on one DataFusion context, with the file registered."""
    run_sql = datafusion_of(path, pushdown=pushdown)
    return lambda query: run_sql(query.select)


def datafusion_of(path: Path, *, pushdown: bool) -> Callable[[str], list[pa.RecordBatch]]:
    """Returns the function that runs SQL on ``logs`` in DataFusion."""
    config = datafusion.SessionConfig()
    for name in ("pushdown_filters", "reorder_filters"):
        config = config.set(f"datafusion.execution.parquet.{name}", str(pushdown).lower())
    context = datafusion.SessionContext(config)
    context.register_parquet("logs", str(path))
    return lambda query: context.sql(query).collect()


ENGINES: dict[str, Callable[[Path], Runner]] = {
    OURS: by_intarsia,
    "DuckDB": by_duckdb,
    "Polars": by_polars,
    DATAFUSION[0]: by_datafusion,
    DATAFUSION[1]: lambda path: by_datafusion(path, pushdown=True),
    PYARROW: by_pyarrow,
}


# --- answers -----------------------------------------------------------------------------------


def fingerprint(
    answer: Any, columns: tuple[str, ...], schema: pa.Schema = SCHEMA
) -> tuple[int, int]:
    """Returns the number of rows, and the sum of their hashes.

    The sum is the same for any order of rows and any string type.
    """
    empty = pa.schema([schema.field(name) for name in columns]).empty_table()
    if isinstance(answer, list):
        answer = pa.Table.from_batches(answer) if answer else empty
    frame = answer if isinstance(answer, pl.DataFrame) else pl.from_arrow(answer)
    types = pl.from_arrow(empty).schema
    hashes = frame.select(columns).cast(dict(types)).hash_rows(seed=1).to_numpy()
    return len(hashes), int(hashes.sum())


def leave() -> NoReturn:
    """Ends the process at once: Polars 2.1 sometimes aborts a process that ends normally."""
    sys.stdout.flush()
    os._exit(0)
