"""Scanning files: each is planned, divided into units of bounded size, and read a unit at a time.

Units are read in threads and given in order; what is read of one, and when, ``matching`` says.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import pyarrow as pa

from intarsia.errors import Where, placed
from intarsia.file.open_file import MAX_TRIES, ChangesTooOften, Lease, OpenedFile, lease_of
from intarsia.io.storage import FileReplaced
from intarsia.memory import has_limit
from intarsia.plan.file_account import Activity
from intarsia.pruning.partition_pruning import Constants
from intarsia.row_ranges import RowRanges
from intarsia.scan.file_planner import plan_rows
from intarsia.scan.integrity.page_guard import PageIndexMistrust
from intarsia.scan.request import Request
from intarsia.scan.schema_adapter import roots_of, roots_to_read
from intarsia.scan.small_row_groups import know_page_indexes
from intarsia.scan.unit_reader import Trend, UnitReader
from intarsia.scan.units import decoded_rows_bytes, units_of, usual_bytes
from intarsia.threads import in_order, one_thread


class Matching(NamedTuple):
    """The rows of a file that match, where that is known, and what reads them.

    That is for one use, and gives None where it fails; there may be none.
    """

    rows: RowRanges
    read: Callable[[], pa.Table | None] | None


@dataclass(frozen=True, slots=True)
class Part:
    """One file's part of a scan.

    ``get`` gives the file, as often as it turns out to have been replaced. ``rows`` restricts the
    scan to these. ``planned`` are the candidates where they are known already, as ``plan_rows``
    would find them; they are found again if pages belie the index they came from. ``matching`` is
    of the file that ``get`` gives first.
    """

    get: Callable[[], Lease]
    constants: Constants
    rows: RowRanges | None = None
    planned: RowRanges | None = None
    matching: Matching | None = None


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
    trend: Trend | None = None,
) -> Generator[pa.Table]:
    """The matching rows of all ``parts``, in their order, as tables of the requested columns.

    Ends when ``limit`` rows are found: then units are small at first. ``use_threads`` uses as many
    cores as pyarrow does; units under way hold some 50 MB each. Of files that are far, as many are
    under way as pyarrow has threads for waiting, as long as they are small. Scans of the same
    request may share a ``trend``.
    """
    found = _scan(parts, request, limit is not None, use_threads, is_far, trend or Trend())
    yield from found if limit is None else limited(found, limit)


def limited(tables: Iterable[pa.Table], limit: int) -> Generator[pa.Table]:
    """The first ``limit`` rows of ``tables``, of which no more are taken than that needs."""
    for table in tables if limit > 0 else ():
        # A slice of a table without columns has as many rows as it was asked for.
        found = table if table.num_rows <= limit else table.slice(0, limit)
        limit -= found.num_rows
        yield found
        if limit <= 0:
            return


def _scan(
    parts: Iterable[Part],
    request: Request,
    small_first: bool,
    use_threads: bool,
    is_far: bool,
    trend: Trend,
) -> Generator[pa.Table]:
    in_advance = use_threads and not (small_first and request.filter is None)
    ahead = files_ahead(is_far) if in_advance else 0
    attempts = (partial(_Attempt, part, request, use_threads, trend) for part in parts)
    begun = in_order(attempts, ahead, is_far=is_far, is_little=is_settled)
    units = (_Unit(a, *unit) for a in begun for unit in a.units(small_first))
    for found in in_order(
        units, ahead, is_far=is_far, weigh=_Unit.weight, is_little=_Unit.is_little
    ):
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


def is_settled(task: partial[Any]) -> bool:
    """Is the part, which a task begins with, one of which the matching rows are known?"""
    part: Part = task.args[0]
    return part.matching is not None


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

    def __init__(self, part: Part, request: Request, use_threads: bool, trend: Trend) -> None:
        self._part, self._request, self._use_threads = part, request, use_threads
        self._trend = trend
        self._file, self._answer = part.get()
        self._distrusted = self._file.page_indexes.distrusted
        self.given = 0
        """Rows before this one have been given: another attempt goes on from there."""
        self.is_spoiled = False
        self._read: Callable[[], pa.Table | None] | None = None
        self._tries = 1
        self._pin: object = None
        """Keeps the handle of a file that is read in several units open from the first one on."""
        if part.matching is not None:
            self._rows, self._read = self._within(part.matching.rows), part.matching.read
            all_rows = replace(request, filter=None)
            self._reader = UnitReader(self._file, all_rows, part.constants, trend)
        elif part.planned is not None:
            self._rows = self._within(part.planned)
            tested = roots_of(self._file, request.filter_columns, request.schema)
            leaves = [i for root in tested for i in root.leaves]
            try:
                know_page_indexes(self._file, self._rows, leaves)
                self._reader = UnitReader(self._file, request, part.constants, trend)
            except FileReplaced:
                self._renew()
                self._plan()
        else:
            self._plan()

    @property
    def is_at_hand(self) -> bool:
        """Are all rows read along with those of other files?"""
        return self._read is not None

    def _plan(self) -> None:
        self._read = None
        while True:
            self._distrusted = self._file.page_indexes.distrusted
            try:
                self._rows = self._planned()
                return
            except FileReplaced:
                self._renew()

    @property
    def leaves(self) -> list[int]:
        """The leaves that are read."""
        roots = roots_to_read(self._file, self._request, self._part.constants)
        return [leaf for root in roots for leaf in root.leaves]

    def _planned(self) -> RowRanges:
        request, file = self._request, self._file
        constants, pinned = self._part.constants, self._file.pin()
        roots = roots_to_read(file, request, constants) if file.request_bytes else ()
        leaves = [leaf for root in roots for leaf in root.leaves]
        with placed(Where(file.name)), file.profile.during(Activity.PLANNING):
            found = plan_rows(file, request.pruning, constants, request.schema, leaves)
        self._reader = UnitReader(file, request, constants, self._trend, found.are_likely)
        del pinned
        return self._within(found.rows).clip(self.given, max(self._file.num_rows, self.given))

    def _within(self, rows: RowRanges) -> RowRanges:
        """``rows`` without those that nobody asks for, and those known to be damaged."""
        file, constants = self._file, self._part.constants
        if file.damage.found:
            roots = roots_to_read(file, self._request, constants)
            rows = rows - file.damage.rows_of(leaf for root in roots for leaf in root.leaves)
        return rows if self._part.rows is None else rows & self._part.rows

    def _renew(self) -> None:
        """Take the file that is at the path now.

        Raises ``FileReplaced`` where it is too late, ``ChangesTooOften``.
        """
        self._tries += 1
        if self._tries > MAX_TRIES:
            raise ChangesTooOften(self._file.name)
        file, self._answer = self._part.get()
        if self.given or file is self._file:
            raise FileReplaced(file.name)
        self._file, self._pin = file, None

    def holds(self) -> bool:
        """Are the plan's indexes still trusted, and is the file still the one at its path?

        Once rows were given, it is enough that it was.
        """
        return self._file.page_indexes.distrusted == self._distrusted and self._is_current()

    def _is_current(self) -> bool:
        if self.given or self._answer():
            return True
        self._renew()
        return False

    def units(self, small_first: bool) -> Iterator[tuple[UnitReader, RowRanges]]:
        """What ``run`` is to be given, one after the other."""
        while not self._rows and not self._is_current():
            self._plan()
        reader, file, rows, stop = self._reader, self._file, self._rows, 0
        if self.is_at_hand:
            yield reader, rows
            return
        try:
            roots = roots_to_read(file, self._request, self._part.constants)
            for unit in units_of(file, rows, roots, small_first=small_first):
                if self._pin is None and int(unit.stops[-1]) < int(rows.stops[-1]):
                    self._pin = file.pin()
                yield reader, unit
                stop = int(unit.stops[-1])
        except FileReplaced:
            yield reader, rows.clip(stop, file.num_rows)  # to fail likewise, when its turn comes

    def run(self, reader: UnitReader, unit: RowRanges) -> _Found:
        """The matching rows of ``unit``."""
        stop = int(unit.stops[-1])
        try:
            pinned = reader.file.pin()
            threads = nullcontext() if self._use_threads else one_thread()
            with placed(Where(self._file.name)), threads:
                table = None if self._read is None else self._read()
                table = reader.matching(unit) if table is None else table
            del pinned
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
    reader: UnitReader
    rows: RowRanges

    def __call__(self) -> _Found:
        return self.attempt.run(self.reader, self.rows)

    def is_little(self) -> bool:
        """Is it read along with other files?"""
        return self.attempt.is_at_hand

    def weight(self) -> float:
        """At most so many bytes are read for it, in whatever columns.

        With a memory limit, about as many bytes as are decoded for it.
        """
        file = self.reader.file
        if has_limit():
            return max(usual_bytes(), decoded_rows_bytes(file, self.rows, self.attempt.leaves))
        return file.source.size * self.rows.num_rows / file.num_rows
