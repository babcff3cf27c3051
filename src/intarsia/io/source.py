"""The I/O contract: a length and ranged reads.

Everything below layer 4 is given bytes or a ``Source`` and never opens a file itself, so all that
decides can be tested on plain bytes.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

from intarsia.errors import FormatError, Where
from intarsia.process_state import ForkLock

ByteRange = tuple[int, int]
"""``(offset, length)``, both in bytes."""


class Source(Protocol):
    """Bytes at rest, read by range."""

    @property
    def size(self) -> int:
        """Length in bytes."""

    def read(self, ranges: Sequence[ByteRange]) -> list[memoryview]:
        """The bytes of each range, in the order asked, each of exactly its length.

        Raises ``FormatError`` for a range outside ``[0, size)``.
        """


class BufferSource:
    """A ``Source`` over bytes in memory."""

    def __init__(self, data: bytes | bytearray | memoryview) -> None:
        self._view = memoryview(data)

    @property
    def size(self) -> int:
        return self._view.nbytes

    def read(self, ranges: Sequence[ByteRange]) -> list[memoryview]:
        for range_ in ranges:
            check_range(range_, self.size)
        return [self._view[offset : offset + length] for offset, length in ranges]


class WindowSource:
    """The part ``[offset, offset + length)`` of another source, as a source of its own."""

    def __init__(self, inner: Source, offset: int, length: int) -> None:
        check_range((offset, length), inner.size)
        self._inner, self._offset, self._length = inner, offset, length

    @property
    def size(self) -> int:
        return self._length

    def read(self, ranges: Sequence[ByteRange]) -> list[memoryview]:
        for range_ in ranges:
            check_range(range_, self._length)
        return self._inner.read([(self._offset + offset, length) for offset, length in ranges])


class EndSource:
    """A source of ``size`` bytes of which only the last ones, ``end``, can be read."""

    def __init__(self, size: int, end: memoryview) -> None:
        if end.nbytes > size:
            raise FormatError(f"the last {end.nbytes:,} of {size:,} bytes")
        self._size, self._end = size, end

    @property
    def size(self) -> int:
        return self._size

    def read(self, ranges: Sequence[ByteRange]) -> list[memoryview]:
        start = self._size - self._end.nbytes
        for offset, length in ranges:
            check_range((offset - start, length), self._end.nbytes)
        return [self._end[offset - start :][:length] for offset, length in ranges]


class KnownEnd:
    """A source whose last bytes are known: they are given for the first read, if it is of them."""

    def __init__(self, inner: Source, end: memoryview) -> None:
        self._inner, self._end = inner, end

    @property
    def size(self) -> int:
        return self._inner.size

    def read(self, ranges: Sequence[ByteRange]) -> list[memoryview]:
        end, self._end = self._end, memoryview(b"")
        if end.nbytes and list(ranges) == [(self.size - end.nbytes, end.nbytes)]:
            return [end]
        return self._inner.read(ranges)


class HeldSource:
    """A source of which one range is held in memory: reads inside it cost no request."""

    def __init__(self, inner: Source, offset: int, data: memoryview) -> None:
        self._inner, self._start, self._data = inner, offset, data

    @property
    def size(self) -> int:
        return self._inner.size

    def read(self, ranges: Sequence[ByteRange]) -> list[memoryview]:
        for range_ in ranges:
            check_range(range_, self.size)
        data, start = self._data, self._start
        is_held = [self.holds(range_, data) for range_ in ranges]
        beyond = [r for r, held in zip(ranges, is_held, strict=True) if not held]
        fetched = iter(self._inner.read(beyond) if beyond else ())
        return [
            data[offset - start :][:length] if held else next(fetched)
            for (offset, length), held in zip(ranges, is_held, strict=True)
        ]

    def holds(self, range_: ByteRange, data: memoryview | None = None) -> bool:
        """Is it in memory?"""
        held = self._data if data is None else data
        offset, length = range_
        return self._start <= offset and offset + length <= self._start + held.nbytes

    @property
    def held_bytes(self) -> int:
        """How many bytes are in memory."""
        return self._data.nbytes

    def release(self) -> None:
        """Hold nothing any longer."""
        self._data = memoryview(b"")


class AheadSource:
    """A source that fetches what is expected to be read along with what is read next.

    Where storage is far, a request more at the same time costs less than one after the other.
    Reads of what is ``at_hand`` are no occasion: nobody waits for them.
    """

    def __init__(
        self, inner: Source, at_hand: Callable[[ByteRange], bool] = lambda _: False
    ) -> None:
        self._inner, self._at_hand = inner, at_hand
        self._lock = ForkLock()
        self._expected: list[ByteRange] = []
        self._held: dict[ByteRange, memoryview] = {}

    @property
    def size(self) -> int:
        return self._inner.size

    def expect(self, ranges: Iterable[ByteRange]) -> None:
        """Fetch ``ranges`` when next anything is fetched; each is given once, then forgotten."""
        with self._lock:
            known = {*self._expected, *self._held}
            self._expected += [range_ for range_ in dict.fromkeys(ranges) if range_ not in known]

    def keep(self, known: Mapping[ByteRange, memoryview]) -> None:
        """Have ranges that were read already; each is given once more, by itself or as a part of
        a longer one that others of them make up with it, then forgotten.
        """
        with self._lock:
            self._held.update(known)

    def read(self, ranges: Sequence[ByteRange]) -> list[memoryview]:
        with self._lock:
            lengths = dict(self._held.keys())
            held = [self._taken(range_, lengths) for range_ in ranges]
            missing = [r for r, data in zip(ranges, held, strict=True) if data is None]
            if not missing:
                return [data for data in held if data is not None]
            ahead = [] if all(map(self._at_hand, missing)) else self._expected
            self._expected = self._expected[len(ahead) :]
        wanted = set(missing)
        ahead = [range_ for range_ in ahead if range_ not in wanted]
        try:
            found = self._inner.read([*missing, *ahead])
        except FormatError:
            if not ahead:
                raise
            found = self._inner.read(missing)  # a range that nobody needs yet is outside the file
        with self._lock:
            self._held.update(zip(ahead, found[len(missing) :], strict=False))
        fetched = iter(found)
        return [next(fetched) if data is None else data for data in held]

    def _taken(self, range_: ByteRange, lengths: Mapping[int, int]) -> memoryview | None:
        """A range that is held, in one piece or in several, of which ``lengths`` are by offset."""
        if range_ in self._held:
            return self._held.pop(range_)
        at, stop = range_[0], sum(range_)
        pieces: list[ByteRange] = []
        while at < stop and lengths.get(at) and (at, lengths[at]) in self._held:
            pieces.append((at, lengths[at]))
            at += lengths[at]
        if at != stop or not pieces:
            return None
        return memoryview(b"".join(self._held.pop(piece) for piece in pieces))


class RereadSource:
    """A source that keeps what is read of it: parts of that are given again without a request."""

    def __init__(self, inner: Source) -> None:
        self._inner = inner
        self._starts: list[int] = []
        self._kept: list[memoryview] = []

    @property
    def size(self) -> int:
        return self._inner.size

    def read(self, ranges: Sequence[ByteRange]) -> list[memoryview]:
        kept = [self._part(range_) for range_ in ranges]
        missing = [range_ for range_, data in zip(ranges, kept, strict=True) if data is None]
        found = self._inner.read(missing) if missing else []
        for (offset, _), data in zip(missing, found, strict=True):
            at = bisect.bisect(self._starts, offset)
            self._starts.insert(at, offset)
            self._kept.insert(at, data)
        fetched = iter(found)
        return [next(fetched) if data is None else data for data in kept]

    def _part(self, range_: ByteRange) -> memoryview | None:
        offset, length = range_
        at = bisect.bisect(self._starts, offset) - 1
        if at < 0:
            return None
        start, data = offset - self._starts[at], self._kept[at]
        return data[start : start + length] if start + length <= data.nbytes else None


def check_range(range_: ByteRange, size: int) -> None:
    """Raise ``FormatError`` unless ``range_`` lies inside ``size`` bytes."""
    offset, length = range_
    if offset < 0 or length < 0 or offset + length > size:
        raise FormatError(
            f"{length:,} bytes are pointed at, outside the {size:,} bytes there are",
            Where(offset=offset),
        )
