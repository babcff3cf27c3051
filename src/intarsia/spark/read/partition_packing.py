"""Divides a plan into tasks of about even work.

The candidate rows of all files lie on a line, file after file, whose length is the bytes to read.
The line is cut at even distances. Each cut moves to the nearest edge: the end of a file, or in
large files the edge of a row group or of a page of its largest column::

    file 1          file 2                                       file 3  file 4
    ├──────┤├──────────┼──────────┼──────────┼──────────┤├──┤├──┤
             task 1          ╎            task 2           ╎       task 3
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from intarsia.file.file_view import OWN_VIEW, FileView
from intarsia.file.open_file import OpenedFile
from intarsia.plan.plan import FilePlan, PlannedRead
from intarsia.row_ranges import Int64Array, RowRanges

TASK_BYTES = 64 * 1024 * 1024
"""Target of planned bytes per task. A task costs some 15 ms, however little it reads."""
SPLIT_BYTES = 4 * 1024 * 1024
"""Files with fewer planned bytes are not split."""
OPENING_BYTES = 64 * 1024
"""Opening a file takes about as long as reading this many bytes."""


@dataclass(frozen=True, slots=True)
class Piece:
    """The part of a file that one task reads: candidate ``rows`` in the row range ``within``.

    If pages contradict the plan, the file is planned again; the task then reads only rows
    ``within``.
    """

    path: str
    binding: str
    rows: RowRanges
    within: tuple[int, int]
    constants: dict[str, pa.Scalar]
    num_bytes: int
    view: FileView = OWN_VIEW


Task = tuple[Piece, ...]
Opened = Callable[[str], OpenedFile]
"""A function that opens the file at a path."""


@dataclass(frozen=True, slots=True)
class _Edges:
    """Rows at which a file can be cut, ascending to its end, and the bytes before each."""

    rows: Int64Array
    num_bytes: npt.NDArray[np.float64]


def pack(
    files: Sequence[FilePlan],
    parallelism: int,
    opened: Opened,
    view: Callable[[str], FileView] = lambda path: OWN_VIEW,
) -> list[Task]:
    """Returns about ``parallelism`` tasks of equal bytes; more only if each has ``TASK_BYTES``.

    ``view`` returns how the file at a path is read as part of its table.
    """
    if not files:
        return []
    edges_of_files = [_edges(file, opened) for file in files]
    sizes = [float(file_edges.num_bytes[-1]) + OPENING_BYTES for file_edges in edges_of_files]
    file_starts = np.concatenate(([0.0], np.cumsum(sizes)))
    total = float(file_starts[-1])
    count = max(parallelism, int(-(-total // TASK_BYTES)))
    cut_points = [
        (start + float(offset), number, int(row))
        for number, (start, file_edges) in enumerate(
            zip(file_starts.tolist(), edges_of_files, strict=False)
        )
        for row, offset in zip(file_edges.rows[:-1], file_edges.num_bytes[:-1], strict=True)
    ]
    cut_points += [(float(end), number + 1, 0) for number, end in enumerate(file_starts[1:])]
    cut_points.sort()
    offsets = np.array([offset for offset, *_ in cut_points])
    cuts = [(0, 0)]
    for target in np.arange(1, count + 1) * (total / count):
        nearest_after = min(int(np.searchsorted(offsets, target)), len(cut_points) - 1)
        _, number, row = min(
            cut_points[max(nearest_after - 1, 0) : nearest_after + 1],
            key=lambda s: abs(s[0] - target),
        )
        if (number, row) > cuts[-1]:
            cuts.append((number, row))
    tasks = (
        tuple(_pieces_between(files, edges_of_files, view, *ends))
        for ends in itertools.pairwise(cuts)
    )
    return [task for task in tasks if task]


def _pieces_between(
    files: Sequence[FilePlan],
    edges_of_files: Sequence[_Edges],
    view: Callable[[str], FileView],
    start: tuple[int, int],
    stop: tuple[int, int],
) -> Iterator[Piece]:
    """Yields the pieces between two cuts; a cut is a file's number and a row in it."""
    for number in range(start[0], min(stop[0] + 1, len(files))):
        file, edges = files[number], edges_of_files[number]
        first = start[1] if number == start[0] else 0
        last = stop[1] if number == stop[0] else int(edges.rows[-1])
        rows = file.rows.clip(first, last)
        if rows:
            before, after = np.interp([first, last], edges.rows, edges.num_bytes)
            num_bytes = int(after - before)
            own = file.path, file.binding, rows, (first, last), file.constants, num_bytes
            yield Piece(*own, view(file.path))


def _edges(file: FilePlan, opened: Opened) -> _Edges:
    """Returns the edges of a file, starting at row 0 and byte 0."""
    total = file.figures.bytes.selected
    if total < SPLIT_BYTES:
        return _Edges(np.array([0, file.figures.rows.total]), np.array([0.0, total]))
    source = opened(file.path)
    by_group: dict[int, list[PlannedRead]] = {}
    for read in file.reads:
        by_group.setdefault(read.row_group, []).append(read)
    rows, sizes, bytes_before = [np.zeros(1, np.int64)], [np.zeros(1)], 0.0
    for group, reads in sorted(by_group.items()):
        start, stop = source.row_group_starts[group : group + 2].tolist()
        size = float(sum(read.selection.num_bytes for read in reads))
        edges = np.append(_page_edges(source, reads) + start, stop)
        candidates = file.rows.clip(start, stop)
        share = _rows_before(candidates, edges) / candidates.num_rows
        rows.append(edges)
        sizes.append(bytes_before + size * share)
        bytes_before += size
    rows[-1][-1] = file.figures.rows.total  # row groups without candidates may follow
    return _Edges(np.concatenate(rows), np.concatenate(sizes))


def _page_edges(file: OpenedFile, reads: Sequence[PlannedRead]) -> Int64Array:
    """Returns the first rows of pages of the largest column; none without page indexes."""
    indexes = [file.page_indexes.offsets(read.row_group, read.leaf) for read in reads]
    largest = indexes[int(np.argmax([read.selection.num_bytes for read in reads]))]
    if largest is None or any(index is None or not len(index) for index in indexes):
        return np.zeros(0, np.int64)
    return largest.first_row_index[1:]


def _rows_before(rows: RowRanges, edges: Int64Array) -> npt.NDArray[np.float64]:
    """Returns how many of ``rows`` come before each of ``edges``."""
    rows_before_range = np.concatenate(([0], np.cumsum(rows.stops - rows.starts)))
    range_index = np.searchsorted(rows.starts, edges, side="left")
    beyond = np.maximum(rows.stops[np.maximum(range_index, 1) - 1] - edges, 0)
    num_rows: npt.NDArray[np.float64] = (
        rows_before_range[range_index] - np.where(range_index > 0, beyond, 0)
    ).astype(np.float64)
    return num_rows
