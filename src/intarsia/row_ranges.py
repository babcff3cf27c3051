"""Row ranges: sorted, disjoint, half-open ``[start, stop)`` row numbers, and their algebra.

``RowRanges`` are immutable. Adjacent and overlapping ranges are merged on construction, so equal
sets of rows are equal objects. Drawn over ten rows (``Y`` selected)::

    a          YYYYNNNNYY      RowRanges.of((0, 4), (8, 10))
    b          NNYYYYNNNY      RowRanges.of((2, 6), (9, 10))
    a & b      NNYYNNNNNY
    a | b      YYYYYYNNYY
    a - b      YYNNNNNNYN
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

Int64Array = NDArray[np.int64]
UInt64Array = NDArray[np.uint64]
BoolArray = NDArray[np.bool_]


class RowRanges:
    """An immutable set of row numbers, held as int64 arrays ``starts`` and ``stops``, shape
    ``(n,)``.
    """

    __slots__ = ("starts", "stops")

    starts: Int64Array
    stops: Int64Array

    def __init__(self, starts: Int64Array, stops: Int64Array) -> None:
        """Any half-open ranges, in any order; empty ones are dropped.

        Raises ``ValueError`` for arrays of unequal length or negative rows.
        """
        starts = np.array(starts, dtype=np.int64)
        stops = np.array(stops, dtype=np.int64)
        if starts.ndim != 1 or starts.shape != stops.shape:
            raise ValueError("starts and stops must be one-dimensional and of equal length")
        keep = starts < stops
        if not keep.all():
            starts, stops = starts[keep], stops[keep]
        if len(starts) and starts.min() < 0:
            raise ValueError("row numbers start at 0")
        if len(starts) > 1 and (starts[1:] <= stops[:-1]).any():
            starts, stops = _merged(starts, stops)
        starts.flags.writeable = stops.flags.writeable = False
        object.__setattr__(self, "starts", starts)
        object.__setattr__(self, "stops", stops)

    @classmethod
    def _normal(cls, starts: Int64Array, stops: Int64Array) -> RowRanges:
        """Ranges that are sorted, disjoint and not empty already."""
        made = object.__new__(cls)
        starts.flags.writeable = stops.flags.writeable = False
        object.__setattr__(made, "starts", starts)
        object.__setattr__(made, "stops", stops)
        return made

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError("RowRanges are immutable")

    def __reduce__(self) -> tuple[type[RowRanges], tuple[Int64Array, Int64Array]]:
        return RowRanges, (self.starts, self.stops)

    @classmethod
    def of(cls, *ranges: tuple[int, int]) -> RowRanges:
        """From pairs: ``RowRanges.of((0, 4), (8, 10))``."""
        pairs = np.array(ranges, dtype=np.int64).reshape(-1, 2)
        return cls(pairs[:, 0], pairs[:, 1])

    @classmethod
    def all(cls, num_rows: int) -> RowRanges:
        """Every row of ``num_rows``."""
        if num_rows <= 0:
            return cls.of((0, num_rows))
        return cls._normal(np.zeros(1, np.int64), np.array([num_rows], np.int64))

    @classmethod
    def none(cls) -> RowRanges:
        """No row."""
        return cls.of()

    @classmethod
    def from_mask(cls, mask: BoolArray, start: int = 0) -> RowRanges:
        """The rows ``start + i`` for which ``mask[i]``, ``mask`` of shape ``(n,)``."""
        edges = np.flatnonzero(np.diff(np.concatenate(([False], mask, [False])).view(np.int8)))
        return cls(edges[0::2] + start, edges[1::2] + start)

    @classmethod
    def from_rows(cls, rows: Int64Array) -> RowRanges:
        """From row numbers in any order, repeats allowed."""
        rows = np.asarray(rows, dtype=np.int64)
        if (rows[1:] <= rows[:-1]).any():  # np.unique takes longer than reading them did
            rows = np.unique(rows)
        if not len(rows):
            return cls.none()
        breaks = np.flatnonzero(np.diff(rows) > 1)
        return cls(
            np.concatenate((rows[:1], rows[breaks + 1])),
            np.concatenate((rows[breaks], rows[-1:])) + 1,
        )

    @classmethod
    def union(cls, parts: Iterable[RowRanges]) -> RowRanges:
        """Rows in any of ``parts``."""
        parts = list(parts)
        if len(parts) < 2:
            return parts[0] if parts else cls.none()
        return cls(
            np.concatenate([part.starts for part in parts]),
            np.concatenate([part.stops for part in parts]),
        )

    @property
    def num_rows(self) -> int:
        """How many rows are selected."""
        if len(self.starts) == 1:
            return int(self.stops[0] - self.starts[0])
        return int((self.stops - self.starts).sum())

    def __len__(self) -> int:
        """How many ranges there are; see ``num_rows`` for rows."""
        return len(self.starts)

    def __bool__(self) -> bool:
        return len(self.starts) > 0

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return zip(self.starts.tolist(), self.stops.tolist(), strict=True)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, RowRanges):
            return NotImplemented
        if self is other:
            return True
        return np.array_equal(self.starts, other.starts) and np.array_equal(self.stops, other.stops)

    def __hash__(self) -> int:
        return hash((self.starts.tobytes(), self.stops.tobytes()))

    def __repr__(self) -> str:
        shown = ", ".join(f"[{a}, {b})" for a, b in list(self)[:6])
        more = ", …" if len(self) > 6 else ""
        return f"RowRanges({shown}{more}; {self.num_rows:,} rows)"

    def __and__(self, other: RowRanges) -> RowRanges:
        """Rows in both."""
        if not self or not other:
            return RowRanges.none()
        for one, many in ((self, other), (other, self)):
            if len(one) == 1:
                return many.clip(int(one.starts[0]), int(one.stops[0]))
        # For each range of self, the ranges of other that overlap it are first .. last - 1.
        first = other.stops.searchsorted(self.starts, side="right")
        last = other.starts.searchsorted(self.stops, side="left")
        counts = np.maximum(last - first, 0)
        mine = np.repeat(np.arange(len(self)), counts)
        theirs = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        theirs += np.repeat(first, counts)
        return RowRanges(
            np.maximum(self.starts[mine], other.starts[theirs]),
            np.minimum(self.stops[mine], other.stops[theirs]),
        )

    def __or__(self, other: RowRanges) -> RowRanges:
        """Rows in either."""
        return RowRanges.union((self, other))

    def __sub__(self, other: RowRanges) -> RowRanges:
        """Rows of self that are not in ``other``."""
        if not self:
            return self
        return self & other.complement(int(self.stops[-1]))

    def complement(self, num_rows: int) -> RowRanges:
        """The rows of ``[0, num_rows)`` that are not selected."""
        starts = np.concatenate(([0], self.stops))
        stops = np.concatenate((self.starts, [num_rows]))
        return RowRanges(starts, np.minimum(stops, num_rows))

    def shift(self, by: int) -> RowRanges:
        """The same ranges, ``by`` rows further."""
        if not self or self.starts[0] + by < 0:
            return RowRanges(self.starts + by, self.stops + by)
        return RowRanges._normal(self.starts + by, self.stops + by)

    def clip(self, start: int, stop: int) -> RowRanges:
        """The selected rows within ``[start, stop)``."""
        first = int(self.stops.searchsorted(start, side="right"))
        last = int(self.starts.searchsorted(stop, side="left"))
        if first >= last or start >= stop:
            return RowRanges.none()
        starts, stops = self.starts[first:last].copy(), self.stops[first:last].copy()
        starts[0], stops[-1] = max(starts[0], start), min(stops[-1], stop)
        return RowRanges._normal(starts, stops)

    def covers(self, starts: Int64Array, stops: Int64Array) -> BoolArray:
        """For ``n`` half-open ranges: does each hold a selected row? Shape ``(n,)``, bool."""
        first = self.stops.searchsorted(starts, side="right")
        last = self.starts.searchsorted(stops, side="left")
        return (last > first) & (starts < stops)

    def rows(self) -> Int64Array:
        """Every selected row number, ascending. Shape ``(num_rows,)``, int64."""
        counts = self.stops - self.starts
        shifts = np.repeat(self.starts - self._before(), counts)
        rows: Int64Array = np.arange(counts.sum()) + shifts
        return rows

    def at(self, positions: Int64Array) -> RowRanges:
        """The rows that stand at ``positions``, ascending, when only this object's rows are kept.

        ::

            self       NYYYNNYY      kept:   YYYYY
            positions  [1, 2, 4]     result: NNYYNNNY
        """
        if len(self) == 1:
            return RowRanges.from_rows(positions + self.starts[0])
        before = self._before()
        part = before.searchsorted(positions, side="right") - 1
        return RowRanges.from_rows(positions + (self.starts - before)[part])

    def positions(self, inner: RowRanges) -> RowRanges:
        """Where the rows of ``inner``, a subset, stand when only this object's rows are kept.

        ::

            self       NYYYNNYY      kept:   YYYYY
            inner      NNYYNNYN      result: NYYYN
        """
        if len(self) == 1:
            return inner.shift(-int(self.starts[0]))
        part = self.starts.searchsorted(inner.starts, side="right") - 1
        offset = (self._before() - self.starts)[part]
        return RowRanges(inner.starts + offset, inner.stops + offset)

    def _before(self) -> Int64Array:
        """How many rows are selected before each range."""
        counts = self.stops - self.starts
        before: Int64Array = np.cumsum(counts) - counts
        return before


def _merged(starts: Int64Array, stops: Int64Array) -> tuple[Int64Array, Int64Array]:
    order = np.argsort(starts, kind="stable")
    starts, stops = starts[order], np.maximum.accumulate(stops[order])
    opens = np.concatenate(([True], starts[1:] > stops[:-1]))
    closes = np.concatenate((opens[1:], [True]))
    return starts[opens], stops[closes]
