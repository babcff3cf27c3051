"""Scanning files: candidate rows, the filter's columns, the rows that match, the other columns.

The filter's columns of the candidate rows are read first and pyarrow evaluates the filter on them;
only then are the other columns read, and only at the rows that matched. Files are divided into
units of bounded size, which are read in threads and given in order.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import pyarrow as pa

from intarsia.parallel import in_order, one_thread
from intarsia.plan.account import Activity
from intarsia.ranges import RowRanges
from intarsia.read.columns import expect_columns, read_columns, roots_to_read
from intarsia.read.conjuncts import Stage, stages
from intarsia.read.opened import Lease, OpenedFile, lease_of
from intarsia.read.planner import Constants, plan_rows
from intarsia.read.request import Request, evaluate, without_columns, without_rows
from intarsia.read.rows import PageIndexMistrust
from intarsia.read.substring import rows_containing
from intarsia.read.units import units_of
from intarsia.source import AheadSource
from intarsia.storage import FileReplaced

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
    parts: Iterable[Part],
    request: Request,
    *,
    limit: int | None = None,
    use_threads: bool = True,
    is_far: bool = False,
) -> Generator[pa.Table]:
    """The matching rows of all ``parts``, in their order, as tables of the requested columns.

    Ends when ``limit`` rows are found: then units are small at first. ``use_threads`` uses as many
    cores as pyarrow does; units under way hold some 50 MB each. Of files that are far, as many are
    under way as pyarrow has threads for waiting, as long as they are small.
    """
    if limit is None:
        yield from _scan(parts, request, False, use_threads, is_far)
        return
    for table in _scan(parts, request, True, use_threads, is_far) if limit > 0 else ():
        found = table.slice(0, limit)
        limit -= found.num_rows
        yield found
        if limit <= 0:
            return


def _scan(
    parts: Iterable[Part], request: Request, small_first: bool, use_threads: bool, is_far: bool
) -> Generator[pa.Table]:
    in_advance = use_threads and not (small_first and request.filter is None)
    ahead = files_ahead(is_far) if in_advance else 0
    attempts = (partial(_Attempt, part, request, use_threads) for part in parts)
    begun = in_order(attempts, ahead, is_far=is_far)
    units = (_Unit(a, *unit) for a in begun for unit in a.units(small_first))
    for found in in_order(units, ahead, is_far=is_far, weigh=_Unit.weight):
        attempt = found.attempt
        if attempt.is_spoiled:
            continue
        if found.table is None or not attempt.holds():
            attempt.is_spoiled = True
            yield from attempt.again(found.is_replaced)
            continue
        attempt.given = found.stop
        if found.table.num_rows:
            yield found.table


def files_ahead(is_far: bool) -> int:
    """How many files are worked on besides the one whose turn it is."""
    return int(pa.io_thread_count() if is_far else pa.cpu_count())


class _Found(NamedTuple):
    """What became of a unit: its matching rows, up to row ``stop`` of the file.

    None where its pages belie the index it was planned by, or belong to another file by now.
    """

    attempt: _Attempt
    stop: int
    table: pa.Table | None
    is_replaced: bool = False


class _Attempt:
    """A part as it was planned.

    Where its pages belie the plan, the rest of it is planned again. Where the file turns out to
    have been replaced, it is begun anew, as long as nothing has been given.
    """

    def __init__(self, part: Part, request: Request, use_threads: bool) -> None:
        self._part, self._request, self._use_threads = part, request, use_threads
        self._file, self._answer = part.get()
        self._distrusted = self._file.distrusted
        self.given = 0
        """Rows before this one have been given: another attempt goes on from there."""
        self.is_spoiled = False
        if part.planned is None:
            self._plan()
        else:
            self._rows = self._within(part.planned)

    def _plan(self) -> None:
        while True:
            self._distrusted = self._file.distrusted
            try:
                self._rows = self._planned()
                return
            except FileReplaced:
                self._renew()

    def _planned(self) -> RowRanges:
        request, file = self._request, self._file
        constants = self._part.constants
        roots = roots_to_read(file, request, constants) if file.request_bytes else ()
        leaves = [leaf for root in roots for leaf in root.leaves]
        with file.profile.during(Activity.PLANNING):
            rows = plan_rows(file, request.pruning, constants, request.schema, leaves).rows
        return self._within(rows).clip(self.given, max(self._file.num_rows, self.given))

    def _within(self, rows: RowRanges) -> RowRanges:
        return rows if self._part.rows is None else rows & self._part.rows

    def _renew(self) -> None:
        """Take the file that is at the path now. Raises ``FileReplaced`` where it is too late."""
        file, self._answer = self._part.get()
        if self.given or file is self._file:
            raise FileReplaced(file.name)
        self._file = file

    def holds(self) -> bool:
        """Are the plan's indexes still trusted, and is the file still the one at its path?

        Once rows were given, it is enough that it was.
        """
        return self._file.distrusted == self._distrusted and self._is_current()

    def _is_current(self) -> bool:
        if self.given or self._answer():
            return True
        self._renew()
        return False

    def units(self, small_first: bool) -> Iterator[tuple[OpenedFile, RowRanges]]:
        """What ``run`` is to be given, one after the other."""
        while not self._rows and not self._is_current():
            self._plan()
        file, rows, stop = self._file, self._rows, 0
        try:
            for unit in units_of(file, rows, self._request.all_columns, small_first=small_first):
                yield file, unit
                stop = int(unit.stops[-1])
        except FileReplaced:
            yield file, rows.clip(stop, file.num_rows)  # to fail likewise, when its turn comes

    def run(self, file: OpenedFile, unit: RowRanges) -> _Found:
        """The matching rows of ``unit``."""
        stop = int(unit.stops[-1])
        try:
            with nullcontext() if self._use_threads else one_thread():
                table = _scan_unit(file, self._request, self._part.constants, unit)
            return _Found(self, stop, table)
        except PageIndexMistrust:
            return _Found(self, stop, None)
        except FileReplaced:
            return _Found(self, stop, None, is_replaced=True)

    def again(self, is_replaced: bool) -> Iterator[pa.Table]:
        """What has not been given yet, planned as often as the plan turns out to be wrong."""
        while True:
            if is_replaced:
                self._renew()
            self._plan()
            for unit in self.units(small_first=False):
                found = self.run(*unit)
                is_replaced = found.is_replaced
                if found.table is None or not self.holds():
                    break
                self.given = found.stop
                if found.table.num_rows:
                    yield found.table
            else:
                return


@dataclass(frozen=True, slots=True)
class _Unit:
    """What ``attempt`` is to run."""

    attempt: _Attempt
    file: OpenedFile
    rows: RowRanges

    def __call__(self) -> _Found:
        return self.attempt.run(self.file, self.rows)

    def weight(self) -> float:
        """At most so many bytes are read for it, in whatever columns."""
        return self.file.source.size * self.rows.num_rows / self.file.num_rows


def _scan_unit(
    file: OpenedFile, request: Request, constants: Constants, rows: RowRanges
) -> pa.Table:
    held = pa.table([])
    have = request.filter.pruned if request.filter else {}
    source = AheadSource(file.source)
    if request.filter is not None:
        first = request.filter_columns
        expect_columns(file, request.all_columns, first, rows, source, request.pruned)
    for stage in stages(file, request, rows):
        new = [name for name in stage.columns if name not in held.column_names]
        with file.profile.during(Activity.DECODING):
            found = read_columns(file, request.schema, new, constants, rows, have, source)
        for name in held.column_names:
            found = found.append_column(name, held.column(name))
        with file.profile.during(Activity.FILTERING):
            held, rows = _passing(stage, found, rows)
        file.profile.filtered(stage.expression, found.num_rows, held.num_rows)
        if not rows:
            return without_rows(request.output)
    kept = {n for n in held.column_names if have.get(n) == request.pruned.get(n)}
    rest = [name for name in dict.fromkeys(request.columns) if name not in kept]
    with file.profile.during(Activity.DECODING):
        other = read_columns(file, request.schema, rest, constants, rows, request.pruned, source)
    if not request.columns:
        return without_columns(rows.num_rows)
    arrays = [(other if name in rest else held).column(name) for name in request.columns]
    return pa.Table.from_arrays(arrays, schema=request.output)


def _passing(stage: Stage, found: pa.Table, rows: RowRanges) -> tuple[pa.Table, RowRanges]:
    """Of ``found``, which holds ``rows``, what passes a stage, and which rows that is."""
    hits = None
    if stage.contained is not None:
        column, text = stage.contained
        hits = rows_containing(found.column(column), text)
    if hits is not None:
        return found.take(pa.array(hits)), RowRanges.from_rows(rows.rows()[hits])
    numbers = _unused(_NUMBERS, found.column_names)
    passed = evaluate(stage.expression, found.append_column(numbers, pa.array(rows.rows())))
    kept = RowRanges.from_rows(passed.column(numbers).to_numpy())
    return passed.drop_columns([numbers]), kept


def _unused(name: str, *taken: Iterable[str]) -> str:
    while any(name in names for names in taken):
        name += "_"
    return name
