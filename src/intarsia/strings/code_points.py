"""Strings as one array of characters: value after value, each followed by a zero."""

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
"""Follows each value. U+0000 within a value is treated as U+0001."""
SLICE_BYTES = 1 << 20
"""Bytes of values that are processed at a time."""
SLICE_VALUES = 1 << 15
"""Most values that are processed at a time."""
_MAX_CHARACTER_BYTES = 4
"""Most bytes of one character in UTF-8."""
_MIN_DEDUPLICATED_PAIRS = 1 << 22
"""Below this number of pairs, duplicates are not removed."""
_TYPES_64 = (pa.large_string(), pa.large_binary())
"""Types with 64-bit offsets."""
_TYPES_32 = (pa.string(), pa.binary())
"""Types with 32-bit offsets."""


def is_text(kind: pa.DataType) -> bool:
    """True if values of this type, or of the dictionary in it, can be searched for strings."""
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    return kind in (*_TYPES_32, *_TYPES_64, pa.string_view(), pa.binary_view())


def is_bytes(kind: pa.DataType) -> bool:
    """True if values of this type are bytes. As in pyarrow, each byte counts as one character."""
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    return kind in (pa.binary(), pa.large_binary(), pa.binary_view())


def as_column(words: str, kind: pa.DataType) -> str:
    """Returns ``words`` in the characters of a column. In a binary column each byte is one."""
    return words.encode().decode("latin-1") if is_bytes(kind) else words


def first_of_runs(runs: Int64Array) -> Int64Array:
    """Returns the position of the first equal one, for each of ``n`` ascending numbers."""
    starts_run = np.ones(len(runs), dtype=bool)
    starts_run[1:] = runs[1:] != runs[:-1]
    starts = np.flatnonzero(starts_run)
    return np.repeat(starts, np.diff(starts, append=len(runs)))


def present(values: pa.Array) -> tuple[pa.Array, NDArray[np.bool_] | None]:
    """Returns the strings that are not NULL, and their mask or None. Raises ``TypeError``."""
    if not is_text(values.type):
        raise TypeError(f"{values.type} is not a string type")
    if values.type not in (*_TYPES_32, *_TYPES_64):
        values = values.cast(pa.large_binary() if is_bytes(values.type) else pa.large_string())
    if not values.null_count:
        return values, None
    valid = values.is_valid()
    return values.filter(valid), valid.to_numpy(zero_copy_only=False)


def flat_strings(values: pa.Array) -> tuple[BytesArray, Int64Array]:
    """Returns the bytes of ``n`` strings from ``present``, and ``n + 1`` offsets."""
    kind = np.int64 if values.type in _TYPES_64 else np.int32
    _, offset_buffer, data_buffer = values.buffers()
    if not len(values) or offset_buffer is None:
        return np.empty(0, np.uint8), np.zeros(1, np.int64)
    offsets = np.frombuffer(offset_buffer, kind)[values.offset : values.offset + len(values) + 1]
    first, last = int(offsets[0]), int(offsets[-1])
    data = np.frombuffer(data_buffer or b"", np.uint8)[first:last]
    return data, offsets.astype(np.int64) - first


def slices(offsets: Int64Array) -> Iterator[tuple[int, int]]:
    """Yields first and end of runs of ``SLICE_BYTES`` and ``SLICE_VALUES``, or of one value."""
    first, count = 0, len(offsets) - 1
    while first < count:
        limit = offsets[first] + SLICE_BYTES
        last_fitting = int(np.searchsorted(offsets, limit, side="right")) - 1
        stop = min(max(last_fitting, first + 1), first + SLICE_VALUES, count)
        yield first, stop
        first = stop


class Characters:
    """The characters of some strings, one string after the other, ``END`` after each.

    In a binary column, every byte is a character. Other strings are UTF-8. In invalid UTF-8, all
    valid characters are still included.
    """

    def __init__(self, data: BytesArray, offsets: Int64Array, *, latin: bool) -> None:
        """Takes ``data`` and ``offsets`` from ``flat_strings``, or a slice of them."""
        first, count = int(offsets[0]), len(offsets) - 1
        self._raw = _with_end_marks(data[first : int(offsets[-1])], offsets - first)
        ends = offsets[1:] - first + np.arange(count)
        self._is_first_byte: NDArray[np.bool_] | None = None
        if not latin and (self._raw >= 0x80).any():
            self._is_first_byte = (self._raw & 0xC0) != 0x80
            self._leads = np.flatnonzero(self._raw >= 0xC0)
            ends = np.cumsum(self._is_first_byte)[ends] - 1
        self.ends = ends
        """Position of the ``END`` of each string."""

    def place_of(self, offset: int) -> int:
        """Returns how many characters start before a byte offset in the first string."""
        return offset if self._is_first_byte is None else int(self._is_first_byte[:offset].sum())

    def mapped(self, table: NDArray[T]) -> NDArray[T]:
        """Returns for each character the value of ``table``, which has one for every code point."""
        result = table[:256][self._raw]
        if self._is_first_byte is None:
            return result
        result[self._leads] = table[_decoded(self._raw, self._leads)]
        return result[self._is_first_byte]


class Part(NamedTuple):
    """Some strings, or a piece of a long one with a few characters around it.

    Characters in ``[begin, stop)`` belong to no other part. The strings are those at
    ``[first_value, stop_value)`` of all strings.
    """

    characters: Characters
    first_value: int
    stop_value: int
    begin: int
    stop: int


def parts(data: BytesArray, offsets: Int64Array, *, latin: bool, ahead: int) -> Iterator[Part]:
    """Yields strings in parts of about 1 MB. Longer strings are cut.

    ``data`` and ``offsets`` come from ``flat_strings``. A piece of a long string also has the
    character before it, and ``ahead`` characters after it, if there are any.
    """
    for first, stop in slices(offsets):
        start, end = int(offsets[first]), int(offsets[stop])
        if end - start <= 2 * SLICE_BYTES:
            whole = Characters(data, offsets[first : stop + 1], latin=latin)
            yield Part(whole, first, stop, 0, int(whole.ends[-1]) + 1)
            continue
        text = data[start:end]
        for offset in range(0, len(text), SLICE_BYTES):
            piece_start, piece_stop = (
                _character_start(text, i, latin=latin) for i in (offset, offset + SLICE_BYTES)
            )
            start_with_context = _character_start(text, piece_start - 1, latin=latin)
            stop_with_context = _character_start(
                text, piece_stop + _MAX_CHARACTER_BYTES * (ahead + 1), latin=latin
            )
            piece = Characters(
                text[start_with_context:stop_with_context],
                np.array([0, stop_with_context - start_with_context]),
                latin=latin,
            )
            bounds = (
                piece.place_of(piece_start - start_with_context),
                piece.place_of(piece_stop - start_with_context),
            )
            yield Part(piece, first, stop, *bounds)


def _character_start(text: BytesArray, offset: int, *, latin: bool) -> int:
    """Returns where the character at ``offset`` starts, within the string."""
    position = min(max(offset, 0), len(text))
    for i in range(position, max(position - _MAX_CHARACTER_BYTES, -1), -1):
        if latin or i == len(text) or text[i] & 0xC0 != 0x80:
            return i
    return position


class Pairs:
    """Collects pairs of key and position. Removes duplicates when they are many."""

    def __init__(self) -> None:
        self._keys = [np.empty(0, np.uint32)]
        self._positions = [np.empty(0, np.int64)]
        self._count, self._limit = 0, _MIN_DEDUPLICATED_PAIRS

    def add(self, keys: NDArray[np.uint32], positions: Int64Array) -> None:
        """Adds pairs."""
        self._keys.append(keys)
        self._positions.append(positions)
        self._count += len(keys)
        if self._count > self._limit:
            keys, positions = self.collected()
            order = np.lexsort((keys, positions))
            keys, positions = keys[order], positions[order]
            is_new = np.ones(len(keys), dtype=bool)
            is_new[1:] = (keys[1:] != keys[:-1]) | (positions[1:] != positions[:-1])
            self._keys, self._positions = [keys[is_new]], [positions[is_new]]
            self._count = int(is_new.sum())
            self._limit = max(2 * self._count, _MIN_DEDUPLICATED_PAIRS)

    def collected(self) -> tuple[NDArray[np.uint32], Int64Array]:
        """Returns keys and positions of all pairs, some of which may repeat."""
        return np.concatenate(self._keys), np.concatenate(self._positions)


def _with_end_marks(data: BytesArray, starts: Int64Array) -> BytesArray:
    """Returns the strings that start at ``starts``, each followed by ``END``."""
    count = len(starts) - 1
    result = np.empty(len(data) + count, dtype=np.uint8)
    is_character = np.ones(len(result), dtype=bool)
    ends = starts[1:] + np.arange(count)
    is_character[ends] = False
    result[is_character] = data
    if not data.all():
        np.maximum(result, 1, out=result)
    result[ends] = END
    return result


def _decoded(data: BytesArray, starts: Int64Array) -> NDArray[np.uint32]:
    """Returns the code points of UTF-8 sequences of two to four bytes at ``starts``."""
    padded = np.concatenate((data, np.zeros(3, np.uint8)))
    lead = data[starts].astype(np.uint32)
    tails = [padded[starts + i].astype(np.uint32) & 0x3F for i in (1, 2, 3)]
    two = (lead & 0x1F) << 6 | tails[0]
    three = (lead & 0x0F) << 12 | tails[0] << 6 | tails[1]
    four = (lead & 0x07) << 18 | tails[0] << 12 | tails[1] << 6 | tails[2]
    code_points = np.where(lead < 0xE0, two, np.where(lead < 0xF0, three, four))
    return np.minimum(code_points, CODE_POINTS - 1).astype(np.uint32)


def characters_of(text: str) -> NDArray[np.uint32]:
    """Returns the code points of ``text``, with U+0001 for U+0000. Shape ``(len(text),)``."""
    return np.array([ord(character) or 1 for character in text], dtype=np.uint32)
