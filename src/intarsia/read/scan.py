"""Scanning files: candidate rows, the filter's columns, the rows that match, the other columns.

The filter's columns of the candidate rows are read first and pyarrow evaluates the filter on them;
only then are the other columns read, and only at the rows that matched. Files are divided into
units of bounded size, which are read in threads and given in order.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass
from functools import partial

import pyarrow as pa

from intarsia.parallel import in_order
from intarsia.plan.account import Activity
from intarsia.ranges import RowRanges
from intarsia.read.columns import expect_columns, read_columns, roots_to_read
from intarsia.read.conjuncts import stages
from intarsia.read.opened import Lease, OpenedFile, lease_of
from intarsia.read.planner import Constants, plan_rows
from intarsia.read.request import Request, evaluate, without_columns, without_rows
from intarsia.read.rows import PageIndexMistrust
from intarsia.read.units import units_of
from intarsia.source import AheadSource

_NUMBERS = "__intarsia_row"


@dataclass(frozen=True, slots=True)
class Part:
    """One file's part of a scan.

    ``get`` gives the file, as often as it turns out to have been replaced. ``rows`` restricts the
    scan to these. ``planned`` are the candidates where they are known already, as ``plan_rows``
    would find them; they are found again if pages belie the index they came from.
    """

    get: Callable[[], Lease]
    constants: Constants
    rows: RowRanges | None = None
    planned: RowRanges | None = None


def scan_file(
    file: OpenedFile,
    request: Request,
    constants: Constants,
    rows: RowRanges | None = None,
    planned: RowRanges | None = None,
) -> Generator[pa.Table]:
    """The matching rows of one opened file; see ``Part``."""
    return scan([Part(lambda: lease_of(file), constants, rows, planned)], request)


def scan(
    parts: Iterable[Part], request: Request, *, limit: int | None = None, use_threads: bool = True
) -> Generator[pa.Table]:
    """The matching rows of all ``parts``, in their order, as tables of the requested columns.

    Ends when ``limit`` rows are found: then units are small at first. ``use_threads`` uses as many
    cores as pyarrow does; units under way hold some 50 MB each.
    """
    if limit is None:
        yield from _scan(parts, request, False, use_threads)
        return
    for table in _scan(parts, request, True, use_threads) if limit > 0 else ():
        found = table.slice(0, limit)
        limit -= found.num_rows
        yield found
        if limit <= 0:
            return


def _scan(
    parts: Iterable[Part], request: Request, small_first: bool, use_threads: bool
) -> Generator[pa.Table]:
    in_advance = use_threads and not (small_first and request.filter is None)
    ahead = pa.cpu_count() if in_advance else 0
    begun = in_order((partial(_Attempt, part, request) for part in parts), ahead)
    units = (partial(attempt.run, unit) for attempt in begun for unit in attempt.units(small_first))
    for attempt, stop, table in in_order(units, ahead):
        if attempt.is_spoiled:
            continue
        if table is None or attempt.is_outdated or not attempt.is_current():
            attempt.is_spoiled = True
            yield from attempt.again()
            continue
        attempt.given = stop
        if table.num_rows:
            yield table


class _Attempt:
    """A part as it was planned. Where its pages belie the plan, the rest of it is planned again."""

    def __init__(self, part: Part, request: Request) -> None:
        self._part, self._request = part, request
        self._file, self._answer = part.get()
        self._distrusted = self._file.distrusted
        self.given = 0
        """Rows before this one have been given: another attempt goes on from there."""
        self.is_spoiled = False
        self._rows = self._plan() if part.planned is None else self._within(part.planned)

    def _plan(self) -> RowRanges:
        request, file = self._request, self._file
        constants = self._part.constants
        roots = roots_to_read(file, request, constants) if file.request_bytes else ()
        leaves = [leaf for root in roots for leaf in root.leaves]
        with file.profile.during(Activity.PLANNING):
            rows = plan_rows(file, request.pruning, constants, request.schema, leaves).rows
        return self._within(rows).clip(self.given, max(self._file.num_rows, self.given))

    def _within(self, rows: RowRanges) -> RowRanges:
        return rows if self._part.rows is None else rows & self._part.rows

    @property
    def is_outdated(self) -> bool:
        """Has another scan of the same file found one of its page indexes to be wrong?"""
        return self._file.distrusted != self._distrusted

    def is_current(self) -> bool:
        """Is the file still the one at its path, or was it when its first rows were given?"""
        if self.given or self._answer():
            return True
        self._file, self._answer = self._part.get()
        return False

    def units(self, small_first: bool) -> Iterator[RowRanges]:
        """What ``run`` is to be given, one after the other."""
        while not self._rows and not self.is_current():
            self._distrusted = self._file.distrusted
            self._rows = self._plan()
        return units_of(self._file, self._rows, self._request.all_columns, small_first=small_first)

    def run(self, unit: RowRanges) -> tuple[_Attempt, int, pa.Table | None]:
        """The matching rows of ``unit``; None where pages belie the index it was planned by."""
        try:
            table = _scan_unit(self._file, self._request, self._part.constants, unit)
        except PageIndexMistrust:
            table = None
        return self, int(unit.stops[-1]), table

    def again(self) -> Iterator[pa.Table]:
        """What has not been given yet, planned as often as another index turns out to be wrong."""
        while True:
            self._distrusted = self._file.distrusted
            self._rows = self._plan()
            for unit in self.units(small_first=False):
                _, stop, table = self.run(unit)
                if table is None or self.is_outdated:
                    break
                self.given = stop
                if table.num_rows:
                    yield table
            else:
                return


def _scan_unit(
    file: OpenedFile, request: Request, constants: Constants, rows: RowRanges
) -> pa.Table:
    held = pa.table([])
    have = request.filter.pruned if request.filter else {}
    source = AheadSource(file.source)
    if request.filter is not None:
        first = request.filter_columns
        expect_columns(file, request.all_columns, first, rows, source, request.pruned)
    for expression, columns in stages(file, request, rows):
        new = [name for name in columns if name not in held.column_names]
        with file.profile.during(Activity.DECODING):
            found = read_columns(file, request.schema, new, constants, rows, have, source)
        numbers = _unused(_NUMBERS, columns, held.column_names)
        for name in held.column_names:
            found = found.append_column(name, held.column(name))
        with file.profile.during(Activity.FILTERING):
            tested = found.append_column(numbers, pa.array(rows.rows()))
            found = evaluate(expression, tested)
            rows = RowRanges.from_rows(found.column(numbers).to_numpy())
        file.profile.filtered(expression, tested.num_rows, found.num_rows)
        if not rows:
            return without_rows(request.output)
        held = found.drop_columns([numbers])
    kept = {n for n in held.column_names if have.get(n) == request.pruned.get(n)}
    rest = [name for name in dict.fromkeys(request.columns) if name not in kept]
    with file.profile.during(Activity.DECODING):
        other = read_columns(file, request.schema, rest, constants, rows, request.pruned, source)
    if not request.columns:
        return without_columns(rows.num_rows)
    arrays = [(other if name in rest else held).column(name) for name in request.columns]
    return pa.Table.from_arrays(arrays, schema=request.output)


def _unused(name: str, *taken: Iterable[str]) -> str:
    while any(name in names for names in taken):
        name += "_"
    return name
