"""XXH64 hashes, with seed 0, of many values at once over their PLAIN encoding.

Values of one length are hashed together with NumPy. Few or long values go through ``xxhash``.

Source: ``BloomFilter.md``, which prescribes XXH64 over PLAIN; section "XXH64 algorithm
description" of the xxHash specification.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import xxhash
from numpy.typing import NDArray

from intarsia.row_ranges import UInt64Array

_Lane = Callable[[int, int], NDArray[Any]]
"""Takes an offset and a width in bytes; returns these bytes of ``n`` values as integers.

The integers are little-endian.
"""
_P1, _P2, _P3, _P4, _P5 = (
    np.uint64(p)
    for p in (
        0x9E3779B185EBCA87,
        0xC2B2AE3D27D4EB4F,
        0x165667B19E3779F9,
        0x85EBCA77C2B2AE63,
        0x27D4EB2F165667C5,
    )
)
_NUMBERS = (pa.int32(), pa.int64(), pa.uint32(), pa.uint64(), pa.float32(), pa.float64())
_MIN_VALUES_PER_LANE, _MAX_VECTOR_BYTES = 32, 512
"""Limits of hashing with NumPy, which takes one step per 8 bytes for all values of one length.

With fewer values per 8 bytes of length, or longer values, one call of ``xxhash`` each is faster.
"""
_BLOCK_VALUES = 16_384
"""Values hashed at once, so that intermediate arrays stay in the processor's cache."""


def xxh64(value: bytes) -> int:
    """Returns the XXH64 hash of one value."""
    return xxhash.xxh64_intdigest(value)


def hash_values(values: pa.Array) -> UInt64Array:
    """Returns the hashes of ``n`` physical values without NULLs. Shape ``(n,)``, uint64.

    ``values`` are integers or floats of 32 or 64 bits, or (fixed-size or large) binary. −0.0 is
    hashed as +0.0, so that equal values have equal hashes. Raises ``TypeError`` for other types,
    ``ValueError`` if there are NULLs.
    """
    if values.null_count:
        raise ValueError("NULLs have no hash")
    if not len(values):
        return np.empty(0, dtype=np.uint64)
    kind = values.type
    if pa.types.is_fixed_size_binary(kind):
        start = values.offset * kind.byte_width
        raw = np.frombuffer(values.buffers()[1], dtype=np.uint8)
        raw = raw[start : start + len(values) * kind.byte_width]
        return _hash_rows(raw.reshape(len(values), kind.byte_width))
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return _hash_binary(values)
    if kind in _NUMBERS:
        numbers = values.to_numpy(zero_copy_only=False)
        if numbers.dtype.kind == "f":
            numbers = numbers + numbers.dtype.type(0)
        width = numbers.dtype.itemsize
        raw = np.ascontiguousarray(numbers).view(np.uint8)
        return _hash_rows(raw.reshape(len(numbers), width))
    raise TypeError(f"values of type {kind} are not hashed")


def _hash_binary(values: pa.Array) -> UInt64Array:
    large = pa.types.is_large_binary(values.type)
    _, offsets, data = values.buffers()
    width = np.int64 if large else np.int32
    stored = np.frombuffer(offsets, dtype=width)[values.offset : values.offset + len(values) + 1]
    bounds = stored.astype(np.int64)
    raw = np.frombuffer(data, dtype=np.uint8) if data is not None else np.empty(0, np.uint8)
    if _is_faster_one_by_one(len(values), int(bounds[-1] - bounds[0]) // len(values)):
        view, edges = raw.data, itertools.pairwise(bounds.tolist())
        hashes = [xxhash.xxh64_intdigest(view[start:stop]) for start, stop in edges]
        return np.array(hashes, dtype=np.uint64)
    lengths = np.diff(bounds)
    if (lengths == lengths[0]).all():  # they are contiguous
        concatenated = raw[bounds[0] : bounds[-1]]
        return _hash_rows(concatenated.reshape(len(values), int(lengths[0])))
    out = np.empty(len(values), dtype=np.uint64)
    order = np.argsort(lengths, kind="stable")
    distinct, firsts = np.unique(lengths[order], return_index=True)
    view = raw.data
    for length, group in zip(distinct.tolist(), np.split(order, firsts[1:]), strict=True):
        if _is_faster_one_by_one(len(group), length):
            for i in group:
                out[i] = xxhash.xxh64_intdigest(view[bounds[i] : bounds[i + 1]])
            continue
        for block in np.split(group, range(_BLOCK_VALUES, len(group), _BLOCK_VALUES)):
            out[block] = _hash_block(_lanes_at(raw, bounds[block]), len(block), length)
    return out


def _is_faster_one_by_one(count: int, length: int) -> bool:
    """True if ``count`` values of ``length`` bytes are hashed faster one by one."""
    return length > _MAX_VECTOR_BYTES or count < _MIN_VALUES_PER_LANE * max(length // 8, 1)


def _hash_rows(rows: NDArray[np.uint8]) -> UInt64Array:
    """Returns the hashes of ``n`` values of one length. ``rows`` has shape ``(n, length)``."""
    out = np.empty(len(rows), dtype=np.uint64)
    if _is_faster_one_by_one(*rows.shape):
        out[:] = [xxhash.xxh64_intdigest(row) for row in rows]
        return out
    for start in range(0, len(rows), _BLOCK_VALUES):
        block = rows[start : start + _BLOCK_VALUES]
        out[start : start + _BLOCK_VALUES] = _hash_block(_lanes_of(block), *block.shape)
    return out


def _lanes_of(rows: NDArray[np.uint8]) -> _Lane:
    """Returns the lanes of contiguous values. ``rows`` has shape ``(n, length)``."""
    count, length = rows.shape

    def lane(at: int, width: int) -> NDArray[Any]:
        return np.ndarray((count,), f"<u{width}", rows, at, (length,))

    return lane


def _lanes_at(raw: NDArray[np.uint8], starts: NDArray[np.int64]) -> _Lane:
    """Returns the lanes of values that start anywhere in ``raw``."""

    def lane(at: int, width: int) -> NDArray[Any]:
        everywhere = np.ndarray((len(raw) - at - width + 1,), f"<u{width}", raw, at, (1,))
        return everywhere[starts]

    return lane


def _hash_block(lane: _Lane, count: int, length: int) -> UInt64Array:
    at = length // 32 * 32
    state = _hash_stripes(lane, count, at) if at else np.full(count, _P5, dtype=np.uint64)
    state += np.uint64(length)
    while at + 8 <= length:
        state ^= _mix(lane(at, 8) * _P2)
        _rotate(state, 27)
        state *= _P1
        state += _P4
        at += 8
    if at + 4 <= length:
        state ^= lane(at, 4) * _P1
        _rotate(state, 23)
        state *= _P2
        state += _P3
        at += 4
    for i in range(at, length):
        state ^= lane(i, 1) * _P5
        _rotate(state, 11)
        state *= _P1
    for shift, factor in ((33, _P2), (29, _P3)):
        state ^= state >> np.uint64(shift)
        state *= factor
    state ^= state >> np.uint64(32)
    return state


def _hash_stripes(lane: _Lane, count: int, stop: int) -> UInt64Array:
    """Returns the state after all complete stripes of 32 bytes, up to ``stop``."""
    with np.errstate(over="ignore"):
        starts = (_P1 + _P2, _P2, np.uint64(0), np.uint64(0) - _P1)
    states = [np.full(count, start, dtype=np.uint64) for start in starts]
    for at in range(0, stop, 32):
        for i, state in enumerate(states):
            state += lane(at + 8 * i, 8) * _P2
            _mix(state)
    merged = np.zeros(count, dtype=np.uint64)
    for state, bits in zip(states, (1, 7, 12, 18), strict=True):
        merged += _rotate(state.copy(), bits)
    for state in states:
        state *= _P2
        merged ^= _mix(state)
        merged *= _P1
        merged += _P4
    return merged


def _mix(state: UInt64Array) -> UInt64Array:
    """Applies one round to ``state`` in place, and returns it."""
    _rotate(state, 31)
    state *= _P1
    return state


def _rotate(state: UInt64Array, bits: int) -> UInt64Array:
    """Rotates the bits of ``state`` to the left in place, and returns it."""
    low = state >> np.uint64(64 - bits)
    state <<= np.uint64(bits)
    state |= low
    return state
