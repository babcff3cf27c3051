"""Dividing a plan into tasks of about even work.

The candidates of all files lie on a line, file after file, as long as the bytes to read for them.
It is cut at even distances, each cut moved to the nearest edge: the end of a file, or, in files of
which there is much to read, the edge of a row group or of a page of its largest column::

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

from intarsia.file.open_file import OpenedFile
from intarsia.plan.plan import FilePlan, PlannedRead
from intarsia.row_ranges import Int64Array, RowRanges

TASK_BYTES = 64 * 1024 * 1024
"""About how many planned bytes one task reads; a task costs some 15 ms whatever it reads."""
SPLIT_BYTES = 4 * 1024 * 1024
"""Files of which less is to be read are not split."""
OPENING_BYTES = 64 * 1024
"""What opening a file counts for."""


@dataclass(frozen=True, slots=True)
class Piece:
    """The part of a file that a task reads: its candidates ``rows``, all of them ``within``.

    Where pages belie the plan, the file is planned again, and read ``within`` no more than that.
    """

    path: str
    binding: str
    rows: RowRanges
    within: tuple[int, int]
    constants: dict[str, pa.Scalar]
    num_bytes: int


Task = tuple[Piece, ...]
Opened = Callable[[str], OpenedFile]
"""Gives a file by its path."""


@dataclass(frozen=True, slots=True)
class _Edges:
    """Where a file can be cut: rows, and how many bytes there are to read before each of them.

    Both ascend; the last of them is the file's end.
    """

    rows: Int64Array
    num_bytes: npt.NDArray[np.float64]


def pack(files: Sequence[FilePlan], parallelism: int, opened: Opened) -> list[Task]:
    """Tasks of about equal planned bytes, in the order of the files.

    ``parallelism`` tasks where the files can be divided so; more only where each has ``TASK_BYTES``
    to read.
    """
    if not files:
        return []
    edges = [_edges(file, opened) for file in files]
    sizes = [float(found.num_bytes[-1]) + OPENING_BYTES for found in edges]
    starts = np.concatenate(([0.0], np.cumsum(sizes)))
    total = float(starts[-1])
    count = max(parallelism, int(-(-total // TASK_BYTES)))
    spots = [
        (start + float(at), number, int(row))
        for number, (start, found) in enumerate(zip(starts.tolist(), edges, strict=False))
        for row, at in zip(found.rows[:-1], found.num_bytes[:-1], strict=True)
    ]
    spots += [(float(end), number + 1, 0) for number, end in enumerate(starts[1:])]
    spots.sort()
    places = np.array([at for at, *_ in spots])
    cuts = [(0, 0)]
    for target in np.arange(1, count + 1) * (total / count):
        after = min(int(np.searchsorted(places, target)), len(spots) - 1)
        _, number, row = min(spots[max(after - 1, 0) : after + 1], key=lambda s: abs(s[0] - target))
        if (number, row) > cuts[-1]:
            cuts.append((number, row))
    tasks = (tuple(_between(files, edges, *ends)) for ends in itertools.pairwise(cuts))
    return [task for task in tasks if task]


def _between(
    files: Sequence[FilePlan],
    edges: Sequence[_Edges],
    start: tuple[int, int],
    stop: tuple[int, int],
) -> Iterator[Piece]:
    """What lies between two cuts, each a file's number and a row of it."""
    for number in range(start[0], min(stop[0] + 1, len(files))):
        file, found = files[number], edges[number]
        first = start[1] if number == start[0] else 0
        last = stop[1] if number == stop[0] else int(found.rows[-1])
        rows = file.rows.clip(first, last)
        if rows:
            before, after = np.interp([first, last], found.rows, found.num_bytes)
            yield Piece(
                file.path, file.binding, rows, (first, last), file.constants, int(after - before)
            )


def _edges(file: FilePlan, opened: Opened) -> _Edges:
    """From the file's first row, where nothing has been read."""
    total = file.figures.bytes.selected
    if total < SPLIT_BYTES:
        return _Edges(np.array([0, file.figures.rows.total]), np.array([0.0, total]))
    source = opened(file.path)
    by_group: dict[int, list[PlannedRead]] = {}
    for read in file.reads:
        by_group.setdefault(read.row_group, []).append(read)
    rows, sizes, before = [np.zeros(1, np.int64)], [np.zeros(1)], 0.0
    for group, reads in sorted(by_group.items()):
        start, stop = source.row_group_starts[group : group + 2].tolist()
        size = float(sum(read.selection.num_bytes for read in reads))
        edges = np.append(_page_edges(source, reads) + start, stop)
        wanted = file.rows.clip(start, stop)
        share = _rows_before(wanted, edges) / wanted.num_rows
        rows.append(edges)
        sizes.append(before + size * share)
        before += size
    rows[-1][-1] = file.figures.rows.total  # row groups without candidates may follow
    return _Edges(np.concatenate(rows), np.concatenate(sizes))


def _page_edges(file: OpenedFile, reads: Sequence[PlannedRead]) -> Int64Array:
    """The first rows of pages but the first, of the column of which most is read.

    Empty where a column has no page index: each part would read all of its chunk.
    """
    indexes = [file.page_indexes.offsets(read.row_group, read.leaf) for read in reads]
    largest = indexes[int(np.argmax([read.selection.num_bytes for read in reads]))]
    if largest is None or any(index is None or not len(index) for index in indexes):
        return np.zeros(0, np.int64)
    return largest.first_row_index[1:]


def _rows_before(rows: RowRanges, edges: Int64Array) -> npt.NDArray[np.float64]:
    """How many of ``rows`` come before each of ``edges``."""
    counted = np.concatenate(([0], np.cumsum(rows.stops - rows.starts)))
    at = np.searchsorted(rows.starts, edges, side="left")
    beyond = np.maximum(rows.stops[np.maximum(at, 1) - 1] - edges, 0)
    found: npt.NDArray[np.float64] = (counted[at] - np.where(at > 0, beyond, 0)).astype(np.float64)
    return found
