"""Texts as arrays of characters, value after value, each followed by a zero."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from intarsia.index.fold import CODE_POINTS
from intarsia.ranges import Int64Array

BytesArray = NDArray[np.uint8]
T = TypeVar("T", bound=np.generic)

END = 0
"""What follows each value; a text's own U+0000 is taken for U+0001."""
SLICE_BYTES = 1 << 20
SLICE_VALUES = 1 << 15
_WIDE = (pa.large_string(), pa.large_binary())
_NARROW = (pa.string(), pa.binary())


def is_text(kind: pa.DataType) -> bool:
    """Can values of this type be searched for texts?"""
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    return kind in (*_NARROW, *_WIDE, pa.string_view(), pa.binary_view())


def is_bytes(kind: pa.DataType) -> bool:
    """Are these values bytes, each of which counts as one character, as it does to pyarrow?"""
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    return kind in (pa.binary(), pa.large_binary(), pa.binary_view())


def present(values: pa.Array) -> tuple[pa.Array, NDArray[np.bool_] | None]:
    """The texts that are not NULL, their bytes side by side, and which they are; ``None``: all.

    Raises ``TypeError`` for values that are no texts.
    """
    if not is_text(values.type):
        raise TypeError(f"{values.type} is not a type of texts")
    if values.type not in (*_NARROW, *_WIDE):
        values = values.cast(pa.large_binary() if is_bytes(values.type) else pa.large_string())
    if not values.null_count:
        return values, None
    valid = values.is_valid()
    return values.filter(valid), valid.to_numpy(zero_copy_only=False)


def flat_texts(values: pa.Array) -> tuple[BytesArray, Int64Array]:
    """The bytes of ``n`` texts as of ``present``, and where each begins, with the end.

    The second has shape ``(n + 1,)``.
    """
    kind = np.int64 if values.type in _WIDE else np.int32
    _, offset_buffer, data_buffer = values.buffers()
    if not len(values) or offset_buffer is None:
        return np.empty(0, np.uint8), np.zeros(1, np.int64)
    offsets = np.frombuffer(offset_buffer, kind)[values.offset : values.offset + len(values) + 1]
    first, last = int(offsets[0]), int(offsets[-1])
    data = np.frombuffer(data_buffer or b"", np.uint8)[first:last]
    return data, offsets.astype(np.int64) - first


def slices(offsets: Int64Array) -> Iterator[tuple[int, int]]:
    """Runs of values of some 1 MB, or of one that is larger: the first, and the one after them."""
    first, count = 0, len(offsets) - 1
    while first < count:
        limit = offsets[first] + SLICE_BYTES
        fitting = int(np.searchsorted(offsets, limit, side="right")) - 1
        stop = min(max(fitting, first + 1), first + SLICE_VALUES, count)
        yield first, stop
        first = stop


class Characters:
    """The characters of some texts, one text after the other, ``END`` after each.

    Of a column of bytes, every byte is a character. Otherwise the texts are UTF-8; where they are
    not, no character that is there as UTF-8 is lost.
    """

    def __init__(self, data: BytesArray, offsets: Int64Array, *, latin: bool) -> None:
        """``data`` and ``offsets`` as of ``flat_texts``, or a slice of them."""
        first, count = int(offsets[0]), len(offsets) - 1
        self._raw = _with_ends(data[first : int(offsets[-1])], offsets - first)
        ends = offsets[1:] - first + np.arange(count)
        self._keep: NDArray[np.bool_] | None = None
        if not latin and (self._raw >= 0x80).any():
            self._keep = (self._raw & 0xC0) != 0x80
            self._leads = np.flatnonzero(self._raw >= 0xC0)
            ends = np.cumsum(self._keep)[ends] - 1
        self.ends = ends
        """Where each text ends: the places of ``END``."""

    def mapped(self, table: NDArray[T]) -> NDArray[T]:
        """What ``table``, of a value for every code point, has for each character."""
        found = table[:256][self._raw]
        if self._keep is None:
            return found
        found[self._leads] = table[_decoded(self._raw, self._leads)]
        return found[self._keep]


def _with_ends(data: BytesArray, starts: Int64Array) -> BytesArray:
    """The texts that begin at ``starts``, an ``END`` after each, and nowhere else."""
    count = len(starts) - 1
    out = np.empty(len(data) + count, dtype=np.uint8)
    inside = np.ones(len(out), dtype=bool)
    ends = starts[1:] + np.arange(count)
    inside[ends] = False
    out[inside] = data
    if not data.all():
        np.maximum(out, 1, out=out)
    out[ends] = END
    return out


def _decoded(data: BytesArray, at: Int64Array) -> NDArray[np.uint32]:
    """Code points of the sequences of two to four bytes that begin at ``at``."""
    padded = np.concatenate((data, np.zeros(3, np.uint8)))
    lead = data[at].astype(np.uint32)
    tails = [padded[at + i].astype(np.uint32) & 0x3F for i in (1, 2, 3)]
    two = (lead & 0x1F) << 6 | tails[0]
    three = (lead & 0x0F) << 12 | tails[0] << 6 | tails[1]
    four = (lead & 0x07) << 18 | tails[0] << 12 | tails[1] << 6 | tails[2]
    found = np.where(lead < 0xE0, two, np.where(lead < 0xF0, three, four))
    return np.minimum(found, CODE_POINTS - 1).astype(np.uint32)


def characters_of(text: str) -> NDArray[np.uint32]:
    """The code points of ``text``, with U+0001 for U+0000. Shape ``(len(text),)``."""
    return np.array([ord(character) or 1 for character in text], dtype=np.uint32)
