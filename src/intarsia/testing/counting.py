"""A source that records its reads, so that tests can assert what an index costs."""

from __future__ import annotations

from collections.abc import Sequence

from intarsia.io.source import BufferSource, ByteRange, Source
from intarsia.process_state import ForkLock


class CountingSource:
    """A ``Source`` that records its reads. Threads may share it.

    Parameters
    ----------
    inner : Source or bytes
        The source to read from, or bytes in memory.

    Attributes
    ----------
    calls : list of lists of (int, int)
        The ranges of each call of ``read``, in order: ``(offset, length)`` in bytes.

    Examples
    --------
    >>> from intarsia.testing import CountingSource
    >>> source = CountingSource(b"0123456789")
    >>> [bytes(part) for part in source.read([(2, 3), (7, 1)])]
    [b'234', b'7']
    >>> source.calls, source.bytes
    ([[(2, 3), (7, 1)]], 4)
    """

    def __init__(self, inner: Source | bytes | bytearray | memoryview) -> None:
        if isinstance(inner, bytes | bytearray | memoryview):
            inner = BufferSource(inner)
        self._inner: Source = inner
        self._lock = ForkLock()
        self.calls: list[list[ByteRange]] = []

    @property
    def size(self) -> int:
        """The number of bytes of the source."""
        return self._inner.size

    @property
    def ranges(self) -> list[ByteRange]:
        """All ranges that were read, in order."""
        return [range_ for call in self.calls for range_ in call]

    @property
    def bytes(self) -> int:
        """The number of bytes read. Bytes that were read twice count twice."""
        return sum(length for _, length in self.ranges)

    def bytes_within(self, start: int, stop: int) -> int:
        """Returns the bytes of ranges that begin in ``[start, stop)``, for example of a section."""
        return sum(length for offset, length in self.ranges if start <= offset < stop)

    def clear(self) -> None:
        """Forgets all reads."""
        self.calls = []

    def read(self, ranges: Sequence[ByteRange]) -> list[memoryview]:
        """Reads ranges and records them."""
        with self._lock:
            self.calls.append(list(ranges))
        return self._inner.read(ranges)
