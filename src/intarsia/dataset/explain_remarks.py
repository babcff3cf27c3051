"""Remarks of ``explain``: which indexes a file lacks, and why others are not used."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from intarsia.file.embedded_indexes import Embedded
from intarsia.file.open_file import OpenedFile
from intarsia.file.page_layout import page_layout
from intarsia.index.base import Inverted
from intarsia.index.directory import IndexEntry
from intarsia.index.registry import known_version
from intarsia.parquet.schema import Leaf
from intarsia.plan.file_group import FileGroup
from intarsia.plan.index_selection import may_pay
from intarsia.plan.plan import FilePlan
from intarsia.plan.pruner import PAGE_INDEX, index_source
from intarsia.plan.stored_columns import leaf_of
from intarsia.pruning.predicates import Predicate, predicates_of
from intarsia.scan.page_selection import groups_of
from intarsia.scan.request import Request


def unindexed_columns(file: OpenedFile, plan: FilePlan, request: Request) -> Iterator[str]:
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


def remarks_on(file: OpenedFile, request: Request, plan: FilePlan) -> Iterator[str]:
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
