"""Finding a text among bytes: in all values of a column at once, rather than one by one.

Linux' C libraries search twice as fast as Python, which moreover keeps its lock and wants a copy.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from intarsia.row_ranges import Int64Array

BytesArray = NDArray[np.uint8]

_CASE = 0x20
"""The bit by which letters of ASCII differ in case."""
_BLOCK = 256 * 1024
_LOOK = 1024
"""After so many places, and as many again, it is asked how many there will be."""

if sys.platform == "linux":
    _memmem = ctypes.CDLL(None).memmem
    _memmem.restype = ctypes.c_void_p
    _memmem.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p, ctypes.c_size_t)


def contains(data: BytesArray, text: bytes, *, any_case: bool = False) -> bool:
    """Is ``text``, which is not empty, among ``data``, bytes side by side?

    With ``any_case``, letters of ASCII may be in either case, and digits and others be taken for
    what differs by one bit.
    """
    return next(_found(data, text, any_case), None) is not None


def places_of(
    data: BytesArray, text: bytes, most: int, *, any_case: bool = False
) -> Int64Array | None:
    """Where ``text`` begins in ``data``; None for more than ``most`` places, or where those at its
    beginning promise twice as many. As ``contains``.

    Shape ``(n,)``, ascending; places may overlap.
    """
    places: list[int] = []
    for place in _found(data, text, any_case):
        count = len(places)
        if count == most:
            return None
        if count % _LOOK == _LOOK - 1 and count * len(data) > 2 * most * place:
            return None
        places.append(place)
    return np.array(places, dtype=np.int64)


def _found(data: BytesArray, text: bytes, any_case: bool) -> Iterator[int]:
    if any_case:
        return _places_in_lower(data, bytes(byte | _CASE for byte in text))
    return _places(data, text)


def _places_in_lower(data: BytesArray, text: bytes) -> Iterator[int]:
    """Block by block, each going on far enough to hold a place that begins in it."""
    lower = np.empty(min(_BLOCK + len(text) - 1, len(data)), dtype=np.uint8)
    for start in range(0, len(data), _BLOCK):
        block = data[start : start + _BLOCK + len(text) - 1]
        yield from (
            start + place
            for place in _places(np.bitwise_or(block, _CASE, out=lower[: len(block)]), text)
        )


def _places(data: BytesArray, text: bytes) -> Iterator[int]:
    if sys.platform != "linux":
        yield from _places_by_python(data.tobytes(), text)
        return
    start = at = data.ctypes.data
    stop = start + data.nbytes
    while at < stop:
        found = _memmem(at, stop - at, text, len(text))
        if found is None:
            return
        yield found - start
        at = found + 1


def _places_by_python(data: bytes, text: bytes) -> Iterator[int]:
    at = data.find(text)
    while at >= 0:
        yield at
        at = data.find(text, at + 1)
