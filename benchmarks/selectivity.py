"""Measures where the lines of the engines cross: from few rows of a table to all of them.

The data is the table of ``logs.py``, written with the default layout and a lookup index on
``trace_id``. All engines read this file. Three conditions are measured, each for growing shares
of the rows, with all columns in the answer:

- ``trace_id IN (…)``: the index finds the rows, which lie anywhere. At most 10,000 keys.
- ``ts < …``: the rows lie together, and page indexes and statistics find them.
- ``latency > …``: the rows lie anywhere, and no index helps.

``python benchmarks/selectivity.py`` prints the median processor time of each engine in ms.
``--json`` prints wall times as well. ``--plot PATH`` draws the lines as SVG.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from line_plot import line_plot
from logs import SCHEMA, log_file
from peers import ENGINES, OURS, Query, Runner, fingerprint, leave
from queries import DATA, PACKAGES, markdown, measure_rounds

import intarsia as ia

SHARES = (1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 0.1, 0.5, 1.0)
MAX_KEYS = 10_000
KEYS, TOGETHER, ANYWHERE = "trace_id IN (…)", "ts < …", "latency > …"
OURS_SQL = "ia.sql"


@dataclass(frozen=True)
class Point:
    """The time of one engine for one condition. Medians of rounds, in milliseconds."""

    condition: str
    engine: str
    rows: int
    share: float
    processor_ms: float
    wall_ms: float


def file_of(rows: int, folder: Path) -> Path:
    """Returns the file, which is written if ``folder`` does not have it yet."""
    path = folder / f"selectivity-{rows}.parquet"
    if not path.exists():
        temporary = path.with_suffix(f".{os.getpid()}.tmp")
        plain = pq.ParquetFile(log_file(rows, folder))
        batches = pa.RecordBatchReader.from_batches(SCHEMA, plain.iter_batches())
        ia.write_table(batches, temporary, indexes=[ia.Lookup("trace_id")])
        os.replace(temporary, path)
    return path


def queries_of(path: Path) -> Iterator[tuple[str, Query]]:
    """Yields each condition, and its queries from few rows to many."""
    table = pq.read_table(path, columns=["trace_id", "ts", "latency"])
    rows = len(table)
    ts, latency = table["ts"].combine_chunks(), table["latency"].combine_chunks()
    by_latency = pc.array_sort_indices(latency, order="descending")
    chosen = random.Random(1).sample(range(rows), min(MAX_KEYS, rows))
    for share in SHARES:
        count = round(share * rows)
        if not count:
            continue
        if count <= MAX_KEYS:
            keys = table["trace_id"].take(chosen[:count]).to_pylist()
            yield KEYS, _query("trace_id", f"IN ({', '.join(map(repr, keys))})", count, keys)
        if count < rows:
            bound = ts[count].as_py()
            yield TOGETHER, _query("ts", f"< TIMESTAMP '{bound}'", count, bound)
            bound = latency[by_latency[count].as_py()].as_py()
            count = pc.sum(pc.greater(latency, bound)).as_py()
            yield ANYWHERE, _query("latency", f"> {bound!r}", count, bound)


def _query(column: str, condition: str, count: int, value: object) -> Query:
    field, frame = pc.field(column), pl.col(column)
    arrow, polars = {
        "trace_id": lambda: (field.isin(value), frame.is_in(value)),
        "ts": lambda: (field < pa.scalar(value, SCHEMA.field("ts").type), frame < value),
        "latency": lambda: (field > value, frame > value),
    }[column]()
    sql = f"{column} {condition}"
    return Query(column, sql, count, 0, sql=sql, arrow=arrow, polars=polars)


def by_sql(path: Path) -> Runner:
    """Returns a runner on ``ia.sql``, with the data set opened once."""
    logs = ia.dataset(path)
    return lambda query: ia.sql(query.select, logs=logs)


def measure(path: Path, runs: int, names: list[str]) -> Iterator[Point]:
    """Yields the points. Raises ``AssertionError`` if answers differ."""
    engines = {OURS_SQL: by_sql, **ENGINES}
    runners = {name: engines[name](path) for name in names}
    rows = pq.read_metadata(path).num_rows
    for condition, query in queries_of(path):
        answers = {name: fingerprint(run(query), query.columns) for name, run in runners.items()}
        if len(set(answers.values())) != 1 or answers[names[0]][0] != query.rows:
            raise AssertionError(f"{condition}: expected {query.rows} rows, not {answers}")
        actions = {name: partial(run, query) for name, run in runners.items()}
        for name, times in measure_rounds(actions, runs).items():
            processor_ms, wall_ms = map(statistics.median, (times.processor, times.wall))
            share = query.rows / rows
            yield Point(condition, name, query.rows, share, processor_ms, wall_ms)


def table_of(points: list[Point], names: list[str]) -> list[list[str]]:
    """Returns the processor times as a table, with the best peer's time divided by ours."""
    lines = [["all columns, processor ms", "rows", *names, "best peer / ours"]]
    by_query: dict[tuple[str, int], dict[str, float]] = {}
    for point in points:
        of_query = by_query.setdefault((point.condition, point.rows), {})
        of_query[point.engine] = point.processor_ms
    for (condition, rows), ms in by_query.items():
        ours = [time for name, time in ms.items() if name in (OURS, OURS_SQL)]
        peers = [time for name, time in ms.items() if name not in (OURS, OURS_SQL)]
        ratio = f"{min(peers) / min(ours):.2f}" if ours and peers else ""
        lines.append(
            [f"`{condition}`", f"{rows:,}", *(f"{ms[name]:,.1f}" for name in names), ratio]
        )
    return lines


def plot(points: list[Point]) -> str:
    """Returns the lines as SVG."""
    panels: dict[str, dict[str, list[tuple[float, float]]]] = {}
    for point in points:
        lines = panels.setdefault(point.condition, {})
        lines.setdefault(point.engine, []).append((point.share * 100, point.processor_ms))
    return line_plot(panels, "rows of the table, %", "processor ms")


def main() -> None:
    """Prints the times, and draws them if asked to."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--data", type=Path, default=DATA, help="folder of the table")
    parser.add_argument("--engines", default=",".join([OURS_SQL, *ENGINES]), help="names")
    parser.add_argument("--plot", type=Path, help="where to draw the lines, as SVG")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    names = options.engines.split(",")
    path = file_of(options.rows, options.data)
    points = []
    for point in measure(path, options.runs, names):
        print(f"{point.condition} {point.rows:,} {point.engine}", file=sys.stderr)
        points.append(point)
    if options.plot:
        options.plot.write_text(plot(points))
    if options.json:
        print(json.dumps([asdict(point) for point in points], indent=1))
    else:
        versions = ", ".join(f"{name} {version(name)}" for name in PACKAGES)
        size = path.stat().st_size
        print(f"{options.rows:,} rows, {size:,} bytes, {options.runs} rounds, {versions}\n")
        print(markdown(table_of(points, names)))


if __name__ == "__main__":
    main()
    leave()
