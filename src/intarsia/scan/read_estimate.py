"""Plans the reads of one file: byte ranges and amounts for its candidate rows."""

from __future__ import annotations

from collections.abc import Sequence

from intarsia.file.open_file import OpenedFile
from intarsia.io.source import ByteRange, coalesce
from intarsia.parquet.schema import Root
from intarsia.plan.plan import (
    Amount,
    ColumnPlan,
    Figures,
    FilePlan,
    PlannedRead,
    ScanPlan,
    Step,
    amount,
)
from intarsia.pruning.partition_pruning import Constants
from intarsia.row_ranges import RowRanges
from intarsia.scan.page_selection import groups_of, select


def plan_reads(
    file: OpenedFile,
    roots: Sequence[Root],
    plan: ScanPlan,
    constants: Constants,
    gap: int,
    *,
    count_pages: bool = True,
    whole_groups: Sequence[int] | None = None,
) -> FilePlan:
    """Returns the reads of one file by its ``plan``, for the columns of ``roots``.

    Ranges up to ``gap`` bytes apart share a request. ``count_pages`` loads the offset indexes of
    all chunks to count their pages. A file without candidate rows has no pages and no ``binding``.
    If ``whole_groups`` are given, all rows of these row groups are read, and no others; the plan
    then has no ``binding`` and no ``reads``.
    """
    rows = plan.rows
    groups = groups_of(file, rows) if whole_groups is None else whole_groups
    leaves = [leaf for root in roots for leaf in root.leaves] if groups else []
    chunks = [file.outlines(g, leaves) for g in range(len(file.row_group_starts) - 1) if leaves]
    reads, ranges = list[PlannedRead](), list[ByteRange]()
    parts: dict[int, list[tuple[int, int, int]]] = {leaf: [] for leaf in leaves}
    if whole_groups is None:
        for read in select(file, roots, rows) if rows else ():
            for group, leaf, selection in read.selections():
                name = file.schema.leaves[leaf].name
                reads.append(PlannedRead(group, leaf, name, selection))
                parts[leaf].append((group, len(selection.page_rows), selection.num_bytes))
                ranges += selection.byte_ranges
    else:
        for group in whole_groups if leaves else ():
            for leaf, chunk in zip(leaves, chunks[group], strict=True):
                parts[leaf].append((group, 0, chunk.total_compressed_size))
                ranges.append((chunk.start, chunk.total_compressed_size))
    if count_pages:
        file.page_indexes.load([(g, leaf) for g in range(len(chunks)) for leaf in leaves], [])
    columns = tuple(
        [
            _column(
                file,
                leaf,
                [one[at].total_compressed_size for one in chunks],
                parts[leaf],
                is_by_footer=whole_groups is not None,
            )
            for at, leaf in enumerate(leaves)
        ]
    )
    figures = Figures(
        files=amount(int(len(groups) > 0), 1),
        row_groups=amount(len(groups), len(file.row_group_starts) - 1),
        pages=sum((column.pages for column in columns), amount()),
        rows=amount(rows.num_rows, file.num_rows),
        bytes=Amount(sum([length for _, length in ranges]), file.file_footer.source_size),
        requests=amount(len(coalesce(ranges, gap))),
    )
    named_steps = tuple([_step(file, source, left) for source, left in plan.steps])
    binding = file.binding if rows and whole_groups is None else ""
    return FilePlan(
        file.name, binding, rows, dict(constants), tuple(reads), named_steps, figures, columns
    )


def _step(file: OpenedFile, source: str, rows: RowRanges) -> Step:
    count, num_groups = rows.num_rows, len(file.row_group_starts) - 1
    if count != file.num_rows:
        num_groups = len(groups_of(file, rows)) if count else 0
    return Step(source, count, num_groups)


def _column(
    file: OpenedFile,
    leaf: int,
    sizes: Sequence[int],
    parts: Sequence[tuple[int, int, int]],
    *,
    is_by_footer: bool,
) -> ColumnPlan:
    """Returns the plan of a leaf. A chunk without a cached offset index counts as one page.

    ``sizes`` are the bytes of its chunks. ``parts`` are the chunks that are read: the row group,
    the number of pages and the bytes of each. A whole chunk has 0 pages there. ``is_by_footer``
    says that page indexes are not opened, so that only the footer shows which chunks have one.
    """
    indexes = file.page_indexes

    def has_page_index(group: int) -> bool:
        if is_by_footer:
            return file.column_chunk(group, leaf).offset_index_offset is not None
        return indexes.known_offsets(group, leaf) is not None

    pages = [indexes.num_pages(group, leaf) for group in range(len(sizes))]
    return ColumnPlan(
        file.schema.leaves[leaf].name,
        amount(sum([count or pages[group] for group, count, _ in parts]), sum(pages)),
        Amount(sum([size for *_, size in parts]), sum(sizes)),
        sum([not has_page_index(group) for group, *_ in parts]),
    )
