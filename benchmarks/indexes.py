"""Measures the cost and the benefit of indexes on the table of ``logs.py``.

The data is the table of ``logs.py``, 10,000,000 rows by default.
``python benchmarks/indexes.py`` prints four tables:

- the size of each index in bits a row, and its build time in seconds of processor time. The
  build is compared with pyarrow writing the same column.
- the wall time of planning by an index in milliseconds, and the bytes that it reads
- the wall time of ``IN`` with a thousand values in milliseconds, in Intarsia and its peers
- the ratio of wall times with and without an index, for queries that the index cannot speed up

Times are medians over rounds in random order. Ratios are medians of the rounds' own ratios.
"""

from __future__ import annotations

import argparse
import io
import random
import shutil
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from floor import count_bytes
from logs import PAGE_ROWS, ROW_GROUP_ROWS, facts_of, log_file, without_indexes
from peers import ENGINES, OURS, Query, fingerprint, leave
from queries import DATA, time_rounds

import intarsia as ia
from intarsia.index.section.reader import PAGE_CACHE
from intarsia.plan.planner import plan_rows
from intarsia.scan.request import Filter

COLUMNS = ("user_id", "ts")
IN_VALUES = 1_000
UNCACHED_PROBE = "`trace_id = …`, lookup"
BUILT = (ia.Lookup("trace_id"), ia.Lookup("user_id"), ia.Distinct("status"), ia.MinMax("latency"))


def print_sizes(plain: Path, indexes: tuple[Any, ...], scratch: Path) -> None:
    """Prints bits a row, and the build's processor time next to that of writing the column."""
    print("| index | bits a row | share of the column | build | write the column | build / write |")
    print("| --- | ---: | ---: | ---: | ---: | ---: |")
    for index in indexes:
        (name,) = {c for c in pq.read_schema(plain).names if c == index.on}
        builds, writes = [], []
        for _ in range(3):
            shutil.copyfile(plain, scratch)
            builds.append(_seconds(lambda index=index: ia.add_indexes(scratch, [index])))
            copied = _seconds(lambda: shutil.copyfile(plain, scratch))
            builds[-1] -= copied
            writes.append(_seconds(lambda name=name: _write_column(plain, name)))
        ia.add_indexes(scratch, [index])
        (report,) = ia.list_indexes(scratch)
        (entry,) = report.indexes
        metadata = pq.read_metadata(plain)
        column = metadata.schema.names.index(name)
        groups = range(metadata.num_row_groups)
        size = sum(metadata.row_group(g).column(column).total_compressed_size for g in groups)
        ratio = statistics.median(a / b for a, b in zip(builds, writes, strict=True))
        print(
            f"| `{entry.name}` | {8 * entry.length / report.rows:.1f} | {entry.length / size:.1%} "
            f"| {statistics.median(builds):.1f} s | {statistics.median(writes):.1f} s "
            f"| {ratio:.2f} |"
        )


def _seconds(action: Callable[[], Any]) -> float:
    start = time.process_time()
    action()
    return time.process_time() - start


def _write_column(path: Path, name: str) -> None:
    """Reads a column, as an index build does, and writes it again."""
    file = pq.ParquetFile(path)
    schema = pa.schema([file.schema_arrow.field(name)])
    writer = pq.ParquetWriter(
        io.BytesIO(),
        schema,
        compression="zstd",
        use_dictionary=name == "status",
        max_rows_per_page=PAGE_ROWS,
        write_batch_size=1000,
    )
    with writer:
        for group in range(file.num_row_groups):
            table = file.read_row_group(group, columns=[name])
            writer.write_table(table, row_group_size=ROW_GROUP_ROWS)


def print_planning(path: Path, runs: int) -> None:
    """Prints the wall time and the bytes of warm planning, with and without an index."""
    facts = facts_of(path)
    print("\n| planning, warm | ms | bytes read |\n| --- | ---: | ---: |")
    for label, filter_ in (
        (UNCACHED_PROBE, pc.field("trace_id") == facts.trace_id),
        ("`trace_id = …`, lookup, its page held", pc.field("trace_id") == facts.trace_id),
        ("`trace_id = …`, absent", pc.field("trace_id") == "0" * 32),
        ("`latency > …`, no index", pc.field("latency") > 1e9),
        ("`msg LIKE …`, no index", pc.match_like(pc.field("msg"), "%x y z%")),
    ):
        data = ia.dataset(path)
        data.count_rows(filter=filter_)
        file_cache = data.scan_source.cache.get(str(path))  # planning alone has no public name

        def plan(
            filter_: pc.Expression = filter_,
            data: Any = data,
            cache: Any = file_cache,
            is_anew: bool = label == UNCACHED_PROBE,
        ) -> Any:
            if is_anew:
                PAGE_CACHE.clear()
            return plan_rows(cache, Filter.of(filter_, data.schema).pruning, {}, data.schema)

        plan()
        with count_bytes() as total:
            plan()
            read = total()
        ms = statistics.median(time_rounds({"plan": plan}, 5 * runs)["plan"])
        print(f"| {label} | {ms:.2f} | {read:,} |")


def print_in_list(path: Path, runs: int, engines: list[str]) -> None:
    """Prints the wall times of ``user_id IN`` a thousand values in all engines."""
    users = facts_of(path).users
    values = sorted(random.Random(1).sample(range(users), IN_VALUES))
    query = Query(
        "in",
        f"`user_id IN` {IN_VALUES:,} values, lookup",
        rows=0,
        times=3,
        sql=f"user_id IN ({', '.join(map(str, values))})",
        arrow=pc.field("user_id").isin(values),
        polars=pl.col("user_id").is_in(values),
        columns=COLUMNS,
        filtered=("user_id",),
    )
    runners = {name: ENGINES[name](path) for name in engines}
    fingerprints = {name: fingerprint(runner(query), COLUMNS) for name, runner in runners.items()}
    if len(set(fingerprints.values())) != 1:
        raise AssertionError(f"{query.text}: {fingerprints}")
    actions = {name: (lambda runner=runner: runner(query)) for name, runner in runners.items()}
    times = time_rounds(actions, runs)
    print(f"\n{query.text}: {fingerprints[OURS][0]:,} rows, ms")
    for name, milliseconds in times.items():
        ratio = statistics.median(a / b for a, b in zip(milliseconds, times[OURS], strict=True))
        print(f"  {name:12} {statistics.median(milliseconds):8.1f}  {ratio:5.2f} × ours")


def print_unhelped(plain: Path, scratch: Path, runs: int) -> None:
    """Prints ratios of queries that an index cannot speed up, with it and without."""
    shutil.copyfile(plain, scratch)
    ia.add_indexes(scratch, [ia.Distinct("status"), ia.MinMax("latency")])
    print("\n| with an index that does not help | with / without |\n| --- | ---: |")
    for label, filter_ in (
        ("`status = 500`, `Distinct`", pc.field("status") == 500),
        ("`status = 200`, `Distinct`", pc.field("status") == 200),
        ("`latency > 10`, `MinMax`", pc.field("latency") > 10),
    ):
        data_sets = {"with": ia.dataset(scratch), "without": ia.dataset(plain)}
        actions = {
            name: (lambda data=data, filter_=filter_: data.to_table(["ts"], filter=filter_))
            for name, data in data_sets.items()
        }
        times = time_rounds(actions, runs)
        pairs = zip(times["with"], times["without"], strict=True)
        print(f"| {label} | {statistics.median(a / b for a, b in pairs):.2f} |")


def main() -> None:
    """Prints all tables."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument(
        "--data", type=Path, default=DATA, help="folder of the table, which is made once"
    )
    parser.add_argument("--engines", default=",".join(ENGINES))
    options = parser.parse_args()
    path = log_file(options.rows, options.data)
    plain = without_indexes(path)
    scratch = plain.with_suffix(".scratch")
    try:
        print_sizes(plain, BUILT, scratch)
        print_planning(path, options.runs)
        print_in_list(path, options.runs, options.engines.split(","))
        print_unhelped(plain, scratch, options.runs)
    finally:
        scratch.unlink(missing_ok=True)


if __name__ == "__main__":
    main()
    leave()
