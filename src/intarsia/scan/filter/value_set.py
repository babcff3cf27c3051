"""The constants of an ``IN``, and the search for them in column after column."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from intarsia.index.base import hashable
from intarsia.index.literal_encoding import as_bytes
from intarsia.parquet.xxhash64 import hash_values
from intarsia.process_state import cached_property
from intarsia.row_ranges import BoolArray, Int64Array, RowRanges, UInt64Array

_MIN_HASHED_VALUES = 128 * 1024
"""Fewer constants: pyarrow builds its own hash table in less time than the column's hashes take."""
_SLOTS_PER_VALUE_BITS, _MAX_SLOT_BITS = 4, 26
"""A slot is a byte: 16 for a constant, so that 6 % of other values pass, and at most 64 MB."""


class _Table(NamedTuple):
    """The hashes of constants, ascending, and the constants in this order.

    ``slots[h >> shift]`` is true for each hash ``h``.
    """

    hashes: UInt64Array
    values: pa.Array
    slots: BoolArray
    shift: np.uint64


class ValueSet:
    """Constants of one type, without NULL, that columns of this type are searched for.

    pyarrow's ``is_in`` makes a hash table of all constants at each call. If they are many, their
    hashes are made once. A call compares only the values and constants that share a hash.
    """

    def __init__(self, values: pa.Array) -> None:
        self._values = values

    def contains(self, column: pa.ChunkedArray) -> pa.ChunkedArray:
        """Returns whether each value is one of the constants; NULL is not."""
        if len(self._values) < _MIN_HASHED_VALUES or pa.types.is_floating(self._values.type):
            return pc.is_in(column, value_set=self._values)
        return pa.chunked_array([self._are_members(part) for part in column.chunks], pa.bool_())

    @cached_property
    def _table(self) -> _Table:
        hashes = _hashes(self._values)
        order = np.argsort(hashes)
        bits = min((len(hashes) - 1).bit_length() + _SLOTS_PER_VALUE_BITS, _MAX_SLOT_BITS)
        shift = np.uint64(64 - bits)
        slots = np.zeros(1 << bits, dtype=np.bool_)
        slots[hashes >> shift] = True
        return _Table(hashes[order], self._values.take(pa.array(order)), slots, shift)

    def _are_members(self, part: pa.Array) -> pa.Array:
        table = self._table
        rows: Int64Array = np.flatnonzero(part.is_valid().to_numpy(zero_copy_only=False))
        hashes = _hashes(part.drop_null())
        is_candidate = table.slots[hashes >> table.shift]
        rows, hashes = rows[is_candidate], np.sort(hashes[is_candidate])
        first, last = (np.searchsorted(table.hashes, hashes, side) for side in ("left", "right"))
        constants = RowRanges(first, last).rows()
        are_members = pc.is_in(
            part.take(pa.array(rows)), value_set=table.values.take(pa.array(constants))
        )
        mask = np.zeros(len(part), dtype=np.bool_)
        mask[rows] = are_members.to_numpy(zero_copy_only=False)
        return pa.array(mask)


def _hashes(values: pa.Array) -> UInt64Array:
    return hash_values(as_bytes(hashable(values)))
