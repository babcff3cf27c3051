"""Rows sorted, in memory or on disk, and divided by folder."""

from __future__ import annotations

import datetime
import re
import zoneinfo
from collections.abc import Container, Iterator, Sequence
from itertools import takewhile
from pathlib import Path
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import intarsia.deadline as deadline
from intarsia.dataset.partition_values import NULL_FOLDER
from intarsia.errors import UnsupportedError
from intarsia.expr.filterable_types import filterable_type, taken
from intarsia.expr.nested_types import leaves, without_dictionary
from intarsia.io.external_sort import Workspace, on_disk
from intarsia.memory import share
from intarsia.scan.request import without_rows
from intarsia.writer.row_buffer import Rows

SORTED_BYTES = 256 * 1024 * 1024
"""Arrow memory, in bytes, of the rows that are sorted at a time."""
_MAX_RUNS = 32
"""Sorted runs that are merged at a time. More are merged in several passes."""
_MERGED_ROWS = 64 * 1024
"""Rows of a run that are merged at a time. Wide rows are merged fewer at a time."""
_ALL_ROWS = 2**62
_SPILL_OPTIONS = pa.ipc.IpcWriteOptions(compression="lz4")

FOLDER = "__intarsia_folder"
"""The column that holds the existing name of each row's folder."""
_PLAIN_FROM, _PLAIN_BELOW = 1e-3, 1e7
"""The range of absolute values that Java writes without an exponent; its end is excluded."""
_Key = tuple[str, tuple[int | bool, ...]]
"""A folder's name, and the differences between values of the same name."""
_OFFSET = re.compile(r"(?:UTC|GMT|UT)?([+-])(\d{1,2})(?::?(\d{2}))?(?::?(\d{2}))?", re.ASCII)
_ESCAPED = frozenset("\"#%'*/:=?\\{[]^\x7f")


def runs_in_order(
    batches: Iterator[pa.RecordBatch], columns: Sequence[str], num_bytes: int
) -> Iterator[list[pa.RecordBatch]]:
    """Yields the rows in runs of ``num_bytes`` of Arrow memory, each sorted by ``columns``."""
    rows = Rows(pa.Table.from_batches([batch]) for batch in batches)
    while (run := rows.take(_ALL_ROWS, num_bytes)) is not None:
        yield run.take(order_of(run, columns)).combine_chunks().to_batches()


def order_of(
    table: pa.Table,
    columns: Sequence[str] | range,
    nulls: Literal["at_start", "at_end"] = "at_start",
    descends: Sequence[bool] | None = None,
) -> pa.Array:
    """Returns the row numbers of ``table`` in the order of ``columns``. Equal rows stay in order.

    NaN is the greatest value. ``columns`` are names or positions; ``descends`` says for each
    whether its greatest value is first. Raises ``UnsupportedError`` for a type that has no order.
    """
    keys: list[pa.ChunkedArray] = []
    directions: list[str] = []
    for column, is_down in zip(columns, descends or [False] * len(columns), strict=True):
        key = sortable(table.column(column))
        direction = "descending" if is_down else "ascending"
        if is_down and pa.types.is_floating(key.type):  # pyarrow sorts NaN after all values
            keys.append(pc.is_nan(key))
            directions.append(direction)
        keys.append(key)
        directions.append(direction)
    # Columns are renamed, as pyarrow reads a name that begins with a dot as a path.
    names = [str(number) for number in range(len(keys))]
    sort_keys = [(*key, nulls) for key in zip(names, directions, strict=True)]
    try:
        return pc.sort_indices(pa.table(keys, names), sort_keys=sort_keys)
    except (pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
        by = ", ".join(table.field(column).name for column in columns)
        raise UnsupportedError(f"rows cannot be sorted by {by}: {error}") from error


def sortable(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Returns values in a type that pyarrow sorts: no dictionary and no view type."""
    kind = filterable_type(without_dictionary(column.type))
    return column if kind == column.type else column.cast(kind)


def with_sortable(table: pa.Table, columns: Sequence[str]) -> pa.Table:
    """Returns ``table`` with ``columns`` in types that pyarrow sorts."""
    for name in columns:
        position = table.column_names.index(name)
        table = table.set_column(position, name, sortable(table.column(position)))
    return table


def sorted_tables(
    tables: Iterator[pa.Table], columns: Sequence[str], work: Workspace
) -> Iterator[pa.Table]:
    """Yields the rows in the order of ``columns``, NULL last. Equal rows stay in order.

    Rows that do not fit into memory are sorted in runs, which are written to ``work`` and merged.
    Raises ``PathError`` if temporary files cannot be written.
    """
    rows = Rows(tables)
    run_bytes = share(SORTED_BYTES, 16)
    runs: list[_Run] = []
    while (table := rows.take(_ALL_ROWS, run_bytes)) is not None:
        deadline.check()
        run = _in_order(table, columns)
        if not runs and rows.peek(1) is None:
            yield run
            return
        if len(runs) == _MAX_RUNS:
            runs = [_spilled(_merged(runs, columns), run_bytes, work)]
        runs.append(_spilled(iter([run]), run_bytes, work))
    yield from _merged(runs, columns)


def _in_order(table: pa.Table, columns: Sequence[str]) -> pa.Table:
    table = table.unify_dictionaries()
    return taken(table, order_of(table, columns, "at_end"))


class _Run:
    """Sorted rows in a temporary file, and those of them that wait to be merged."""

    def __init__(self, path: Path, work: Workspace) -> None:
        self._batches = pa.ipc.open_stream(pa.memory_map(str(path)))
        work.release(path)
        self.head = without_rows(self._batches.schema)
        self.has_more = True
        self.advance()

    def advance(self) -> None:
        """Adds the next rows to the head, unless it has enough."""
        while self.has_more and self.head.num_rows < _MERGED_ROWS:
            try:
                batch = self._batches.read_next_batch()
            except StopIteration:
                self.has_more = False
            else:
                self.head = pa.concat_tables([self.head, pa.Table.from_batches([batch])])
                return


def _spilled(tables: Iterator[pa.Table], run_bytes: int, work: Workspace) -> _Run:
    with on_disk():
        path = work.new_path()
        writer = None
        with pa.OSFile(str(path), "wb") as out:
            for table in tables:
                if writer is None:
                    writer = pa.ipc.new_stream(out, table.schema, options=_SPILL_OPTIONS)
                block = max(1, len(table) * run_bytes // (_MAX_RUNS * max(table.nbytes, 1)))
                writer.write_table(table, min(block, _MERGED_ROWS))
            assert writer is not None
            writer.close()
        return _Run(path, work)


def _merged(runs: Sequence[_Run], columns: Sequence[str]) -> Iterator[pa.Table]:
    """Merges sorted runs, block by block.

    Each step sorts the heads of all runs. It yields the rows up to the first that is the last of
    its head while its run has more: no later row of any run belongs before it.
    """
    while any(run.head.num_rows for run in runs):
        deadline.check()
        heads = pa.concat_tables([run.head for run in runs]).unify_dictionaries()
        order = order_of(heads, columns, "at_end")
        rank = np.empty(len(order), np.int64)
        rank[order.to_numpy()] = np.arange(len(order))
        stops = np.cumsum([run.head.num_rows for run in runs])
        lasts = [rank[stop - 1] for run, stop in zip(runs, stops, strict=True) if run.has_more]
        count = int(min(lasts, default=len(order) - 1)) + 1
        yield taken(heads, order.slice(0, count))
        is_yielded = rank < count
        for run, part in zip(runs, np.split(is_yielded, stops[:-1]), strict=True):
            run.head = run.head.slice(int(part.sum()))
            run.advance()


def stated_order(
    columns: Sequence[str], schema: pa.Schema, collated: Container[str] = ()
) -> tuple[str, ...]:
    """Returns the leading sort ``columns`` that footers may state.

    NaN and nested values have no order that other readers know, and collations are Spark's alone.
    """

    def has_common_order(name: str) -> bool:
        kind = without_dictionary(schema.field(name).type)
        return not (pa.types.is_floating(kind) or pa.types.is_nested(kind) or name in collated)

    return tuple(takewhile(has_common_order, columns))


def sorting_columns(
    order: Sequence[str], schema: pa.Schema, *, nulls_first: bool
) -> list[pq.SortingColumn]:
    """Returns a stated ``order`` as pyarrow's writer takes it."""
    columns = []
    for name in order:
        position = schema.get_field_index(name)
        leaf = sum(len(leaves(field.type)) for field in list(schema)[:position])
        columns.append(pq.SortingColumn(leaf, nulls_first=nulls_first))
    return columns


def by_folder(
    batches: Iterator[pa.RecordBatch], columns: Sequence[str], time_zone: str
) -> Iterator[tuple[str, Iterator[pa.Table]]]:
    """Yields runs of rows with equal values in ``columns``, and the name of their folder."""
    runs = _runs(batches, columns, time_zone)
    current = next(runs, None)
    while current is not None:
        key = current[0]

        def tables() -> Iterator[pa.Table]:
            nonlocal current
            while current is not None and current[0] == key:  # noqa: B023 # used at once
                yield current[1]
                current = next(runs, None)

        yield key[0], tables()


def _runs(
    batches: Iterator[pa.RecordBatch], columns: Sequence[str], time_zone: str
) -> Iterator[tuple[_Key, pa.Table]]:
    for batch in batches:
        if not batch.num_rows:
            continue
        ends = {batch.num_rows}
        for name in columns:
            encoded = pc.run_end_encode(batch.column(name), run_end_type=pa.int32())
            ends.update(encoded.run_ends.to_pylist())
        edges = np.array([0, *sorted(ends)])
        for start, stop in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
            part = pa.Table.from_batches([batch.slice(start, stop - start)])
            values = tuple(_hidden_difference(part.column(name)[0]) for name in columns)
            yield (folder_name(part, columns, time_zone), values), part


def _hidden_difference(value: pa.Scalar) -> int | bool:
    """Returns what a folder's name hides: NULL, and repeated times of a clock set back."""
    is_moment = value.is_valid and pa.types.is_timestamp(value.type)
    return int(value.value) if is_moment else bool(value.is_valid)


def folder_name(rows: pa.Table, columns: Sequence[str], time_zone: str) -> str:
    """Returns the folder of equal values, as ``day=1/city=New York``; ``""`` without columns."""
    if tuple(columns) == (FOLDER,):
        return str(rows.column(FOLDER)[0].as_py())
    pairs = ((name, _text(rows.column(name)[0], time_zone)) for name in columns)
    return "/".join(f"{_escaped(name)}={_escaped(text) or NULL_FOLDER}" for name, text in pairs)


def _text(value: pa.Scalar, time_zone: str) -> str:
    """Returns a value as Spark names its folder; ``""`` for NULL and the empty string."""
    if not value.is_valid:
        return ""
    if pa.types.is_floating(value.type):
        return _java_text(value.type.to_pandas_dtype()(value.as_py()))
    if pa.types.is_decimal(value.type):
        return format(value.as_py(), "f")
    if pa.types.is_time(value.type):
        return _shown(value.cast(pa.time64("us")).as_py())
    if not pa.types.is_timestamp(value.type):
        try:
            text = str(value.cast(pa.string()).as_py())
        except pa.ArrowInvalid as error:  # bytes that are no UTF-8
            raise UnsupportedError(f"{value.as_py()!r} does not name a folder: {error}") from error
        is_after_9999 = (
            pa.types.is_date(value.type) and len(text) > len("9999-12-31") and text[0] != "-"
        )
        return f"+{text}" if is_after_9999 else text
    try:
        # In UTC first: Python does not know all of Spark's time zones.
        in_utc = value.cast(pa.timestamp(value.type.unit, value.type.tz and "UTC")).as_py()
        moment = in_utc.astimezone(_zone(time_zone)) if value.type.tz else in_utc
    except (OverflowError, ValueError) as error:
        moment_text = value.cast(pa.string())
        raise UnsupportedError(f"{moment_text} does not name a folder: {error}") from error
    return _shown(moment.replace(tzinfo=None))


def _shown(moment: datetime.datetime | datetime.time) -> str:
    text = str(moment)
    return text.rstrip("0") if moment.microsecond else text


def _zone(name: str) -> datetime.tzinfo:
    """Returns a session's time zone, from a name or an offset such as ``+02:00``."""
    offset = _OFFSET.fullmatch(name)
    if offset is None:
        return zoneinfo.ZoneInfo(name)
    sign, hours, minutes, seconds = offset.groups(default="0")
    ahead = datetime.timedelta(hours=int(hours), minutes=int(minutes), seconds=int(seconds))
    return datetime.timezone(-ahead if sign == "-" else ahead)


def _java_text(value: np.floating) -> str:
    """Returns a number as Java prints it: ``0.5``, ``1.0E10``, ``-Infinity``."""
    if not np.isfinite(value):
        return "NaN" if np.isnan(value) else f"{'-' if value < 0 else ''}Infinity"
    if value == 0 or _PLAIN_FROM <= abs(value) < _PLAIN_BELOW:
        return np.format_float_positional(value, trim="0")
    return np.format_float_scientific(value, trim="0", exp_digits=1).replace("e+", "e").upper()


def _escaped(text: str) -> str:
    """Returns ``text`` with ``%XX`` for the characters that Spark escapes in names of folders."""
    return "".join(f"%{ord(c):02X}" if c in _ESCAPED or c < " " else c for c in text)
