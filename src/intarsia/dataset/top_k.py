"""Top-k queries such as ``ORDER BY ts DESC LIMIT 10``, answered by bounds of pages.

Pages are read in the order of their bounds, and only in the ordering column and the filter's
columns. Any k matching rows have a last value that none of the first k rows comes after. So the
first k rows are among those that a comparison with this value leaves.

::

    pages by their greatest value    [40–49] [31–45] [20–33] [11–19] …
    the 3 greatest so far             44      45
    DESC LIMIT 3: 44, 45, 46          ^──────────────^ the rest is at most 33: done
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
from intarsia.dataset.scan_plan import count_candidates
from intarsia.file.open_file import OpenedFile, as_current_version
from intarsia.parquet.statistics import Bounds
from intarsia.parquet.value_order import Key, ValueOrder
from intarsia.plan.plan import ScanPlan
from intarsia.row_ranges import Int64Array, RowRanges
from intarsia.scan.files.file_pruning import run_file_tasks
from intarsia.scan.scan import Part, scan
from intarsia.sql.query.limit_pushdown import First

_MIN_ROWS = 64 * 1024
"""With fewer rows, reading all of them takes no longer."""
_MAX_LIMIT = 16 * 1024
"""Queries for more rows are not narrowed."""
_MAX_FILES = 100
"""Files of a data set with a catalog or a filter. Opening more of them costs too much."""
_FIRST_READ_ROWS = 16 * 1024
"""Rows of the first read. Each further read doubles the number of rows."""
_MIN_ROWS_PER_READ = 8
"""At most one row in this many is read. A search that needs more does not pay."""


def first_rows(data: Dataset, first: First, filter_: pc.Expression | None) -> pc.Expression | None:
    """Returns a condition that is TRUE for the ``first`` matching rows, and for few others.

    ``filter_`` decides which rows match. NaN is the greatest value. Returns None if there is no
    such condition, or if the search might not pay.
    """
    kind = data.schema.field(first.column).type
    if not 0 < first.count <= _MAX_LIMIT or not _has_order(kind):
        return None
    last = _last_of(data, first, filter_)
    if last is None:
        return None
    value = pc.field(first.column)
    if not first.descending:
        condition = value <= last
    else:  # NaN as well, which no comparison finds
        condition = ~(value < last) if pa.types.is_floating(kind) else value >= last
    return condition | value.is_null() if first.nulls_first else condition


def _has_order(kind: pa.DataType) -> bool:
    """True if DuckDB orders values of this type as bounds do. It rounds nanoseconds in a zone."""
    if pa.types.is_timestamp(kind):
        return kind.unit != "ns" or kind.tz is None
    checks = (pa.types.is_integer, pa.types.is_float32, pa.types.is_float64, pa.types.is_date32)
    texts = (pa.types.is_string, pa.types.is_large_string, pa.types.is_decimal128)
    return any(check(kind) for check in (*checks, *texts))


def _last_of(data: Dataset, first: First, filter_: pc.Expression | None) -> pa.Scalar | None:
    """Returns the last value of ``first.count`` rows, which are the first as far as known."""
    if data.scan_source.options.looks_for_damage:
        return None
    files = len(data.scan_source.files)
    if files > _MAX_FILES and (filter_ is not None or data.scan_source.catalog is not None):
        return None
    condition = data.scan_source.filter_with(filter_)
    if condition is not None and count_candidates(data.scan_source, filter_) < _MIN_ROWS:
        return None
    places = _Places(data, first.column, first.descending)
    if not places.are_comparable or places.num_rows < _MIN_ROWS:
        return None
    request = request_of(data.schema, [first.column], condition)
    first_values = pa.chunked_array([], request.schema.field(first.column).type)
    looked, step = 0, max(_FIRST_READ_ROWS, first.count)
    while looked < places.num_rows / _MIN_ROWS_PER_READ and (parts := places.taken(step)):
        looked += sum(part.rows.num_rows for part in parts if part.rows is not None)
        step = looked
        tables = list(scan(parts, request, is_far=not data.scan_source.cache.is_local))
        values = [chunk for table in tables for chunk in table.column(0).chunks]
        first_values = _first_of(
            pa.chunked_array([*first_values.chunks, *values], first_values.type), first
        )
        if len(first_values) == first.count and not places.may_hold_before(first_values[-1]):
            break
    return first_values[-1] if len(first_values) == first.count else None


def _first_of(values: pa.ChunkedArray, first: First) -> pa.ChunkedArray:
    """Returns the ``first`` of ``values``, in order, without NULL and NaN."""
    if pa.types.is_floating(values.type):
        values = values.filter(pc.invert(pc.is_nan(values)))
    values = values.drop_null()
    order = "descending" if first.descending else "ascending"
    return values.take(pc.select_k_unstable(values, min(first.count, len(values)), [("", order)]))


class _Place(NamedTuple):
    """The rows of a row group, or of a page if ``group`` is None."""

    is_unknown: bool
    """True if there is no bound."""
    bound: Key
    file: int
    start: int
    stop: int
    group: int | None


class _Places:
    """A queue of the row groups and pages of all files. The last one may have the first rows."""

    def __init__(self, data: Dataset, column: str, descending: bool) -> None:
        self._data, self._column, self._descending = data, column, descending
        self.num_rows = 0
        self._files: list[OpenedFile] = []
        self._order: ValueOrder | None = None
        self._queue: list[_Place] = []
        self.are_comparable = self._open()
        """True if all files that have the column have it in one type."""
        self._sort()

    def _open(self) -> bool:
        cache, files = self._data.scan_source.cache, self._data.scan_source.files
        opened = run_file_tasks(cache, (partial(cache.get, file.path) for file in files))
        with contextlib.closing(opened):
            for file, file_opened in zip(files, opened, strict=True):
                self._files.append(file_opened)
                self.num_rows += file_opened.num_rows
                if self._column in file.constants or not self._is_added(file_opened):
                    return False
        return self._order is not None

    def _is_added(self, file: OpenedFile) -> bool:
        """True if a file's values compare with those of the files before. NULL always does."""
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
        """Returns what to read next: at least ``num_rows`` rows.

        Returns nothing for large row groups.
        """
        taken: dict[int, list[_Place]] = {}
        count = 0
        while self._queue and count < num_rows:
            place = self._queue.pop()
            if self._replace_by_pages(place):
                continue
            if place.stop - place.start > max(self.num_rows / _MIN_ROWS_PER_READ, num_rows):
                return []
            taken.setdefault(place.file, []).append(place)
            count += place.stop - place.start
        return [self._part(file, taken[file]) for file in sorted(taken)]

    def _replace_by_pages(self, place: _Place) -> bool:
        """Replaces a row group by its pages in the queue.

        Returns False for a page, and for a row group without a usable page index.
        """
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
        get = partial(as_current_version, self._files[number])  # the rows are of this version
        return Part(get, file.constants, rows, ScanPlan(rows))

    def may_hold_before(self, value: pa.Scalar) -> bool:
        """True if a row that was not taken may come before a row with ``value``."""
        if not self._queue or self._order is None:
            return False
        place, bracket = self._queue[-1], self._order.bracket(value)
        if place.is_unknown or bracket is None:
            return True
        low, high = bracket
        return bool(place.bound > high if self._descending else place.bound < low)
