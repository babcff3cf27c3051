"""Questions asked of real text, beside the peers: ``python benchmarks/text.py``.

The changelogs that Debian packages install (or the gzipped texts of ``--glob``), a row a line, are
written once, zstd, with a page index, in pages of 8,192 rows, which peers read quickest. That is
their file. Ours has shorter pages (``--page-rows``), ``NGram`` and ``Words``. Each question is put
to all in alternating rounds, from the page cache, every engine having opened the file before; all
answers have the same lines, or nothing is printed.

::

    times   the best peer's time over ours: the median of the rounds' ratios
    CPU     the same of the process's CPU seconds, of all threads: they do not change much where
            other processes want the machine as well
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
"""Ours, of the file that the peers read."""
T = pc.field("text")


@dataclass(frozen=True)
class Question:
    """One question in everyone's words, and how many times as quick as the best peer to be."""

    name: str
    ours: pc.Expression
    sql: str
    datafusion: str
    polars: pl.Expr
    times: float | None = None


def _like(name: str, piece: str, times: float | None) -> Question:
    sql = f"text LIKE '%{piece}%'"
    found = pl.col("text").str.contains(piece, literal=True)
    return Question(name, pc.match_substring(T, piece), sql, sql, found, times)


def _regex(name: str, ours: pc.Expression, pattern: str, times: float | None) -> Question:
    return Question(
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
QUESTIONS = [
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
    Question(
        "ILIKE `%Zlib1G-DEV%`",
        pc.match_substring(T, "Zlib1G-DEV", ignore_case=True),
        "text ILIKE '%Zlib1G-DEV%'",
        "text ILIKE '%Zlib1G-DEV%'",
        pl.col("text").str.to_lowercase().str.contains("zlib1g-dev", literal=True),
    ),
    Question(
        "`=` a whole line",
        T == _FIRST,
        f"text = '{_FIRST}'",
        f"text = '{_FIRST}'",
        pl.col("text") == _FIRST,
    ),
    _like("substring `closes:`, everywhere", "closes:", None),
]
Ask = Callable[[Question], Any]


def engines(plain: Path, indexed: Path) -> dict[str, Ask]:
    """Everyone, having opened the file."""
    source, bare = ia.dataset(indexed), ia.dataset(plain)
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
        OURS: lambda asked: source.to_table(filter=asked.ours),
        WITHOUT: lambda asked: bare.to_table(filter=asked.ours),
        "Polars": lambda asked: frame.filter(asked.polars).collect(),
        "DuckDB": lambda asked: connection.sql(
            f"SELECT text FROM lines WHERE {asked.sql}"
        ).to_arrow_table(),
        **{
            name: lambda asked, context=context: context.sql(
                f"SELECT text FROM lines WHERE {asked.datafusion}"
            ).collect()
            for name, context in contexts.items()
        },
    }


def lines_of(answer: Any) -> list[str]:
    """The lines of anyone's answer, sorted."""
    if isinstance(answer, pl.DataFrame):
        return sorted(answer["text"].to_list())
    if isinstance(answer, list):
        return sorted(line for batch in answer for line in batch.column(0).to_pylist())
    return sorted(answer.column("text").to_pylist())


def timed(action: Callable[[], Any]) -> tuple[float, float]:
    """Seconds of the clock, and of the process."""
    clock, process = time.perf_counter(), time.process_time()
    action()
    return time.perf_counter() - clock, time.process_time() - process


def ask(asked: Question, everyone: dict[str, Ask], runs: int) -> tuple[int, dict[str, list[Any]]]:
    """How many lines there are, and each engine's times by round.

    Raises ``ValueError`` where two answers differ.
    """
    answers = {name: lines_of(engine(asked)) for name, engine in everyone.items()}
    for name, answer in answers.items():
        if answer != answers[OURS]:
            raise ValueError(f"{asked.name}: {name} has {len(answer)} lines, not as {OURS}")
    found: dict[str, list[Any]] = {name: [] for name in everyone}
    for _ in range(runs):
        for name, engine in everyone.items():
            found[name].append(timed(lambda engine=engine: engine(asked)))
    return len(answers[OURS]), found


def told(asked: Question, rows: int, left: str, found: dict[str, list[Any]]) -> str:
    """A line of the table."""
    clock = {name: [t[0] * 1e3 for t in times] for name, times in found.items()}
    cpu = {name: [t[1] * 1e3 for t in times] for name, times in found.items()}
    ratios = []
    for times in (clock, cpu):
        peers = zip(*(times[name] for name in times if name not in (OURS, WITHOUT)), strict=True)
        best = [min(round_) for round_ in peers]
        pairs = zip(best, times[OURS], strict=True)
        ratios.append(statistics.median(peer / own for peer, own in pairs))
    cells = [asked.name, f"{rows:,}", left]
    cells += [f"{statistics.median(times):.1f}" for times in clock.values()]
    cells += [f"{ratio:.1f}" for ratio in ratios]
    cells.append(f"{asked.times:g}" if asked.times else "")
    return "| " + " | ".join(cells) + " |"


def pages_left(indexed: Path, asked: Question, page_rows: int, rows: int) -> str:
    """What of the pages an index left."""
    (file,) = ia.dataset(indexed).explain(filter=asked.ours).files
    steps = [step.rows for step in file.plan.steps if step.source.startswith("index")]
    left = -(-steps[-1] // page_rows) if steps else -(-rows // page_rows)
    return f"{left} of {-(-rows // page_rows)}"


def stored(path: Path) -> int:
    """The bytes of the column."""
    metadata = pq.read_metadata(path)
    groups = map(metadata.row_group, range(metadata.num_row_groups))
    return sum(group.column(0).total_compressed_size for group in groups)


def build(plain: Path, indexed: Path, page_rows: int) -> None:
    """Write our file, and print what that and its indexes take."""
    table = pq.read_table(plain)
    size, theirs = table.nbytes, stored(plain)
    _, seconds = timed(lambda: write(table, indexed, page_rows))
    column = stored(indexed)
    print(
        f"{table.num_rows:,} lines, {size / 1e6:.0f} MB, stored for peers {theirs / 1e6:.1f} MB\n"
    )
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
    """Print what was measured."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--glob", default="/usr/share/doc/*/changelog*.gz")
    parser.add_argument("--rows", type=int, help="at most so many lines")
    parser.add_argument("--runs", type=int, default=9)
    parser.add_argument("--page-rows", type=int, default=2048, help="rows of our file's pages")
    parser.add_argument("--data", type=Path, default=Path("bench-data"))
    parser.add_argument("--peers", help="only these, as Polars,DuckDB; all by default")
    given = parser.parse_args()
    plain = table_of(given.glob, given.rows, given.data)
    indexed = plain.with_suffix(".indexed.parquet")
    build(plain, indexed, given.page_rows)
    everyone = engines(plain, indexed)
    if given.peers:
        everyone = {name: everyone[name] for name in (OURS, *given.peers.split(","))}
    rows = pq.read_metadata(plain).num_rows
    head = ["", "lines", "pages", *(f"{name}, ms" for name in everyone), "times", "CPU", "goal"]
    print("| " + " | ".join(head) + " |\n|" + "---|" * len(head))
    for asked in QUESTIONS:
        found, times = ask(asked, everyone, given.runs)
        left = pages_left(indexed, asked, given.page_rows, rows)
        print(told(asked, found, left, times), flush=True)


if __name__ == "__main__":
    main()
