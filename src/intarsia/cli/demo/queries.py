"""The queries of ``intarsia demo``, answered by a data set and by brute force in pyarrow."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from intarsia.cli.demo.log_table import RARE, Row
from intarsia.cli.output.terminal import Update
from intarsia.dataset.discovery import dataset
from intarsia.plan.plan import Figures

_RANGE = timedelta(seconds=5)


@dataclass(frozen=True, slots=True)
class Question:
    """A filter, written twice: as a SQL condition and as an Expression of pyarrow."""

    title: str
    where: str
    expression: pc.Expression


@dataclass(frozen=True, slots=True)
class Answer:
    """The rows that a data set gave, whether brute force gave the same, and what was read."""

    question: Question
    rows: int
    is_equal: bool
    read: Figures


def questions(row: Row) -> list[Question]:
    """Returns five questions about ``row``."""
    trace, user, ts = pc.field("trace_id"), pc.field("user_id"), pc.field("ts")
    has_word = pc.match_substring(pc.field("msg"), RARE[:8])
    begin, end = row.ts, row.ts + _RANGE
    is_one = f"trace_id = '{row.trace_id}'"
    return [
        Question("one trace", is_one, trace == row.trace_id),
        Question("one user", f"user_id = {row.user_id}", user == row.user_id),
        Question(
            "five seconds",
            f"ts >= '{begin.isoformat()}' AND ts < '{end.isoformat()}'",
            (ts >= pa.scalar(begin, pa.timestamp("us", "UTC")))
            & (ts < pa.scalar(end, pa.timestamp("us", "UTC"))),
        ),
        Question("part of a word", f"msg LIKE '%{RARE[:8]}%'", has_word),
        Question(
            "a combination",
            f"{is_one} OR (user_id = {row.user_id} AND latency < 20)"
            f" OR (msg LIKE '%{RARE[:8]}%' AND status = 200)",
            (trace == row.trace_id)
            | ((user == row.user_id) & (pc.field("latency") < 20))
            | (has_word & (pc.field("status") == 200)),
        ),
    ]


def answers(path: Path, selected: Sequence[Question], update: Update) -> Iterator[Answer]:
    """Yields the answer to each question."""
    expected = _by_brute_force(path, [question.expression for question in selected])
    source = dataset(path, partitioning=None)  # the folder's name may have any form
    for number, (question, table) in enumerate(zip(selected, expected, strict=True)):
        update(question.title, number, len(selected))
        matching = source.to_table(filter=question.where)
        read = source.explain(filter=question.where, analyze=True).read
        assert read is not None
        yield Answer(question, matching.num_rows, matching.equals(table), read)


def _by_brute_force(path: Path, expressions: Sequence[pc.Expression]) -> list[pa.Table]:
    """Returns the rows that pass each of ``expressions``, by filtering all rows in memory."""
    with pq.ParquetFile(path) as file:
        empty = file.schema_arrow.empty_table()
        matching = [[empty] for _ in expressions]
        for batch in file.iter_batches():
            table = pa.Table.from_batches([batch])
            for tables, expression in zip(matching, expressions, strict=True):
                tables.append(table.filter(expression))
    return [pa.concat_tables(tables) for tables in matching]
