"""Row ranges: sorted, disjoint, half-open ranges of row numbers, and set operations.

``distinct`` and ``without_repeats`` are for arrays of numbers.

``RowRanges`` are immutable. Adjacent and overlapping ranges are merged on construction, so equal
sets of rows are equal objects. Drawn over ten rows (``Y`` selected)::

    a          YYYYNNNNYY      RowRanges.of((0, 4), (8, 10))
    b          NNYYYYNNNY      RowRanges.of((2, 6), (9, 10))
    a & b      NNYYNNNNNY
    a | b      YYYYYYNNYY
    a - b      YYNNNNNNYN
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

Int64Array = NDArray[np.int64]
UInt64Array = NDArray[np.uint64]
BoolArray = NDArray[np.bool_]
N = TypeVar("N", bound=np.generic)


class RowRanges:
    """An immutable set of row numbers, stored as sorted half-open ranges.

    Row numbers start at 0. The operators ``&``, ``|`` and ``-`` give the rows in both sets, in
    either, and in the left one only. ``len`` is the number of ranges. Iteration yields pairs of
    ints ``(start, stop)``.

    Parameters
    ----------
    starts : array of int64, shape (n,)
        First row of each range, in any order. Ranges may overlap; empty ones are dropped.
    stops : array of int64, shape (n,)
        End of each range, not included.

    Attributes
    ----------
    starts, stops : array of int64, shape (n,)
        The ranges: sorted, disjoint, not adjacent and not empty. Read-only.

    Raises
    ------
    ValueError
        If the arrays differ in length, are not one-dimensional, or have negative row numbers.

    Examples
    --------
    >>> a = ia.RowRanges.of((0, 4), (8, 10))
    >>> b = ia.RowRanges.of((2, 6), (9, 10))
    >>> a & b
    RowRanges([2, 4), [9, 10); 3 rows)
    >>> (a | b).num_rows
    8
    """

    __slots__ = ("starts", "stops")

    starts: Int64Array
    stops: Int64Array

    def __init__(self, starts: Int64Array, stops: Int64Array) -> None:
        """Sorts and merges the ranges. Raises ``ValueError`` for invalid arrays."""
        starts = np.array(starts, dtype=np.int64)
        stops = np.array(stops, dtype=np.int64)
        if starts.ndim != 1 or starts.shape != stops.shape:
            raise ValueError("starts and stops must be one-dimensional and of equal length")
        is_not_empty = starts < stops
        if not is_not_empty.all():
            starts, stops = starts[is_not_empty], stops[is_not_empty]
        if len(starts) and starts.min() < 0:
            raise ValueError("row numbers start at 0")
        if len(starts) > 1 and (starts[1:] <= stops[:-1]).any():
            starts, stops = _merged(starts, stops)
        starts.flags.writeable = stops.flags.writeable = False
        object.__setattr__(self, "starts", starts)
        object.__setattr__(self, "stops", stops)

    @classmethod
    def _from_sorted(cls, starts: Int64Array, stops: Int64Array) -> RowRanges:
        """Returns ranges that are already sorted, disjoint and not empty, without a check."""
        ranges = object.__new__(cls)
        starts.flags.writeable = stops.flags.writeable = False
        object.__setattr__(ranges, "starts", starts)
        object.__setattr__(ranges, "stops", stops)
        return ranges

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError("RowRanges are immutable")

    def __reduce__(self) -> tuple[type[RowRanges], tuple[Int64Array, Int64Array]]:
        return RowRanges, (self.starts, self.stops)

    @classmethod
    def of(cls, *ranges: tuple[int, int]) -> RowRanges:
        """Returns the rows of half-open ranges, given as pairs of ints.

        Examples
        --------
        >>> ia.RowRanges.of((0, 4), (8, 10))
        RowRanges([0, 4), [8, 10); 6 rows)
        """
        pairs = np.array(ranges, dtype=np.int64).reshape(-1, 2)
        return cls(pairs[:, 0], pairs[:, 1])

    @classmethod
    def all(cls, num_rows: int) -> RowRanges:
        """Returns the rows from 0 to ``num_rows``, end not included."""
        if num_rows <= 0:
            return cls.of((0, num_rows))
        return cls._from_sorted(np.zeros(1, np.int64), np.array([num_rows], np.int64))

    @classmethod
    def none(cls) -> RowRanges:
        """Returns an empty set of rows."""
        return cls.of()

    @classmethod
    def from_mask(cls, mask: BoolArray, start: int = 0) -> RowRanges:
        """Returns the rows ``start + i`` where ``mask[i]`` is true.

        Parameters
        ----------
        mask : array of bool, shape (n,)
            One value for each row.
        start : int, default 0
            The row number of the first value.

        Examples
        --------
        >>> import numpy as np
        >>> ia.RowRanges.from_mask(np.array([True, False, True, True]), start=10)
        RowRanges([10, 11), [12, 14); 3 rows)
        """
        edges = np.flatnonzero(np.diff(np.concatenate(([False], mask, [False])).view(np.int8)))
        return cls(edges[0::2] + start, edges[1::2] + start)

    @classmethod
    def from_rows(cls, rows: Int64Array) -> RowRanges:
        """Returns a set of row numbers.

        Parameters
        ----------
        rows : array of int64, shape (n,)
            Row numbers in any order. They may repeat.
        """
        rows = np.asarray(rows, dtype=np.int64)
        if (rows[1:] <= rows[:-1]).any():
            rows = distinct(rows)
        if not len(rows):
            return cls.none()
        breaks = np.flatnonzero(np.diff(rows) > 1)
        return cls(
            np.concatenate((rows[:1], rows[breaks + 1])),
            np.concatenate((rows[breaks], rows[-1:])) + 1,
        )

    @classmethod
    def by_part(cls, rows: Int64Array, edges: Int64Array) -> list[RowRanges]:
        """Returns the rows of each part, from one edge to the next, counted from the first edge.

        Faster than ``from_rows`` for each part.

        Parameters
        ----------
        rows : array of int64, shape (n,)
            Ascending, distinct row numbers from the first edge to before the last one.
        edges : array of int64, shape (parts + 1,)
            Ascending row numbers, at which the parts begin and end.

        Examples
        --------
        >>> import numpy as np
        >>> ia.RowRanges.by_part(np.array([1, 2, 3, 7]), np.array([0, 3, 6, 9]))
        [RowRanges([1, 3); 2 rows), RowRanges([0, 1); 1 rows), RowRanges([1, 2); 1 rows)]
        """
        bounds = np.searchsorted(rows, edges)
        begins = np.diff(rows, prepend=-2) > 1
        begins[bounds[bounds < len(rows)]] = True
        starts, stops = rows[begins], rows[np.roll(begins, -1)] + 1
        cuts = np.searchsorted(starts, edges).tolist()
        none = cls.none()
        return [
            cls._from_sorted(starts[i:j] - edge, stops[i:j] - edge) if i < j else none
            for edge, (i, j) in zip(edges.tolist(), itertools.pairwise(cuts), strict=False)
        ]

    @classmethod
    def union(cls, parts: Iterable[RowRanges]) -> RowRanges:
        """Returns the rows that are in any of ``parts``.

        Examples
        --------
        >>> ia.RowRanges.union([ia.RowRanges.of((0, 4)), ia.RowRanges.of((2, 6))])
        RowRanges([0, 6); 6 rows)
        """
        parts = list(parts)
        if len(parts) < 2:
            return parts[0] if parts else cls.none()
        return cls(
            np.concatenate([part.starts for part in parts]),
            np.concatenate([part.stops for part in parts]),
        )

    @property
    def num_rows(self) -> int:
        """The number of selected rows."""
        if len(self.starts) == 1:
            return int(self.stops[0] - self.starts[0])
        return int(self.stops.sum() - self.starts.sum())

    def __len__(self) -> int:
        """Returns the number of ranges. ``num_rows`` is the number of rows."""
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
        return (
            self.starts.tobytes() == other.starts.tobytes()
            and self.stops.tobytes() == other.stops.tobytes()
        )

    def __hash__(self) -> int:
        return hash((self.starts.tobytes(), self.stops.tobytes()))

    def __repr__(self) -> str:
        shown = ", ".join(f"[{a}, {b})" for a, b in list(self)[:6])
        more = ", …" if len(self) > 6 else ""
        return f"RowRanges({shown}{more}; {self.num_rows:,} rows)"

    def __and__(self, other: RowRanges) -> RowRanges:
        """Returns the rows in both sets."""
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
        """Returns the rows in either set."""
        return RowRanges.union((self, other))

    def __sub__(self, other: RowRanges) -> RowRanges:
        """Returns the rows of this set that are not in ``other``."""
        if not self:
            return self
        return self & other.complement(int(self.stops[-1]))

    def complement(self, num_rows: int) -> RowRanges:
        """Returns the rows from 0 to ``num_rows``, end not included, that are not selected.

        Examples
        --------
        >>> ia.RowRanges.of((0, 4), (8, 10)).complement(12)
        RowRanges([4, 8), [10, 12); 6 rows)
        """
        starts = np.concatenate(([0], self.stops))
        stops = np.concatenate((self.starts, [num_rows]))
        return RowRanges(starts, np.minimum(stops, num_rows))

    def shift(self, by: int) -> RowRanges:
        """Returns the set with ``by`` added to every row number.

        Raises ``ValueError`` if a row number becomes negative.

        Examples
        --------
        >>> ia.RowRanges.of((0, 4)).shift(100)
        RowRanges([100, 104); 4 rows)
        """
        if not by:
            return self
        if not self or self.starts[0] + by < 0:
            return RowRanges(self.starts + by, self.stops + by)
        return RowRanges._from_sorted(self.starts + by, self.stops + by)

    def clip(self, start: int, stop: int) -> RowRanges:
        """Returns the selected rows in ``[start, stop)``.

        Examples
        --------
        >>> ia.RowRanges.of((0, 4), (8, 10)).clip(2, 9)
        RowRanges([2, 4), [8, 9); 3 rows)
        """
        first = int(self.stops.searchsorted(start, side="right"))
        last = int(self.starts.searchsorted(stop, side="left"))
        if first >= last or start >= stop:
            return RowRanges.none()
        if start <= self.starts[0] and self.stops[-1] <= stop:
            return self
        starts, stops = self.starts[first:last].copy(), self.stops[first:last].copy()
        starts[0], stops[-1] = max(starts[0], start), min(stops[-1], stop)
        return RowRanges._from_sorted(starts, stops)

    def covers(self, starts: Int64Array, stops: Int64Array) -> BoolArray:
        """Returns for each half-open range whether it contains a selected row.

        Parameters
        ----------
        starts, stops : array of int64, shape (n,)
            The ranges, in any order.

        Returns
        -------
        array of bool, shape (n,)
            True where a row of this set lies in ``[starts[i], stops[i])``.

        Examples
        --------
        >>> pages = np.array([0, 10, 20, 30])
        >>> ia.RowRanges.of((5, 12)).covers(pages[:-1], pages[1:]).tolist()
        [True, True, False]
        """
        first = self.stops.searchsorted(starts, side="right")
        last = self.starts.searchsorted(stops, side="left")
        return (last > first) & (starts < stops)

    def rows(self) -> Int64Array:
        """Returns the selected row numbers, ascending: an int64 array of shape ``(num_rows,)``.

        Examples
        --------
        >>> ia.RowRanges.of((0, 2), (8, 10)).rows().tolist()
        [0, 1, 8, 9]
        """
        counts = self.stops - self.starts
        shifts = np.repeat(self.starts - self._rows_before(), counts)
        rows: Int64Array = np.arange(counts.sum()) + shifts
        return rows

    def at(self, positions: Int64Array) -> RowRanges:
        """Returns the rows at the given positions among the selected rows.

        ::

            self       NYYYNNYY      selected rows: YYYYY
            positions  [1, 2, 4]     result: NNYYNNNY

        Parameters
        ----------
        positions : array of int64, shape (n,)
            Ascending positions, from 0 to ``num_rows``, end not included.

        Examples
        --------
        >>> ia.RowRanges.of((0, 2), (8, 10)).at(np.array([1, 2]))
        RowRanges([1, 2), [8, 9); 2 rows)
        """
        if len(self) == 1:
            return RowRanges.from_rows(positions + self.starts[0])
        rows_before = self._rows_before()
        part = rows_before.searchsorted(positions, side="right") - 1
        return RowRanges.from_rows(positions + (self.starts - rows_before)[part])

    def positions(self, inner: RowRanges) -> RowRanges:
        """Returns the positions of the rows of ``inner`` among the selected rows.

        ``inner`` must be a subset. This is the inverse of ``at``.

        ::

            self       NYYYNNYY      selected rows: YYYYY
            inner      NNYYNNYN      result: NYYYN

        Examples
        --------
        >>> ia.RowRanges.of((0, 2), (8, 10)).positions(ia.RowRanges.of((1, 2), (8, 9)))
        RowRanges([1, 3); 2 rows)
        """
        if len(self) == 1:
            return inner.shift(-int(self.starts[0]))
        part = self.starts.searchsorted(inner.starts, side="right") - 1
        offset = (self._rows_before() - self.starts)[part]
        return RowRanges(inner.starts + offset, inner.stops + offset)

    def _rows_before(self) -> Int64Array:
        """Returns the number of selected rows before each range."""
        counts = self.stops - self.starts
        rows_before: Int64Array = np.cumsum(counts) - counts
        return rows_before


def _merged(starts: Int64Array, stops: Int64Array) -> tuple[Int64Array, Int64Array]:
    order = np.argsort(starts, kind="stable")
    starts, stops = starts[order], np.maximum.accumulate(stops[order])
    opens = np.concatenate(([True], starts[1:] > stops[:-1]))
    closes = np.concatenate((opens[1:], [True]))
    return starts[opens], stops[closes]


def distinct(values: NDArray[N]) -> NDArray[N]:
    """Returns sorted, distinct values. ``np.unique`` hashes first, which is far slower here."""
    if len(values) < 2:
        return values
    return without_repeats(np.sort(values))


def without_repeats(values: NDArray[N]) -> NDArray[N]:
    """Returns sorted ``values`` without repeats, or ``values`` itself if there are none."""
    is_new = values[1:] != values[:-1]
    return values if is_new.all() else values[np.concatenate(([True], is_new))]
