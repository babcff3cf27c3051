"""Accounts of files for ``explain``: why indexes are not used, and what a query reads."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterator, Mapping, Sequence

from intarsia.expr.tree import shown
from intarsia.file.embedded_indexes import Embedded
from intarsia.file.open_file import OpenedFile, as_current_version
from intarsia.file.scan_profile import Profile
from intarsia.index.base import Inverted
from intarsia.index.directory import IndexEntry
from intarsia.index.registry import known_version
from intarsia.parquet.schema import Leaf
from intarsia.plan.file_account import Activity, FileAccount, FileRead, Stage
from intarsia.plan.plan import Amount, Figures, FilePlan
from intarsia.pruning.partition_pruning import Constants
from intarsia.pruning.predicate_tree import tests_of
from intarsia.pruning.predicates import Predicate
from intarsia.scan.file_planner import PAGE_INDEX, index_source, indexes_for, leaf_of
from intarsia.scan.files.file_cache import FileCache
from intarsia.scan.index_selection import may_pay
from intarsia.scan.page_selection import groups_of
from intarsia.scan.predicate_order import stages
from intarsia.scan.request import Request
from intarsia.scan.scan import Part, scan
from intarsia.scan.unit_reader import ScanStatistics


def account_of(file: OpenedFile, request: Request, plan: FilePlan) -> FileAccount:
    """Returns the account of a file that has been planned."""
    has_several = request.filter is not None and request.filter.conjuncts
    planned_stages = stages(file, request, plan.rows) if has_several and plan.rows else []
    order = tuple(
        Stage(shown(stage.condition.expression), stage.columns) for stage in planned_stages
    )
    return FileAccount(plan, order, tuple(_remarks(file, request, plan)))


def read_of(
    cache: FileCache,
    path: str,
    request: Request,
    constants: Constants,
    plan: FilePlan,
    scan_statistics: ScanStatistics,
) -> FileRead:
    """Returns what a first query reads of the file. Units are read in turn, so times add up.

    The totals come from ``plan``. ``scan_statistics`` has the scan statistics of the files before.
    """
    planned = plan.figures
    profile = Profile()
    with profile.during(Activity.PLANNING):
        source, file = cache.open_unshared(path, profile)
    part = Part(lambda: as_current_version(file), constants)
    tables = scan([part], request, use_threads=False, scan_statistics=scan_statistics)
    rows = sum(table.num_rows for table in tables)
    seconds, count = profile.seconds(), dataclasses.replace(source.count)
    figures = Figures(
        files=Amount(1, planned.files.total),
        row_groups=Amount(len(file.groups_read), planned.row_groups.total),
        pages=Amount(_num_pages(file, profile), planned.pages.total),
        rows=Amount(rows, planned.rows.total),
        bytes=Amount(count.bytes, planned.bytes.total),
        requests=Amount(count.requests),
    )
    return FileRead(figures, seconds, profile.conditions(), tuple(file.ignored))


def _num_pages(file: OpenedFile, profile: Profile) -> int:
    """Returns the number of pages that were decoded. Each counts once.

    A chunk without an offset index counts as one page, as in plans.
    """
    known = file.page_indexes
    known.load(profile.chunks, [])
    count = 0
    for id_, offsets in profile.chunks.items():
        total = 1 if id_ in known.walked else known.num_pages(*id_)
        count += total if offsets is None else min(len(offsets), total)
    return count


def _remarks(file: OpenedFile, request: Request, plan: FilePlan) -> Iterator[str]:
    """Yields the warnings about a file, and the indexes that are not used or that are missing.

    Warnings are repeated, because the reader of an explanation may not have seen them.
    """
    has_candidates = request.filter is not None and bool(plan.rows)
    entries = file.sections.entries if has_candidates else ()
    yield from file.ignored
    used = {step.source for step in plan.steps}
    tests = tests_of(request.pruning) if has_candidates else []
    usable = indexes_for(file, tests, plan.constants, request.schema)
    for entry in entries:
        if index_source(entry) not in used and not file.sections.is_ignored(entry):
            reason = _reason_not_used(file, entry, tests, usable, used)
            yield f"{index_source(entry)} not used: {reason}"
    if PAGE_INDEX in used:
        leaves = (leaf_of(file, test, plan.constants, request.schema) for test in tests)
        tested = dict.fromkeys(leaf for leaf in leaves if leaf is not None)
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
