"""Makes the log table of several benchmarks, which depends only on the number of rows.

::

    ts        timestamp, ascending    trace_id  32 random hex digits     user_id  one of rows / 2
    status    200, 201, 404 or 500    latency   milliseconds, to 0.001   msg      six words

A table of ten million rows has ten row groups, pages of 20,000 rows, zstd and page indexes. Only
``status`` has a dictionary, because every read of a page also reads its chunk's dictionary. Row
groups are made and written one by one, so memory does not grow with the table. Only the build of
the lookup indexes takes about 24 bytes a row. The file stays in the folder ``bench-data``.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import intarsia as ia

SEED = 20
VERSION = 1
"""Part of the file's name. Increase it when the table changes."""
ROW_GROUP_ROWS = 1_000_000
ROW_GROUPS = 10
"""Minimum number. A smaller table has smaller row groups."""
PAGE_ROWS = 20_000
RANGE_ROWS = 500
SLOW_MS = 150
RARE = "overheat"
"""A part of a word that only ``RARE_ROWS`` messages contain."""
RARE_ROWS = 5
SCHEMA = pa.schema(
    [
        ("ts", pa.timestamp("us")),
        ("trace_id", pa.string()),
        ("user_id", pa.int64()),
        ("status", pa.int32()),
        ("latency", pa.float64()),
        ("msg", pa.string()),
    ]
)
_START_US = 1_767_225_600_000_000  # 2026-01-01
_STATUSES, _SHARES = (200, 201, 404, 500), (0.85, 0.08, 0.05, 0.02)
_MEAN_LATENCY_MS = 32.15
_VOCABULARY = """
accepted account after again archive backup batch before broker bucket buffer cache checksum
client closed cluster commit config connection consumer container cookie database deadline
delayed deleted disk dropped empty expired failed fetched finished flushed follower forwarded
gateway handler header healthy host ignored index invalid job joined key leader lease limit
loaded lock memory merged message missing moved network node offset opened order page parsed
"""
_FACTS = "facts"


@dataclass(frozen=True)
class Facts:
    """Values to search for in one table. ``ts`` is in microseconds, both ends included."""

    rows: int
    trace_id: str
    user_id: int
    ts: tuple[int, int]
    slow_errors: int

    @property
    def users(self) -> int:
        return max(self.rows // 2, 1)


def log_file(rows: int, folder: Path) -> Path:
    """Returns the file of ``rows`` rows, with lookup indexes on ``trace_id`` and ``user_id``.

    Writes the file if ``folder`` does not have it yet.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"logs-v{VERSION}-{rows}.parquet"
    if not path.exists():
        temporary = path.with_suffix(f".{os.getpid()}.tmp")
        try:
            _write(temporary, rows)
            ia.add_indexes(temporary, [ia.Lookup("trace_id"), ia.Lookup("user_id")])
            os.replace(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)
    return path


def without_indexes(path: Path) -> Path:
    """Returns a copy of the file as it was before the lookup indexes were added."""
    plain = path.with_suffix(".plain.parquet")
    if not plain.exists():
        (pointer,) = [v for k, v in pq.read_metadata(path).metadata.items() if k == b"intarsia"]
        entry = json.loads(pointer)
        with path.open("rb") as file:
            file.seek(entry["offset"])
            length = json.loads(file.read(entry["length"]))["base_length"]
        shutil.copyfile(path, plain)
        os.truncate(plain, length)
    return plain


def facts_of(path: Path) -> Facts:
    """Returns the values to search for in a file that ``log_file`` made."""
    facts = json.loads(pq.read_metadata(path).metadata[_FACTS.encode()])
    return Facts(**facts | {"ts": tuple(facts["ts"])})


def _write(path: Path, rows: int) -> None:
    with pq.ParquetWriter(
        path,
        SCHEMA,
        compression="zstd",
        use_dictionary=["status"],
        write_page_index=True,
        max_rows_per_page=PAGE_ROWS,
        # A page ends after a batch of values, or at a size in bytes. With these settings, pages
        # reach PAGE_ROWS rows.
        write_batch_size=1000,
        data_page_size=4 * 1024 * 1024,
    ) as writer:
        tables = Tables(rows)
        for table in tables:
            writer.write_table(table, row_group_size=len(table))
        facts = json.dumps(asdict(tables.facts()))
        writer.add_key_value_metadata({_FACTS: facts})


class Tables:
    """The row groups of a table; afterwards the values to search for in them."""

    def __init__(self, rows: int, groups: int = ROW_GROUPS, seed: int = SEED) -> None:
        self._rows = rows
        self._step = max(min(ROW_GROUP_ROWS, -(-rows // groups)), 1)
        self._random = np.random.default_rng(seed)
        self._user = max(rows // 2, 1) // 3
        self._users_at = [int(rows * share) for share in (0.137, 0.462, 0.839)]
        self._trace_at = int(rows * 0.713)
        self._range = int(rows * 0.5507), int(rows * 0.5507) + RANGE_ROWS - 1
        self._rare_at = [int(rows * (0.0931 + 0.2 * i)) for i in range(RARE_ROWS)]
        self._trace_id = ""
        self._ts = [0, 0]
        self._slow_errors = 0

    def __iter__(self) -> Iterator[pa.Table]:
        clock = _START_US
        for start in range(0, self._rows, self._step):
            count = min(self._step, self._rows - start)
            ts = clock + np.cumsum(self._random.integers(1, 20_000, count))
            clock = int(ts[-1])
            yield self._table(start, ts)

    def facts(self) -> Facts:
        ts = (self._ts[0], self._ts[1])
        return Facts(self._rows, self._trace_id, self._user, ts, self._slow_errors)

    def _table(self, start: int, ts: np.ndarray) -> pa.Table:
        random, count = self._random, len(ts)
        here = range(start, start + count)
        traces = _hex(random.integers(0, 256, (count, 16), dtype=np.uint8))
        users = random.integers(0, max(self._rows // 2, 1), count)
        users[users == self._user] += 1
        users[[row - start for row in self._users_at if row in here]] = self._user
        status = random.choice(np.array(_STATUSES, dtype=np.int32), count, p=_SHARES)
        latency = random.exponential(_MEAN_LATENCY_MS, count).round(3)
        if self._trace_at in here:
            self._trace_id = traces[self._trace_at - start].as_py()
        for i, row in enumerate(self._range):
            if row in here:
                self._ts[i] = int(ts[row - start])
        self._slow_errors += int(((status == 500) & (latency > SLOW_MS)).sum())
        rare = [row - start for row in self._rare_at if row in here]
        arrays = [pa.array(ts), traces, users, status, latency, _messages(random, count, rare)]
        columns = [pa.array(v).cast(f.type) for v, f in zip(arrays, SCHEMA, strict=True)]
        return pa.Table.from_arrays(columns, schema=SCHEMA)


def _hex(values: np.ndarray) -> pa.Array:
    """Converts bytes, shape ``(n, 16)``, to ``n`` strings of 32 digits."""
    digits = np.frombuffer(b"0123456789abcdef", dtype=np.uint8)
    text = np.empty((len(values), 32), dtype=np.uint8)
    text[:, 0::2], text[:, 1::2] = digits[values >> 4], digits[values & 15]
    offsets = np.arange(len(values) + 1, dtype=np.int32) * 32
    return pa.StringArray.from_buffers(len(values), pa.py_buffer(offsets), pa.py_buffer(text))


def _messages(random: np.random.Generator, count: int, rare: list[int]) -> pa.Array:
    """Returns messages of six words; those at the positions ``rare`` contain a rare word."""
    usual = _VOCABULARY.split()
    words = pa.array([*usual, RARE + "ed"])
    drawn = random.integers(0, len(usual), (6, count))
    drawn[2, rare] = len(usual)
    return pc.binary_join_element_wise(*(words.take(pa.array(part)) for part in drawn), " ")


def options_of(description: str) -> argparse.Namespace:
    """Parses the options of a benchmark on this table.

    The options are ``rows``, ``runs`` and ``data``, the folder of the table.
    """
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--data", type=Path, default=Path("bench-data"))
    return parser.parse_args()
