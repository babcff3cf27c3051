"""A source that remembers what was read of it: what an index costs to ask can be asserted."""

from __future__ import annotations

from collections.abc import Sequence

from intarsia.io.source import BufferSource, ByteRange, Source
from intarsia.process_state import ForkLock


class CountingSource:
    """A ``Source`` over another, or over bytes in memory, which may be asked from any thread.

    ``calls`` are the ranges, ``(offset, length)`` in bytes, of each call of ``read``, in order.
    """

    def __init__(self, inner: Source | bytes | bytearray | memoryview) -> None:
        if isinstance(inner, bytes | bytearray | memoryview):
            inner = BufferSource(inner)
        self._inner: Source = inner
        self._lock = ForkLock()
        self.calls: list[list[ByteRange]] = []

    @property
    def size(self) -> int:
        return self._inner.size

    @property
    def ranges(self) -> list[ByteRange]:
        """All ranges that were read, in order."""
        return [range_ for call in self.calls for range_ in call]

    @property
    def bytes(self) -> int:
        """How many bytes were read, those that were read again included."""
        return sum(length for _, length in self.ranges)

    def bytes_within(self, start: int, stop: int) -> int:
        """Those of ranges that begin in ``[start, stop)``, as where a section is."""
        return sum(length for offset, length in self.ranges if start <= offset < stop)

    def clear(self) -> None:
        """Forget what was read."""
        self.calls = []

    def read(self, ranges: Sequence[ByteRange]) -> list[memoryview]:
        with self._lock:
            self.calls.append(list(ranges))
        return self._inner.read(ranges)
