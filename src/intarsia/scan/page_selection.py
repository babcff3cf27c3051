"""Selects the pages, as byte ranges, that hold given rows of some columns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from intarsia.file.open_file import OpenedFile
from intarsia.io.source import ByteRange
from intarsia.parquet.schema import Root
from intarsia.plan.page_ranges import ChunkSelection, PageSelector, whole_chunk
from intarsia.row_ranges import RowRanges


@dataclass(frozen=True, slots=True)
class ColumnRead:
    """The selected pages of one root: for each row group, one selection for each leaf."""

    root: Root
    groups: tuple[tuple[int, tuple[ChunkSelection, ...]], ...]

    def portions(self) -> list[tuple[int, ...]]:
        """Groups the leaves, by position in the root, that have the same rows selected."""
        if len(self.root.leaves) == 1:
            return [(0,)]
        by_rows: dict[tuple[RowRanges, ...], list[int]] = {}
        for i in range(len(self.root.leaves)):
            rows = tuple(selections[i].rows for _, selections in self.groups)
            by_rows.setdefault(rows, []).append(i)
        return [tuple(leaves) for leaves in by_rows.values()]

    def selections(self) -> Iterator[tuple[int, int, ChunkSelection]]:
        """Yields each row group and leaf with its selection."""
        for group, selections in self.groups:
            for leaf, selection in zip(self.root.leaves, selections, strict=True):
                yield group, leaf, selection

    def selected_rows(self, file: OpenedFile, leaf: int) -> RowRanges:
        """Returns the selected rows, counted in the file, of the leaf at a position in the root."""
        starts = file.row_group_starts
        return RowRanges.union(
            selections[leaf].rows.shift(int(starts[group])) for group, selections in self.groups
        )


def groups_of(file: OpenedFile, rows: RowRanges) -> list[int]:
    """Returns the row groups that hold any of ``rows``."""
    starts = file.row_group_starts
    groups: list[int] = rows.covers(starts[:-1], starts[1:]).nonzero()[0].tolist()
    return groups


def rows_of(file: OpenedFile, groups: Sequence[int]) -> RowRanges:
    """Returns all rows of row groups, given by number in ascending order."""
    starts = file.row_group_starts
    return RowRanges(starts[:-1][groups], starts[1:][groups])


def select(file: OpenedFile, roots: Sequence[Root], rows: RowRanges) -> list[ColumnRead]:
    """Selects the pages that hold ``rows`` of the leaves of ``roots``.

    Loads offset indexes, except for row groups that are selected whole.
    """
    rows_by_group = load_offsets(file, [leaf for root in roots for leaf in root.leaves], rows)
    selected: list[list[tuple[int, tuple[ChunkSelection, ...]]]] = [[] for _ in roots]
    for group, part in rows_by_group.items():
        select_in = _selector(file, group, part)
        for root, groups in zip(roots, selected, strict=True):
            groups.append((group, tuple(map(select_in, root.leaves))))
    return [ColumnRead(root, tuple(parts)) for root, parts in zip(roots, selected, strict=True)]


def load_offsets(file: OpenedFile, leaves: Sequence[int], rows: RowRanges) -> dict[int, RowRanges]:
    """Loads the offset indexes of ``leaves`` in row groups that ``rows`` cover in part.

    Returns the selected rows by row group, counted from its start.
    """
    rows_by_group = {}
    for group in groups_of(file, rows):
        start, stop = file.row_group_starts[group : group + 2].tolist()
        rows_by_group[group] = rows.clip(start, stop).shift(-start)
    partial_groups = [
        g
        for g, rows_in_group in rows_by_group.items()
        if rows_in_group.num_rows < file.num_rows_in(g)
    ]
    file.page_indexes.load([(group, leaf) for group in partial_groups for leaf in leaves], [])
    return rows_by_group


def _selector(file: OpenedFile, group: int, rows: RowRanges) -> Callable[[int], ChunkSelection]:
    """Returns a function that selects ``rows`` of a row group in the chunk of a leaf."""
    count = file.num_rows_in(group)
    if rows.num_rows == count:
        return lambda leaf: whole_chunk(file.chunk(group, leaf), rows, is_wanted=True)
    selectors: dict[bool, PageSelector] = {}

    def select_in(leaf: int) -> ChunkSelection:
        repeats = file.schema.leaves[leaf].max_repetition_level > 0
        if repeats not in selectors:
            # The last row of a page may continue in the next page; only that page shows it.
            rows_and_next = rows | rows.shift(1) if repeats else rows
            selectors[repeats] = PageSelector(rows_and_next, count)
        chunk, index = file.chunk(group, leaf), file.page_indexes.offsets(group, leaf)
        if file.damage.knows(group, leaf):  # does not read the next page either
            return PageSelector(rows, count, by_page=True).select(chunk, index)
        return selectors[repeats].select(chunk, index)

    return select_in


def ranges_of(reads: Iterable[ColumnRead]) -> list[ByteRange]:
    """Returns the byte ranges of all selections, in order."""
    return [r for read in reads for _, parts in read.groups for s in parts for r in s.byte_ranges]
