"""What pages hold: their smallest and largest values, and how many NaN.

The bounds come out encoded, as page indexes store them, and shortened where that is allowed: a
shortened upper bound is raised to the next value of that length, so that it still bounds.

Source: ``ColumnIndex`` and ``ColumnOrder`` in the specification's ``parquet.thrift``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from intarsia.parquet.metadata import BoundaryOrder, ConvertedType, SchemaElement, Type
from intarsia.parquet.value_order import INT96_ORDER, Domain, ValueOrder

Int64Array = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class PageSummaries:
    """Bounds of ``n`` pages: lists of length ``n``; None where all values are NULL or NaN.

    ``nan_counts``, of shape ``(n,)``, is None where the type has no NaN.
    """

    min_values: list[bytes | None]
    max_values: list[bytes | None]
    nan_counts: Int64Array | None


def has_bounds(order: ValueOrder) -> bool:
    """Can bounds be taken? Not of INT96, which pyarrow decodes to timestamps that may wrap."""
    return order.is_defined and order is not INT96_ORDER


def summarize(order: ValueOrder, values: pa.Array, counts: Int64Array) -> PageSummaries:
    """Bounds of pages that hold ``counts`` of the ``values``, one page after the other.

    ``values`` are physical, without NULLs. Raises ``ValueError`` unless ``has_bounds(order)``.
    """
    summarizer = Summarizer(order, counts)
    summarizer.add(values)
    return summarizer.found


class Summarizer:
    """Takes the values of pages in parts of any length, as ``summarize`` takes them at once."""

    def __init__(self, order: ValueOrder, counts: Int64Array) -> None:
        """Raises ``ValueError`` unless ``has_bounds(order)``."""
        if not has_bounds(order):
            raise ValueError("the values have no order that bounds can be taken by")
        self._order = order
        self._stops = np.cumsum(counts)
        self._starts = self._stops - counts
        self._at = 0
        nothing: list[bytes | None] = [None] * len(counts)
        nans = np.zeros(len(counts), dtype=np.int64) if order.has_nan else None
        self.found = PageSummaries(nothing, nothing.copy(), nans)
        """Bounds of the values so far."""

    def add(self, values: pa.Array) -> None:
        """Take the values that come next."""
        at, self._at = self._at, self._at + len(values)
        first = int(np.searchsorted(self._stops, at, side="right"))
        last = int(np.searchsorted(self._starts, self._at, side="left"))
        edges = [side[first:last].clip(at, self._at) for side in (self._starts, self._stops)]
        part = _of_part(self._order, values, edges[1] - edges[0])
        for page, low, high in zip(
            range(first, last), part.min_values, part.max_values, strict=True
        ):
            self._merge(self.found.min_values, page, low, is_low=True)
            self._merge(self.found.max_values, page, high, is_low=False)
        if self.found.nan_counts is not None and part.nan_counts is not None:
            self.found.nan_counts[first:last] += part.nan_counts

    def _merge(
        self, bounds: list[bytes | None], page: int, value: bytes | None, *, is_low: bool
    ) -> None:
        known = bounds[page]
        if known is None:
            bounds[page] = value
        elif value is not None:
            one, other = self._order.keys([known, value])[0]
            bounds[page] = known if (one <= other if is_low else one >= other) else value


def _of_part(order: ValueOrder, values: pa.Array, counts: Int64Array) -> PageSummaries:
    if order.stored is not None:
        return _of_numbers(order, values, counts)
    stops = np.cumsum(counts)
    lows: list[bytes | None] = []
    highs: list[bytes | None] = []
    for stop, count in zip(stops.tolist(), counts.tolist(), strict=True):
        low, high = None, None
        if count:
            part = values.slice(stop - count, count)
            if order.domain is Domain.DECIMAL:
                low, high = _decimal_extremes(part)
            else:
                low, high = extremes(part)
        lows.append(low)
        highs.append(high)
    return PageSummaries(lows, highs, None)


def _of_numbers(order: ValueOrder, values: pa.Array, counts: Int64Array) -> PageSummaries:
    assert order.stored is not None
    numbers = numbers_of(order, values)
    lows: list[bytes | None] = [None] * len(counts)
    highs: list[bytes | None] = [None] * len(counts)
    nan_counts = np.zeros(len(counts), dtype=np.int64) if order.has_nan else None
    filled = np.flatnonzero(counts)
    if not len(filled):
        return PageSummaries(lows, highs, nan_counts)
    starts = (np.cumsum(counts) - counts)[filled]
    below = above = numbers
    known = np.ones(len(filled), dtype=bool)
    if nan_counts is not None:
        nans = np.isnan(numbers)
        nan_counts[filled] = np.add.reduceat(nans, starts, dtype=np.int64)
        known = nan_counts[filled] < counts[filled]
        # NumPy's fmin and fmax forget what was before a signalling NaN.
        below = np.where(nans, numbers.dtype.type(-np.inf), numbers)
        above = np.where(nans, numbers.dtype.type(np.inf), numbers)
    low, high = np.minimum.reduceat(above, starts), np.maximum.reduceat(below, starts)
    if nan_counts is not None:
        # Both zeros are one value, and readers may tell them apart: bounds take in both.
        low = np.where(low == 0, -np.zeros_like(low), low)
        high = np.where(high == 0, np.zeros_like(high), high)
    for page, ok, least, most in zip(filled.tolist(), known.tolist(), low, high, strict=True):
        if ok:
            lows[page] = least.astype(order.stored).tobytes()
            highs[page] = most.astype(order.stored).tobytes()
    return PageSummaries(lows, highs, nan_counts)


def numbers_of(order: ValueOrder, values: pa.Array) -> NDArray[np.generic]:
    """The values as numbers that compare by ``order``."""
    assert order.stored is not None
    if pa.types.is_fixed_size_binary(values.type):
        data = values.buffers()[1]
        raw = np.frombuffer(data or b"", dtype=order.stored, count=len(values) + values.offset)
        return raw[values.offset :]
    numbers: NDArray[np.generic] = values.to_numpy(zero_copy_only=False)
    if numbers.dtype == np.bool_:
        return numbers.astype(np.uint8)
    return numbers.view(order.stored)


def extremes(values: pa.Array) -> tuple[Any, Any]:
    """The least and the greatest of ``values``, NULLs apart; None, both, if there is no other.

    Of strings, they are the bytes. Where memory is short, ``pc.min_max`` and scalars end the
    process instead of raising an error: they copy strings and bytes by means of C++. So long
    values are taken from their buffers.
    """
    stored = _as_bytes(values)
    if stored is None or stored.nbytes <= _LONG_BYTES:
        return _short_extremes(values if stored is None else stored)
    is_long = pc.fill_null(pc.greater(pc.binary_length(stored), _LONG_BYTES), False)
    places = np.flatnonzero(is_long.to_numpy(zero_copy_only=False)).tolist()
    if not places:
        return _short_extremes(stored)
    low, high = _short_extremes(stored.filter(pc.invert(is_long)))
    for at in places:  # three of them are held as bytes at a time
        value = bytes(value_at(stored, at))
        low = value if low is None or value < low else low
        high = value if high is None or value > high else high
    return low, high


_LONG_BYTES = 64 * 1024
"""Longer values are compared in Python."""


def _as_bytes(values: pa.Array) -> pa.Array | None:
    """Strings and bytes as bytes with offsets; None for values of other types."""
    kind = values.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return values.cast(pa.binary() if pa.types.is_string(kind) else pa.large_binary())
    return values if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) else None


def value_at(values: pa.Array, at: int) -> memoryview:
    """The value at a place of an array of bytes, without a copy."""
    width = np.dtype(np.int64 if pa.types.is_large_binary(values.type) else np.int32)
    _, offsets, data = values.buffers()
    start = (values.offset + at) * width.itemsize
    low, high = np.frombuffer(offsets, width, 2, start).tolist()
    return memoryview(data or b"")[low:high]


def _short_extremes(values: pa.Array) -> tuple[Any, Any]:
    found = pc.min_max(values)
    return found["min"].as_py(), found["max"].as_py()


def _decimal_extremes(values: pa.Array) -> tuple[bytes, bytes]:
    """By signed big-endian value."""
    distinct = values.unique().to_pylist()

    def value(encoded: bytes) -> int:
        return int.from_bytes(encoded, "big", signed=True)

    return min(distinct, key=value), max(distinct, key=value)


def boundary_order(order: ValueOrder, lows: Sequence[bytes], highs: Sequence[bytes]) -> int:
    """How the bounds of the pages that have any are sorted, as ``ColumnIndex`` says it."""
    for claim in (BoundaryOrder.ASCENDING, BoundaryOrder.DESCENDING):
        if is_in_order(order, lows, highs, claim):
            return claim
    return BoundaryOrder.UNORDERED


def is_in_order(
    order: ValueOrder, lows: Sequence[bytes], highs: Sequence[bytes], claim: int
) -> bool:
    """Are bounds sorted as ``claim``, a ``BoundaryOrder``, says? Bounds all equal are both ways."""
    low, high = order.keys(lows)[0], order.keys(highs)[0]
    if claim == BoundaryOrder.ASCENDING:
        return bool((low[:-1] <= low[1:]).all() and (high[:-1] <= high[1:]).all())
    if claim == BoundaryOrder.DESCENDING:
        return bool((low[:-1] >= low[1:]).all() and (high[:-1] >= high[1:]).all())
    return True


# --- shortening ---------------------------------------------------------------------------------

_TEXT = {ConvertedType.UTF8, ConvertedType.ENUM, ConvertedType.JSON}


def may_shorten(element: SchemaElement, order: ValueOrder) -> bool:
    """May bounds of this column be shortened? Byte strings of any length only, not decimals."""
    return element.type == Type.BYTE_ARRAY and order.domain is Domain.BYTES


def is_text(element: SchemaElement) -> bool:
    """Are values UTF-8, so that bounds must be as well?"""
    logical = element.logicalType
    if logical is not None:
        return any(m is not None for m in (logical.STRING, logical.ENUM, logical.JSON))
    return element.converted_type in _TEXT


def shortened_low(value: bytes, length: int, *, text: bool) -> bytes:
    """A lower bound of at most ``length`` bytes, cut between characters where it is text."""
    return value if len(value) <= length else _cut(value, length, text)


def shortened_high(value: bytes, length: int, *, text: bool) -> bytes:
    """An upper bound of about ``length`` bytes: cut, and raised; whole where nothing shorter is.

    Text that is not UTF-8 is left whole.
    """
    if len(value) <= length:
        return value
    raised = (_raised_text if text else _raised_bytes)(_cut(value, length, text))
    return value if raised is None else raised


def _cut(value: bytes, length: int, text: bool) -> bytes:
    if text:
        while length and value[length] & 0xC0 == 0x80:  # within a character
            length -= 1
    return value[:length]


def _raised_bytes(value: bytes) -> bytes | None:
    kept = value.rstrip(b"\xff")
    return kept[:-1] + bytes([kept[-1] + 1]) if kept else None


_LAST = 0x10FFFF
_SURROGATES = range(0xD800, 0xE000)


def _raised_text(value: bytes) -> bytes | None:
    try:
        characters = [ord(c) for c in value.decode()]
    except UnicodeDecodeError:
        return None
    while characters and characters[-1] == _LAST:
        characters.pop()
    if not characters:
        return None
    characters[-1] += 1
    if characters[-1] in _SURROGATES:
        characters[-1] = _SURROGATES.stop
    return "".join(map(chr, characters)).encode()
