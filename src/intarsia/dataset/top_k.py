"""The first rows of a data set by a column, found by bounds: ``ORDER BY ts DESC LIMIT 10``.

Pages are looked at in the order of their bounds, those that may hold the first rows first, and only
the column and those of the filter are read. So many rows as are wanted, whichever they are, tell of
a value that none of the first comes after; what is left is a comparison with it.

::

    pages by their greatest value    [40–49] [31–45] [20–33] [11–19] …
    the 3 greatest so far             44      45
    DESC LIMIT 3: 44, 45, 46          ^──────────────^ no more than 33: it is enough
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterable, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from intarsia.dataset.dataset import Dataset
from intarsia.dataset.request_builder import request_of
from intarsia.file.open_file import OpenedFile, lease_of
from intarsia.parquet.statistics import Bounds
from intarsia.parquet.value_order import Key, ValueOrder
from intarsia.row_ranges import Int64Array, RowRanges
from intarsia.scan.files.file_pruning import each_of
from intarsia.scan.scan import Part, scan
from intarsia.sql.query.limit_pushdown import First

_LEAST_ROWS = 64 * 1024
"""Fewer than these are read as soon as they are looked through."""
_MOST_WANTED = 16 * 1024
_MOST_FILES = 100
"""Of a data set with a catalog, or with a filter: more are not opened beforehand."""
_FIRST_ROWS = 16 * 1024
"""Looked at before anything is known; as many again as were, each time that is not enough."""
_SHARE = 8
"""One row in so many is looked at, at most: what is not found then is not worth looking for."""


def first_rows(data: Dataset, first: First, filter_: pc.Expression | None) -> pc.Expression | None:
    """A condition that holds for those rows of a data set that are ``first``, and for few others.

    Of the rows for which ``filter_`` is TRUE. NaN is the greatest value. None where there is no
    such condition, or finding one might not pay.
    """
    kind = data.schema.field(first.column).type
    if not 0 < first.count <= _MOST_WANTED or not _has_order(kind):
        return None
    last = _last_of(data, first, filter_)
    if last is None:
        return None
    value = pc.field(first.column)
    if not first.descending:
        found = value <= last
    else:  # NaN as well, which is neither below nor above
        found = ~(value < last) if pa.types.is_floating(kind) else value >= last
    return found | value.is_null() if first.nulls_first else found


def _has_order(kind: pa.DataType) -> bool:
    """Are values of this type ordered as they are? DuckDB rounds nanoseconds in a zone first."""
    if pa.types.is_timestamp(kind):
        return kind.unit != "ns" or kind.tz is None
    checks = (pa.types.is_integer, pa.types.is_float32, pa.types.is_float64, pa.types.is_date32)
    texts = (pa.types.is_string, pa.types.is_large_string, pa.types.is_decimal128)
    return any(check(kind) for check in (*checks, *texts))


def _last_of(data: Dataset, first: First, filter_: pc.Expression | None) -> pa.Scalar | None:
    """The value of the last of so many rows, which are the first as far as bounds can tell."""
    if data.scan_source.options.looks_for_damage:
        return None
    files = len(data.scan_source.files)
    if files > _MOST_FILES and (filter_ is not None or data.scan_source.catalog is not None):
        return None
    wanted = data.scan_source.filter_with(filter_)
    if wanted is not None and data.plan([], wanted).figures.rows.selected < _LEAST_ROWS:
        return None
    places = _Places(data, first.column, first.descending)
    if not places.are_comparable or places.num_rows < _LEAST_ROWS:
        return None
    request = request_of(data.schema, [first.column], wanted)
    found = pa.chunked_array([], request.schema.field(first.column).type)
    looked, step = 0, max(_FIRST_ROWS, first.count)
    while looked < places.num_rows / _SHARE and (parts := places.taken(step)):
        looked += sum(part.rows.num_rows for part in parts if part.rows is not None)
        step = looked
        tables = list(scan(parts, request, is_far=not data.scan_source.cache.is_local))
        values = [chunk for table in tables for chunk in table.column(0).chunks]
        found = _first_of(pa.chunked_array([*found.chunks, *values], found.type), first)
        if len(found) == first.count and not places.may_hold_before(found[-1]):
            break
    return found[-1] if len(found) == first.count else None


def _first_of(values: pa.ChunkedArray, first: First) -> pa.ChunkedArray:
    """Those of ``values`` that are ``first``, in order; none of them NULL or NaN."""
    if pa.types.is_floating(values.type):
        values = values.filter(pc.invert(pc.is_nan(values)))
    values = values.drop_null()
    order = "descending" if first.descending else "ascending"
    return values.take(pc.select_k_unstable(values, min(first.count, len(values)), [("", order)]))


class _Place(NamedTuple):
    """Rows of a file: a row group's, or a page's where ``group`` is None."""

    is_unknown: bool
    """Is there no bound?"""
    bound: Key
    file: int
    start: int
    stop: int
    group: int | None


class _Places:
    """Row groups and pages of all files; the last one is the one that may hold the first rows."""

    def __init__(self, data: Dataset, column: str, descending: bool) -> None:
        self._data, self._column, self._descending = data, column, descending
        self.num_rows = 0
        self._files: list[OpenedFile] = []
        self._order: ValueOrder | None = None
        self._queue: list[_Place] = []
        self.are_comparable = self._open()
        """Are values of one type in all files that have the column?"""
        self._sort()

    def _open(self) -> bool:
        cache, files = self._data.scan_source.cache, self._data.scan_source.files
        opened = each_of(cache, (partial(cache.get, file.path) for file in files))
        with contextlib.closing(opened):
            for file, found in zip(files, opened, strict=True):
                self._files.append(found)
                self.num_rows += found.num_rows
                if self._column in file.constants or not self._is_added(found):
                    return False
        return self._order is not None

    def _is_added(self, file: OpenedFile) -> bool:
        """Do the values of a file compare with those of files before it? NULL does."""
        root = file.schema.root(self._column)
        if root is None:
            return True
        (leaf, *_), kind = root.leaves, self._data.schema.field(self._column).type
        if file.arrow_type(root) != kind or file.order(leaf) != (self._order or file.order(leaf)):
            return False
        self._order = file.order(leaf)
        bounds, starts = file.row_group_bounds(leaf), file.row_group_starts
        self._add(bounds, len(self._files) - 1, starts[:-1], starts[1:], range(len(bounds)))
        return self._order.is_defined

    def _add(
        self,
        bounds: Bounds,
        file: int,
        starts: Int64Array,
        stops: Int64Array,
        groups: Iterable[int | None],
    ) -> None:
        keys = (bounds.high if self._descending else bounds.low).tolist()
        edges = zip(starts.tolist(), stops.tolist(), groups, strict=False)
        facts = zip(keys, bounds.bounded.tolist(), bounds.all_null.tolist(), edges, strict=True)
        self._queue += [
            _Place(not is_bounded, key if is_bounded else 0, file, *edge)
            for key, is_bounded, is_null, edge in facts
            if not is_null
        ]

    def _sort(self) -> None:
        ascends = self._descending
        self._queue.sort(
            key=lambda place: (place.is_unknown == ascends, place.bound), reverse=not ascends
        )

    def taken(self, num_rows: int) -> list[Part]:
        """What to read next: so many rows or some more, nothing where row groups are too large."""
        taken: dict[int, list[_Place]] = {}
        count = 0
        while self._queue and count < num_rows:
            place = self._queue.pop()
            if self._is_divided(place):
                continue
            if place.stop - place.start > max(self.num_rows / _SHARE, num_rows):
                return []
            taken.setdefault(place.file, []).append(place)
            count += place.stop - place.start
        return [self._part(file, taken[file]) for file in sorted(taken)]

    def _is_divided(self, place: _Place) -> bool:
        """Is it a row group, whose pages are there instead from now on?"""
        file = self._files[place.file]
        root = file.schema.root(self._column)
        if place.group is None or root is None:
            return False
        bounds = file.page_indexes.bounds(place.group, root.leaves[0])
        offsets = file.page_indexes.offsets(place.group, root.leaves[0])
        if bounds is None or offsets is None or len(bounds) != len(offsets):
            return False
        starts, stops = offsets.row_bounds(place.stop - place.start)
        pages = itertools.repeat(None)
        self._add(bounds, place.file, starts + place.start, stops + place.start, pages)
        self._sort()
        return True

    def _part(self, number: int, places: Sequence[_Place]) -> Part:
        file = self._data.scan_source.files[number]
        starts = np.array([place.start for place in places])
        rows = RowRanges(starts, np.array([place.stop for place in places]))
        get = partial(lease_of, self._files[number])  # whose rows these are
        return Part(get, file.constants, rows, rows)

    def may_hold_before(self, value: pa.Scalar) -> bool:
        """Might a row that was not taken come before one of ``value``?"""
        if not self._queue or self._order is None:
            return False
        place, bracket = self._queue[-1], self._order.bracket(value)
        if place.is_unknown or bracket is None:
            return True
        low, high = bracket
        return bool(place.bound > high if self._descending else place.bound < low)
