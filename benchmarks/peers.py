"""The questions, and those who answer them: one small function an engine.

What is fair:

- All read the same file from the page cache. The peers pass over the lookup indexes in it, which no
  other reader knows; page indexes and statistics are the format's own, and theirs to use.
- Warm means opened before. pyarrow keeps its data set, Polars its lazy frame, DataFusion its
  registered table and metadata cache, DuckDB its connection and, as asked here, parsed footers
  (``parquet_metadata_cache``); Intarsia keeps its data set, which holds footer and indexes.
- Else every engine is as it comes, with as many threads as it likes. DataFusion runs a second time
  with ``pushdown_filters`` and ``reorder_filters``.
- An answer is whole, in memory, in the engine's own form: an Arrow table for pyarrow, Intarsia and
  DuckDB, record batches for DataFusion, a data frame for Polars.
- Before any clock runs, all answers are found to have the same rows.
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
"""As it comes, and with filters pushed down."""
_TS = SCHEMA.field("ts").type


@dataclass(frozen=True)
class Question:
    """One question in everyone's words, the rows there are to find, and how quick we are to be.

    ``against`` are the peers to be compared with, all where it is empty; ``times`` says how many
    times as quick as the best of them. Without a condition, it is a full read of ``columns``.
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
    """The column whose index answers it: such questions are held to a time and to bytes as well."""

    @property
    def select(self) -> str:
        """As SQL about ``logs``."""
        names = ", ".join(f'"{name}"' for name in self.columns)
        return f"SELECT {names} FROM logs" + (f" WHERE {self.sql}" if self.sql else "")


def questions(facts: Facts) -> list[Question]:
    """What is asked of a table."""
    low, high = (_moment(at) for at in facts.ts)
    ts, slow = pc.field("ts"), pc.field("latency") > SLOW_MS
    return [
        Question(
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
        Question(
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
        Question(
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
        Question(
            "status",
            f"`status = 500 AND latency > {SLOW_MS}`, no index",
            rows=facts.slow_errors,
            times=1,
            sql=f"status = 500 AND latency > {SLOW_MS}",
            arrow=(pc.field("status") == 500) & slow,
            polars=(pl.col("status") == 500) & (pl.col("latency") > SLOW_MS),
            filtered=("status", "latency"),
        ),
        Question(
            "msg",
            f"`msg LIKE '%{RARE}%'`, no index",
            rows=RARE_ROWS,
            times=1,
            sql=f"msg LIKE '%{RARE}%'",
            arrow=pc.match_substring(pc.field("msg"), RARE),
            polars=pl.col("msg").str.contains(RARE, literal=True),
            filtered=("msg",),
        ),
        Question(
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

Ask = Callable[[Question], Any]


def by_intarsia(path: Path) -> Ask:
    """``ia.dataset``, opened once."""
    return _by_dataset(ia.dataset(path))


def by_pyarrow(path: Path) -> Ask:
    """``pyarrow.dataset``, opened once."""
    return _by_dataset(pads.dataset(path))


def _by_dataset(opened: pads.Dataset) -> Ask:
    return lambda asked: opened.to_table(columns=list(asked.columns), filter=asked.arrow)


def by_duckdb(path: Path) -> Ask:
    """One connection, which keeps footers."""
    ask = duckdb_of(path)
    return lambda asked: ask(asked.select)


def duckdb_of(path: Path) -> Callable[[str], pa.Table]:
    """What DuckDB answers to SQL about ``logs``."""
    connection = duckdb.connect()
    connection.execute("SET parquet_metadata_cache = true")
    connection.execute(f"CREATE VIEW logs AS SELECT * FROM read_parquet('{path}')")
    return lambda query: connection.sql(query).to_arrow_table()


def by_polars(path: Path) -> Ask:
    """One lazy frame."""
    frame = pl.scan_parquet(path)
    frame.collect_schema()

    def ask(asked: Question) -> pl.DataFrame:
        found = frame if asked.polars is None else frame.filter(asked.polars)
        return found.select(asked.columns).collect()

    return ask


def by_datafusion(path: Path, *, pushdown: bool = False) -> Ask:
    """One context with the file registered."""
    ask = datafusion_of(path, pushdown=pushdown)
    return lambda asked: ask(asked.select)


def datafusion_of(path: Path, *, pushdown: bool) -> Callable[[str], list[pa.RecordBatch]]:
    """What DataFusion answers to SQL about ``logs``."""
    config = datafusion.SessionConfig()
    for name in ("pushdown_filters", "reorder_filters"):
        config = config.set(f"datafusion.execution.parquet.{name}", str(pushdown).lower())
    context = datafusion.SessionContext(config)
    context.register_parquet("logs", str(path))
    return lambda query: context.sql(query).collect()


ENGINES: dict[str, Callable[[Path], Ask]] = {
    OURS: by_intarsia,
    "DuckDB": by_duckdb,
    "Polars": by_polars,
    DATAFUSION[0]: by_datafusion,
    DATAFUSION[1]: lambda path: by_datafusion(path, pushdown=True),
    PYARROW: by_pyarrow,
}


# --- what they answer ---------------------------------------------------------------------------


def fingerprint(answer: Any, columns: tuple[str, ...]) -> tuple[int, int]:
    """Number of rows, and the sum of their hashes: the same in any order and in any text type."""
    if isinstance(answer, list):
        answer = pa.Table.from_batches(answer) if answer else _empty(columns)
    frame = answer if isinstance(answer, pl.DataFrame) else pl.from_arrow(answer)
    types = pl.from_arrow(_empty(columns)).schema
    hashes = frame.select(columns).cast(dict(types)).hash_rows(seed=1).to_numpy()
    return len(hashes), int(hashes.sum())


def _empty(columns: tuple[str, ...]) -> pa.Table:
    return pa.schema([SCHEMA.field(name) for name in columns]).empty_table()


def leave() -> NoReturn:
    """End the process at once: Polars 2.1 sometimes aborts one that ends in its own time."""
    sys.stdout.flush()
    os._exit(0)
