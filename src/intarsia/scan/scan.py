"""Scans files: each is planned, divided into units of bounded size, and read unit by unit.

Threads read units ahead, and results come in order. ``unit_reader`` reads one unit.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import pyarrow as pa

import intarsia.usage_counts.usage as usage
from intarsia.errors import Where, placed
from intarsia.file.open_file import (
    MAX_VERSIONS_TRIED,
    ChangesTooOften,
    OpenedFile,
    VersionedFile,
    as_current_version,
)
from intarsia.io.storage import FileReplaced
from intarsia.memory import has_limit
from intarsia.plan.file_account import Activity
from intarsia.plan.file_group import FileGroup
from intarsia.plan.plan import ROW_GROUPS, ScanPlan
from intarsia.plan.planner import plan_group
from intarsia.pruning.partition_pruning import Constants
from intarsia.row_ranges import RowRanges
from intarsia.scan.integrity.page_guard import PageIndexMistrust
from intarsia.scan.request import Request
from intarsia.scan.schema_adapter import roots_of, roots_to_read
from intarsia.scan.small_row_groups import load_page_indexes
from intarsia.scan.unit_reader import ScanStatistics, UnitReader
from intarsia.scan.units import decoded_rows_bytes, units_of, usual_bytes
from intarsia.threads import in_order, one_thread


@dataclass(frozen=True, slots=True)
class Part:
    """One file's part of a scan.

    ``get`` returns a handle of the file's current version; it is called again after the file is
    replaced. ``rows`` restricts the scan. ``planned`` is a plan of the version that the first call
    of ``get`` returns; the file is planned again if pages contradict an index. ``read`` reads its
    rows together with those of other files. It can be called once, and returns None on failure.
    ``by_footer`` returns the group of an opened file and its plan by footer, or None if unknown.
    """

    get: Callable[[], VersionedFile]
    constants: Constants
    rows: RowRanges | None = None
    planned: ScanPlan | None = None
    read: Callable[[], pa.Table | None] | None = None
    by_footer: Callable[[OpenedFile], tuple[FileGroup, ScanPlan] | None] | None = None

    @property
    def matches(self) -> RowRanges | None:
        """The matching rows, if they are known before the scan."""
        plan = self.planned
        return plan.rows if plan is not None and plan.reader == ROW_GROUPS else None

    def plan(self, file: OpenedFile, request: Request, leaves: Sequence[int] = ()) -> ScanPlan:
        """Returns the plan of ``file``, which its profile records, as ``plan_rows``."""
        group, after = self.known(file, request)
        plan = plan_group(group, request.pruning, after=after, leaves=leaves)
        file.profile.planned(plan)
        return plan

    def known(self, file: OpenedFile, request: Request) -> tuple[FileGroup, ScanPlan | None]:
        """Returns the group of ``file``, and its plan by footer, or None if unknown."""
        known = None if self.by_footer is None else self.by_footer(file)
        return known or (FileGroup([file], [self.constants], request.schema), None)


def scan_file(
    file: OpenedFile,
    request: Request,
    constants: Constants,
    rows: RowRanges | None = None,
    planned: ScanPlan | None = None,
) -> Generator[pa.Table]:
    """Yields the matching rows of one opened file. Parameters are the fields of ``Part``."""
    return scan([Part(lambda: as_current_version(file), constants, rows, planned)], request)


def scan(
    parts: Iterable[Part],
    request: Request,
    *,
    limit: int | None = None,
    use_threads: bool = True,
    is_far: bool = False,
    scan_statistics: ScanStatistics | None = None,
) -> Generator[pa.Table]:
    """Returns the matching rows of all ``parts``, in order, as tables of the requested columns.

    Stops after ``limit`` rows; the first units are small then. ``use_threads`` uses as many cores
    as pyarrow; each unit in progress takes some 50 MB. ``is_far`` means remote storage: then as
    many units are read ahead as pyarrow has I/O threads. Scans of the same request may share a
    ``scan_statistics``.
    """
    tables = _scan(
        parts, request, limit is not None, use_threads, is_far, scan_statistics or ScanStatistics()
    )
    return tables if limit is None else limited(tables, limit)


def limited(tables: Iterable[pa.Table], limit: int) -> Generator[pa.Table]:
    """Yields the first ``limit`` rows of ``tables``, and then stops pulling tables."""
    for table in tables if limit > 0 else ():
        # pyarrow's slice of a table without columns always has the requested length.
        part = table if table.num_rows <= limit else table.slice(0, limit)
        limit -= part.num_rows
        yield part
        if limit <= 0:
            return


def _scan(
    parts: Iterable[Part],
    request: Request,
    small_first: bool,
    use_threads: bool,
    is_far: bool,
    scan_statistics: ScanStatistics,
) -> Generator[pa.Table]:
    reads_ahead = use_threads and not (small_first and request.filter is None)
    ahead = files_ahead(is_far) if reads_ahead else 0
    attempts = (partial(_Attempt, part, request, use_threads, scan_statistics) for part in parts)
    attempts_in_order = in_order(attempts, ahead, is_far=is_far, is_little=has_known_matches)
    units = (_Unit(a, *unit) for a in attempts_in_order for unit in a.units(small_first))
    for result in in_order(
        units, ahead, is_far=is_far, weigh=_Unit.weight, is_little=_Unit.is_little
    ):
        attempt = result.attempt
        if attempt.is_failed:
            continue
        if result.table is None or not attempt.is_plan_valid():
            attempt.is_failed = True
            yield from attempt.replan(result.is_replaced)
            continue
        attempt.accept(result.table, result.stop)
        if result.table.num_rows:
            yield result.table


def files_ahead(is_far: bool) -> int:
    """Returns how many files or units are read ahead of the current one."""
    return int(pa.io_thread_count() if is_far else pa.cpu_count())


def has_known_matches(task: partial[Any]) -> bool:
    """True if the matching rows of the task's part are known already."""
    part: Part = task.args[0]
    return part.matches is not None


class _UnitResult(NamedTuple):
    """The result of a unit: its matching rows, up to row ``stop`` of the file, not included.

    ``table`` is None if pages contradict the index of the plan, or if the file was replaced.
    """

    attempt: _Attempt
    stop: int
    table: pa.Table | None
    is_replaced: bool = False


class _Attempt:
    """The scan of one part by its current plan.

    If pages contradict the plan, the remaining rows are planned again. If the file was replaced,
    the scan starts again, unless rows were returned already.
    """

    def __init__(
        self, part: Part, request: Request, use_threads: bool, scan_statistics: ScanStatistics
    ) -> None:
        self._part, self._request, self._use_threads = part, request, use_threads
        self._scan_statistics = scan_statistics
        self._file, self._answer = part.get()
        self._distrusted = self._file.page_indexes.distrusted
        self.next_row = 0
        """Rows before this one were returned. A new plan starts at this row."""
        self.is_failed = False
        self._read: Callable[[], pa.Table | None] | None = None
        self._tries = 1
        self._pin: object = None
        """Keeps the file handle open from the first to the last of several units."""
        if part.planned is None:
            self._plan()
            return
        self._rows, self._read = self._within(part.planned.rows), part.read
        if part.matches is not None:
            self._reader = UnitReader(
                self._file, request.without_filter, part.constants, scan_statistics
            )
        else:
            filter_roots = roots_of(self._file, request.filter_columns, request.schema)
            leaves = [i for root in filter_roots for i in root.leaves]
            try:
                load_page_indexes(self._file, self._rows, leaves)
                are_likely = part.planned.are_likely
                self._reader = UnitReader(
                    self._file, request, part.constants, scan_statistics, are_likely
                )
            except FileReplaced:
                self._renew()
                self._plan()

    @property
    def is_in_batch(self) -> bool:
        """True if this file is read in a multi-file batch."""
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
        """Leaves that the scan reads."""
        roots = roots_to_read(self._file, self._request, self._part.constants)
        return [leaf for root in roots for leaf in root.leaves]

    def _planned(self) -> RowRanges:
        request, file = self._request, self._file
        constants, pinned = self._part.constants, self._file.pin()
        roots = roots_to_read(file, request, constants) if file.request_bytes else ()
        leaves = [leaf for root in roots for leaf in root.leaves]
        with placed(Where(file.name)), file.profile.during(Activity.PLANNING):
            plan = self._part.plan(file, request, leaves)
        usage.count(request.filter, request.all_columns, file, plan.steps)
        self._reader = UnitReader(file, request, constants, self._scan_statistics, plan.are_likely)
        del pinned
        return self._within(plan.rows).clip(self.next_row, max(self._file.num_rows, self.next_row))

    def _within(self, rows: RowRanges) -> RowRanges:
        """Returns ``rows`` restricted to the part's rows, without damaged rows."""
        file, constants = self._file, self._part.constants
        if file.damage.places:
            roots = roots_to_read(file, self._request, constants)
            rows = rows - file.damage.rows_of(leaf for root in roots for leaf in root.leaves)
        return rows if self._part.rows is None else rows & self._part.rows

    def _renew(self) -> None:
        """Opens the file's current version.

        Raises ``FileReplaced`` if rows of the old version were returned, ``ChangesTooOften`` after
        ``MAX_VERSIONS_TRIED`` versions.
        """
        self._tries += 1
        if self._tries > MAX_VERSIONS_TRIED:
            raise ChangesTooOften(self._file.name)
        file, self._answer = self._part.get()
        if self.next_row or file is self._file:
            raise FileReplaced(file.name)
        self._file, self._pin = file, None

    def is_plan_valid(self) -> bool:
        """True if the plan's indexes are still trusted and the file was not replaced.

        Replacement is ignored once rows were returned. Otherwise the new file is opened.
        """
        return self._file.page_indexes.distrusted == self._distrusted and self._is_current()

    def _is_current(self) -> bool:
        if self.next_row or self._answer():
            return True
        self._renew()
        return False

    def units(self, small_first: bool) -> Iterator[tuple[UnitReader, RowRanges]]:
        """Yields the arguments of ``run`` for each unit."""
        while not self._rows and not self._is_current():
            self._plan()
        reader, file, rows, stop = self._reader, self._file, self._rows, 0
        if self.is_in_batch:
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
            yield reader, rows.clip(stop, file.num_rows)  # reading it fails again, in order

    def accept(self, table: pa.Table, stop: int) -> None:
        """Records that the rows before ``stop`` are read; ``table`` has the last matching ones."""
        self.next_row = stop
        self._file.profile.matched(table.num_rows)

    def run(self, reader: UnitReader, unit: RowRanges) -> _UnitResult:
        """Reads the matching rows of ``unit``."""
        stop, activity = int(unit.stops[-1]), reader.file.profile.during(Activity.OTHER)
        threads = nullcontext() if self._use_threads else one_thread()
        try:
            with threads, activity:
                table = None if self._read is None else self._read()
                if table is None:
                    with placed(Where(self._file.name)):
                        pinned = reader.file.pin()
                        table = reader.matching(unit)
                        del pinned
            return _UnitResult(self, stop, table)
        except PageIndexMistrust:
            return _UnitResult(self, stop, None)
        except FileReplaced:
            return _UnitResult(self, stop, None, is_replaced=True)

    def replan(self, is_replaced: bool) -> Iterator[pa.Table]:
        """Plans and reads the remaining rows, again whenever the plan turns out to be wrong."""
        while True:
            if is_replaced:
                self._renew()
            self._plan()
            for unit in self.units(small_first=False):
                result = self.run(*unit)
                is_replaced = result.is_replaced
                if result.table is None or not self.is_plan_valid():
                    break
                self.accept(result.table, result.stop)
                if result.table.num_rows:
                    yield result.table
            else:
                return


@dataclass(frozen=True, slots=True)
class _Unit:
    """A task: one unit of an attempt."""

    attempt: _Attempt
    reader: UnitReader
    rows: RowRanges

    def __call__(self) -> _UnitResult:
        return self.attempt.run(self.reader, self.rows)

    def is_little(self) -> bool:
        """True if the unit's file is read in a multi-file batch."""
        return self.attempt.is_in_batch

    def weight(self) -> float:
        """Returns about the most bytes that the unit reads from storage.

        With a memory limit, returns the estimated decoded bytes.
        """
        file = self.reader.file
        if self.attempt.is_in_batch:
            return 0.0  # read within the batch, in the caller's thread
        if has_limit():
            return max(usual_bytes(), decoded_rows_bytes(file, self.rows, self.attempt.leaves))
        return file.source.size * self.rows.num_rows / file.num_rows
