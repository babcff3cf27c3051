"""Plans and explanations of queries over many files. A plan reads no more than indexes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from intarsia.dataset.engine_hand_over import HandOver, hand_over
from intarsia.dataset.explain_accounts import account_of, read_of
from intarsia.dataset.request_builder import Columns, scan_request
from intarsia.dataset.scan_source import ScanSource
from intarsia.expr.tree import shown
from intarsia.file.byte_map import map_of
from intarsia.file.open_file import OpenedFile, read_one_version, retry_while_replaced
from intarsia.io.storage import gap_bytes
from intarsia.plan.explanation import Explanation
from intarsia.plan.file_account import FileAccount
from intarsia.plan.plan import FilePlan, Plan, Step
from intarsia.pruning.partition_pruning import Constants
from intarsia.row_ranges import RowRanges
from intarsia.scan.file_planner import folder_might_match, plan_rows
from intarsia.scan.files.file_cache import FileCache
from intarsia.scan.files.file_pruning import (
    CandidateFile,
    File,
    in_folders,
    prune_files,
    run_file_tasks,
)
from intarsia.scan.read_estimate import plan_reads
from intarsia.scan.request import FilterLike, Request
from intarsia.scan.schema_adapter import roots_to_read
from intarsia.scan.unit_reader import ScanStatistics


def planned_request(source: ScanSource, columns: Columns, filter_: FilterLike) -> Request:
    """Returns the request for a query, with the data set's own filter."""
    return scan_request(source.schema, columns, source.filter_with(filter_)).request


def plan_files(source: ScanSource, request: Request) -> Plan:
    """Returns the plan of all files but those in folders that cannot match, which are not opened.

    Issues the warnings about the files.
    """
    cache, gap = source.cache, gap_bytes(source.filesystem)

    def planned(file: File) -> FilePlan:
        def plan(opened: OpenedFile) -> FilePlan:
            return _plan_file(opened, file.constants, request, gap)

        return read_one_version(partial(cache.lease, file.path), plan)

    candidates = list(in_folders(source.files, request.pruning))
    left = _left(cache, candidates, request)
    plan = Plan.of(run_file_tasks(cache, (partial(planned, file) for file in left)))
    if len(left) == len(candidates):
        cache.health.tell()
        return plan
    assert cache.catalog is not None
    open_paths = {file.path for file in left}
    cut = cache.catalog.figures(file for file in candidates if file.path not in open_paths)
    cache.health.tell()
    return replace(plan, figures=plan.figures + cut)


def plan_files_left(source: ScanSource, request: Request) -> Plan:
    """Returns the plan of only those files that a scan reads.

    The figures are those of these files, without a count of pages. Issues the warnings about the
    files.
    """
    cache, gap = source.cache, gap_bytes(source.filesystem)

    def planned(candidate: CandidateFile) -> FilePlan | None:
        constants = candidate.file.constants

        def plan(opened: OpenedFile) -> FilePlan | None:
            candidates = plan_rows(opened, request.pruning, constants, request.schema)
            if not candidates.rows:
                return None
            roots = roots_to_read(opened, request, constants)
            return plan_reads(opened, roots, candidates, constants, gap, count_pages=False)

        return read_one_version(candidate.part.get, plan)

    left = prune_files(cache, source.files, replace(request, columns=()))  # this plans only
    plans = run_file_tasks(cache, (partial(planned, candidate) for candidate in left))
    plan = Plan.of(plan for plan in plans if plan is not None)
    cache.health.tell()
    return plan


def _left(cache: FileCache, files: list[File], request: Request) -> list[File]:
    """Returns the files that the catalog cannot rule out; all files without a catalog."""
    if cache.catalog is None or request.filter is None:
        return files
    return cache.catalog.left(files, request)


def explain_query(
    source: ScanSource, columns: Columns, filter_: FilterLike, *, analyze: bool, maps: int
) -> Explanation:
    """Returns the explanation of a query over files that are opened anew, and the reader for it.

    Issues the warnings about the files. The parameters are those of ``Dataset.explain``.
    """
    request, gap = planned_request(source, columns, filter_), gap_bytes(source.filesystem)
    filter_text = filter_ if isinstance(filter_, str) and source.filter is None else None
    cache = source.cache.anew()
    explained = _explain_files(cache, source.files, request, gap, analyze, maps, filter_text)
    condition = None if request.filter is None else request.filter.condition.expression
    handed = hand_over(source, request.all_columns, condition)
    source.cache.health.tell()
    if isinstance(handed, HandOver):
        return replace(explained, reader="engine", reason=handed.reason)
    return replace(explained, reader="pages", reason=handed)


def _explain_files(
    cache: FileCache,
    files: Sequence[File],
    request: Request,
    gap: int,
    analyze: bool,
    maps: int,
    filter_text: str | None,
) -> Explanation:
    """Returns the accounts of all ``files``. With ``analyze``, reads one file after the other.

    The first ``maps`` files in which rows are left have a map of their pages. ``filter_text`` is
    the filter as the caller wrote it; if None, pyarrow's Expression is shown.
    """
    scan_statistics = ScanStatistics() if analyze else None
    left = {file.path for file in _left(cache, list(in_folders(files, request.pruning)), request)}
    accounts = []
    for file in files:
        if file.path not in left and folder_might_match(request.pruning, file.constants):
            accounts.append(_cut(cache, file))
            continue
        account = _account(cache, file, request, gap, scan_statistics, is_mapped=maps > 0)
        maps -= account.map is not None
        accounts.append(account)
    if filter_text is None:
        filter_text = (
            "none" if request.filter is None else shown(request.filter.condition.expression)
        )
    return Explanation(tuple(accounts), filter_text, request.all_columns, analyze)


def _cut(cache: FileCache, file: File) -> FileAccount:
    """Returns the account of a file that the catalog rules out. The file is not opened."""
    assert cache.catalog is not None
    figures, steps = cache.catalog.figures([file]), (Step("catalog", 0, 0),)
    plan = FilePlan(file.path, "", RowRanges.none(), dict(file.constants), (), steps, figures, ())
    return FileAccount(plan)


def _account(
    cache: FileCache,
    file: File,
    request: Request,
    gap: int,
    scan_statistics: ScanStatistics | None,
    *,
    is_mapped: bool,
) -> FileAccount:
    """Returns a file's account. With ``scan_statistics`` of earlier files, the file is read too."""

    def planned(opened: OpenedFile) -> FileAccount:
        return _planned(opened, file, request, gap, is_mapped=is_mapped)

    account = read_one_version(partial(cache.lease, file.path), planned)
    if scan_statistics is None or not folder_might_match(request.pruning, file.constants):
        return account
    plan = account.plan
    read = partial(read_of, cache, file.path, request, file.constants, plan, scan_statistics)
    return replace(account, read=retry_while_replaced(file.path, read))


def _planned(
    opened: OpenedFile, file: File, request: Request, gap: int, *, is_mapped: bool
) -> FileAccount:
    """Returns a file's account, without figures of a read."""
    plan = _plan_file(opened, file.constants, request, gap)
    if not folder_might_match(request.pruning, file.constants):
        return FileAccount(replace(plan, steps=(Step("folders", 0, 0),)))
    account = account_of(opened, request, plan)
    if is_mapped and plan.rows:
        leaves = list(dict.fromkeys(read.leaf for read in plan.reads))
        mapped = map_of(opened, leaves, with_indexes=request.filter is not None)
        account = replace(account, map=mapped)
    return account


def _plan_file(opened: OpenedFile, constants: Constants, request: Request, gap: int) -> FilePlan:
    candidates = plan_rows(opened, request.pruning, constants, request.schema)
    return plan_reads(opened, roots_to_read(opened, request, constants), candidates, constants, gap)
