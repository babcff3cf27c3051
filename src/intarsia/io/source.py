"""The I/O contract: a length and ranged reads, some of which are cheaper in one request.

Packages above ``io`` are given bytes or a ``Source``, and never open a file themselves. So their
decisions can be tested on plain bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

from intarsia.errors import FormatError, Where
from intarsia.process_state import ForkLock

ByteRange = tuple[int, int]
"""``(offset, length)``, both in bytes."""


class Source(Protocol):
    """Bytes that do not change, read by range."""

    @property
    def size(self) -> int:
        """Length in bytes."""

    def read(self, ranges: Sequence[ByteRange]) -> list[memoryview]:
        """Returns the bytes of each range, in the order of ``ranges``, each with its full length.

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
    """The part ``[offset, offset + length)`` of another source, as a source itself."""

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
            raise FormatError(f"the last {end.nbytes:,} bytes of a file of only {size:,} bytes")
        self._size, self._end = size, end

    @property
    def size(self) -> int:
        return self._size

    def read(self, ranges: Sequence[ByteRange]) -> list[memoryview]:
        start = self._size - self._end.nbytes
        for offset, length in ranges:
            check_range((offset - start, length), self._end.nbytes)
        return [self._end[offset - start :][:length] for offset, length in ranges]


class CachedTailSource:
    """A source that answers its first read, if it is of the last bytes, from memory."""

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


class CachedRangeSource:
    """A source with one range cached in memory: reads inside the range cost no request."""

    def __init__(self, inner: Source, offset: int, data: memoryview) -> None:
        self._inner, self._start, self._data = inner, offset, data

    @property
    def size(self) -> int:
        return self._inner.size

    def read(self, ranges: Sequence[ByteRange]) -> list[memoryview]:
        data, start = self._data, self._start
        stop = start + data.nbytes
        are_cached = [start <= first <= first + length <= stop for first, length in ranges]
        missing = [r for r, is_cached in zip(ranges, are_cached, strict=True) if not is_cached]
        fetched = iter(self._inner.read(missing) if missing else ())
        return [
            data[offset - start :][:length] if is_cached else next(fetched)
            for (offset, length), is_cached in zip(ranges, are_cached, strict=True)
        ]

    def holds(self, range_: ByteRange) -> bool:
        """True if the range is in memory."""
        offset, length = range_
        return self._start <= offset and offset + length <= self._start + self._data.nbytes

    @property
    def held_bytes(self) -> int:
        """The number of bytes in memory."""
        return self._data.nbytes

    def release(self) -> None:
        """Drops the bytes in memory."""
        self._data = memoryview(b"")


class PrefetchSource:
    """A source that fetches expected ranges together with the next read.

    On remote storage one more concurrent request costs less than a later one. Reads of ranges that
    are ``at_hand`` do not trigger the fetch, as they cost no request.
    """

    _lock = ForkLock()  # of all sources: it is never held while bytes are read

    def __init__(
        self, inner: Source, at_hand: Callable[[ByteRange], bool] = lambda _: False
    ) -> None:
        self._inner, self._at_hand = inner, at_hand
        self._expected: list[ByteRange] = []
        self._cached: dict[ByteRange, memoryview] = {}

    @property
    def size(self) -> int:
        return self._inner.size

    def expect(self, ranges: Iterable[ByteRange]) -> None:
        """Fetches ``ranges`` with the next request. Each is returned once, then dropped."""
        with self._lock:
            known = {*self._expected, *self._cached}
            self._expected += [range_ for range_ in dict.fromkeys(ranges) if range_ not in known]

    def keep(self, data: Mapping[ByteRange, memoryview]) -> None:
        """Caches ranges that were already read. Each is returned once, then dropped.

        A read of a longer range is also answered from the cache, if cached ranges add up to it.
        """
        with self._lock:
            self._cached.update(data)

    def read(self, ranges: Sequence[ByteRange]) -> list[memoryview]:
        if not self._cached and not self._expected:
            return self._inner.read(ranges)
        with self._lock:
            lengths = dict(self._cached.keys())
            cached = [self._take(range_, lengths) for range_ in ranges]
            missing = [r for r, data in zip(ranges, cached, strict=True) if data is None]
            if not missing:
                return [data for data in cached if data is not None]
            ahead = [] if all(map(self._at_hand, missing)) else self._expected
            self._expected = self._expected[len(ahead) :]
        requested = set(missing)
        ahead = [range_ for range_ in ahead if range_ not in requested]
        try:
            received = self._inner.read([*missing, *ahead])
        except FormatError:
            if not ahead:
                raise
            received = self._inner.read(missing)  # an expected range is outside the file
        with self._lock:
            self._cached.update(zip(ahead, received[len(missing) :], strict=False))
        fetched = iter(received)
        return [next(fetched) if data is None else data for data in cached]

    def _take(self, range_: ByteRange, lengths: Mapping[int, int]) -> memoryview | None:
        """Removes and returns a range that is cached, or added up from cached ones."""
        if range_ in self._cached:
            return self._cached.pop(range_)
        position, stop = range_[0], sum(range_)
        pieces: list[ByteRange] = []
        while (
            position < stop
            and lengths.get(position)
            and (position, lengths[position]) in self._cached
        ):
            pieces.append((position, lengths[position]))
            position += lengths[position]
        if position != stop or not pieces:
            return None
        return memoryview(b"".join(self._cached.pop(piece) for piece in pieces))


def check_range(range_: ByteRange, size: int) -> None:
    """Raises ``FormatError`` unless ``range_`` lies inside ``size`` bytes."""
    offset, length = range_
    if offset < 0 or length < 0 or offset + length > size:
        raise FormatError(
            f"{length:,} bytes are referenced outside the {size:,} bytes there are",
            Where(offset=offset),
        )


class Group(NamedTuple):
    """One request: ``length`` bytes from ``offset`` with the ranges at positions ``members``."""

    offset: int
    length: int
    members: tuple[int, ...]


def coalesce(ranges: Sequence[ByteRange], gap: int) -> list[Group]:
    """Returns requests that cover all ``ranges``. Ranges at most ``gap`` bytes apart share one.

    Every range lies inside exactly one group. Groups are in order of offset, and more than ``gap``
    bytes apart.

    ::

        ranges    ##..##..........###
        gap 2     ######..........###
    """
    order = sorted(range(len(ranges)), key=ranges.__getitem__)
    groups: list[Group] = []
    start = stop = 0
    members: list[int] = []
    for i in order:
        offset, length = ranges[i]
        if members and offset > stop + gap:
            groups.append(Group(start, stop - start, tuple(members)))
            members = []
        if not members:
            start = stop = offset
        stop = max(stop, offset + length)
        members.append(i)
    if members:
        groups.append(Group(start, stop - start, tuple(members)))
    return groups
