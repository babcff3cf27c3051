"""XXH64 with seed 0 of many values at once, over their PLAIN encoding.

Values of one length are hashed together, vectorised; what is left goes through ``xxhash``.

Source: the specification's bloom filter section, which fixes XXH64 over PLAIN; the xxHash
specification, section "XXH64 algorithm description".
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import xxhash
from numpy.typing import NDArray

UInt64Array = NDArray[np.uint64]
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
_FEW = 32
"""Below this many values of one length, a call a value is quicker than vectorising."""
_BLOCK = 65_536
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
    if len(values) < _FEW:
        return np.array([xxh64(value) for value in values.to_pylist()], dtype=np.uint64)
    large = pa.types.is_large_binary(values.type)
    _, offsets, data = values.buffers()
    width = np.int64 if large else np.int32
    bounds = np.frombuffer(offsets, dtype=width)[values.offset : values.offset + len(values) + 1]
    bounds = bounds.astype(np.int64)
    lengths = np.diff(bounds)
    raw = np.frombuffer(data, dtype=np.uint8) if data is not None else np.empty(0, np.uint8)
    out = np.empty(len(values), dtype=np.uint64)
    order = np.argsort(lengths, kind="stable")
    distinct, firsts = np.unique(lengths[order], return_index=True)
    view = raw.data
    for length, group in zip(distinct.tolist(), np.split(order, firsts[1:]), strict=True):
        if len(group) < _FEW:
            for i in group:
                out[i] = xxhash.xxh64_intdigest(view[bounds[i] : bounds[i + 1]])
            continue
        for block in np.split(group, range(_BLOCK, len(group), _BLOCK)):
            out[block] = _hash_rows(raw[bounds[block][:, None] + np.arange(length)])
    return out


def _hash_rows(rows: NDArray[np.uint8]) -> UInt64Array:
    """Hashes of ``n`` values of the same length: ``rows`` has shape ``(n, length)``."""
    out = np.empty(len(rows), dtype=np.uint64)
    for start in range(0, len(rows), _BLOCK):
        out[start : start + _BLOCK] = _hash_block(rows[start : start + _BLOCK])
    return out


def _hash_block(rows: NDArray[np.uint8]) -> UInt64Array:
    count, length = rows.shape
    at = 0
    with np.errstate(over="ignore"):
        if length >= 32:
            state = _stripes(rows)
            at = length // 32 * 32
        else:
            state = np.full(count, _P5, dtype=np.uint64)
        state = state + np.uint64(length)
        while at + 8 <= length:
            state ^= _round(np.zeros(count, np.uint64), _lane(rows, at, 8))
            state = _rotate(state, 27) * _P1 + _P4
            at += 8
        if at + 4 <= length:
            state ^= _lane(rows, at, 4) * _P1
            state = _rotate(state, 23) * _P2 + _P3
            at += 4
        for i in range(at, length):
            state ^= rows[:, i].astype(np.uint64) * _P5
            state = _rotate(state, 11) * _P1
        state = (state ^ (state >> np.uint64(33))) * _P2
        state = (state ^ (state >> np.uint64(29))) * _P3
        return state ^ (state >> np.uint64(32))


def _stripes(rows: NDArray[np.uint8]) -> UInt64Array:
    count, length = rows.shape
    zero = np.uint64(0)
    lanes = [np.full(count, start, dtype=np.uint64) for start in (_P1 + _P2, _P2, zero, zero - _P1)]
    for at in range(0, length - 31, 32):
        lanes = [_round(lane, _lane(rows, at + 8 * i, 8)) for i, lane in enumerate(lanes)]
    turns = (1, 7, 12, 18)
    state = sum(
        (_rotate(lane, turn) for lane, turn in zip(lanes, turns, strict=True)),
        np.zeros(count, np.uint64),
    )
    for lane in lanes:
        state = (state ^ _round(np.zeros(count, np.uint64), lane)) * _P1 + _P4
    return state


def _lane(rows: NDArray[np.uint8], at: int, width: int) -> UInt64Array:
    part = np.ascontiguousarray(rows[:, at : at + width])
    return part.view(f"<u{width}").ravel().astype(np.uint64)


def _round(state: UInt64Array, lane: UInt64Array) -> UInt64Array:
    return _rotate(state + lane * _P2, 31) * _P1


def _rotate(state: UInt64Array, by: int) -> UInt64Array:
    return (state << np.uint64(by)) | (state >> np.uint64(64 - by))
