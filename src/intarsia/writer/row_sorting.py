"""The rows of a task: sorted, and divided by folder."""

from __future__ import annotations

import datetime
import re
import zoneinfo
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from intarsia.dataset.partition_values import NULL_FOLDER
from intarsia.errors import UnsupportedError
from intarsia.writer.row_buffer import Rows

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
    while (run := rows.take(2**62, num_bytes)) is not None:
        yield run.take(order_of(run, columns)).combine_chunks().to_batches()


def order_of(table: pa.Table, columns: Sequence[str]) -> pa.Array:
    """Returns the row numbers of ``table`` in the order of ``columns``, NULL first."""
    # Columns are renamed, as pyarrow reads a name that begins with a dot as a path.
    numbers = [str(number) for number in range(len(columns))]
    keys = [(number, "ascending", "at_start") for number in numbers]
    return pc.sort_indices(table.select(columns).rename_columns(numbers), sort_keys=keys)


def by_folder(
    batches: Iterator[pa.RecordBatch], columns: Sequence[str], time_zone: str
) -> Iterator[tuple[str, Iterator[pa.Table]]]:
    """Yields runs of rows with equal values in ``columns``, and the name of their folder.

    Different values with the same name, such as NULL and the empty string, form separate runs.
    """
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
    """Returns what a folder's name does not show.

    That is whether there is a value, and for timestamps the instant, as clocks that are set back
    repeat times.
    """
    is_moment = value.is_valid and pa.types.is_timestamp(value.type)
    return int(value.value) if is_moment else bool(value.is_valid)


def folder_name(rows: pa.Table, columns: Sequence[str], time_zone: str) -> str:
    """Returns the folder of rows with equal values, such as ``day=1/city=New York``.

    Without columns it is ``""``.
    """
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
