"""Which parts of a file hold given rows of some of its columns: pages, as byte ranges."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from intarsia.file.open_file import OpenedFile
from intarsia.io.source import ByteRange
from intarsia.parquet.schema import Root
from intarsia.plan.page_ranges import ChunkSelection, PageSelector, whole_chunk
from intarsia.row_ranges import RowRanges


@dataclass(frozen=True, slots=True)
class ColumnRead:
    """The selections of one root: for each row group, one for each of its leaves."""

    root: Root
    groups: tuple[tuple[int, tuple[ChunkSelection, ...]], ...]

    def portions(self) -> list[tuple[int, ...]]:
        """Which leaves, by their positions among the root's, have the same rows selected."""
        if len(self.root.leaves) == 1:
            return [(0,)]
        by_rows: dict[tuple[RowRanges, ...], list[int]] = {}
        for i in range(len(self.root.leaves)):
            held = tuple(selections[i].rows for _, selections in self.groups)
            by_rows.setdefault(held, []).append(i)
        return [tuple(leaves) for leaves in by_rows.values()]

    def selections(self) -> Iterator[tuple[int, int, ChunkSelection]]:
        """Row groups and leaves, and what is selected of each."""
        for group, selections in self.groups:
            for leaf, selection in zip(self.root.leaves, selections, strict=True):
                yield group, leaf, selection

    def held(self, file: OpenedFile, leaf: int) -> RowRanges:
        """The rows of the file that are selected of a leaf, by its position among the root's."""
        starts = file.row_group_starts
        return RowRanges.union(
            selections[leaf].rows.shift(int(starts[group])) for group, selections in self.groups
        )


def groups_of(file: OpenedFile, rows: RowRanges) -> list[int]:
    """The row groups that hold any of ``rows``."""
    starts = file.row_group_starts
    return np.flatnonzero(rows.covers(starts[:-1], starts[1:])).tolist()


def rows_of(file: OpenedFile, groups: Sequence[int]) -> RowRanges:
    """All rows of row groups, given by their numbers in ascending order."""
    starts = file.row_group_starts
    return RowRanges(starts[:-1][groups], starts[1:][groups])


def select(file: OpenedFile, roots: Sequence[Root], rows: RowRanges) -> list[ColumnRead]:
    """Which parts of which chunks hold ``rows`` of those leaves of ``roots`` that are wanted.

    Fetches the offset indexes this takes: none for row groups that are wanted whole.
    """
    wanted = load_offsets(file, [leaf for root in roots for leaf in root.leaves], rows)
    selected: list[list[tuple[int, tuple[ChunkSelection, ...]]]] = [[] for _ in roots]
    for group, part in wanted.items():
        select_in = _selector(file, group, part)
        for root, groups in zip(roots, selected, strict=True):
            groups.append((group, tuple(map(select_in, root.leaves))))
    return [ColumnRead(root, tuple(parts)) for root, parts in zip(roots, selected, strict=True)]


def load_offsets(file: OpenedFile, leaves: Sequence[int], rows: RowRanges) -> dict[int, RowRanges]:
    """Fetch the offset indexes of ``leaves`` in row groups of which ``rows`` are a part.

    Gives the rows of each row group that holds some, counted from its start.
    """
    wanted = {}
    for group in groups_of(file, rows):
        start, stop = file.row_group_starts[group : group + 2].tolist()
        wanted[group] = rows.clip(start, stop).shift(-start)
    in_part = [g for g, part in wanted.items() if part.num_rows < file.num_rows_in(g)]
    file.page_indexes.load([(group, leaf) for group in in_part for leaf in leaves], [])
    return wanted


def _selector(file: OpenedFile, group: int, rows: RowRanges) -> Callable[[int], ChunkSelection]:
    """What selects ``rows`` of a row group in the chunk of a leaf."""
    count = file.num_rows_in(group)
    if rows.num_rows == count:
        return lambda leaf: whole_chunk(file.chunk(group, leaf), rows, is_wanted=True)
    selectors: dict[bool, PageSelector] = {}

    def select_in(leaf: int) -> ChunkSelection:
        repeats = file.schema.leaves[leaf].max_repetition_level > 0
        if repeats not in selectors:
            # A page's last row may go on in the next page: only that page can tell.
            held = rows | rows.shift(1) if repeats else rows
            selectors[repeats] = PageSelector(held, count)
        chunk, index = file.chunk(group, leaf), file.page_indexes.offsets(group, leaf)
        if file.damage.knows(group, leaf):  # not even to look whether a row goes on there
            return PageSelector(rows, count, by_page=True).select(chunk, index)
        return selectors[repeats].select(chunk, index)

    return select_in


def ranges_of(reads: Iterable[ColumnRead]) -> list[ByteRange]:
    """The byte ranges of all selections, in order."""
    return [r for read in reads for _, parts in read.groups for s in parts for r in s.byte_ranges]
