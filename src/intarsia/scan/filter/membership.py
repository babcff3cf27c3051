"""Which values of a column are among some constants.

Of integers, and what is stored as such, most are told by a table of the constants' hashes that fits
into the processor's cache: a few nanoseconds a value, where pyarrow's hash table takes four times
that. Only values whose hash is in the table are looked up.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from intarsia.row_ranges import Int64Array

_FACTOR = np.uint64(0x9E3779B97F4A7C15)
_LEAST_BITS, _MOST_BITS, _SPARSE_BITS = 14, 20, 5
"""The table has 32 places for each constant, as far as these limits allow."""
_MANY_ROWS = 4096
_BLOCK = 1 << 15


def is_among(values: pa.ChunkedArray, constants: pa.Array) -> pa.ChunkedArray:
    """For each value, whether it is one of ``constants``, which have its type and no NULL.

    FALSE for NULL, as ``pyarrow.compute.is_in``.
    """
    bits = min(max(len(constants).bit_length() + _SPARSE_BITS, _LEAST_BITS), _MOST_BITS)
    is_sparse = 0 < len(constants) << 2 <= 1 << bits
    if len(values) < _MANY_ROWS or not is_sparse or not _is_whole(values.type):
        return pc.is_in(values, value_set=constants)
    table = np.zeros(1 << bits, dtype=np.bool_)
    table[_hashes(_numbers(constants), bits)] = True
    found = [_in_chunk(chunk, constants, table, bits) for chunk in values.chunks]
    return pa.chunked_array(found, type=pa.bool_())


def _is_whole(kind: pa.DataType) -> bool:
    """Are its values integers, as they are held?"""
    types = pa.types
    return bool(types.is_integer(kind) or types.is_timestamp(kind) or types.is_date(kind))


def _numbers(values: pa.Array) -> NDArray[np.signedinteger]:
    """The values as integers, whatever stands for a NULL among them."""
    bits = values.type.bit_width
    _, data = values.buffers()
    kind = np.dtype(f"i{bits // 8}")
    return np.frombuffer(data, kind, len(values), values.offset * kind.itemsize)


def _hashes(numbers: NDArray[np.signedinteger], bits: int) -> NDArray[np.uint64]:
    hashes = numbers.astype(np.uint64)
    hashes *= _FACTOR
    hashes >>= np.uint64(64 - bits)
    return hashes


def _in_chunk(
    chunk: pa.Array, constants: pa.Array, table: NDArray[np.bool_], bits: int
) -> pa.Array:
    if chunk.null_count == len(chunk):
        return pa.array(np.zeros(len(chunk), dtype=np.bool_))
    numbers = _numbers(chunk)
    might = np.empty(len(numbers), dtype=np.bool_)
    for start in range(0, len(numbers), _BLOCK):
        block = slice(start, start + _BLOCK)
        table.take(_hashes(numbers[block], bits), out=might[block], mode="clip")
    at: Int64Array = np.flatnonzero(might)
    might[at] = pc.is_in(chunk.take(pa.array(at)), value_set=constants).to_numpy(
        zero_copy_only=False
    )
    return pa.array(might)
