"""Measures the memory that calls take, without a limit and with one.

Columns are 4,000,000 rows of six columns (``logs.py``) in row groups of 1,000,000 rows, without
page index. Strings are 2,600,000 strings of 1 KB in one row group. ``--scale 0.1`` makes a tenth of
the rows. The files are made once.

``python benchmarks/memory_limits.py`` prints, for each call, by how many MiB its process grew. Each
call runs in a process of its own. It runs on Linux.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import shutil
import sys
import tempfile
import warnings
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from extreme_sizes import footer_offset
from logs import ROW_GROUP_ROWS, SCHEMA, Tables
from memory import growth_of
from queries import DATA, markdown
from workloads import made

import intarsia as ia

LIMIT = "256MB"
COLUMNS, STRINGS = "columns", "strings"
ROWS = {COLUMNS: 4_000_000, STRINGS: 2_600_000}


def write_columns(rows: int, path: Path) -> None:
    """Writes the log table without page index."""
    with pq.ParquetWriter(path, SCHEMA, compression="zstd") as file:
        for table in Tables(rows, groups=4):
            file.write_table(table, row_group_size=ROW_GROUP_ROWS)


def write_strings(rows: int, path: Path) -> None:
    """Writes strings that differ in their first digits."""
    values = [f"{n * 7919 % rows:09}{'x' * 991}" for n in range(rows)]
    pq.write_table(pa.table({"s": values}), path, compression="zstd", row_group_size=rows)


WRITERS: dict[str, Callable[[int, Path], None]] = {COLUMNS: write_columns, STRINGS: write_strings}
FILTERS = {
    COLUMNS: pc.field("latency") > 150,
    STRINGS: pc.field("s") == f"{7:09}{'x' * 991}",
}
INDEXES = {
    COLUMNS: ["page_index", "trace_id:lookup", "user_id:bloom", "msg:ngram"],
    STRINGS: ["page_index", "s:lookup", "s:bloom"],
}


def batches(path: Path, filter_: pc.Expression | None = None) -> None:
    """Reads all batches, one after the other."""
    for _ in ia.dataset(path).to_batches(filter=filter_):
        pass


def recover(path: Path) -> None:
    """Recovers a copy without a footer."""
    schema = pq.read_schema(path)
    os.truncate(path, footer_offset(path))
    ia.recover(path, path.with_suffix(".out"), schema_from=schema)


GROUPED = "`ia.sql`, grouped by a column of strings"
GROUPS = "SELECT msg, count(*) FROM logs GROUP BY msg ORDER BY 2 DESC LIMIT 10"
CALLS: dict[str, Callable[[Path, str], object]] = {
    "`to_batches`": lambda path, _: batches(path),
    "`to_batches` with a filter": lambda path, data: batches(path, FILTERS[data]),
    "`count_rows`": lambda path, data: ia.dataset(path).count_rows(filter=FILTERS[data]),
    GROUPED: lambda path, _: ia.sql(GROUPS, logs=path),
    "`add_indexes`, three or four indexes": lambda path, data: ia.add_indexes(path, INDEXES[data]),
    "`verify`": lambda path, _: ia.verify(path),
    "`recover`": lambda path, _: recover(path),
    "`write_table`, the same indexes": lambda path, data: ia.write_table(
        ia.dataset(path), path.with_suffix(".out"), indexes=INDEXES[data]
    ),
}


def measure(path: Path, call: str, data: str, limit: str | None) -> str:
    """Returns the memory in MiB that a call takes on a copy of the file, or an empty text."""
    if (call, data) == (GROUPED, STRINGS):  # there are no groups
        return ""
    warnings.simplefilter("ignore")
    if limit is not None:
        ia.set_memory_limit(limit)
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        copy = Path(folder, path.name)
        shutil.copyfile(path, copy)
        return f"{growth_of(partial(CALLS[call], copy, data)) >> 20:,}"


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("calls", nargs="*", help="parts of the calls' names; all by default")
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--data", type=Path, default=DATA)
    options = parser.parse_args()
    paths = {}
    for data, rows in ROWS.items():
        rows = int(rows * options.scale)
        paths[data] = options.data / f"memory-{data}-{rows}.parquet"
        made(paths[data], partial(WRITERS[data], rows))
    variants = [(data, limit) for data in ROWS for limit in (None, LIMIT)]
    table = [["MiB", *(f"{data}, {limit or 'no limit'}" for data, limit in variants)]]
    # A process measures one call.
    spawned = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=spawned, max_tasks_per_child=1) as process:
        for call in CALLS:
            if options.calls and not any(part in call for part in options.calls):
                continue
            cells = [
                process.submit(measure, paths[data], call, data, limit).result()
                for data, limit in variants
            ]
            table.append([call, *cells])
            print(f"{call}: {', '.join(cells)}", file=sys.stderr)
    print(markdown(table))


if __name__ == "__main__":
    main()
