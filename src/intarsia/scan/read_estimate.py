"""Plans the reads of one file: byte ranges and amounts for its candidate rows."""

from __future__ import annotations

from collections.abc import Sequence

from intarsia.file.open_file import OpenedFile
from intarsia.io.coalesce import coalesce
from intarsia.parquet.schema import Root
from intarsia.plan.plan import Amount, ColumnPlan, Figures, FilePlan, PlannedRead
from intarsia.plan.planner import Candidates
from intarsia.pruning.partition_pruning import Constants
from intarsia.scan.page_selection import groups_of, select


def plan_reads(
    file: OpenedFile,
    roots: Sequence[Root],
    candidates: Candidates,
    constants: Constants,
    gap: int,
    *,
    count_pages: bool = True,
) -> FilePlan:
    """Returns the plan of one file to read ``roots`` at the candidate rows.

    Ranges up to ``gap`` bytes apart share a request. ``count_pages`` loads the offset indexes of
    all chunks to count their pages. No pages are counted if there are no candidate rows.
    """
    rows = candidates.rows
    reads = [
        PlannedRead(group, leaf, file.schema.leaves[leaf].name, selection)
        for read in (select(file, roots, rows) if rows else ())
        for group, selections in read.groups
        for leaf, selection in zip(read.root.leaves, selections, strict=True)
    ]
    ranges = [range_ for read in reads for range_ in read.selection.byte_ranges]
    groups = groups_of(file, rows)
    columns = _columns(file, roots, reads, count_pages) if rows else ()
    figures = Figures(
        files=Amount(int(bool(rows)), 1),
        row_groups=Amount(len(groups), len(file.metadata.row_groups)),
        pages=sum((column.pages for column in columns), Amount()),
        rows=Amount(rows.num_rows, file.num_rows),
        bytes=Amount(sum(length for _, length in ranges), file.source.size),
        requests=Amount(len(coalesce(ranges, gap))),
    )
    return FilePlan(
        file.name,
        file.binding,
        rows,
        dict(constants),
        tuple(reads),
        candidates.steps,
        figures,
        columns,
    )


def _columns(
    file: OpenedFile, roots: Sequence[Root], reads: Sequence[PlannedRead], count_pages: bool
) -> tuple[ColumnPlan, ...]:
    """Returns the plan of each leaf. A chunk without an offset index counts as one page."""
    groups = range(len(file.metadata.row_groups))
    leaves = [leaf for root in roots for leaf in root.leaves]
    if count_pages:
        file.page_indexes.load([(group, leaf) for group in groups for leaf in leaves], [])
    by_leaf: dict[int, list[PlannedRead]] = {leaf: [] for leaf in leaves}
    for read in reads:
        by_leaf[read.leaf].append(read)
    return tuple(_column(file, leaf, own) for leaf, own in by_leaf.items())


def _column(file: OpenedFile, leaf: int, reads: Sequence[PlannedRead]) -> ColumnPlan:
    groups = range(len(file.metadata.row_groups))
    pages = [file.page_indexes.num_pages(group, leaf) for group in groups]
    sizes = [file.chunk(group, leaf).total_compressed_size for group in groups]
    selected = sum(len(read.selection.page_rows) or pages[read.row_group] for read in reads)
    return ColumnPlan(
        file.schema.leaves[leaf].name,
        Amount(selected, sum(pages)),
        Amount(sum(read.selection.num_bytes for read in reads), sum(sizes)),
        sum(file.page_indexes.known_offsets(read.row_group, leaf) is None for read in reads),
    )
