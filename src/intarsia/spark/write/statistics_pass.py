"""One pass over a DataFrame before it is laid out: how much it is, and which values it has.

Each task counts its rows, writes some of them to learn how many bytes they take in a file, and
draws a sample of the columns that a curve is to go through. The sample is thinner in later tasks,
so that it stays small however many there are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from intarsia.spark.column_names import Act, map_in_arrow, quoted
from intarsia.spark.write.job_spec import Job
from intarsia.spark.write.row_sorting import order_of
from intarsia.spark.write.space_filling_curve import bits_of, quantiles, shortened
from intarsia.spark.write.task import SAMPLE_ROWS, bytes_a_row

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_MOST_KEYS = 8192
_KEYS = 65_536
"""A task draws as many rows, divided by its number among the tasks."""
_REPLY = "rows bigint, sampled bigint, bytes double, keys binary"


@dataclass(frozen=True, slots=True)
class Survey:
    """``rows`` of the DataFrame, the ``bytes`` of the files they will make, about, and values that
    divide each column asked for into parts of equal size: sorted, without NULL.
    """

    rows: int
    bytes: int
    bounds: dict[str, pa.Array]


def survey(df: DataFrame, job: Job, keys: Sequence[str], *, sizes: bool) -> Survey:
    """Look at all rows of ``df``; ``bytes`` is 0 unless ``sizes`` are asked for."""
    if not sizes:
        df = df.select(*(quoted(name) for name in keys))
    replies = map_in_arrow(df, _looker(job, tuple(keys), sizes), _REPLY).toArrow()
    rows, sampled = (np.array(replies.column(name)) for name in ("rows", "sampled"))
    known = np.array(replies.column("bytes")).sum() / max(sampled.sum(), 1)
    tables = [pa.ipc.open_stream(data).read_all() for data in replies.column("keys").to_pylist()]
    bounds = {}
    if keys and tables:
        drawn = pa.concat_tables(tables)
        counts = np.array([len(table) for table in tables])
        weights = pa.array(np.repeat(rows / np.maximum(counts, 1), counts))
        most = (1 << bits_of(len(keys))) - 1
        columns = {name: drawn.column(name).combine_chunks() for name in keys}
        bounds = {name: quantiles(values, weights, most) for name, values in columns.items()}
    return Survey(int(rows.sum()), int(known * rows.sum()), bounds)


def _looker(job: Job, keys: tuple[str, ...], sizes: bool) -> Act:
    def look(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        number = context.partitionId() if context else 0
        draw = _Draw(keys, min(_MOST_KEYS, _KEYS // (number + 1)) or 1, number)
        held: list[pa.Table] = []
        rows = 0
        for at, batch in enumerate(batches):
            rows += batch.num_rows
            table = pa.Table.from_batches([batch])
            draw.add(table.select(keys))
            is_early = at & (at - 1) == 0  # the 0th, 1st, 2nd, 4th, 8th, … batch
            if sizes and is_early and sum(map(len, held)) < SAMPLE_ROWS:
                held.append(table.slice(0, SAMPLE_ROWS))
        sampled = sum(map(len, held))
        size = sampled * bytes_a_row(job, _sorted(pa.concat_tables(held), job)) if sampled else 0.0
        if rows:
            reply = {"rows": rows, "sampled": sampled, "bytes": size, "keys": draw.encode()}
            yield pa.RecordBatch.from_pylist([reply])

    return look


def _sorted(table: pa.Table, job: Job) -> pa.Table:
    """As it will be in files, where that is known: sorted columns take less."""
    order = (*job.partition_by, *job.sorted_by)
    return table.take(order_of(table, order)) if order else table


class _Draw:
    """``size`` rows at random of all that are added: those with the least random numbers."""

    def __init__(self, columns: Sequence[str], size: int, seed: int) -> None:
        self._columns, self._size = columns, size
        self._random = np.random.default_rng(seed)
        self._numbers = np.empty(0)
        self._rows: pa.Table | None = None

    def add(self, rows: pa.Table) -> None:
        if not self._columns:
            return
        fresh = pa.table({name: shortened(rows.column(name)) for name in self._columns})
        numbers = np.concatenate([self._numbers, self._random.random(len(rows))])
        both = fresh if self._rows is None else pa.concat_tables([self._rows, fresh])
        if len(numbers) > self._size:
            chosen = np.argpartition(numbers, self._size)[: self._size]
            numbers, both = numbers[chosen], both.take(pa.array(chosen))
        self._numbers, self._rows = numbers, both.combine_chunks()

    def encode(self) -> bytes:
        rows = self._rows if self._rows is not None else pa.table({})
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, rows.schema) as out:
            out.write_table(rows)
        return bytes(sink.getvalue())
