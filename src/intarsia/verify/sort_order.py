"""The order of rows that row groups state, against the rows.

The specification states it of each row group. Readers that sort or group by what a file states
(DataFusion does) take it for the order of the whole file where all row groups agree.

Source: ``SortingColumn`` and ``RowGroup.sorting_columns`` in ``parquet.thrift``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from intarsia.errors import Where
from intarsia.file.open_file import OpenedFile
from intarsia.parquet.metadata import SortingColumn
from intarsia.parquet.page_statistics import has_bounds, numbers_of
from intarsia.parquet.value_order import Domain, ValueOrder
from intarsia.verify.finding import Finding, error, warning
from intarsia.verify.pages import ChunkFacts

_MIDDLE = 1 << 31


@dataclass(frozen=True, slots=True, eq=False)
class _Steps:
    """How the rows of a column follow each other: −1 where a row comes before the row ahead of it.

    0 where it is the same, 1 where it comes after. ``steps`` have the shape ``(rows - 1,)``.
    """

    first: pa.Array
    last: pa.Array
    steps: NDArray[np.int8]


class StatedOrder:
    """Compares the rows of one row group after the other with the order that they state."""

    def __init__(self, file: OpenedFile) -> None:
        self._file = file
        self._group = -1
        self._claim: dict[int, SortingColumn] = {}
        """By column; if a column is stated twice, the first entry counts."""
        self._columns: dict[int, _Steps] = {}
        self._last: tuple[list[SortingColumn], list[_Steps]] | None = None

    def begin(self, group: int) -> None:
        """Go on with the next row group."""
        self._group = group
        self._claim, self._columns = {}, {}
        for column in self._file.metadata.row_groups[group].sorting_columns or []:
            self._claim.setdefault(column.column_idx, column)

    def add(self, facts: ChunkFacts) -> None:
        """Take in a chunk of this row group."""
        column = self._claim.get(facts.chunk.leaf.index)
        found = None if column is None else _steps_of(facts, column)
        if found is not None:
            self._columns[facts.chunk.leaf.index] = found

    def findings(self) -> Iterator[Finding]:
        """What is wrong with this row group, all of whose chunks were added."""
        where = Where(self._file.name, self._group)
        claim: list[SortingColumn] = []
        for column in self._claim.values():
            if not 0 <= column.column_idx < len(self._file.schema.leaves):
                yield error(where, f"sorting_columns: there is no column {column.column_idx}")
                break
            if column.column_idx not in self._columns:  # nothing is known of what comes after it
                break
            claim.append(column)
        columns = [self._columns[column.column_idx] for column in claim]
        before, self._last = self._last, None
        if not columns or not len(columns[0].first):
            return
        self._last = claim, columns
        fault = _first_fault([column.steps for column in columns])
        if fault is not None:
            yield error(where, f"sorting_columns: row {fault:,} comes before the row ahead of it")
        elif before is not None and before[0] == claim:
            edge = [
                _steps(one.last, other.first, how)
                for one, other, how in zip(before[1], columns, claim, strict=True)
            ]
            if _first_fault(edge) is not None:
                message = "its first row comes before the last one of the row group ahead of it"
                yield warning(where, f"sorting_columns: {message}; the file has no such order")


def _steps(before: pa.Array, rows: pa.Array, how: SortingColumn) -> NDArray[np.int8]:
    """The steps from ``before``, which may be empty, through ``rows``. NULLs may have no type."""
    kind = rows.type if pa.types.is_null(before.type) else before.type
    values = pa.concat_arrays([before.cast(kind), rows.cast(kind)])
    if pa.types.is_null(kind):
        return np.zeros(max(len(values) - 1, 0), dtype=np.int8)
    direction = "descending" if how.descending else "ascending"
    keys = [("", direction, "at_start" if how.nulls_first else "at_end")]
    ranks = pc.rank(values, sort_keys=keys, tiebreaker="dense").to_numpy()
    steps: NDArray[np.int8] = (ranks[1:] > ranks[:-1]).astype(np.int8) - (ranks[1:] < ranks[:-1])
    return steps


def _first_fault(columns: Sequence[NDArray[np.int8]]) -> int | None:
    """The first row that is to come before the row ahead of it."""
    ties = np.ones(len(columns[0]), dtype=np.bool_)
    for steps in columns:
        faults = ties & (steps < 0)
        if faults.any():
            return int(np.argmax(faults)) + 1
        ties &= steps == 0
    return None


def _steps_of(facts: ChunkFacts, how: SortingColumn) -> _Steps | None:
    """The steps of a column with a value a row; None where rows have no order that can be told.

    NaN has no place that readers agree on.
    """
    leaf, order, num_rows = facts.chunk.leaf, facts.order, facts.chunk.num_rows
    if leaf.max_repetition_level or not has_bounds(order) or int(facts.rows.sum()) != num_rows:
        return None
    if facts.values is None:
        if facts.present.any():
            return None
        edge = pa.nulls(min(num_rows, 1))
        return _Steps(edge, edge, np.zeros(max(num_rows - 1, 0), dtype=np.int8))
    first = last = pa.nulls(0)
    parts = []
    for part in facts.values:
        values = _comparable(order, part.drop_null())
        if order.has_nan and pc.any(pc.is_nan(values)).as_py():
            return None
        is_there = part.is_valid().to_numpy(zero_copy_only=False)
        rows = values.take(pa.array(np.cumsum(is_there) - 1, mask=~is_there))
        parts.append(_steps(last, rows, how))
        first = first if len(first) else rows.slice(0, 1)
        last = rows.slice(max(len(rows) - 1, 0)) if len(rows) else last
    return _Steps(_alone(first), _alone(last), np.concatenate(parts))


def _alone(value: pa.Array) -> pa.Array:
    """An array of one value that keeps no others in memory."""
    return pa.concat_arrays([value, value.slice(0, 0)])


def _comparable(order: ValueOrder, values: pa.Array) -> pa.Array:
    if order.stored is not None:
        numbers = numbers_of(order, values)
        if order.has_nan:
            return pa.array(numbers.astype(np.float64) + 0)  # both zeros are one value
        return pa.array(numbers.astype(order.key))
    if order.domain is Domain.DECIMAL and pa.types.is_fixed_size_binary(values.type):
        return _with_sign_first(values)
    if order.domain is Domain.DECIMAL:
        return pa.array([_decimal_key(value) for value in values.to_pylist()], pa.large_binary())
    return values.cast(pa.binary()).cast(pa.large_binary())


def _with_sign_first(values: pa.Array) -> pa.Array:
    """Big-endian numbers of one width, so that their bytes compare as they do."""
    width, size = values.type.byte_width, len(values)
    data = np.frombuffer(values.buffers()[1] or b"", np.uint8)[values.offset * width :]
    turned = data[: size * width].reshape(size, width).copy()
    if width:
        turned[:, 0] ^= 0x80
    made = pa.Array.from_buffers(values.type, size, [None, pa.py_buffer(turned)])
    return made.cast(pa.large_binary())


def _decimal_key(value: bytes) -> bytes:
    """Bytes that compare as the signed big-endian number ``value`` does: by length, then digits."""
    number = int.from_bytes(value, "big", signed=True)
    digits = number if number >= 0 else ~number
    length = (digits.bit_length() + 7) // 8
    if number < 0:
        digits = 256**length - 1 - digits
    prefix = _MIDDLE + (length if number >= 0 else -1 - length)
    return prefix.to_bytes(4, "big") + digits.to_bytes(length, "big")
