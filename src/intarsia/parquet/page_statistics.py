"""Statistics of pages: the smallest and largest values, and the number of NaN.

Bounds are encoded as page indexes store them, and shortened where that is allowed. A shortened
upper bound is raised to the next value of its length, so that it is still an upper bound.

Source: ``ColumnIndex`` and ``ColumnOrder`` in ``parquet.thrift``.
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
from intarsia.row_ranges import Int64Array


@dataclass(frozen=True, slots=True, eq=False)
class PageSummaries:
    """Bounds of ``n`` pages: lists of length ``n``.

    A bound is None if all values of the page are NULL or NaN. ``nan_counts`` has shape ``(n,)``,
    and is None if the type has no NaN.
    """

    min_values: list[bytes | None]
    max_values: list[bytes | None]
    nan_counts: Int64Array | None


def has_bounds(order: ValueOrder) -> bool:
    """True if bounds can be computed. pyarrow's timestamps for INT96 may overflow."""
    return order.is_defined and order is not INT96_ORDER


def summarize(order: ValueOrder, values: pa.Array, counts: Int64Array) -> PageSummaries:
    """Returns the bounds of adjacent pages, which hold ``counts`` of the ``values``.

    ``values`` are physical values without NULLs. Raises ``ValueError`` unless
    ``has_bounds(order)``.
    """
    summarizer = Summarizer(order, counts)
    summarizer.add(values)
    return summarizer.summaries


class Summarizer:
    """Computes the same as ``summarize`` from values that arrive in parts of any length."""

    def __init__(self, order: ValueOrder, counts: Int64Array) -> None:
        """Raises ``ValueError`` unless ``has_bounds(order)``."""
        if not has_bounds(order):
            raise ValueError("the values have no order that bounds can be taken by")
        self._order = order
        self._stops = np.cumsum(counts)
        self._starts = self._stops - counts
        self._at = 0
        no_bounds: list[bytes | None] = [None] * len(counts)
        nan_counts = np.zeros(len(counts), dtype=np.int64) if order.has_nan else None
        self.summaries = PageSummaries(no_bounds, no_bounds.copy(), nan_counts)
        """Bounds of the values added so far."""

    def add(self, values: pa.Array) -> None:
        """Adds the next values."""
        start, self._at = self._at, self._at + len(values)
        first = int(np.searchsorted(self._stops, start, side="right"))
        last = int(np.searchsorted(self._starts, self._at, side="left"))
        edges = [side[first:last].clip(start, self._at) for side in (self._starts, self._stops)]
        part = _summarize_part(self._order, values, edges[1] - edges[0])
        for page, low, high in zip(
            range(first, last), part.min_values, part.max_values, strict=True
        ):
            self._merge(self.summaries.min_values, page, low, is_low=True)
            self._merge(self.summaries.max_values, page, high, is_low=False)
        if self.summaries.nan_counts is not None and part.nan_counts is not None:
            self.summaries.nan_counts[first:last] += part.nan_counts

    def _merge(
        self, bounds: list[bytes | None], page: int, value: bytes | None, *, is_low: bool
    ) -> None:
        current = bounds[page]
        if current is None:
            bounds[page] = value
        elif value is not None:
            one, other = self._order.keys([current, value])[0]
            bounds[page] = current if (one <= other if is_low else one >= other) else value


def _summarize_part(order: ValueOrder, values: pa.Array, counts: Int64Array) -> PageSummaries:
    if order.stored is not None:
        return _summarize_numbers(order, values, counts)
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


def _summarize_numbers(order: ValueOrder, values: pa.Array, counts: Int64Array) -> PageSummaries:
    assert order.stored is not None
    numbers = numbers_of(order, values)
    lows: list[bytes | None] = [None] * len(counts)
    highs: list[bytes | None] = [None] * len(counts)
    nan_counts = np.zeros(len(counts), dtype=np.int64) if order.has_nan else None
    nonempty = np.flatnonzero(counts)
    if not len(nonempty):
        return PageSummaries(lows, highs, nan_counts)
    starts = (np.cumsum(counts) - counts)[nonempty]
    nan_as_lowest = nan_as_highest = numbers
    has_number = np.ones(len(nonempty), dtype=bool)
    if nan_counts is not None:
        is_nan = np.isnan(numbers)
        nan_counts[nonempty] = np.add.reduceat(is_nan, starts, dtype=np.int64)
        has_number = nan_counts[nonempty] < counts[nonempty]
        # NumPy's fmin and fmax lose the values before a signalling NaN.
        nan_as_lowest = np.where(is_nan, numbers.dtype.type(-np.inf), numbers)
        nan_as_highest = np.where(is_nan, numbers.dtype.type(np.inf), numbers)
    low, high = (
        np.minimum.reduceat(nan_as_highest, starts),
        np.maximum.reduceat(nan_as_lowest, starts),
    )
    if nan_counts is not None:
        # Both zeros are equal, but readers may distinguish them: bounds include both.
        low = np.where(low == 0, -np.zeros_like(low), low)
        high = np.where(high == 0, np.zeros_like(high), high)
    for page, is_known, smallest, largest in zip(
        nonempty.tolist(), has_number.tolist(), low, high, strict=True
    ):
        if is_known:
            lows[page] = smallest.astype(order.stored).tobytes()
            highs[page] = largest.astype(order.stored).tobytes()
    return PageSummaries(lows, highs, nan_counts)


def numbers_of(order: ValueOrder, values: pa.Array) -> NDArray[np.generic]:
    """Returns the values as numbers that compare by ``order``. Shape ``(n,)``."""
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
    """Returns the smallest and the largest of ``values``, or None twice if all are NULL.

    Strings are returned as bytes. Long values are read from their buffers: ``pc.min_max`` and
    scalars copy them in C++, which ends the process if memory is short, instead of raising an
    error.
    """
    stored = _as_bytes(values)
    if stored is None or stored.nbytes <= _MAX_COPIED_BYTES:
        return _short_extremes(values if stored is None else stored)
    is_long = pc.fill_null(pc.greater(pc.binary_length(stored), _MAX_COPIED_BYTES), False)
    positions = np.flatnonzero(is_long.to_numpy(zero_copy_only=False)).tolist()
    if not positions:
        return _short_extremes(stored)
    low, high = _short_extremes(stored.filter(pc.invert(is_long)))
    for position in positions:  # at most three are copied at a time
        value = bytes(value_at(stored, position))
        low = value if low is None or value < low else low
        high = value if high is None or value > high else high
    return low, high


_MAX_COPIED_BYTES = 64 * 1024
"""Longer values are compared in Python."""


def _as_bytes(values: pa.Array) -> pa.Array | None:
    """Returns strings and bytes as binary. Returns None for values of other types."""
    kind = values.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return values.cast(pa.binary() if pa.types.is_string(kind) else pa.large_binary())
    return values if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) else None


def value_at(values: pa.Array, at: int) -> memoryview:
    """Returns the value at a position of a binary array, without a copy."""
    width = np.dtype(np.int64 if pa.types.is_large_binary(values.type) else np.int32)
    _, offsets, data = values.buffers()
    start = (values.offset + at) * width.itemsize
    low, high = np.frombuffer(offsets, width, 2, start).tolist()
    return memoryview(data or b"")[low:high]


def _short_extremes(values: pa.Array) -> tuple[Any, Any]:
    min_max = pc.min_max(values)
    return min_max["min"].as_py(), min_max["max"].as_py()


def _decimal_extremes(values: pa.Array) -> tuple[bytes, bytes]:
    """Returns the smallest and the largest of values that are signed big-endian integers."""
    distinct = values.unique().to_pylist()

    def value(encoded: bytes) -> int:
        return int.from_bytes(encoded, "big", signed=True)

    return min(distinct, key=value), max(distinct, key=value)


def boundary_order(order: ValueOrder, lows: Sequence[bytes], highs: Sequence[bytes]) -> int:
    """Returns the ``BoundaryOrder`` of the bounds of all pages that have bounds.

    Source: ``boundary_order`` of ``ColumnIndex`` in ``parquet.thrift``.
    """
    for claim in (BoundaryOrder.ASCENDING, BoundaryOrder.DESCENDING):
        if len(lows) < 2 or is_in_order(order, lows, highs, claim):
            return claim
    return BoundaryOrder.UNORDERED


def is_in_order(
    order: ValueOrder, lows: Sequence[bytes], highs: Sequence[bytes], claim: int
) -> bool:
    """True if the bounds are sorted as ``claim``, a ``BoundaryOrder``, states.

    Equal bounds are both ascending and descending. Any bounds are UNORDERED.
    """
    low, high = order.keys(lows)[0], order.keys(highs)[0]
    if claim == BoundaryOrder.ASCENDING:
        return bool((low[:-1] <= low[1:]).all() and (high[:-1] <= high[1:]).all())
    if claim == BoundaryOrder.DESCENDING:
        return bool((low[:-1] >= low[1:]).all() and (high[:-1] >= high[1:]).all())
    return True


# --- shortening ---------------------------------------------------------------------------------

_STRING_TYPES = {ConvertedType.UTF8, ConvertedType.ENUM, ConvertedType.JSON}


def may_shorten(element: SchemaElement, order: ValueOrder) -> bool:
    """True if bounds of this column may be shortened: strings and bytes of variable length.

    Source: ``ColumnIndex.min_values`` in ``parquet.thrift``.
    """
    return element.type == Type.BYTE_ARRAY and order.domain is Domain.BYTES


def is_text(element: SchemaElement) -> bool:
    """True if the values are UTF-8, so that shortened bounds must be as well."""
    logical = element.logicalType
    if logical is not None:
        return any(m is not None for m in (logical.STRING, logical.ENUM, logical.JSON))
    return element.converted_type in _STRING_TYPES


def shortened_low(value: bytes, length: int, *, text: bool) -> bytes:
    """Returns a lower bound of at most ``length`` bytes. Text is cut between characters."""
    return value if len(value) <= length else _cut(value, length, text)


def shortened_high(value: bytes, length: int, *, text: bool) -> bytes:
    """Returns an upper bound of about ``length`` bytes: the cut value, raised.

    Returns the whole value if no shorter bound exists, or if it is text that is not UTF-8.
    """
    if len(value) <= length:
        return value
    raised = (_raise_text if text else _raise_bytes)(_cut(value, length, text))
    return value if raised is None else raised


def _cut(value: bytes, length: int, text: bool) -> bytes:
    if text:
        while length and value[length] & 0xC0 == 0x80:  # inside a character
            length -= 1
    return value[:length]


def _raise_bytes(value: bytes) -> bytes | None:
    raisable = value.rstrip(b"\xff")
    return raisable[:-1] + bytes([raisable[-1] + 1]) if raisable else None


_LAST_CODE_POINT = 0x10FFFF
_SURROGATES = range(0xD800, 0xE000)


def _raise_text(value: bytes) -> bytes | None:
    try:
        characters = [ord(c) for c in value.decode()]
    except UnicodeDecodeError:
        return None
    while characters and characters[-1] == _LAST_CODE_POINT:
        characters.pop()
    if not characters:
        return None
    characters[-1] += 1
    if characters[-1] in _SURROGATES:
        characters[-1] = _SURROGATES.stop
    return "".join(map(chr, characters)).encode()
