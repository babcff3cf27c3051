"""Compares the order of rows that row groups state with the rows.

The specification defines it for each row group. If all row groups agree, readers such as
DataFusion take it for the order of the whole file.

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

_ZERO_PREFIX = 1 << 31
"""The first 4 bytes of a decimal's key: above it for positive numbers, below it for negative."""


@dataclass(frozen=True, slots=True, eq=False)
class _Steps:
    """How the rows of a column follow each other in the stated order.

    ``steps`` has the shape ``(rows - 1,)``: 1 if a row comes after the previous one, 0 if it
    equals it, −1 if it should come before it. ``first`` and ``last`` are the outer values.
    """

    first: pa.Array
    last: pa.Array
    steps: NDArray[np.int8]


class StatedOrder:
    """A check of the stated order, which takes one row group after the other."""

    def __init__(self, file: OpenedFile) -> None:
        self._file = file
        self._group = -1
        self._claim: dict[int, SortingColumn] = {}
        """The sorting columns by leaf. If a column occurs twice, the first entry counts."""
        self._columns: dict[int, _Steps] = {}
        self._last: tuple[list[SortingColumn], list[_Steps]] | None = None

    def begin(self, group: int) -> None:
        """Starts the next row group."""
        self._group = group
        self._claim, self._columns = {}, {}
        for column in self._file.metadata.row_groups[group].sorting_columns or []:
            self._claim.setdefault(column.column_idx, column)

    def add(self, facts: ChunkFacts) -> None:
        """Adds a chunk of this row group."""
        column = self._claim.get(facts.chunk.leaf.index)
        steps = None if column is None else _steps_of(facts, column)
        if steps is not None:
            self._columns[facts.chunk.leaf.index] = steps

    def findings(self) -> Iterator[Finding]:
        """Yields what is wrong with this row group, after all of its chunks were added."""
        where = Where(self._file.name, self._group)
        claim: list[SortingColumn] = []
        for column in self._claim.values():
            if not 0 <= column.column_idx < len(self._file.schema.leaves):
                yield error(where, f"sorting_columns: there is no column {column.column_idx}")
                break
            if column.column_idx not in self._columns:  # later columns cannot be checked either
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
    """Returns the steps from ``before``, which may be empty, through ``rows``."""
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
    """Returns the first row that should come before the previous one, or None."""
    ties = np.ones(len(columns[0]), dtype=np.bool_)
    for steps in columns:
        faults = ties & (steps < 0)
        if faults.any():
            return int(np.argmax(faults)) + 1
        ties &= steps == 0
    return None


def _steps_of(facts: ChunkFacts, how: SortingColumn) -> _Steps | None:
    """Returns a column's steps, or None for repeated columns, unordered types and NaN."""
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
    """Returns a copy of a slice of one value, which does not keep the whole array in memory."""
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
    """Returns big-endian numbers of one width as bytes that compare like the numbers."""
    width, size = values.type.byte_width, len(values)
    data = np.frombuffer(values.buffers()[1] or b"", np.uint8)[values.offset * width :]
    flipped = data[: size * width].reshape(size, width).copy()
    if width:
        flipped[:, 0] ^= 0x80
    keys = pa.Array.from_buffers(values.type, size, [None, pa.py_buffer(flipped)])
    return keys.cast(pa.large_binary())


def _decimal_key(value: bytes) -> bytes:
    """Returns bytes that compare like the signed big-endian number: by length, then digits."""
    number = int.from_bytes(value, "big", signed=True)
    digits = number if number >= 0 else ~number
    length = (digits.bit_length() + 7) // 8
    if number < 0:
        digits = 256**length - 1 - digits
    prefix = _ZERO_PREFIX + (length if number >= 0 else -1 - length)
    return prefix.to_bytes(4, "big") + digits.to_bytes(length, "big")
