"""The log table of ``intarsia demo``: made up, the same for the same number of rows.

::

    ts       ascending               trace_id  32 random hex digits    user_id  one of rows / 20
    status   200, 201, 404 or 500    latency   milliseconds            msg      six words
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from intarsia.cli.output.terminal import Update
from intarsia.index.kinds.lookup import Lookup
from intarsia.index.kinds.ngram import NGram
from intarsia.writer.parquet_writer import ParquetWriter

INDEXES = (Lookup("trace_id"), Lookup("user_id"), NGram("msg"))
SCHEMA = pa.schema(
    [
        ("ts", pa.timestamp("us", "UTC")),
        ("trace_id", pa.string()),
        ("user_id", pa.int64()),
        ("status", pa.int32()),
        ("latency", pa.float64()),
        ("msg", pa.string()),
    ]
)
RARE = "overheated"
"""A word that one message in ``_RARE_EVERY`` holds."""
_RARE_EVERY = 100_000
_SEED = 20
_ROW_GROUP_ROWS = 128 * 1024
_START = datetime(2026, 1, 1, tzinfo=UTC)
_STATUSES, _SHARES = (200, 201, 404, 500), (0.85, 0.08, 0.05, 0.02)
_MEAN_LATENCY_MS = 32
_ROWS_A_USER = 20
_WORDS = """
accepted account after backup batch before broker buffer cache client closed cluster commit
connection consumer cookie database deadline deleted disk dropped empty expired failed fetched
flushed follower forwarded gateway handler header index invalid key leader limit lock message
missing node offset opened partition pool queue read refused region replica request reset response
restarted retry route saved segment sent server session shard skipped socket started stopped stream
synced table task thread timeout token topic update upload user volume worker written
"""


@dataclass(frozen=True, slots=True)
class Row:
    """Values of one row of the table."""

    ts: datetime
    trace_id: str
    user_id: int


def write_logs(path: Path, rows: int, update: Update) -> Row:
    """Writes the table with page indexes and ``INDEXES``. Returns the row in its middle."""
    random = np.random.default_rng(_SEED)
    middle, start, clock = rows // 2, 0, np.int64(0)
    middle_rows: list[dict[str, Any]] = []
    with ParquetWriter(path, SCHEMA, indexes=INDEXES) as writer:
        while start < rows:
            count = min(_ROW_GROUP_ROWS, rows - start)
            moments = clock + np.cumsum(random.integers(1, 20_000, count))
            clock = moments[-1]
            table = _table(random, moments, start, rows)
            if start <= middle < start + count:
                middle_rows = table.slice(middle - start, 1).to_pylist()
            writer.write_table(table)
            start += count
            update(path.name, start, rows)
    (row,) = middle_rows
    return Row(row["ts"], row["trace_id"], row["user_id"])


def _table(
    random: np.random.Generator, moments: npt.NDArray[np.int64], start: int, rows: int
) -> pa.Table:
    """Returns the rows from ``start`` on. ``moments`` are microseconds after the first row."""
    count = len(moments)
    first = int(_START.timestamp()) * 10**6
    arrays = [
        pa.array(moments + first),
        pa.array([digits.hex() for digits in _pieces(random.bytes(16 * count))]),
        random.integers(0, max(rows // _ROWS_A_USER, 1), count),
        random.choice(np.array(_STATUSES), count, p=_SHARES),
        random.exponential(_MEAN_LATENCY_MS, count).round(3),
        _messages(random, count, start),
    ]
    typed = [pa.array(values).cast(f.type) for values, f in zip(arrays, SCHEMA, strict=True)]
    return pa.Table.from_arrays(typed, schema=SCHEMA)


def _pieces(data: bytes) -> Iterator[bytes]:
    return (data[at : at + 16] for at in range(0, len(data), 16))


def _messages(random: np.random.Generator, count: int, start: int) -> pa.Array:
    """Returns messages of six words. A few of them hold the rare word."""
    usual = _WORDS.split()
    drawn = random.integers(0, len(usual), (6, count))
    drawn[2, (np.arange(start, start + count) % _RARE_EVERY) == _RARE_EVERY // 2] = len(usual)
    words = pa.array([*usual, RARE])
    return pc.binary_join_element_wise(*(words.take(pa.array(part)) for part in drawn), " ")
