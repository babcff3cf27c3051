"""Explanations of queries over many files: the plan of each file, and what was read of it.

A query is planned, or run, on a cache whose files have profiles. These keep the ``ScanPlan``
of each file, which a reader executes, and what it reads. An explanation prints both.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import pyarrow.compute as pc

from intarsia.dataset.engine_hand_over import HandOver, Refusal, hand_over
from intarsia.dataset.explain_remarks import remarks_on, unindexed_columns
from intarsia.dataset.scan_plan import plan_candidates, planned_request
from intarsia.dataset.scan_source import ScanSource
from intarsia.expr.tree import shown
from intarsia.file.byte_map import map_of
from intarsia.file.open_file import OpenedFile, read_one_version
from intarsia.file.scan_profile import Profile
from intarsia.io.storage import FileReplaced, gap_bytes
from intarsia.plan.explanation import Explanation
from intarsia.plan.file_account import (
    CATALOG,
    FOLDERS,
    TABLE,
    Activity,
    EngineReads,
    FileAccount,
    FileRead,
    QueryRun,
    Stage,
)
from intarsia.plan.plan import (
    ENGINE,
    PAGES,
    ROW_GROUPS,
    SKIPPED,
    Amount,
    Figures,
    FilePlan,
    ScanPlan,
    Step,
    amount,
)
from intarsia.plan.planner import plan_of_all, plan_rows
from intarsia.pruning.partition_pruning import folder_might_match
from intarsia.row_ranges import RowRanges
from intarsia.scan.files.file_cache import FileCache, ProfiledFile
from intarsia.scan.files.file_pruning import File, in_log
from intarsia.scan.page_selection import groups_of
from intarsia.scan.predicate_order import stages
from intarsia.scan.read_estimate import plan_reads
from intarsia.scan.request import Request
from intarsia.scan.schema_adapter import roots_to_read


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
    ``run`` runs the query on a source of these files. With None it is only planned, and the
    explanation has the reader that an engine such as DuckDB would use. The first ``maps`` files in
    which rows are left have a map of their pages. Issues the warnings about the files.
    """
    profiled = source.profiled()
    query_run = None if run is None else run(profiled)
    if run is None:
        plan_candidates(profiled, request)
    condition = None if request.filter is None else request.filter.condition.expression
    text = _text_of(condition) if filter_text is None else filter_text
    explained = explanation_of(profiled, request, text, query_run, maps=maps)
    if run is not None:
        return explained
    return _with_reader(explained, hand_over(profiled, request.all_columns, condition))


def explain_scan(
    source: ScanSource,
    columns: Sequence[str],
    filter_: pc.Expression | None,
    limit: int | None = None,
    *,
    by_file: bool = False,
) -> Explanation:
    """Returns the explanation of an engine's scan, which its own reader may do.

    ``by_file`` explains a scan by our reader that reads files one by one, as Spark's tasks do.
    Other parameters are those of ``hand_over``. Issues the warnings about the files.
    """
    profiled = source.profiled()
    request = planned_request(profiled, list(columns), filter_)
    handed = Refusal("") if by_file else hand_over(profiled, columns, filter_, limit)
    if isinstance(handed, Refusal):
        plan_candidates(profiled, request, by_file=by_file)
    return _with_reader(explanation_of(profiled, request, _text_of(filter_), None), handed)


def _with_reader(explained: Explanation, handed: HandOver | Refusal) -> Explanation:
    """Returns an explanation with the reader that an engine uses, and why."""
    reader = PAGES if isinstance(handed, Refusal) else ENGINE
    return replace(explained, reader=reader, reason=handed.reason)


def _text_of(filter_: pc.Expression | None) -> str:
    """Returns the text of a filter in an explanation."""
    return "none" if filter_ is None else shown(filter_)


def explanation_of(
    source: ScanSource,
    request: Request,
    filter_text: str,
    run: QueryRun | None,
    *,
    maps: int = 0,
    engine_reads: EngineReads | None = None,
) -> Explanation:
    """Returns the explanation of a query that was planned, or run, on a profiled ``source``.

    Without ``engine_reads``, an engine's reads are those of its plan. Other parameters are those of
    ``explain_query``.
    """
    cache, accounts = source.cache, list[FileAccount]()
    reads = {path: _read_of(opened) for path, opened in cache.profiled.items() if run is not None}
    for file in source.files:
        account_of = partial(_account_of, source, file, request, run, is_mapped=maps > 0)
        profiled = cache.profiled.get(file.path)
        if profiled is None or run is not None:
            account = account_of(None if profiled is None else profiled[-1].file)
        else:
            account = read_one_version(partial(cache.lease, file.path), account_of)
        maps -= account.map is not None
        read = reads.get(file.path)
        if read is not None and account.reader == ENGINE:
            read = replace(read, figures=_with_engine(read.figures, account.plan.figures))
        accounts.append(account if read is None else replace(account, read=read))
    cache.health.tell()
    other_reads = [(0, 0)]
    if run is not None and cache.engine_files:
        engine_reads = engine_reads or _planned_reads(accounts)
        other_reads = [(engine_reads.requests, engine_reads.bytes)]
        run = replace(run, num_rows=run.num_rows + engine_reads.rows)
    if cache.catalog is not None:
        other_reads.append((cache.catalog.count.requests, cache.catalog.count.bytes))
    return Explanation(
        tuple(accounts),
        filter_text,
        request.all_columns,
        unindexed=_unindexed_columns(cache, accounts, request),
        run=run,
        other_reads=(sum(n for n, _ in other_reads), sum(size for _, size in other_reads)),
    )


def _planned_reads(accounts: Sequence[FileAccount]) -> EngineReads:
    """Returns the planned reads of the files that an engine reads."""
    total = Figures.sum(one.plan.figures for one in accounts if one.reader == ENGINE)
    return EngineReads(total.requests.selected, total.bytes.selected, total.rows.selected)


def _unindexed_columns(
    cache: FileCache, accounts: Sequence[FileAccount], request: Request
) -> tuple[str, ...]:
    """Returns the columns in the filter of which a file with candidate rows has no index.

    Files that were replaced since do not count.
    """
    for account in accounts:
        if account.plan.rows and account.plan.path in cache.profiled:
            with contextlib.suppress(FileReplaced):
                file = cache.profiled[account.plan.path][-1].file
                return tuple(dict.fromkeys(unindexed_columns(file, account.plan, request)))
    return ()


# --- files --------------------------------------------------------------------------------------


def _account_of(
    source: ScanSource,
    file: File,
    request: Request,
    run: QueryRun | None,
    opened: OpenedFile | None,
    *,
    is_mapped: bool,
) -> FileAccount:
    """Returns the account of a file by the plan in its profile, without its reads.

    ``opened`` is None if the query opened no such file. ``run`` is the query's run, if it was run.
    A file that was replaced since it was planned is planned again; after a run, it counts as read
    whole.
    """
    cache, gap = source.cache, gap_bytes(source.filesystem)
    if opened is None:
        if run is None or run.reader != ENGINE:
            return _unopened(cache, file, request)
        opened = cache.get(file.path)
        plan = plan_of_all(opened)
        account = _by_pages(opened, file, request, plan, gap, is_mapped=is_mapped)
        return replace(account, reader=ENGINE, read=_whole_read(opened, account.plan.figures))
    profile = cache.profiled[file.path][-1].profile
    plan = profile.plan or plan_rows(
        opened, request.pruning, file.constants, request.schema, by_footer=run is not None
    )
    reader = plan.reader if plan.rows or plan.reader != PAGES else SKIPPED
    roots = roots_to_read(opened, request, file.constants) if reader != SKIPPED else ()
    groups = groups_of(opened, plan.rows)
    if reader == PAGES:
        try:
            return _by_pages(opened, file, request, plan, gap, is_mapped=is_mapped)
        except FileReplaced:
            if run is None:
                raise
            reader = ROW_GROUPS
    elif reader == ROW_GROUPS and run is not None:  # the output is read only where rows match
        leaves = {leaf for _, leaf in profile.chunks}
        roots = [root for root in roots if not leaves.isdisjoint(root.leaves)]
    if reader == ROW_GROUPS:
        groups = list(range(len(opened.row_group_starts) - 1))
    planned = plan_reads(
        opened, roots, plan, file.constants, gap, count_pages=False, whole_groups=groups
    )
    return FileAccount(planned, remarks=tuple(opened.ignored), reader=reader, reason=plan.reason)


def _by_pages(
    opened: OpenedFile,
    file: File,
    request: Request,
    planned: ScanPlan,
    gap: int,
    *,
    is_mapped: bool,
) -> FileAccount:
    """Returns the account of a file of which pages are read, as ``planned``."""
    roots = roots_to_read(opened, request, file.constants)
    plan = plan_reads(opened, roots, planned, file.constants, gap)
    has_several = request.filter is not None and request.filter.conjuncts
    order = tuple(
        Stage(shown(stage.condition.expression), stage.columns)
        for stage in (stages(opened, request, planned.rows) if has_several else ())
    )
    file_map = None
    if is_mapped:
        leaves = list(dict.fromkeys(read.leaf for read in plan.reads))
        file_map = map_of(opened, leaves, with_indexes=request.filter is not None)
    return FileAccount(plan, order, tuple(remarks_on(opened, request, plan)), map=file_map)


def _unopened(cache: FileCache, file: File, request: Request) -> FileAccount:
    """Returns the account of a file that the scan does not open."""
    figures, step = Figures(files=Amount(0, 1)), FOLDERS
    if folder_might_match(request.pruning, file.constants):
        if not [*in_log(cache, [file], request)]:
            step = TABLE
        elif cache.catalog is not None:
            figures, step = cache.catalog.figures([file]), CATALOG
    constants, steps = dict(file.constants), (Step(step, 0, 0),)
    plan = FilePlan(file.path, "", RowRanges.none(), constants, (), steps, figures, ())
    return FileAccount(plan, reader=SKIPPED)


# --- reads --------------------------------------------------------------------------------------


def _read_of(opened: Sequence[ProfiledFile]) -> FileRead:
    """Returns what was read of a file, and of its earlier versions if it was replaced."""
    counts = [source.count for source, *_ in opened]
    counts += [
        file.sidecar_finder.count for _, file, _ in opened if file.sidecar_finder is not None
    ]
    _, file, profile = opened[-1]
    figures = Figures(
        files=amount(1, 1),
        row_groups=amount(len(file.groups_read), len(file.row_group_starts) - 1),
        pages=amount(_num_pages(file, profile) if profile.chunks else 0),
        rows=amount(profile.num_matches, file.num_rows),
        bytes=Amount(sum([count.bytes for count in counts]), file.file_footer.source_size),
        requests=amount(sum([count.requests for count in counts])),
    )
    return FileRead(figures, profile.seconds(), profile.conditions(), tuple(file.ignored))


def _whole_read(file: OpenedFile, planned: Figures) -> FileRead:
    """Returns what pyarrow reads of a file by its own scan: the plan, and the footer."""
    num_bytes = planned.bytes.selected + file.file_footer.source_size - file.footer_offset
    num_bytes_read = Amount(num_bytes, planned.bytes.total)
    requests = Amount(planned.requests.selected + 1)
    figures = replace(planned, bytes=num_bytes_read, requests=requests)
    return FileRead(figures, dict.fromkeys(Activity, 0.0), ())


def _with_engine(read: Figures, planned: Figures) -> Figures:
    """Returns what was read of a file, with the row groups and pages that an engine read."""
    groups = Amount(planned.row_groups.selected, read.row_groups.total)
    return replace(read, row_groups=groups, pages=Amount(planned.pages.selected))


def _num_pages(file: OpenedFile, profile: Profile) -> int:
    """Returns the number of pages that were decoded. Each counts once.

    A chunk without a cached offset index counts as one page, as in plans.
    """
    known, count = file.page_indexes, 0
    for id_, offsets in profile.chunks.items():
        total = known.num_pages(*id_)
        count += total if offsets is None else min(len(offsets), total)
    return count
