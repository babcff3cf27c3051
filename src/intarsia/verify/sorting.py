"""The order of rows that row groups state, against the rows.

The specification states it of each row group. Readers that sort or group by what a file states
(DataFusion does) take it for the order of the whole file where all row groups agree.

Source: ``SortingColumn`` and ``RowGroup.sorting_columns`` in ``parquet.thrift``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from intarsia.errors import Where
from intarsia.format.metadata import SortingColumn
from intarsia.format.order import Domain, ValueOrder
from intarsia.format.summary import has_bounds, numbers_of
from intarsia.read.opened import OpenedFile
from intarsia.verify.findings import Finding, error, warning
from intarsia.verify.pages import ChunkFacts

_MIDDLE = 1 << 31


class StatedOrder:
    """Compares the rows of one row group after the other with the order that they state."""

    def __init__(self, file: OpenedFile) -> None:
        self._file = file
        self._group = -1
        self._claim: list[SortingColumn] = []
        self._columns: dict[int, pa.Array] = {}
        self._last: tuple[list[SortingColumn], list[pa.Array]] | None = None

    def begin(self, group: int) -> None:
        """Go on with the next row group."""
        self._group = group
        self._claim = self._file.metadata.row_groups[group].sorting_columns or []
        self._columns = {}

    def add(self, facts: ChunkFacts) -> None:
        """Take in a chunk of this row group."""
        leaf = facts.chunk.leaf
        if any(column.column_idx == leaf.index for column in self._claim):
            rows = _rows(facts)
            if rows is not None:
                self._columns[leaf.index] = rows

    def findings(self) -> Iterator[Finding]:
        """What is wrong with this row group, all of whose chunks were added."""
        where = Where(self._file.name, self._group)
        claim: list[SortingColumn] = []
        for column in self._claim:
            if not 0 <= column.column_idx < len(self._file.schema.leaves):
                yield error(where, f"sorting_columns: there is no column {column.column_idx}")
                break
            if column.column_idx not in self._columns:  # nothing is known of what comes after it
                break
            if all(column.column_idx != known.column_idx for known in claim):
                claim.append(column)
        rows = [self._columns[column.column_idx] for column in claim]
        before, self._last = self._last, None
        if not rows or not len(rows[0]):
            return
        self._last = claim, [column.slice(len(column) - 1) for column in rows]
        fault = _first_fault(rows, claim)
        if fault is not None:
            yield error(where, f"sorting_columns: row {fault:,} comes before the row ahead of it")
        elif before is not None and before[0] == claim:
            firsts = [column.slice(0, 1) for column in rows]
            edge = [_both(*pair) for pair in zip(before[1], firsts, strict=True)]
            if _first_fault(edge, claim) is not None:
                message = "its first row comes before the last one of the row group ahead of it"
                yield warning(where, f"sorting_columns: {message}; the file has no such order")


def _both(one: pa.Array, other: pa.Array) -> pa.Array:
    """One array of two, of which those of NULLs alone have no type."""
    kind = other.type if pa.types.is_null(one.type) else one.type
    return pa.concat_arrays([one.cast(kind), other.cast(kind)])


def _first_fault(columns: Sequence[pa.Array], claim: Sequence[SortingColumn]) -> int | None:
    """The first row that is to come before the row ahead of it."""
    ties = np.ones(len(columns[0]) - 1, dtype=np.bool_)
    for values, how in zip(columns, claim, strict=True):
        if pa.types.is_null(values.type):
            continue
        direction = "descending" if how.descending else "ascending"
        keys = [("", direction, "at_start" if how.nulls_first else "at_end")]
        ranks = pc.rank(values, sort_keys=keys, tiebreaker="dense").to_numpy()
        faults = ties & (ranks[1:] < ranks[:-1])
        if faults.any():
            return int(np.argmax(faults)) + 1
        ties &= ranks[1:] == ranks[:-1]
    return None


def _rows(facts: ChunkFacts) -> pa.Array | None:
    """A value a row, which Arrow compares as the column's order does; None where there is none.

    NaN has no place that readers agree on.
    """
    leaf, order, num_rows = facts.chunk.leaf, facts.order, facts.chunk.num_rows
    if leaf.max_repetition_level or not has_bounds(order) or int(facts.rows.sum()) != num_rows:
        return None
    is_there = np.ones(num_rows, dtype=np.bool_)
    if leaf.max_definition_level:
        levels = [page.definition for page in facts.levels if page.definition is not None]
        is_there = np.concatenate([*levels, np.empty(0, np.uint8)]) == leaf.max_definition_level
    if facts.values is None and is_there.any():
        return None
    if facts.values is None:
        return pa.nulls(num_rows)
    values = _comparable(order, facts.values)
    if order.has_nan and pc.any(pc.is_nan(values)).as_py():
        return None
    return values.take(pa.array(np.cumsum(is_there) - 1, mask=~is_there))


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
