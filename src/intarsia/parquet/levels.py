"""Repetition and definition levels: decoding them, and counting rows and NULLs.

Runs are found one by one; the values of a run are decoded in one step.

Source: ``Encodings.md``, sections "Run Length Encoding / Bit-Packing Hybrid (RLE = 3)" and
"Bit-packed (Deprecated) (BIT_PACKED = 4)"; section "Nested Encoding" of the specification.
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
"""Most values per page. A run of a few bytes can claim any number; that number is allocated."""


@dataclass(frozen=True, slots=True, eq=False)
class PageLevels:
    """The levels of one data page: arrays of shape ``(num_values,)``.

    An array is None if the column's maximum level is 0, because every level is then 0.
    """

    num_values: int
    repetition: Levels | None
    definition: Levels | None

    def num_rows(self) -> int:
        """Returns the number of rows that begin in this page."""
        if self.repetition is None:
            return self.num_values
        return int(np.count_nonzero(self.repetition == 0))

    def num_present(self, max_definition_level: int) -> int:
        """Returns the number of stored values, which are neither NULL nor part of an empty list."""
        if self.definition is None:
            return self.num_values
        return int(np.count_nonzero(self.definition == max_definition_level))

    @property
    def begins_a_row(self) -> bool:
        """True if the page's first value starts a row, or the page is empty."""
        return self.repetition is None or not self.num_values or self.repetition[0] == 0


def histogram(levels: Levels | None, max_level: int, num_values: int) -> NDArray[np.int64]:
    """Returns how often each level from 0 to ``max_level`` occurs. Shape ``(max_level + 1,)``."""
    if levels is None:
        return np.array([num_values], dtype=np.int64)
    counts = [np.count_nonzero(levels == level) for level in range(max_level + 1)]
    return np.array(counts, dtype=np.int64)


def bit_width(max_level: int) -> int:
    """Returns the bits in which levels of up to ``max_level`` are stored."""
    return max_level.bit_length()


def decode_levels(
    data: memoryview, encoding: int, max_level: int, count: int
) -> tuple[Levels, int]:
    """Decodes the levels of a V1 data page. Returns them and the bytes that they take.

    RLE levels start with their length, in 4 bytes. Raises ``FormatError`` if levels end early,
    exceed ``max_level``, use another encoding, or number more than ``MAX_VALUES``.
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
        levels = _unpack(data[:length], bit_width(max_level), "big")[:count]
        return _check_levels(levels, max_level), length
    raise FormatError(f"levels in encoding {encoding}, which levels cannot use")


def bit_packed_bytes(max_level: int, count: int) -> int:
    """Returns the bytes that ``count`` levels take in the deprecated BIT_PACKED encoding.

    Raises ``FormatError`` if ``count`` is more than ``MAX_VALUES``.
    """
    _check_count(count)
    return -(-count * bit_width(max_level) // 8)


def decode_hybrid(data: memoryview, max_level: int, count: int) -> Levels:
    """Decodes the RLE/bit-packing hybrid of V2 pages. Raises as ``decode_levels`` does."""
    _check_count(count)
    width = bit_width(max_level)
    value_bytes = -(-width // 8)
    parts: list[Levels] = []
    at, num_decoded, window = 0, 0, _MIN_RUNS_AT_ONCE
    while num_decoded < count:
        start = at
        header, at = _varint(data, at)
        if header & 1:
            length = (header >> 1) * width
            if at + min(length, -(-(count - num_decoded) * width // 8)) > data.nbytes:
                raise FormatError("levels end early")
            packed, at = data[at : at + length], at + length
            if length and at - start == 1 + length < data.nbytes - start:
                packed, at = _join_equal_runs(data, start, 1 + length)
            part = _unpack(packed, width, "little")[: count - num_decoded]
        elif header <= _MAX_SHORT_RUN_HEADER and value_bytes == 1 and header >> 1 < count:
            part, at = _short_runs(data, start, count - num_decoded, window)
            window = _MAX_RUNS_AT_ONCE if at - start == 2 * window else _MIN_RUNS_AT_ONCE
        else:
            if at + value_bytes > data.nbytes:
                raise FormatError("levels end early")
            value = int.from_bytes(data[at : at + value_bytes], "little")
            part = np.full(min(header >> 1, count - num_decoded), min(value, 0xFFFF), _dtype(width))
            at += value_bytes
        if not len(part):
            raise FormatError("a run of levels is empty")
        parts.append(part)
        num_decoded += len(part)
    levels = np.concatenate(parts) if parts else np.empty(0, dtype=_dtype(width))
    return _check_levels(levels, max_level)


def hybrid_bytes(data: memoryview, max_level: int, count: int) -> int:
    """Returns the bytes that ``count`` levels of the RLE/bit-packing hybrid take.

    A packed run takes whole groups of eight levels. Raises ``FormatError`` if the levels end early.
    ``count`` may exceed ``MAX_VALUES``, because nothing is allocated.
    """
    width = bit_width(max_level)
    at = num_levels = 0
    while num_levels < count:
        header, at = _varint(data, at)
        at += (header >> 1) * width if header & 1 else -(-width // 8)
        if not header >> 1:
            raise FormatError("a run of levels is empty")
        num_levels += (header >> 1) * (8 if header & 1 else 1)
    return at


_MAX_SHORT_RUN_HEADER = 0x7E
"""Header of an RLE run of 63 levels, the longest with a header of one byte."""
_MAX_EQUAL_RUNS = 64
"""Most packed runs of equal length that are unpacked together.

Many writers make all runs as long as a header of one byte allows.
"""
_MIN_RUNS_AT_ONCE, _MAX_RUNS_AT_ONCE = 16, 4096
"""Runs that are decoded together: the larger number follows if the last ones were all short."""


def _short_runs(data: memoryview, at: int, count: int, window: int) -> tuple[Levels, int]:
    """Decodes adjacent runs of two bytes in one step. Returns levels and the offset after them."""
    size = min(2 * window, (data.nbytes - at) // 2 * 2)
    runs = np.frombuffer(data[at : at + size], dtype=np.uint8).reshape(-1, 2)
    headers = runs[:, 0]
    short = (headers & 1 == 0) & (headers <= _MAX_SHORT_RUN_HEADER) & (headers > 0)
    runs = runs[: len(runs) if short.all() else int(np.argmin(short))]
    ends = np.cumsum(runs[:, 0] >> 1, dtype=np.int64)
    needed = min(int(np.searchsorted(ends, count)) + 1, len(runs))
    return np.repeat(runs[:needed, 1], runs[:needed, 0] >> 1)[:count], at + 2 * needed


def _join_equal_runs(data: memoryview, at: int, size: int) -> tuple[memoryview, int]:
    """Joins the packed run of ``size`` bytes at ``at`` with the runs after it of the same length.

    All of these have the same header of one byte. Returns the packed levels without headers, and
    the offset after the last joined run.
    """
    num_runs = min(_MAX_EQUAL_RUNS, (data.nbytes - at) // size)
    runs = np.frombuffer(data[at : at + num_runs * size], dtype=np.uint8).reshape(num_runs, size)
    is_equal = runs[:, 0] == runs[0, 0]
    num_runs = num_runs if is_equal.all() else int(np.argmin(is_equal))
    return memoryview(runs[:num_runs, 1:].tobytes()), at + num_runs * size


def _dtype(width: int) -> np.dtype[Any]:
    return np.dtype(np.uint8 if width <= 8 else np.uint16)


def _unpack(data: memoryview, width: int, bit_order: Literal["little", "big"]) -> Levels:
    """Unpacks all complete values of ``width`` bits, in this order of bits within a byte."""
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
        raise FormatError(f"a page claims {count:,} values; at most {MAX_VALUES:,} are supported")


def _check_levels(levels: Levels, max_level: int) -> Levels:
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
