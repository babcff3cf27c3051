"""Plans and explanations of queries over many files. A plan reads no more than indexes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import pyarrow.compute as pc

from intarsia.dataset.engine_hand_over import HandOver, hand_over
from intarsia.dataset.explain_accounts import account_of, reads_of, unindexed_columns
from intarsia.dataset.request_builder import Columns, scan_request
from intarsia.dataset.scan_source import ScanSource
from intarsia.expr.tree import shown
from intarsia.file.open_file import OpenedFile, read_one_version
from intarsia.io.storage import gap_bytes
from intarsia.plan.explanation import Explanation
from intarsia.plan.file_account import ENGINE, PAGES, EngineReads, FileAccount, QueryRun
from intarsia.plan.plan import Amount, Figures, FilePlan, Plan
from intarsia.plan.planner import plan_rows
from intarsia.pruning.partition_pruning import Constants
from intarsia.scan.files.file_pruning import (
    CandidateFile,
    File,
    in_folders,
    prune_files,
    prune_unopened,
    run_file_tasks,
)
from intarsia.scan.read_estimate import plan_reads
from intarsia.scan.request import FilterLike, Request
from intarsia.scan.schema_adapter import roots_to_read


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

    left = list(prune_unopened(cache, source.files, request))
    plan = Plan.of(run_file_tasks(cache, (partial(planned, file) for file in left)))
    if cache.catalog is not None:
        open_paths = {file.path for file in left}
        in_catalog = in_folders(source.files, request.pruning)
        cut = [file for file in in_catalog if file.path not in open_paths]
        plan = replace(plan, figures=plan.figures + cache.catalog.figures(cut)) if cut else plan
    cache.health.tell()
    return plan


def plan_files_left(source: ScanSource, request: Request) -> Plan:
    """Returns the plan of only those files that a scan reads.

    The figures are those of these files, without a count of pages. Issues the warnings about the
    files.
    """
    cache, gap = source.cache, gap_bytes(source.filesystem)

    def planned(candidate: CandidateFile) -> FilePlan | None:
        constants = candidate.file.constants

        def plan(opened: OpenedFile) -> FilePlan | None:
            candidates = candidate.part.plan(opened, request)
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


def explain_query(
    source: ScanSource,
    request: Request,
    filter_text: str | None,
    *,
    run: Callable[[ScanSource], QueryRun] | None,
    maps: int,
) -> Explanation:
    """Returns the explanation of a query over files that are opened anew.

    ``filter_text`` is the filter as the caller wrote it; with None pyarrow's Expression is shown.
    ``run`` runs the query on a source of these files; with None it is only planned. The first
    ``maps`` files in which rows are left have a map of their pages. Issues the warnings about the
    files.
    """
    profiled = source.profiled()
    if run is None:
        _plan_candidates(profiled, request)
        query_run = None
    else:
        query_run = run(profiled)
    if filter_text is None:
        filter_text = _text_of(_expression_of(request))
    return explanation_of(profiled, request, filter_text, query_run, maps=maps)


def _expression_of(request: Request) -> pc.Expression | None:
    return None if request.filter is None else request.filter.condition.expression


def explanation_of(
    source: ScanSource,
    request: Request,
    filter_text: str,
    query_run: QueryRun | None,
    *,
    maps: int = 0,
    engine_reads: EngineReads | None = None,
) -> Explanation:
    """Returns the explanation of a query that was planned, or run, on a profiled ``source``.

    Without ``engine_reads``, an engine's reads are those of its plan. Other parameters are those of
    ``explain_query``.
    """
    cache = source.cache
    reads = reads_of(cache) if query_run is not None else {}
    accounts = []
    for file in source.files:
        account = _account(source, file, request, query_run, is_mapped=maps > 0)
        maps -= account.map is not None
        read = reads.get(file.path, account.read)
        if read is not None and account.reader == ENGINE:
            read = replace(read, figures=_with_engine(read.figures, account.plan.figures))
        accounts.append(account if read is account.read else replace(account, read=read))
    source.cache.health.tell()
    other_reads = [(0, 0)]
    if query_run is not None and cache.engine_scans:
        engine_reads = engine_reads or _planned_reads(accounts)
        other_reads = [(engine_reads.requests, engine_reads.bytes)]
        query_run = replace(query_run, num_rows=query_run.num_rows + engine_reads.rows)
    if cache.catalog is not None:
        other_reads.append((cache.catalog.count.requests, cache.catalog.count.bytes))
    return Explanation(
        tuple(accounts),
        filter_text,
        request.all_columns,
        unindexed=unindexed_columns(cache, accounts, request),
        run=query_run,
        other_reads=(sum(n for n, _ in other_reads), sum(size for _, size in other_reads)),
    )


def _account(
    source: ScanSource, file: File, request: Request, run: QueryRun | None, *, is_mapped: bool
) -> FileAccount:
    """Returns ``account_of`` a file. If it was replaced since it was planned, plans it again.

    If the query was run, the file's page indexes are cached, or it counts as read whole.
    """

    def account(opened: OpenedFile) -> FileAccount:
        if not opened.profile.is_planned:
            plan_rows(opened, request.pruning, file.constants, request.schema)
        return account_of(source, file, request, None, is_mapped=is_mapped)

    if run is not None or file.path not in source.cache.profiled:
        return account_of(source, file, request, run, is_mapped=is_mapped)
    return read_one_version(partial(source.cache.lease, file.path), account)


def _with_engine(read: Figures, planned: Figures) -> Figures:
    """Returns what was read of a file, with the row groups and pages that an engine read."""
    groups = Amount(planned.row_groups.selected, read.row_groups.total)
    return replace(read, row_groups=groups, pages=Amount(planned.pages.selected))


def _planned_reads(accounts: Sequence[FileAccount]) -> EngineReads:
    """Returns the planned reads of the files that an engine reads."""
    figures = [account.plan.figures for account in accounts if account.reader == ENGINE]
    total = Figures.sum(figures)
    return EngineReads(total.requests.selected, total.bytes.selected, total.rows.selected)


def explain_scan(
    source: ScanSource, columns: Sequence[str], filter_: pc.Expression | None, limit: int | None
) -> Explanation:
    """Returns the explanation of an engine's scan, which its own reader may do.

    The parameters are those of ``hand_over``. Issues the warnings about the files.
    """
    profiled = source.profiled()
    request = planned_request(profiled, list(columns), filter_)
    handed = hand_over(profiled, columns, filter_, limit)
    if isinstance(handed, str):
        _plan_candidates(profiled, request)
    explained = explanation_of(profiled, request, _text_of(filter_), None)
    if isinstance(handed, str):
        return replace(explained, reader=PAGES, reason=handed)
    return replace(explained, reader=ENGINE, reason=handed.reason)


def _text_of(filter_: pc.Expression | None) -> str:
    """Returns the text of a filter in an explanation."""
    return "none" if filter_ is None else shown(filter_)


def explain_by_file(
    source: ScanSource, columns: Sequence[str], filter_: pc.Expression | None
) -> Explanation:
    """Returns the explanation of a query whose files are read one by one, as by Spark's tasks.

    Issues the warnings about the files.
    """
    profiled = source.profiled()
    request = planned_request(profiled, list(columns), filter_)
    _plan_candidates(profiled, request, by_file=True)
    return explanation_of(profiled, request, _text_of(filter_), None)


def engine_of(source: ScanSource, request: Request) -> tuple[str, str]:
    """Returns which reader an engine such as DuckDB uses for a query, and why."""
    handed = hand_over(source, request.all_columns, _expression_of(request))
    return (ENGINE, handed.reason) if isinstance(handed, HandOver) else (PAGES, handed)


def _plan_candidates(source: ScanSource, request: Request, *, by_file: bool = False) -> None:
    """Plans the files that a scan opens. Their profiles record the steps.

    ``by_file`` plans small files one by one, as Spark's tasks read them.
    """

    def planned(candidate: CandidateFile) -> None:
        def plan(opened: OpenedFile) -> None:
            if by_file:
                opened.profile.together(False)
            if not opened.profile.is_together:
                candidate.part.plan(opened, request)

        read_one_version(candidate.part.get, plan)

    left = prune_files(source.cache, source.files, request, by_footer=True)
    for _ in run_file_tasks(source.cache, (partial(planned, candidate) for candidate in left)):
        pass


def _plan_file(opened: OpenedFile, constants: Constants, request: Request, gap: int) -> FilePlan:
    candidates = plan_rows(opened, request.pruning, constants, request.schema)
    return plan_reads(opened, roots_to_read(opened, request, constants), candidates, constants, gap)
