"""Accounts of files for ``explain``: what a query reads, and why indexes are not used."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace

from intarsia.dataset.scan_source import ScanSource
from intarsia.expr.tree import shown
from intarsia.file.byte_map import map_of
from intarsia.file.embedded_indexes import Embedded
from intarsia.file.open_file import OpenedFile
from intarsia.file.page_layout import page_layout
from intarsia.file.scan_profile import Profile
from intarsia.index.base import Inverted
from intarsia.index.directory import IndexEntry
from intarsia.index.registry import known_version
from intarsia.io.storage import FileReplaced, gap_bytes
from intarsia.parquet.schema import Leaf, Root
from intarsia.plan.file_account import (
    CATALOG,
    ENGINE,
    FOLDERS,
    ROW_GROUPS,
    SKIPPED,
    Activity,
    EngineScan,
    FileAccount,
    FileRead,
    QueryRun,
    Stage,
)
from intarsia.plan.file_group import FileGroup
from intarsia.plan.file_regions import FileMap
from intarsia.plan.index_selection import may_pay
from intarsia.plan.plan import Amount, ColumnPlan, Figures, FilePlan, Step, amount
from intarsia.plan.planner import Candidates
from intarsia.plan.pruner import PAGE_INDEX, ROW_GROUP_STATISTICS, index_source
from intarsia.plan.stored_columns import leaf_of
from intarsia.pruning.partition_pruning import folder_might_match
from intarsia.pruning.predicate_tree import predicates_of
from intarsia.pruning.predicates import Predicate
from intarsia.row_ranges import RowRanges
from intarsia.scan.files.file_cache import FileCache, ProfiledFile
from intarsia.scan.files.file_pruning import File
from intarsia.scan.page_selection import groups_of, rows_of
from intarsia.scan.predicate_order import stages
from intarsia.scan.read_estimate import plan_reads
from intarsia.scan.request import Request
from intarsia.scan.schema_adapter import roots_to_read


def account_of(
    source: ScanSource,
    file: File,
    request: Request,
    run: QueryRun | None,
    *,
    is_mapped: bool,
) -> FileAccount:
    """Returns the account of a file of a profiled ``source``, without what was read of it.

    ``run`` is the query's run, if it was run.
    """
    cache = source.cache
    for scan in cache.engine_scans:
        if file.path in scan.files:
            return _account_of_engine_scan(source, file, request, scan)
    opened = cache.profiled.get(file.path)
    if opened is None and run is not None and run.reader == ENGINE:
        return _account_of_engine(source, file, request, is_mapped=is_mapped)
    if opened is None:
        return _unopened(cache, file, request)
    _, opened_file, profile = opened[-1]
    steps = _steps(opened_file, profile)
    rows = profile.steps[-1][1] if profile.steps else opened_file.rows
    if not rows and not profile.is_together:
        plan = _whole_plan(opened_file, file, (), rows, steps)
        return FileAccount(plan, remarks=tuple(opened_file.ignored), reader=SKIPPED)
    roots = roots_to_read(opened_file, request, file.constants)
    if profile.is_together:
        if run is not None:  # columns of the output are read only where rows match
            leaves = {leaf for _, leaf in profile.chunks}
            roots = [root for root in roots if not leaves.isdisjoint(root.leaves)]
        plan = _whole_plan(opened_file, file, roots, rows, steps)
        return FileAccount(plan, remarks=tuple(opened_file.ignored), reader=ROW_GROUPS)
    candidates, gap = Candidates(rows, steps), gap_bytes(source.filesystem)
    try:
        plan = plan_reads(opened_file, roots, candidates, file.constants, gap)
    except FileReplaced:
        if run is None:
            raise
        plan = _whole_plan(opened_file, file, roots, rows, steps)
    has_several = request.filter is not None and request.filter.conjuncts
    order = tuple(
        Stage(shown(stage.condition.expression), stage.columns)
        for stage in (stages(opened_file, request, rows) if has_several else ())
    )
    account = FileAccount(plan, order, tuple(_remarks(opened_file, request, plan)))
    return replace(account, map=_map_of(opened_file, plan, request)) if is_mapped else account


def _whole_plan(
    opened: OpenedFile, file: File, roots: Sequence[Root], rows: RowRanges, steps: tuple[Step, ...]
) -> FilePlan:
    """Returns the plan of a file of which whole row groups, or none, of ``roots`` are read.

    A chunk counts as one page.
    """
    groups = range(len(opened.row_group_starts) - 1)
    leaves = [leaf for root in roots for leaf in root.leaves]
    sizes = (
        []
        if not leaves
        else [[c.total_compressed_size for c in opened.outlines(g, leaves)] for g in groups]
    )
    columns = tuple(
        ColumnPlan(
            opened.schema.leaves[leaf].name,
            Amount(len(groups), len(groups)),
            Amount(sum(of_leaf), sum(of_leaf)),
            len(groups),
        )
        for leaf, *of_leaf in zip(leaves, *sizes, strict=True)
    )
    is_read = bool(roots)
    figures = Figures(
        files=amount(int(is_read), 1),
        row_groups=amount(len(groups) if is_read else 0, len(groups)),
        pages=sum((column.pages for column in columns), amount()),
        rows=amount(rows.num_rows if rows.starts.size else 0, opened.num_rows),
        bytes=Amount(
            sum(column.bytes.selected for column in columns), opened.file_footer.source_size
        ),
        requests=amount(int(is_read)),
    )
    constants = dict(file.constants)
    return FilePlan(file.path, "", rows, constants, (), steps, figures, columns)


def _unopened(cache: FileCache, file: File, request: Request) -> FileAccount:
    """Returns the account of a file that the scan does not open."""
    figures, step = Figures(files=Amount(0, 1)), FOLDERS
    if cache.catalog is not None and folder_might_match(request.pruning, file.constants):
        figures, step = cache.catalog.figures([file]), CATALOG
    constants, steps = dict(file.constants), (Step(step, 0, 0),)
    plan = FilePlan(file.path, "", RowRanges.none(), constants, (), steps, figures, ())
    return FileAccount(plan, reader=SKIPPED)


def _account_of_engine(
    source: ScanSource, file: File, request: Request, *, is_mapped: bool
) -> FileAccount:
    """Returns the account of a file of which pyarrow reads all rows, by its footer."""
    opened = source.cache.get(file.path)
    roots = roots_to_read(opened, request, file.constants)
    candidates = Candidates(RowRanges.all(opened.num_rows), _first_steps(opened))
    plan = plan_reads(opened, roots, candidates, file.constants, gap_bytes(source.filesystem))
    figures = plan.figures
    footer = opened.source.size - opened.footer_offset
    read = replace(
        figures,
        bytes=Amount(figures.bytes.selected + footer, figures.bytes.total),
        requests=Amount(figures.requests.selected + 1),
    )
    was_read = FileRead(read, dict.fromkeys(Activity, 0.0), ())
    file_map = _map_of(opened, plan, request) if is_mapped else None
    return FileAccount(plan, (), tuple(opened.ignored), was_read, file_map, ENGINE)


def _account_of_engine_scan(
    source: ScanSource, file: File, request: Request, scan: EngineScan
) -> FileAccount:
    """Returns the account of a file that an engine read: row groups with candidate rows, whole."""
    _, opened, profile = source.cache.profiled[file.path][-1]
    rows = scan.rows.get(file.path)
    steps = _first_steps(opened) if rows is None else _steps(opened, profile)
    rows = RowRanges.all(opened.num_rows) if rows is None else rows
    roots = roots_to_read(opened, request, file.constants)
    whole = rows_of(opened, groups_of(opened, rows))
    gap = gap_bytes(source.filesystem)
    plan = plan_reads(
        opened, roots, Candidates(whole, steps), file.constants, gap, count_pages=False
    )
    amount = Amount(rows.num_rows, opened.num_rows)
    plan = replace(plan, rows=rows, figures=replace(plan.figures, rows=amount))
    return FileAccount(plan, remarks=tuple(opened.ignored), reader=ENGINE, reason=scan.reason)


def _steps(file: OpenedFile, profile: Profile) -> tuple[Step, ...]:
    """Returns the steps that a profile recorded."""
    steps = [
        Step(name, rows.num_rows, len(groups_of(file, rows)))
        if rows.starts.size
        else _nothing(name)
        for name, rows in profile.steps
    ]
    return tuple(steps) or _first_steps(file)


@functools.cache
def _nothing(source: str) -> Step:
    """Returns the step that leaves no row. Most files of a large data set have one."""
    return Step(source, 0, 0)


def _first_steps(file: OpenedFile) -> tuple[Step, ...]:
    """Returns the steps of a plan of all rows."""
    return (Step(ROW_GROUP_STATISTICS, file.rows.num_rows, len(file.metadata.row_groups)),)


def _map_of(file: OpenedFile, plan: FilePlan, request: Request) -> FileMap:
    leaves = list(dict.fromkeys(read.leaf for read in plan.reads))
    return map_of(file, leaves, with_indexes=request.filter is not None)


def reads_of(cache: FileCache) -> dict[str, FileRead]:
    """Returns what was read so far of the files of a profiled cache, by path."""
    return {path: _read_of(opened) for path, opened in cache.profiled.items()}


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


def _num_pages(file: OpenedFile, profile: Profile) -> int:
    """Returns the number of pages that were decoded. Each counts once.

    A chunk without a cached offset index counts as one page, as in plans.
    """
    known, count = file.page_indexes, 0
    for id_, offsets in profile.chunks.items():
        total = known.num_pages(*id_)
        count += total if offsets is None else min(len(offsets), total)
    return count


def unindexed_columns(
    cache: FileCache, accounts: Sequence[FileAccount], request: Request
) -> tuple[str, ...]:
    """Returns the columns in the filter of which a file with candidate rows has no index.

    Files that were replaced since do not count.
    """
    for account in accounts:
        if account.plan.rows and account.plan.path in cache.profiled:
            with contextlib.suppress(FileReplaced):
                file = cache.profiled[account.plan.path][-1].file
                return tuple(dict.fromkeys(_unindexed_in(file, account.plan, request)))
    return ()


def _unindexed_in(file: OpenedFile, plan: FilePlan, request: Request) -> Iterator[str]:
    """Yields the columns in the filter of which a file has no index. They may repeat."""
    group = FileGroup([file], [plan.constants], request.schema)
    for test in predicates_of(request.pruning):
        leaf = leaf_of(file, test, plan.constants, request.schema)
        is_indexed = bool(group.indexes([test]))
        if leaf is not None:
            chunks = [file.column_chunk(at, leaf.index) for at in groups_of(file, plan.rows)]
            is_indexed |= any(chunk.column_index_offset is not None for chunk in chunks)
        if not is_indexed:
            yield str(test.term)


def _remarks(file: OpenedFile, request: Request, plan: FilePlan) -> Iterator[str]:
    """Yields the warnings about a file, and the indexes that are not used or that are missing.

    Warnings are repeated, because the reader of an explanation may not have seen them.
    """
    has_candidates = request.filter is not None and bool(plan.rows)
    entries = file.sections.entries if has_candidates else ()
    yield from file.ignored
    layout = page_layout(file, load=False) if entries else None
    if layout is not None and layout.is_coarse:
        yield str(layout)
    used = {step.source for step in plan.steps}
    tests = predicates_of(request.pruning) if has_candidates else []
    group = FileGroup([file], [plan.constants], request.schema)
    usable = group.indexes(tests)
    for entry in entries:
        if index_source(entry) not in used and not file.sections.is_ignored(entry):
            reason = _reason_not_used(file, entry, tests, usable, used)
            yield f"{index_source(entry)} not used: {reason}"
    if PAGE_INDEX in used:
        tested = dict.fromkeys(group.leaves(tests).values())
        answered = (file.schema.leaf(e.on) for e in entries if index_source(e) in used)
        groups = groups_of(file, plan.rows)
        yield from _without_bounds(file, [*tested.keys() - set(answered)], groups)


def _reason_not_used(
    file: OpenedFile,
    entry: IndexEntry,
    tests: Sequence[Predicate],
    usable: Mapping[Predicate, Sequence[Embedded]],
    used: Collection[str],
) -> str:
    """Returns why the index ``entry`` is not used for the predicates ``tests``."""
    version = known_version(entry.kind)
    if version is None:
        return f"kind {entry.kind} is not known here"
    if version != entry.kind_version:
        return f"version {entry.kind_version} of {entry.kind} is not known here, {version} is"
    index = file.sections.resolved(entry)
    if index is None:
        return "it does not fit the file"
    comparisons = [test for test in tests if test.term == index.of.term]
    if not comparisons:
        return f"no condition on {entry.on} it could answer"
    unanswerable = [test for test in comparisons if not index.may_answer(test)]
    if len(unanswerable) == len(comparisons):
        return f"it cannot answer {', '.join(map(str, unanswerable))}"
    if not any(index in indexes for indexes in usable.values()):
        return f"{entry.on} is read as a type that may compare in another way"
    others = [
        i.entry
        for test in comparisons
        for i in usable.get(test, ())
        if index_source(i.entry) in used
    ]
    if others:
        return f"{others[0].name} answered before"
    able = [test for test in comparisons if index in usable.get(test, ())]
    if not any(may_pay(file, index, test, ()) for test in able):
        return "it takes more to read than it could save"
    if isinstance(index.kind, Inverted) and not any(
        index.kind.keys_for(test, index.of) for test in able
    ):
        return f"it cannot answer {', '.join(map(str, able))}"
    return "it leaves all rows of this file"


def _without_bounds(
    file: OpenedFile, leaves: Sequence[Leaf], groups: Sequence[int]
) -> Iterator[str]:
    """Yields the columns in the filter that have no bounds by page."""
    for leaf in sorted(leaves, key=lambda leaf: leaf.index):
        chunks = [file.column_chunk(group, leaf.index) for group in groups]
        missing = sum(chunk.column_index_offset is None for chunk in chunks)
        if missing:
            where = (
                "" if missing == len(groups) else f" in {missing:,} of {len(groups):,} row groups"
            )
            yield f"{leaf.name} has no column index{where}: no page is skipped by its bounds"
