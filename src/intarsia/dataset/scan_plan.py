"""The plan of a scan over many files: which files are left, and which rows of each.

Scans, counts, plans, explanations, fragments and hand-overs to engines take their files from
``prune_files``, and their candidate rows from ``Part.plan``. So all of them read the same rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import TypeVar

from intarsia.dataset.request_builder import Columns, check_columns, scan_request
from intarsia.dataset.scan_source import ScanSource
from intarsia.file.open_file import OpenedFile, read_one_version
from intarsia.io.storage import gap_bytes
from intarsia.plan.plan import ROW_GROUPS, FilePlan, Plan, ScanPlan
from intarsia.scan.files.file_pruning import (
    CandidateFile,
    File,
    in_log,
    prune_files,
    run_file_tasks,
)
from intarsia.scan.read_estimate import plan_reads
from intarsia.scan.request import FilterLike, Request
from intarsia.scan.schema_adapter import roots_to_read

T = TypeVar("T")


def planned_request(source: ScanSource, columns: Columns, filter_: FilterLike) -> Request:
    """Returns the request for a query, with the data set's own filter."""
    check_columns(source.schema, columns)
    return scan_request(source.schema, columns, source.filter_with(filter_)).request


def each_planned(
    source: ScanSource,
    request: Request,
    act: Callable[[File, OpenedFile, ScanPlan], T],
    *,
    only_left: bool = False,
) -> Iterator[T]:
    """Yields ``act(file, opened, plan)`` for each file that is opened, in order.

    With ``only_left``, small files are filtered as by a scan, and files that are excluded together
    with others are left out. Plans a file again if it is replaced meanwhile. Threads plan files on
    remote storage ahead.
    """

    def planned(candidate: CandidateFile) -> T:
        def plan(opened: OpenedFile) -> T:
            return act(candidate.file, opened, candidate.part.plan(opened, request))

        return read_one_version(candidate.part.get, plan)

    cache, is_whole = source.cache, not only_left
    candidates = prune_files(
        cache, source.files, request, by_footer=is_whole, keeps_excluded=is_whole
    )
    return run_file_tasks(cache, (partial(planned, candidate) for candidate in candidates))


def plan_candidates(source: ScanSource, request: Request, *, by_file: bool = False) -> None:
    """Plans the files that a scan of a profiled ``source`` opens. Their profiles record the plans.

    ``by_file`` plans small files one by one, as Spark's tasks read them.
    """

    def planned(candidate: CandidateFile) -> None:
        def plan(opened: OpenedFile) -> None:
            known = opened.profile.plan
            if by_file or known is None or known.reader != ROW_GROUPS:
                candidate.part.plan(opened, request)

        read_one_version(candidate.part.get, plan)

    candidates = prune_files(source.cache, source.files, request, by_footer=True)
    for _ in run_file_tasks(source.cache, (partial(planned, one) for one in candidates)):
        pass


def count_candidates(source: ScanSource, filter_: FilterLike) -> int:
    """Returns how many rows may match, by footers and indexes."""
    request = planned_request(source, [], filter_)
    return sum(each_planned(source, request, lambda _file, _opened, plan: plan.rows.num_rows))


def plan_files(source: ScanSource, request: Request, *, only_left: bool = False) -> Plan:
    """Returns the plan of all files but those in folders that cannot match, which are not opened.

    With ``only_left``, the plan and its figures are those of the files that a scan reads, without a
    count of pages. Issues the warnings about the files.
    """
    cache, gap, opened_files = source.cache, gap_bytes(source.filesystem), set[str]()

    def planned(file: File, opened: OpenedFile, plan: ScanPlan) -> FilePlan | None:
        opened_files.add(file.path)
        if only_left and not plan.rows:
            return None
        roots = roots_to_read(opened, request, file.constants) if plan.rows else ()
        return plan_reads(opened, roots, plan, file.constants, gap, count_pages=not only_left)

    plans = each_planned(
        source, replace(request, columns=()) if only_left else request, planned, only_left=only_left
    )
    plan = Plan.of(plan for plan in plans if plan is not None)
    if cache.catalog is not None and not only_left:
        in_catalog = in_log(cache, source.files, request)
        cut = [file for file in in_catalog if file.path not in opened_files]
        plan = replace(plan, figures=plan.figures + cache.catalog.figures(cut)) if cut else plan
    cache.health.tell()
    return plan
