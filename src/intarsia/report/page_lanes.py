"""Lays out lanes: the pages of a column side by side, by the rows they hold.

::

    rows    ────▬────────────────────────▬▬──    rows that might match
    id      ▯▯▯▮▯▯▯▯▯│▯▯▯▯▯▯▯▯▯▯│▯▯▯▯▯▯▯▯▮▯▯▯    ▮ to be read, ▯ skipped, │ row groups
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from intarsia.plan.file_regions import ChunkMap
from intarsia.plan.page_ranges import ChunkSelection
from intarsia.row_ranges import Int64Array, RowRanges

MAX_PAGE_CELLS, MAX_LANE_CELLS, MIN_LANE_CELLS = 10_000, 500, 24
"""The most cells of a page, the most of one lane, and the least limit of a lane.

A cell takes about 150 bytes of HTML.
"""
Note = Callable[[ChunkMap, int], str]
"""Returns what to add about a page of a chunk, given its number."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One page, or several neighbouring ones. ``start`` and ``width`` are shares of the whole lane.

    ``share`` is the part of it that is read: 0 for none, 1 for all.
    """

    start: float
    width: float
    share: float
    pages: int
    text: str = ""


@dataclass(frozen=True, slots=True)
class Lane:
    """The pages of one column in all row groups. At most ``per_cell`` pages are drawn as one."""

    name: str
    cells: tuple[Cell, ...]
    selected: int
    total: int
    per_cell: int = 1
    without_index: int = 0
    """Chunks without a page index. Each is drawn as one page."""


def cells_in(lanes: int) -> int:
    """Returns how many cells each of ``lanes`` lanes may have."""
    return max(MIN_LANE_CELLS, min(MAX_LANE_CELLS, MAX_PAGE_CELLS // max(lanes, 1)))


def rows_lane(rows: RowRanges, num_rows: int, most: int) -> Lane:
    """Returns the lane of rows that might match, of a file's ``num_rows``."""
    if len(rows) <= most:
        starts, stops = rows.starts, rows.stops
        shares = np.ones(len(rows))
    else:
        edges = np.linspace(0, num_rows, most + 1).astype(np.int64)
        rows_per_slice = np.diff(_rows_before(rows, edges))
        starts, stops = edges[:-1][rows_per_slice > 0], edges[1:][rows_per_slice > 0]
        shares = (rows_per_slice / np.maximum(np.diff(edges), 1))[rows_per_slice > 0]
    cells = tuple(
        Cell(start / num_rows, (stop - start) / num_rows, share, 0, _rows_text(start, stop, share))
        for start, stop, share in zip(starts.tolist(), stops.tolist(), shares.tolist(), strict=True)
    )
    return Lane("rows that might match", cells, rows.num_rows, num_rows)


def _rows_before(rows: RowRanges, edges: Int64Array) -> Int64Array:
    """Returns how many of ``rows`` lie before each edge."""
    before = np.concatenate(([0], np.cumsum(rows.stops - rows.starts)))
    part = rows.starts.searchsorted(edges, side="right")
    inside = np.where(part > 0, np.minimum(edges, rows.stops[part - 1]) - rows.starts[part - 1], 0)
    counts: Int64Array = np.where(part > 0, before[part - 1] + inside, 0)
    return counts


def _rows_text(start: int, stop: int, share: float) -> str:
    some = "" if share == 1 else f", {share:.1%} of them"
    return f"rows {start:,}–{stop - 1:,}{some}"


@dataclass(frozen=True, slots=True, eq=False)
class Pages:
    """The pages of a lane in order, as arrays of shape ``(pages,)``.

    Rows count from the start of the file. ``chunk`` is the position of a page's chunk, ``number``
    the position of the page in it. ``chosen`` says whether the page is read.
    """

    starts: Int64Array
    stops: Int64Array
    sizes: Int64Array
    chunk: Int64Array
    number: Int64Array
    chosen: NDArray[np.bool_]

    @classmethod
    def of(
        cls, chunks: Sequence[ChunkMap], selections: Mapping[tuple[int, int], ChunkSelection]
    ) -> Pages:
        """Returns the pages of a column's chunks, and by ``selections`` which are read."""
        parts = [
            _pages_of(i, chunk, selections.get((chunk.row_group, chunk.leaf)))
            for i, chunk in enumerate(chunks)
        ]
        none = np.zeros(0, dtype=np.int64)
        columns = zip(*parts, strict=True) if parts else [(none,)] * 6
        return cls(*(np.concatenate(column) for column in columns))

    def __len__(self) -> int:
        return len(self.starts)


def _pages_of(
    position: int, chunk: ChunkMap, selection: ChunkSelection | None
) -> tuple[NDArray[np.generic], ...]:
    index = chunk.index
    if index is None or not len(index):
        starts, stops = np.array([0]), np.array([chunk.num_rows])
        sizes = np.array([chunk.length])
    else:
        starts, stops = index.row_bounds(chunk.num_rows)
        sizes = index.compressed_page_size
    count = len(starts)
    chosen = np.full(count, selection is not None)
    if index is not None and selection is not None and selection.page_rows:
        chosen = np.isin(index.offset, [offset for offset, _ in selection.parts])
    first = chunk.first_row
    where = np.full(count, position), np.arange(count)
    return starts + first, stops + first, sizes, *where, chosen


def lane_of(
    name: str,
    chunks: Sequence[ChunkMap],
    selections: Mapping[tuple[int, int], ChunkSelection] | None,
    num_rows: int,
    most: int,
    note: Note | None = None,
) -> Lane:
    """Returns the lane of a column with at most ``most`` cells.

    Without ``selections`` it shows where pages are, but not what is read of them. ``note`` adds to
    the text of pages that have a cell of their own.
    """
    chunks = [chunk for chunk in chunks if chunk.num_rows]
    pages = Pages.of(chunks, selections or {})
    pages_per_cell = -(-len(pages) // most) if len(pages) > most else 1
    firsts = np.arange(0, len(pages), pages_per_cell)
    lasts = np.append(firsts[1:], len(pages)) - 1
    read, sizes = (
        np.add.reduceat(column, firsts) for column in (pages.chosen.astype(int), pages.sizes)
    )
    cells = []
    for first, last, chosen, size in zip(
        firsts.tolist(), lasts.tolist(), read.tolist(), sizes.tolist(), strict=True
    ):
        start, stop = int(pages.starts[first]), int(pages.stops[last])
        count = last - first + 1
        text = f"{_place(pages, chunks, first, last)}: rows {start:,}–{stop - 1:,}, {size:,} bytes"
        if selections is not None:
            text += f", {_fate(chosen, count)}"
        if note is not None and count == 1:
            text += note(chunks[pages.chunk[first]], int(pages.number[first]))
        cells.append(Cell(start / num_rows, (stop - start) / num_rows, chosen / count, count, text))
    without = sum(chunk.index is None for chunk in chunks)
    return Lane(name, tuple(cells), int(pages.chosen.sum()), len(pages), pages_per_cell, without)


def _place(pages: Pages, chunks: Sequence[ChunkMap], first: int, last: int) -> str:
    """Returns a text that names the pages of a cell."""
    first_chunk, last_chunk = chunks[pages.chunk[first]], chunks[pages.chunk[last]]
    first_page, last_page = int(pages.number[first]), int(pages.number[last])
    if first == last and first_chunk.index is None:
        return f"row group {first_chunk.row_group:,}, the whole chunk"
    if first == last:
        return f"row group {first_chunk.row_group:,}, page {first_page:,}"
    if first_chunk is last_chunk:
        return f"row group {first_chunk.row_group:,}, pages {first_page:,}–{last_page:,}"
    return (
        f"row group {first_chunk.row_group:,}, page {first_page:,} – "
        f"row group {last_chunk.row_group:,}, page {last_page:,}"
    )


def _fate(chosen: int, count: int) -> str:
    if chosen in (0, count):
        return "to be read" if chosen else "skipped"
    return f"{chosen:,} of {count:,} to be read"
