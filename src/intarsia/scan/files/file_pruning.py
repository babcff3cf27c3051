"""Prunes files of a data set before they are planned, many at a time.

A condition is compared at once with the row-group statistics of some hundred files. This takes
little longer than for one file. Small files that are left pass the small-file filter. Files on
remote storage are opened by threads.
"""

from __future__ import annotations

import contextlib
import itertools
import operator
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple, TypeVar

import numpy as np
import pyarrow as pa

import intarsia.usage_counts.usage as usage
from intarsia.errors import IntarsiaError
from intarsia.file.open_file import READ_ERRORS, OpenedFile, VersionedFile
from intarsia.plan.cost_model import COSTS
from intarsia.plan.file_group import FileGroup, file_groups
from intarsia.plan.plan import ROW_GROUPS, ScanPlan
from intarsia.plan.planner import plan_group
from intarsia.pruning.partition_pruning import Constants, folder_might_match
from intarsia.pruning.predicates import Never, Pruning, predicates_of
from intarsia.row_ranges import RowRanges
from intarsia.scan.files.file_cache import FileCache
from intarsia.scan.files.small_file_filter import matching_rows, small_files_of
from intarsia.scan.files.small_file_reader import Read, readers
from intarsia.scan.request import Request
from intarsia.scan.scan import Part
from intarsia.threads import run_io_tasks

T = TypeVar("T")

SMALL_FILE_FILTER = "filter of small files"
"""Name of the step that decodes the filter's columns of many files together."""


class File(NamedTuple):
    """A file of a data set with its partition values."""

    path: str
    constants: Constants


class _Verdict(NamedTuple):
    """True if a file might match, and what is known of its plan: see ``Part``."""

    might_match: bool = True
    planned: ScanPlan | None = None
    read: Read | None = None
    by_footer: Callable[[OpenedFile], tuple[FileGroup, ScanPlan] | None] | None = None


class CandidateFile(NamedTuple):
    """A file that might hold matching rows, and its part of the scan."""

    file: File
    part: Part


def prune_files(
    cache: FileCache,
    files: Sequence[File],
    request: Request,
    *,
    by_footer: bool = False,
    keeps_excluded: bool = False,
) -> Iterator[CandidateFile]:
    """Yields the ``files`` that might hold matching rows, in order.

    ``by_footer`` uses only footers, and finds no matching rows. ``keeps_excluded`` yields files
    that were opened and excluded as well; their plans have no rows. Files whose partition values
    cannot match are not opened. Few files, and files that are checked for damage, are not pruned
    further. A file that cannot be opened is yielded; reading it raises the error.
    """
    if request.filter is None or len(files) < COSTS.least_files or cache.options.looks_for_damage:
        for file in in_log(cache, files, request):
            yield CandidateFile(file, Part(partial(cache.lease, file.path), file.constants))
        return
    candidates, candidates_again = itertools.tee(prune_unopened(cache, files, request))
    leases = run_file_tasks(cache, (partial(_lease, cache, file.path) for file in candidates_again))
    try:
        size = COSTS.first_batch_files
        while batch := list(itertools.islice(zip(candidates, leases, strict=False), size)):
            yield from _candidates(cache, batch, request, by_footer, keeps_excluded)
            size = min(2 * size, COSTS.batch_files)
    finally:
        leases.close()


def prune_unopened(cache: FileCache, files: Sequence[File], request: Request) -> Iterator[File]:
    """Returns the ``files`` that might match by partition values, their table and the catalog.

    The catalog is not used for few files: opening them takes less time.
    """
    candidates = in_log(cache, files, request)
    if cache.catalog is None or request.filter is None or len(files) < COSTS.least_files:
        return candidates
    left = list(candidates)
    return iter(cache.catalog.files_left(files, left if len(left) < len(files) else files, request))


def in_log(cache: FileCache, files: Sequence[File], request: Request) -> Iterator[File]:
    """Yields the ``files`` that might match by partition values and the statistics of a table.

    The log excludes no file that is checked for damage.
    """
    candidates = in_folders(files, request.pruning)
    statistics = None if cache.table is None else cache.table.statistics
    if statistics is None or request.filter is None or cache.options.looks_for_damage:
        return iter(candidates)
    return iter(statistics.files_left(candidates, request.pruning, request.schema))


def in_folders(files: Sequence[File], pruning: Pruning) -> Iterable[File]:
    """Returns the ``files`` that might match by partition values."""
    if not any(map(_constants, files)):
        return () if isinstance(pruning, Never) else files
    return _in_partitions(files, pruning)


_constants = operator.attrgetter("constants")


def _in_partitions(files: Iterable[File], pruning: Pruning) -> Iterator[File]:
    filter_columns = {path[0] for test in predicates_of(pruning) for path in test.term.fields}
    verdicts: dict[tuple[tuple[str, pa.Scalar], ...], bool] = {}
    for file in files:
        key = tuple(item for item in file.constants.items() if item[0] in filter_columns)
        if key not in verdicts:
            verdicts[key] = folder_might_match(pruning, file.constants)
        if verdicts[key]:
            yield file


def run_file_tasks(cache: FileCache, tasks: Iterable[Callable[[], T]]) -> Generator[T]:
    """Yields the results of tasks in order. On remote storage threads run them ahead."""
    return (task() for task in tasks) if cache.is_local else run_io_tasks(tasks)


def _lease(cache: FileCache, path: str) -> VersionedFile | None:
    """Returns the file's handle; None on failure, because reading the file raises the error."""
    try:
        return cache.lease(path)
    except (IntarsiaError, OSError):
        return None


def _candidates(
    cache: FileCache,
    batch: Sequence[tuple[File, VersionedFile | None]],
    request: Request,
    by_footer: bool,
    keeps_excluded: bool,
) -> Iterator[CandidateFile]:
    opened = [(file, lease) for file, lease in batch if lease is not None]
    verdicts = iter(_might_match(cache, opened, request, by_footer))
    for file, lease in batch:
        again = partial(cache.lease, file.path)
        verdict = _Verdict() if lease is None else next(verdicts)
        if lease is not None and (verdict.might_match or keeps_excluded):
            _, planned, read, known = verdict
            part = Part(first_of(lease, again), file.constants, None, planned, read, known)
            yield CandidateFile(file, part)
        elif lease is None or not (cache.is_local or lease.is_current()):
            yield CandidateFile(file, Part(again, file.constants))


def first_of(
    lease: VersionedFile, again: Callable[[], VersionedFile]
) -> Callable[[], VersionedFile]:
    """Returns a function that returns ``lease`` once, and calls ``again`` after that."""
    leases = [lease]
    return lambda: leases.pop() if leases else again()


def _might_match(
    cache: FileCache,
    opened: Sequence[tuple[File, VersionedFile]],
    request: Request,
    by_footer: bool,
) -> list[_Verdict]:
    """Returns a verdict on each file. Files of one footer layout are planned together."""
    verdicts = [_Verdict()] * len(opened)
    files = [lease.file for _, lease in opened]
    constants = [file.constants for file, _ in opened]
    for positions, group in file_groups(files, constants, request.schema):
        group.size_factors = cache.size_factors.setdefault(group.file.shape, {})
        with contextlib.suppress(*READ_ERRORS):  # planning the files one by one reports the error
            for at, verdict in zip(positions, _verdicts(group, request, by_footer), strict=True):
                verdicts[at] = verdict
    return verdicts


def _verdicts(group: FileGroup, request: Request, by_footer: bool) -> list[_Verdict]:
    """Returns a verdict on each file of a group.

    Footers are used first, then the values of small files. Files in which all rows match are
    decoded only if columns are requested, because their rows are then read together.
    """
    plan = plan_group(group, request.pruning, by_footer=True)
    might_match = group.files_of(plan.rows)
    known, reads, recorded = dict[int, ScanPlan](), dict[int, Read](), dict[int, ScanPlan]()
    is_recording, is_local = group.file.profile.is_recording, not group.file.request_bytes
    decodes = is_local and (is_recording or not by_footer)
    if request.filter and decodes and might_match.sum() >= COSTS.least_files:
        escapes = plan_group(group, request.filter.escapes, within=plan.rows, by_footer=True)
        unsure = group.files_of(escapes.rows)
        decoded = np.flatnonzero(might_match if request.columns else unsure).tolist()
        if by_footer:
            small = small_files_of(group, decoded, request.filter)[0]
            recorded = {i: replace(group.plan_in_file(i, plan), reader=ROW_GROUPS) for i in small}
        else:
            matches = matching_rows(group, decoded, request.filter)
            reads = readers(group, matches, request)
            for number, rows in matches.items():
                known[number] = ScanPlan(rows, ((SMALL_FILE_FILTER, rows),), ROW_GROUPS)
                might_match[number] = rows.starts.size > 0
        unsure[[*known]] = False
        if not by_footer and unsure.sum() >= COSTS.least_files:
            large = group.rows_of_files(unsure)
            left = plan_group(group, request.pruning, within=large, after=plan)
            usage.count(request.filter, request.all_columns, group.file, left.steps)
            might_match[unsure] = group.files_of(left.rows)[unsure]
            if is_recording:
                numbers = np.flatnonzero(unsure).tolist()
                recorded = {number: group.plan_in_file(number, left) for number in numbers}
    if is_recording:
        _record(group, plan, recorded | known)
    return [
        _Verdict(is_left, known.get(i), reads.get(i), partial(_in_file, plan, group, i))
        for i, is_left in enumerate(might_match.tolist())
    ]


def _record(group: FileGroup, plan: ScanPlan, plans: Mapping[int, ScanPlan]) -> None:
    """Records each file's plan in its profile: one of ``plans``, else that of the group."""
    none = RowRanges.none()
    excluded = ScanPlan(none, tuple([(source, none) for source, _ in plan.steps]))
    are_left = group.files_of(plan.rows).tolist()
    for number, (file, is_left) in enumerate(zip(group.files, are_left, strict=True)):
        if number in plans:
            own = plans[number]
        else:
            own = group.plan_in_file(number, plan) if is_left else excluded
        file.profile.planned(own)


def _in_file(
    plan: ScanPlan, group: FileGroup, number: int, file: OpenedFile
) -> tuple[FileGroup, ScanPlan] | None:
    """Returns one file of a group and its plan; None if ``file`` is another version of it."""
    if group.files[number] is not file:
        return None
    return group.only(number), group.plan_in_file(number, plan)
