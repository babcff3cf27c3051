"""Finds a byte string in all values of a column at once.

C libraries on Linux search twice as fast as Python, which would also hold its lock and need a copy.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from intarsia.row_ranges import Int64Array

BytesArray = NDArray[np.uint8]

_CASE_BIT = 0x20
"""The bit that differs between upper and lower case of ASCII letters."""
_BLOCK_BYTES = 256 * 1024
"""Bytes that are converted to lower case at a time."""
_CHECK_INTERVAL = 1024
"""Matches between two estimates of the final number of matches."""

if sys.platform == "linux":
    _memmem = ctypes.CDLL(None).memmem
    _memmem.restype = ctypes.c_void_p
    _memmem.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p, ctypes.c_size_t)


def contains(data: BytesArray, text: bytes, *, any_case: bool = False) -> bool:
    """True if the bytes ``text``, which are not empty, occur in ``data``.

    With ``any_case``, ASCII letters match in either case. Digits and other characters then also
    match those that differ from them in the same bit.
    """
    return next(_matches(data, text, any_case), None) is not None


def places_of(
    data: BytesArray, text: bytes, most: int, *, any_case: bool = False
) -> Int64Array | None:
    """Returns where ``text`` begins in ``data``: int64, shape ``(n,)``, ascending.

    Matches may overlap. ``any_case`` is as for ``contains``. Returns None for more than ``most``
    matches, or once the matches so far suggest twice as many.
    """
    matches: list[int] = []
    for match in _matches(data, text, any_case):
        count = len(matches)
        if count == most:
            return None
        if count % _CHECK_INTERVAL == _CHECK_INTERVAL - 1 and count * len(data) > 2 * most * match:
            return None
        matches.append(match)
    return np.array(matches, dtype=np.int64)


def _matches(data: BytesArray, text: bytes, any_case: bool) -> Iterator[int]:
    if any_case:
        return _matches_in_lower_case(data, bytes(byte | _CASE_BIT for byte in text))
    return _exact_matches(data, text)


def _matches_in_lower_case(data: BytesArray, text: bytes) -> Iterator[int]:
    """Yields matches block by block. Blocks overlap, so that every match lies inside one."""
    lower = np.empty(min(_BLOCK_BYTES + len(text) - 1, len(data)), dtype=np.uint8)
    for start in range(0, len(data), _BLOCK_BYTES):
        block = data[start : start + _BLOCK_BYTES + len(text) - 1]
        yield from (
            start + match
            for match in _exact_matches(
                np.bitwise_or(block, _CASE_BIT, out=lower[: len(block)]), text
            )
        )


def _exact_matches(data: BytesArray, text: bytes) -> Iterator[int]:
    if sys.platform != "linux":
        yield from _matches_by_python(data.tobytes(), text)
        return
    start = position = data.ctypes.data
    stop = start + data.nbytes
    while position < stop:
        match = _memmem(position, stop - position, text, len(text))
        if match is None:
            return
        yield match - start
        position = match + 1


def _matches_by_python(data: bytes, text: bytes) -> Iterator[int]:
    position = data.find(text)
    while position >= 0:
        yield position
        position = data.find(text, position + 1)
