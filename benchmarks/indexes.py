"""What indexes take, and what they give: ``python benchmarks/indexes.py``.

On the table of ``make bench``: the size of each index and the time it takes to build, beside
pyarrow writing the same column; what a probe reads and how long it takes; ``IN`` of a thousand
values beside the peers; and questions that no index makes quicker, which it must not make slower.
Times are medians over rounds in which everything takes its turn; ratios are taken within rounds.
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
from floor import counted
from logs import PAGE_ROWS, ROW_GROUP_ROWS, facts_of, logs, without_indexes
from peers import ENGINES, OURS, Question, fingerprint, leave
from queries import DATA, rounds

import intarsia as ia
from intarsia.index.section.page_cache import PAGE_CACHE
from intarsia.scan.file_planner import plan_rows
from intarsia.scan.request import Filter

COLUMNS = ("user_id", "ts")
IN_VALUES = 1_000
READ_ANEW = "`trace_id = …`, lookup"
BUILT = (ia.Lookup("trace_id"), ia.Lookup("user_id"), ia.Distinct("status"), ia.MinMax("latency"))


def sizes(plain: Path, indexes: tuple[Any, ...], scratch: Path) -> None:
    """Bits a row, and seconds to build beside seconds to write the column."""
    print("| index | bits a row | share of the column | build | write the column | build / write |")
    print("| --- | ---: | ---: | ---: | ---: | ---: |")
    for index in indexes:
        (stored,) = {c for c in pq.read_schema(plain).names if c == index.on}
        taken, written = [], []
        for _ in range(3):
            shutil.copyfile(plain, scratch)
            taken.append(_seconds(lambda index=index: ia.add_indexes(scratch, [index])))
            copied = _seconds(lambda: shutil.copyfile(plain, scratch))
            taken[-1] -= copied
            written.append(_seconds(lambda stored=stored: _write_column(plain, stored)))
        ia.add_indexes(scratch, [index])
        (report,) = ia.list_indexes(scratch)
        (entry,) = report.indexes
        metadata = pq.read_metadata(plain)
        column = metadata.schema.names.index(stored)
        groups = range(metadata.num_row_groups)
        size = sum(metadata.row_group(g).column(column).total_compressed_size for g in groups)
        ratio = statistics.median(a / b for a, b in zip(taken, written, strict=True))
        print(
            f"| `{entry.name}` | {8 * entry.length / report.rows:.1f} | {entry.length / size:.1%} "
            f"| {statistics.median(taken):.1f} s | {statistics.median(written):.1f} s "
            f"| {ratio:.2f} |"
        )


def _seconds(action: Callable[[], Any]) -> float:
    start = time.process_time()
    action()
    return time.process_time() - start


def _write_column(path: Path, name: str) -> None:
    """Read a column, as building an index does, and write it once more."""
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


def probes(path: Path, runs: int) -> None:
    """What a warm lookup plans in, and reads to do so; and what a filter without an index costs."""
    facts = facts_of(path)
    print("\n| planning, warm | ms | bytes read |\n| --- | ---: | ---: |")
    for what, wanted in (
        (READ_ANEW, pc.field("trace_id") == facts.trace_id),
        ("`trace_id = …`, lookup, its page held", pc.field("trace_id") == facts.trace_id),
        ("`trace_id = …`, absent", pc.field("trace_id") == "0" * 32),
        ("`latency > …`, no index", pc.field("latency") > 1e9),
        ("`msg LIKE …`, no index", pc.match_like(pc.field("msg"), "%x y z%")),
    ):
        data = ia.dataset(path)
        data.count_rows(filter=wanted)
        cache = data.scan_source.cache.get(str(path))  # planning alone has no public name

        def plan(
            wanted: pc.Expression = wanted,
            data: Any = data,
            opened: Any = cache,
            is_anew: bool = what == READ_ANEW,
        ) -> Any:
            if is_anew:
                PAGE_CACHE.clear()
            return plan_rows(opened, Filter.of(wanted, data.schema).pruning, {}, data.schema)

        plan()
        with counted() as total:
            plan()
            read = total()
        ms = statistics.median(rounds({"plan": plan}, 5 * runs)["plan"])
        print(f"| {what} | {ms:.2f} | {read:,} |")


def many_values(path: Path, runs: int, engines: list[str]) -> None:
    """``user_id IN`` of a thousand values, beside the peers."""
    users = facts_of(path).users
    values = sorted(random.Random(1).sample(range(users), IN_VALUES))
    asked = Question(
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
    answers = {name: ENGINES[name](path) for name in engines}
    found = {name: fingerprint(answer(asked), COLUMNS) for name, answer in answers.items()}
    if len(set(found.values())) != 1:
        raise AssertionError(f"{asked.text}: {found}")
    actions = {name: (lambda answer=answer: answer(asked)) for name, answer in answers.items()}
    times = rounds(actions, runs)
    print(f"\n{asked.text}: {found[OURS][0]:,} rows, ms")
    for name, of in times.items():
        ratio = statistics.median(a / b for a, b in zip(of, times[OURS], strict=True))
        print(f"  {name:12} {statistics.median(of):8.1f}  {ratio:5.2f} × ours")


def no_slower(plain: Path, scratch: Path, runs: int) -> None:
    """Questions that an index cannot help, with it and without."""
    shutil.copyfile(plain, scratch)
    ia.add_indexes(scratch, [ia.Distinct("status"), ia.MinMax("latency")])
    print("\n| with an index that does not help | with / without |\n| --- | ---: |")
    for what, wanted in (
        ("`status = 500`, `Distinct`", pc.field("status") == 500),
        ("`status = 200`, `Distinct`", pc.field("status") == 200),
        ("`latency > 10`, `MinMax`", pc.field("latency") > 10),
    ):
        opened = {"with": ia.dataset(scratch), "without": ia.dataset(plain)}
        actions = {
            name: (lambda data=data, wanted=wanted: data.to_table(["ts"], filter=wanted))
            for name, data in opened.items()
        }
        times = rounds(actions, runs)
        pairs = zip(times["with"], times["without"], strict=True)
        print(f"| {what} | {statistics.median(a / b for a, b in pairs):.2f} |")


def main() -> None:
    """Print all tables."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--data", type=Path, default=DATA, help="folder that keeps the table")
    parser.add_argument("--engines", default=",".join(ENGINES))
    options = parser.parse_args()
    path = logs(options.rows, options.data)
    plain = without_indexes(path)
    scratch = plain.with_suffix(".scratch")
    try:
        sizes(plain, BUILT, scratch)
        probes(path, options.runs)
        many_values(path, options.runs, options.engines.split(","))
        no_slower(plain, scratch, options.runs)
    finally:
        scratch.unlink(missing_ok=True)


if __name__ == "__main__":
    main()
    leave()
