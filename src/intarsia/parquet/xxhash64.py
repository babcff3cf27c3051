"""XXH64 with seed 0 of many values at once, over their PLAIN encoding.

Values of one length are hashed together, vectorised; what is left goes through ``xxhash``.

Source: the specification's bloom filter section, which fixes XXH64 over PLAIN; the xxHash
specification, section "XXH64 algorithm description".
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

Lane = Callable[[int, int], NDArray[Any]]
"""Gives, of ``n`` values, the bytes from one place on as little-endian integers of a width."""
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
_FEW, _LONG = 32, 512
"""Below this many values of one length for every 8 bytes, and of longer values, a call a value is
quicker than vectorising, which takes a step for all values every 8 bytes."""
_BLOCK = 16_384
"""Values hashed at once, so that intermediate arrays stay in the processor's cache."""


def xxh64(value: bytes) -> int:
    """XXH64 of one value."""
    return xxhash.xxh64_intdigest(value)


def hash_values(values: pa.Array) -> UInt64Array:
    """Hashes of ``n`` physical values without NULLs; shape ``(n,)``, uint64.

    ``values`` are integers or floats of 32 or 64 bits, or (fixed-size, large) binary. −0.0 is
    hashed as +0.0, so that equal values have equal hashes. Raises ``TypeError`` for any other type.
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
    lengths = np.diff(bounds)
    raw = np.frombuffer(data, dtype=np.uint8) if data is not None else np.empty(0, np.uint8)
    if _are_few(len(values), int(lengths.mean())):
        view, edges = raw.data, itertools.pairwise(bounds.tolist())
        found = [xxhash.xxh64_intdigest(view[start:stop]) for start, stop in edges]
        return np.array(found, dtype=np.uint64)
    if (lengths == lengths[0]).all():  # they lie side by side
        whole = raw[bounds[0] : bounds[-1]]
        return _hash_rows(whole.reshape(len(values), int(lengths[0])))
    out = np.empty(len(values), dtype=np.uint64)
    order = np.argsort(lengths, kind="stable")
    distinct, firsts = np.unique(lengths[order], return_index=True)
    view = raw.data
    for length, group in zip(distinct.tolist(), np.split(order, firsts[1:]), strict=True):
        if _are_few(len(group), length):
            for i in group:
                out[i] = xxhash.xxh64_intdigest(view[bounds[i] : bounds[i + 1]])
            continue
        for block in np.split(group, range(_BLOCK, len(group), _BLOCK)):
            out[block] = _hash_block(_lanes_at(raw, bounds[block]), len(block), length)
    return out


def _are_few(count: int, length: int) -> bool:
    """True if values of ``length`` bytes are hashed faster one by one."""
    return length > _LONG or count < _FEW * max(length // 8, 1)


def _hash_rows(rows: NDArray[np.uint8]) -> UInt64Array:
    """Hashes of ``n`` values of the same length: ``rows`` has shape ``(n, length)``."""
    out = np.empty(len(rows), dtype=np.uint64)
    if _are_few(*rows.shape):
        out[:] = [xxhash.xxh64_intdigest(row) for row in rows]
        return out
    for start in range(0, len(rows), _BLOCK):
        block = rows[start : start + _BLOCK]
        out[start : start + _BLOCK] = _hash_block(_lanes_of(block), *block.shape)
    return out


def _lanes_of(rows: NDArray[np.uint8]) -> Lane:
    """Lanes of values that lie side by side: ``rows`` has shape ``(n, length)``."""
    count, length = rows.shape

    def lane(at: int, width: int) -> NDArray[Any]:
        return np.ndarray((count,), f"<u{width}", rows, at, (length,))

    return lane


def _lanes_at(raw: NDArray[np.uint8], starts: NDArray[np.int64]) -> Lane:
    """Lanes of values that begin anywhere in ``raw``."""

    def lane(at: int, width: int) -> NDArray[Any]:
        everywhere = np.ndarray((len(raw) - at - width + 1,), f"<u{width}", raw, at, (1,))
        return everywhere[starts]

    return lane


def _hash_block(lane: Lane, count: int, length: int) -> UInt64Array:
    at = length // 32 * 32
    state = _stripes(lane, count, at) if at else np.full(count, _P5, dtype=np.uint64)
    state += np.uint64(length)
    while at + 8 <= length:
        state ^= _mixed(lane(at, 8) * _P2)
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


def _stripes(lane: Lane, count: int, stop: int) -> UInt64Array:
    """What the whole stripes of 32 bytes, up to ``stop``, make of four states."""
    with np.errstate(over="ignore"):
        starts = (_P1 + _P2, _P2, np.uint64(0), np.uint64(0) - _P1)
    states = [np.full(count, start, dtype=np.uint64) for start in starts]
    for at in range(0, stop, 32):
        for i, state in enumerate(states):
            state += lane(at + 8 * i, 8) * _P2
            _mixed(state)
    found = np.zeros(count, dtype=np.uint64)
    for state, turn in zip(states, (1, 7, 12, 18), strict=True):
        found += _rotate(state.copy(), turn)
    for state in states:
        state *= _P2
        found ^= _mixed(state)
        found *= _P1
        found += _P4
    return found


def _mixed(state: UInt64Array) -> UInt64Array:
    """``state``, in its place, as a round leaves it."""
    _rotate(state, 31)
    state *= _P1
    return state


def _rotate(state: UInt64Array, by: int) -> UInt64Array:
    """``state``, in its place, with its bits turned to the left."""
    low = state >> np.uint64(64 - by)
    state <<= np.uint64(by)
    state |= low
    return state
