"""Texts as arrays of characters, value after value, each followed by a zero."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from intarsia.row_ranges import Int64Array
from intarsia.strings.case_folding import CODE_POINTS

BytesArray = NDArray[np.uint8]
T = TypeVar("T", bound=np.generic)

END = 0
"""What follows each value; a text's own U+0000 is taken for U+0001."""
SLICE_BYTES = 1 << 20
SLICE_VALUES = 1 << 15
_LONGEST = 4
"""Bytes of a character, at most."""
_MANY_PAIRS = 1 << 22
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


def as_column(words: str, kind: pa.DataType) -> str:
    """``words`` in the characters of a column: of a column of bytes, each byte is one."""
    return words.encode().decode("latin-1") if is_bytes(kind) else words


def first_of_runs(runs: Int64Array) -> Int64Array:
    """For each of ``n`` numbers, which ascend, where the first equal to it is. Shape ``(n,)``."""
    first = np.ones(len(runs), dtype=bool)
    first[1:] = runs[1:] != runs[:-1]
    at = np.flatnonzero(first)
    return np.repeat(at, np.diff(at, append=len(runs)))


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

    def place_of(self, offset: int) -> int:
        """How many characters begin before a byte of the first text."""
        return offset if self._keep is None else int(self._keep[:offset].sum())

    def mapped(self, table: NDArray[T]) -> NDArray[T]:
        """What ``table``, of a value for every code point, has for each character."""
        found = table[:256][self._raw]
        if self._keep is None:
            return found
        found[self._leads] = table[_decoded(self._raw, self._leads)]
        return found[self._keep]


class Part(NamedTuple):
    """Some texts, or a piece of a long one with a little of what is around it.

    Of its characters, those at ``[begin, stop)`` are not in any other part. The texts are those at
    ``[first_value, stop_value)`` of the ones taken apart.
    """

    characters: Characters
    first_value: int
    stop_value: int
    begin: int
    stop: int


def parts(data: BytesArray, offsets: Int64Array, *, latin: bool, ahead: int) -> Iterator[Part]:
    """Texts in parts of some 1 MB, however long they are; ``data`` and ``offsets`` as of
    ``flat_texts``.

    A piece of a long text has a character before it as well, and ``ahead`` after it, as far as
    there are any.
    """
    for first, stop in slices(offsets):
        start, end = int(offsets[first]), int(offsets[stop])
        if end - start <= 2 * SLICE_BYTES:
            whole = Characters(data, offsets[first : stop + 1], latin=latin)
            yield Part(whole, first, stop, 0, int(whole.ends[-1]) + 1)
            continue
        text = data[start:end]
        for at in range(0, len(text), SLICE_BYTES):
            own, rest = (_begin(text, i, latin=latin) for i in (at, at + SLICE_BYTES))
            low = _begin(text, own - 1, latin=latin)
            high = _begin(text, rest + _LONGEST * (ahead + 1), latin=latin)
            piece = Characters(text[low:high], np.array([0, high - low]), latin=latin)
            places = piece.place_of(own - low), piece.place_of(rest - low)
            yield Part(piece, first, stop, *places)


def _begin(text: BytesArray, offset: int, *, latin: bool) -> int:
    """Where the character at ``offset`` begins, within the text."""
    at = min(max(offset, 0), len(text))
    for i in range(at, max(at - _LONGEST, -1), -1):
        if latin or i == len(text) or text[i] & 0xC0 != 0x80:
            return i
    return at


class Pairs:
    """Pairs of key and position on their way: told apart once they are many."""

    def __init__(self) -> None:
        self._keys = [np.empty(0, np.uint32)]
        self._positions = [np.empty(0, np.int64)]
        self._count, self._limit = 0, _MANY_PAIRS

    def add(self, keys: NDArray[np.uint32], positions: Int64Array) -> None:
        """Take more pairs."""
        self._keys.append(keys)
        self._positions.append(positions)
        self._count += len(keys)
        if self._count > self._limit:
            keys, positions = self.found()
            order = np.lexsort((keys, positions))
            keys, positions = keys[order], positions[order]
            new = np.ones(len(keys), dtype=bool)
            new[1:] = (keys[1:] != keys[:-1]) | (positions[1:] != positions[:-1])
            self._keys, self._positions = [keys[new]], [positions[new]]
            self._count = int(new.sum())
            self._limit = max(2 * self._count, _MANY_PAIRS)

    def found(self) -> tuple[NDArray[np.uint32], Int64Array]:
        """All pairs; some may repeat."""
        return np.concatenate(self._keys), np.concatenate(self._positions)


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
