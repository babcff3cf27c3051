"""One pass over a DataFrame before it is written: its size, and the quantiles of columns.

Each task counts its rows and writes some of them, to learn how many bytes they take in a file. It
also samples the columns of a curve. Later tasks draw fewer rows, so that the sample stays small
with any number of tasks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from intarsia.commit.job import SAMPLE_ROWS, Job, bytes_a_row
from intarsia.spark.column_names import Act, map_in_arrow, quoted
from intarsia.spark.write.space_filling_curve import bits_of, quantiles, shortened
from intarsia.writer.row_sorting import order_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_MAX_DRAWN_ROWS = 8192
_FIRST_DRAWN_ROWS = 65_536
"""Task ``n``, counted from 1, draws this number of rows divided by ``n``, within the maximum."""
_REPLY = "rows bigint, sampled bigint, bytes double, keys binary"


@dataclass(frozen=True, slots=True)
class DataStatistics:
    """The rows of a DataFrame, their bytes in files, and sorted quantiles of columns."""

    rows: int
    bytes: int
    bounds: dict[str, pa.Array]


def collect_statistics(
    df: DataFrame, job: Job, keys: Sequence[str], *, sizes: bool
) -> DataStatistics:
    """Reads all rows of ``df`` and returns their statistics; ``bytes`` is 0 without ``sizes``."""
    if not sizes:
        df = df.select(*(quoted(name) for name in keys))
    replies = map_in_arrow(df, _collector(job, tuple(keys), sizes), _REPLY).toArrow()
    rows, sampled = (np.array(replies.column(name)) for name in ("rows", "sampled"))
    bytes_per_row = np.array(replies.column("bytes")).sum() / max(sampled.sum(), 1)
    tables = [pa.ipc.open_stream(data).read_all() for data in replies.column("keys").to_pylist()]
    bounds = {}
    if keys and tables:
        drawn = pa.concat_tables(tables)
        counts = np.array([len(table) for table in tables])
        weights = pa.array(np.repeat(rows / np.maximum(counts, 1), counts))
        max_bounds = (1 << bits_of(len(keys))) - 1
        columns = {name: drawn.column(name).combine_chunks() for name in keys}
        bounds = {name: quantiles(values, weights, max_bounds) for name, values in columns.items()}
    return DataStatistics(int(rows.sum()), int(bytes_per_row * rows.sum()), bounds)


def _collector(job: Job, keys: tuple[str, ...], sizes: bool) -> Act:
    def collect(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        number = context.partitionId() if context else 0
        draw = _Sample(keys, min(_MAX_DRAWN_ROWS, _FIRST_DRAWN_ROWS // (number + 1)) or 1, number)
        samples: list[pa.Table] = []
        rows = 0
        for at, batch in enumerate(batches):
            rows += batch.num_rows
            table = pa.Table.from_batches([batch])
            draw.add(table.select(keys))
            is_early = at & (at - 1) == 0  # the 0th, 1st, 2nd, 4th, 8th, … batch
            if sizes and is_early and sum(map(len, samples)) < SAMPLE_ROWS:
                samples.append(table.slice(0, SAMPLE_ROWS))
        sampled = sum(map(len, samples))
        size = (
            sampled * bytes_a_row(job, _sorted(pa.concat_tables(samples), job)) if sampled else 0.0
        )
        if rows:
            reply = {"rows": rows, "sampled": sampled, "bytes": size, "keys": draw.encode()}
            yield pa.RecordBatch.from_pylist([reply])

    return collect


def _sorted(table: pa.Table, job: Job) -> pa.Table:
    """Returns rows as they will be in files if that is known, as sorted columns take less space."""
    order = (*job.partition_by, *job.sorted_by)
    return table.take(order_of(table, order)) if order else table


class _Sample:
    """A random sample of ``size`` of the added rows: those with the lowest random numbers."""

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
