"""Plans and explanations of queries over many files, which read no more than indexes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from intarsia.dataset.engine_hand_over import HandOver, hand_over
from intarsia.dataset.explain_accounts import account_of, read_of
from intarsia.dataset.request_builder import Columns, asked
from intarsia.dataset.scan_source import ScanSource
from intarsia.expr.tree import shown
from intarsia.file.byte_map import map_of
from intarsia.file.open_file import OpenedFile, of_one_version, until_whole
from intarsia.io.storage import gap_bytes
from intarsia.plan.explanation import Explanation
from intarsia.plan.file_account import FileAccount
from intarsia.plan.plan import FilePlan, Plan, Step
from intarsia.pruning.partition_pruning import Constants
from intarsia.row_ranges import RowRanges
from intarsia.scan.file_planner import folder_might_match, plan_rows
from intarsia.scan.files.file_cache import FileCache
from intarsia.scan.files.file_pruning import File, Kept, each_of, files_left, in_folders
from intarsia.scan.read_estimate import plan_reads
from intarsia.scan.request import FilterLike, Request
from intarsia.scan.schema_adapter import roots_to_read
from intarsia.scan.unit_reader import Trend


def planned_request(source: ScanSource, columns: Columns, filter_: FilterLike) -> Request:
    """Returns the request for a query, with the data set's own filter."""
    return asked(source.schema, columns, source.filter_with(filter_)).request


def plan_files(source: ScanSource, request: Request) -> Plan:
    """The plan of all files, less those of folders that cannot match, which are not opened.

    Afterwards what was noticed about the files is warned of.
    """
    cache, gap = source.cache, gap_bytes(source.filesystem)

    def planned(file: File) -> FilePlan:
        def plan(opened: OpenedFile) -> FilePlan:
            return _plan_file(opened, file.constants, request, gap)

        return of_one_version(partial(cache.lease, file.path), plan)

    wanted = list(in_folders(source.files, request.pruning))
    left = _left(cache, wanted, request)
    plan = Plan.of(each_of(cache, (partial(planned, file) for file in left)))
    if len(left) == len(wanted):
        cache.health.tell()
        return plan
    assert cache.catalog is not None
    kept = {file.path for file in left}
    cut = cache.catalog.figures(file for file in wanted if file.path not in kept)
    cache.health.tell()
    return replace(plan, figures=plan.figures + cut)


def plan_files_left(source: ScanSource, request: Request) -> Plan:
    """The plan of the files that are left: what a scan would leave out is not planned.

    Figures are those of files in which rows are left, and count no pages. Afterwards what was
    noticed about the files is warned of.
    """
    cache, gap = source.cache, gap_bytes(source.filesystem)

    def planned(kept: Kept) -> FilePlan | None:
        constants = kept.file.constants

        def plan(opened: OpenedFile) -> FilePlan | None:
            candidates = plan_rows(opened, request.pruning, constants, request.schema)
            if not candidates.rows:
                return None
            roots = roots_to_read(opened, request, constants)
            return plan_reads(opened, roots, candidates, constants, gap, count_pages=False)

        return of_one_version(kept.part.get, plan)

    left = files_left(cache, source.files, replace(request, columns=()))  # none is read now
    plans = each_of(cache, (partial(planned, kept) for kept in left))
    plan = Plan.of(plan for plan in plans if plan is not None)
    cache.health.tell()
    return plan


def _left(cache: FileCache, files: list[File], request: Request) -> list[File]:
    """Those that the catalog, where there is one, leaves to be looked into."""
    if cache.catalog is None or request.filter is None:
        return files
    return cache.catalog.left(files, request)


def explain_query(
    source: ScanSource, columns: Columns, filter_: FilterLike, *, analyze: bool, maps: int
) -> Explanation:
    """The explanation of a query over files that are opened afresh, and who would read them.

    Afterwards what was noticed about the files is warned of.
    """
    request, gap = planned_request(source, columns, filter_), gap_bytes(source.filesystem)
    told = filter_ if isinstance(filter_, str) and source.filter is None else None
    cache = source.cache.anew()
    explained = _explain_files(cache, source.files, request, gap, analyze, maps, told)
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
    told: str | None,
) -> Explanation:
    """Accounts of all ``files``; with ``analyze`` each is read, one after the other.

    As many as ``maps``, the first in which rows are left, have a map. The filter is shown as it was
    ``told``, else as pyarrow's.
    """
    trend = Trend() if analyze else None
    left = {file.path for file in _left(cache, list(in_folders(files, request.pruning)), request)}
    accounts = []
    for file in files:
        if file.path not in left and folder_might_match(request.pruning, file.constants):
            accounts.append(_cut(cache, file))
            continue
        account = _account(cache, file, request, gap, trend, is_mapped=maps > 0)
        maps -= account.map is not None
        accounts.append(account)
    if told is None:
        told = "none" if request.filter is None else shown(request.filter.condition.expression)
    return Explanation(tuple(accounts), told, request.all_columns, analyze)


def _cut(cache: FileCache, file: File) -> FileAccount:
    """A file that the catalog leaves out, which is not opened."""
    assert cache.catalog is not None
    figures, steps = cache.catalog.figures([file]), (Step("catalog", 0, 0),)
    plan = FilePlan(file.path, "", RowRanges.none(), dict(file.constants), (), steps, figures, ())
    return FileAccount(plan)


def _account(
    cache: FileCache,
    file: File,
    request: Request,
    gap: int,
    trend: Trend | None,
    *,
    is_mapped: bool,
) -> FileAccount:
    """A file's account, with what is read of it where there is a ``trend`` of what was before."""

    def planned(opened: OpenedFile) -> FileAccount:
        return _planned(opened, file, request, gap, is_mapped=is_mapped)

    account = of_one_version(partial(cache.lease, file.path), planned)
    if trend is None or not folder_might_match(request.pruning, file.constants):
        return account
    plan = account.plan
    read = partial(read_of, cache, file.path, request, file.constants, plan, trend)
    return replace(account, read=until_whole(file.path, read))


def _planned(
    opened: OpenedFile, file: File, request: Request, gap: int, *, is_mapped: bool
) -> FileAccount:
    """A file's account without what is read of it."""
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
