"""Compares searches in real text with and without indexes, and with peers.

The data is the changelogs that Debian packages install (or the gzipped files of ``--glob``), one
line a row. The peers read a zstd file with a page index and pages of 8,192 rows, which they read
fastest. Our file has shorter pages (``--page-rows``) and the indexes ``NGram`` and ``Words``.

``python benchmarks/text.py`` first prints sizes in MB and the speed of writing and of each index
build in MB of text a second of processor time. Then comes a line for each query, with median wall
times in milliseconds. The engines run in turn in each round, on files in the page cache that they
opened before. All answers must have the same lines, or the run ends with an error.

::

    times   the best peer's wall time by ours, the median of the rounds' ratios
    CPU     the same of the process's processor time in all threads, which depends little on the
            load of other processes
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import datafusion
import duckdb
import polars as pl
import pyarrow.compute as pc
import pyarrow.parquet as pq
from text_keys import table_of, write

import intarsia as ia

OURS = "Intarsia"
WITHOUT = "without index"
"""Intarsia on the peers' file."""
T = pc.field("text")


@dataclass(frozen=True)
class Query:
    """One query in each engine's terms, and the goal for the best peer's time by ours."""

    name: str
    ours: pc.Expression
    sql: str
    datafusion: str
    polars: pl.Expr
    times: float | None = None


def _like(name: str, piece: str, times: float | None) -> Query:
    sql = f"text LIKE '%{piece}%'"
    polars = pl.col("text").str.contains(piece, literal=True)
    return Query(name, pc.match_substring(T, piece), sql, sql, polars, times)


def _regex(name: str, ours: pc.Expression, pattern: str, times: float | None) -> Query:
    return Query(
        name,
        ours,
        f"regexp_matches(text, '{pattern}')",
        f"regexp_like(text, '{pattern}')",
        pl.col("text").str.contains(pattern),
        times,
    )


_CVE = "CVE-2016-10[0-9]{3}"
_WORD = r"(?:^|[^\w])(?i:autopkgtest)(?:[^\w]|$)"
_FIRST = "zlib (1:1.2.11.dfsg-2) unstable; urgency=low"
QUERIES = [
    _like("substring `zlib1g-dev`", "zlib1g-dev", 10),
    _like("substring `hurd-i386`", "hurd-i386", None),
    _like("absent word `xylophone`", "xylophone", 30),
    _like("absent hexadecimal `9f3a77bcd0e1`", "9f3a77bcd0e1", 30),
    _regex(
        "word `wombat`",
        ia.contains_words("text", "wombat"),
        r"(?:^|[^\w])(?i:wombat)(?:[^\w]|$)",
        15,
    ),
    _regex(
        "absent word `quilt3`, by `Words`",
        ia.contains_words("text", "quilt3"),
        r"(?:^|[^\w])(?i:quilt3)(?:[^\w]|$)",
        None,
    ),
    _regex("word `autopkgtest`, frequent", ia.contains_words("text", "autopkgtest"), _WORD, None),
    _regex(f"regex `{_CVE}`", pc.match_substring_regex(T, _CVE), _CVE, None),
    Query(
        "ILIKE `%Zlib1G-DEV%`",
        pc.match_substring(T, "Zlib1G-DEV", ignore_case=True),
        "text ILIKE '%Zlib1G-DEV%'",
        "text ILIKE '%Zlib1G-DEV%'",
        pl.col("text").str.to_lowercase().str.contains("zlib1g-dev", literal=True),
    ),
    Query(
        "`=` a whole line",
        T == _FIRST,
        f"text = '{_FIRST}'",
        f"text = '{_FIRST}'",
        pl.col("text") == _FIRST,
    ),
    _like("substring `closes:`, everywhere", "closes:", None),
]
Runner = Callable[[Query], Any]


def engines(plain: Path, indexed: Path) -> dict[str, Runner]:
    """Opens the files. Returns the function of each engine that runs a query."""
    indexed_data, plain_data = ia.dataset(indexed), ia.dataset(plain)
    frame = pl.scan_parquet(plain)
    connection = duckdb.connect()
    connection.execute("SET parquet_metadata_cache = true")
    connection.execute(f"CREATE VIEW lines AS SELECT * FROM '{plain}'")
    contexts = {}
    for name, pushed in (("DataFusion", "false"), ("DataFusion+", "true")):
        config = datafusion.SessionConfig({
            "datafusion.execution.parquet.pushdown_filters": pushed,
            "datafusion.execution.parquet.reorder_filters": pushed,
        })  # fmt: skip
        contexts[name] = datafusion.SessionContext(config)
        contexts[name].register_parquet("lines", str(plain))
    return {
        OURS: lambda query: indexed_data.to_table(filter=query.ours),
        WITHOUT: lambda query: plain_data.to_table(filter=query.ours),
        "Polars": lambda query: frame.filter(query.polars).collect(),
        "DuckDB": lambda query: connection.sql(
            f"SELECT text FROM lines WHERE {query.sql}"
        ).to_arrow_table(),
        **{
            name: lambda query, context=context: context.sql(
                f"SELECT text FROM lines WHERE {query.datafusion}"
            ).collect()
            for name, context in contexts.items()
        },
    }


def lines_of(answer: Any) -> list[str]:
    """Returns the lines of an engine's answer, sorted."""
    if isinstance(answer, pl.DataFrame):
        return sorted(answer["text"].to_list())
    if isinstance(answer, list):
        return sorted(line for batch in answer for line in batch.column(0).to_pylist())
    return sorted(answer.column("text").to_pylist())


def timed(action: Callable[[], Any]) -> tuple[float, float]:
    """Returns wall time and processor time in seconds."""
    clock, process = time.perf_counter(), time.process_time()
    action()
    return time.perf_counter() - clock, time.process_time() - process


def measure(
    query: Query, runners: dict[str, Runner], runs: int
) -> tuple[int, dict[str, list[Any]]]:
    """Returns the number of matching lines, and each engine's times by round.

    Raises ``ValueError`` if two answers differ.
    """
    answers = {name: lines_of(run(query)) for name, run in runners.items()}
    for name, answer in answers.items():
        if answer != answers[OURS]:
            raise ValueError(
                f"{query.name}: {name} has {len(answer)} lines, which differ from those of {OURS}"
            )
    times: dict[str, list[Any]] = {name: [] for name in runners}
    for _ in range(runs):
        for name, run in runners.items():
            times[name].append(timed(lambda run=run: run(query)))
    return len(answers[OURS]), times


def line_of(query: Query, rows: int, pages: str, times_of: dict[str, list[Any]]) -> str:
    """Returns a line of the table."""
    clock = {name: [t[0] * 1e3 for t in times] for name, times in times_of.items()}
    cpu = {name: [t[1] * 1e3 for t in times] for name, times in times_of.items()}
    ratios = []
    for times in (clock, cpu):
        peers = zip(*(times[name] for name in times if name not in (OURS, WITHOUT)), strict=True)
        best = [min(round_) for round_ in peers]
        pairs = zip(best, times[OURS], strict=True)
        ratios.append(statistics.median(peer / own for peer, own in pairs))
    cells = [query.name, f"{rows:,}", pages]
    cells += [f"{statistics.median(times):.1f}" for times in clock.values()]
    cells += [f"{ratio:.1f}" for ratio in ratios]
    cells.append(f"{query.times:g}" if query.times else "")
    return "| " + " | ".join(cells) + " |"


def candidate_pages(indexed: Path, query: Query, page_rows: int, rows: int) -> str:
    """Returns how many pages the index left, of how many."""
    (file,) = ia.dataset(indexed).explain(filter=query.ours).files
    steps = [step.rows for step in file.plan.steps if step.source.startswith("index")]
    count = -(-steps[-1] // page_rows) if steps else -(-rows // page_rows)
    return f"{count} of {-(-rows // page_rows)}"


def column_bytes(path: Path) -> int:
    """Returns the compressed size of the column in bytes."""
    metadata = pq.read_metadata(path)
    groups = map(metadata.row_group, range(metadata.num_row_groups))
    return sum(group.column(0).total_compressed_size for group in groups)


def build(plain: Path, indexed: Path, page_rows: int) -> None:
    """Writes our file, and prints the sizes and speeds of writing and of its indexes."""
    table = pq.read_table(plain)
    size, peer = table.nbytes, column_bytes(plain)
    _, seconds = timed(lambda: write(table, indexed, page_rows))
    column = column_bytes(indexed)
    print(f"{table.num_rows:,} lines, {size / 1e6:.0f} MB, stored for peers {peer / 1e6:.1f} MB\n")
    print("| | MB | of the column | MB/s of CPU |\n|---|---|---|---|")
    print(f"| writing the column | {column / 1e6:.1f} | | {size / seconds / 1e6:.0f} |")
    for index in (ia.NGram("text"), ia.Words("text")):
        _, seconds = timed(lambda index=index: ia.add_indexes(indexed, index))
        (report,) = ia.list_indexes(indexed)
        length = report.indexes[-1].length
        speed = size / seconds / 1e6
        print(f"| `{index.kind}` | {length / 1e6:.1f} | {length / column:.1%} | {speed:.0f} |")
    print()


def main() -> None:
    """Prints both tables."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--glob", default="/usr/share/doc/*/changelog*.gz")
    parser.add_argument("--rows", type=int, help="maximum number of lines")
    parser.add_argument("--runs", type=int, default=9)
    parser.add_argument("--page-rows", type=int, default=2048, help="rows of our file's pages")
    parser.add_argument("--data", type=Path, default=Path("bench-data"))
    parser.add_argument("--peers", help="peers to run, for example Polars,DuckDB; all by default")
    options = parser.parse_args()
    plain = table_of(options.glob, options.rows, options.data)
    indexed = plain.with_suffix(".indexed.parquet")
    build(plain, indexed, options.page_rows)
    runners = engines(plain, indexed)
    if options.peers:
        runners = {name: runners[name] for name in (OURS, *options.peers.split(","))}
    rows = pq.read_metadata(plain).num_rows
    head = ["", "lines", "pages", *(f"{name}, ms" for name in runners), "times", "CPU", "goal"]
    print("| " + " | ".join(head) + " |\n|" + "---|" * len(head))
    for query in QUERIES:
        count, times = measure(query, runners, options.runs)
        pages = candidate_pages(indexed, query, options.page_rows, rows)
        print(line_of(query, count, pages, times), flush=True)


if __name__ == "__main__":
    main()
