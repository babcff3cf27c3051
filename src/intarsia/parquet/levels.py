"""Repetition and definition levels: decoding them, and what they say of rows and NULLs.

Source: the specification's encodings RLE (the hybrid of run lengths and bit packing) and the older
BIT_PACKED, and its section on nested encoding. Runs are found one by one, the values of each in one
step.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from intarsia.errors import FormatError
from intarsia.parquet.metadata import Encoding

Levels = NDArray[np.unsignedinteger[Any]]
MAX_VALUES = 1 << 26
"""Of one page. A run of a few bytes may claim any number of levels: what it claims is allocated."""


@dataclass(frozen=True, slots=True, eq=False)
class PageLevels:
    """The levels of one data page: arrays of shape ``(num_values,)``.

    None where the column's highest level is 0, and every level with it.
    """

    num_values: int
    repetition: Levels | None
    definition: Levels | None

    def num_rows(self) -> int:
        """Rows that begin in this page."""
        if self.repetition is None:
            return self.num_values
        return int(np.count_nonzero(self.repetition == 0))

    def num_present(self, max_definition_level: int) -> int:
        """Values that are stored: neither NULL nor within something NULL or empty."""
        if self.definition is None:
            return self.num_values
        return int(np.count_nonzero(self.definition == max_definition_level))

    @property
    def begins_a_row(self) -> bool:
        return self.repetition is None or not self.num_values or self.repetition[0] == 0


def histogram(levels: Levels | None, max_level: int, num_values: int) -> NDArray[np.int64]:
    """How often each level occurs, from 0 to ``max_level``: shape ``(max_level + 1,)``."""
    if levels is None:
        return np.array([num_values], dtype=np.int64)
    counts = [np.count_nonzero(levels == level) for level in range(max_level + 1)]
    return np.array(counts, dtype=np.int64)


def bit_width(max_level: int) -> int:
    """Bits that levels of up to ``max_level`` are stored in."""
    return max_level.bit_length()


def decode_levels(
    data: memoryview, encoding: int, max_level: int, count: int
) -> tuple[Levels, int]:
    """Levels as a V1 page stores them, and the bytes they take: a length first, for RLE.

    Raises ``FormatError`` for levels that end early, exceed ``max_level``, are encoded otherwise,
    or are more than ``MAX_VALUES``.
    """
    _check_count(count)
    if encoding == Encoding.RLE:
        if data.nbytes < 4:
            raise FormatError("a page is too short for its levels")
        length = int.from_bytes(data[:4], "little")
        if length > data.nbytes - 4:
            raise FormatError(f"levels claim {length:,} bytes of a page of {data.nbytes:,}")
        return decode_hybrid(data[4 : 4 + length], max_level, count), 4 + length
    if encoding == Encoding.BIT_PACKED:
        length = bit_packed_bytes(max_level, count)
        if length > data.nbytes:
            raise FormatError("a page is too short for its levels")
        levels = _unpacked(data[:length], bit_width(max_level), "big")[:count]
        return _checked(levels, max_level), length
    raise FormatError(f"levels in encoding {encoding}, which is none for levels")


def bit_packed_bytes(max_level: int, count: int) -> int:
    """Bytes that ``count`` levels take in the older BIT_PACKED encoding.

    Raises ``FormatError`` for more than ``MAX_VALUES``.
    """
    _check_count(count)
    return -(-count * bit_width(max_level) // 8)


def decode_hybrid(data: memoryview, max_level: int, count: int) -> Levels:
    """``count`` levels of the RLE/bit-packing hybrid, as V2 pages store them.

    Raises ``FormatError`` as ``decode_levels`` does.
    """
    _check_count(count)
    width = bit_width(max_level)
    value_bytes = -(-width // 8)
    parts: list[Levels] = []
    at, done, window = 0, 0, _FEW
    while done < count:
        start = at
        header, at = _varint(data, at)
        if header & 1:
            length = (header >> 1) * width
            if at + min(length, -(-(count - done) * width // 8)) > data.nbytes:
                raise FormatError("levels end early")
            packed, at = data[at : at + length], at + length
            if length and at - start == 1 + length < data.nbytes - start:
                packed, at = _packed_alike(data, start, 1 + length)
            part = _unpacked(packed, width, "little")[: count - done]
        elif header <= _SHORT and value_bytes == 1:
            part, at = _short_runs(data, start, count - done, window)
            window = _MANY if at - start == 2 * window else _FEW
        else:
            if at + value_bytes > data.nbytes:
                raise FormatError("levels end early")
            value = int.from_bytes(data[at : at + value_bytes], "little")
            part = np.full(min(header >> 1, count - done), min(value, 0xFFFF), _dtype(width))
            at += value_bytes
        if not len(part):
            raise FormatError("a run of levels is empty")
        parts.append(part)
        done += len(part)
    levels = np.concatenate(parts) if parts else np.empty(0, dtype=_dtype(width))
    return _checked(levels, max_level)


def hybrid_bytes(data: memoryview, max_level: int, count: int) -> int:
    """Bytes that ``count`` levels of the hybrid take, whole groups of eight where they are packed.

    Raises ``FormatError`` for levels that end early. ``count`` may be more than are allocated for.
    """
    width = bit_width(max_level)
    at = done = 0
    while done < count:
        header, at = _varint(data, at)
        at += (header >> 1) * width if header & 1 else -(-width // 8)
        if not header >> 1:
            raise FormatError("a run of levels is empty")
        done += (header >> 1) * (8 if header & 1 else 1)
    return at


_SHORT = 0x7E
"""The header, one byte long, of a run of 63."""
_ALIKE = 64
"""Runs of packed levels that are unpacked together: writers make them as long as one byte tells."""
_FEW, _MANY = 16, 4096
"""Runs looked at together: many, where the last few were all short."""


def _short_runs(data: memoryview, at: int, count: int, window: int) -> tuple[Levels, int]:
    """Short runs that follow each other, of one byte of header and one of value, at once."""
    size = min(2 * window, (data.nbytes - at) // 2 * 2)
    runs = np.frombuffer(data[at : at + size], dtype=np.uint8).reshape(-1, 2)
    headers = runs[:, 0]
    short = (headers & 1 == 0) & (headers <= _SHORT) & (headers > 0)
    runs = runs[: len(runs) if short.all() else int(np.argmin(short))]
    ends = np.cumsum(runs[:, 0] >> 1, dtype=np.int64)
    needed = min(int(np.searchsorted(ends, count)) + 1, len(runs))
    return np.repeat(runs[:needed, 1], runs[:needed, 0] >> 1)[:count], at + 2 * needed


def _packed_alike(data: memoryview, at: int, size: int) -> tuple[memoryview, int]:
    """What is packed in the run of ``size`` bytes at ``at``, and in those after it that are as long
    and have, as it has, a header of one byte.
    """
    number = min(_ALIKE, (data.nbytes - at) // size)
    runs = np.frombuffer(data[at : at + number * size], dtype=np.uint8).reshape(number, size)
    are_alike = runs[:, 0] == runs[0, 0]
    number = number if are_alike.all() else int(np.argmin(are_alike))
    return memoryview(runs[:number, 1:].tobytes()), at + number * size


def _dtype(width: int) -> np.dtype[Any]:
    return np.dtype(np.uint8 if width <= 8 else np.uint16)


def _unpacked(data: memoryview, width: int, bit_order: Literal["little", "big"]) -> Levels:
    """All whole values of ``width`` bits in ``data``; ``bit_order`` is of the bits in a byte."""
    bits = np.unpackbits(np.frombuffer(data, dtype=np.uint8), bitorder=bit_order)
    if width == 1:
        return bits
    rows = bits[: len(bits) // width * width].reshape(-1, width)
    values = np.zeros(len(rows), dtype=_dtype(width))
    for i in range(width):
        shift = i if bit_order == "little" else width - 1 - i
        values |= rows[:, i].astype(values.dtype) << shift
    return values


def _check_count(count: int) -> None:
    if not 0 <= count <= MAX_VALUES:
        raise FormatError(f"a page claims {count:,} values; up to {MAX_VALUES:,} are taken")


def _checked(levels: Levels, max_level: int) -> Levels:
    highest = int(levels.max(initial=0))
    if highest > max_level:
        raise FormatError(f"level {highest} in a column whose highest is {max_level}")
    return levels


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if at >= data.nbytes or shift > 35:
            raise FormatError("levels end early")
        byte, at = data[at], at + 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
