"""Dividing the pages of one flat leaf among cores: each gets about as many rows.

::

    row groups   [p0 p1 p2]  [p3 p4 p5 p6]
    shares       [p0 p1 p2]  [p3] │ [p4 p5 p6]
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from intarsia.decode.splice import RowGroupBytes


def shares(
    groups: Sequence[RowGroupBytes], page_rows: Sequence[Sequence[int]], count: int
) -> list[list[RowGroupBytes]]:
    """``groups`` in ``count`` lists at most, and one at least, cut between pages, in order.

    ``page_rows`` are the rows of each page, by row group; none where it is not known what is one.
    """
    pages = [
        page for group, rows in zip(groups, page_rows, strict=True) for page in _pages(group, rows)
    ]
    if len(pages) < 2:
        return [list(groups)]
    ends = np.cumsum([page.num_rows for page in pages])
    cuts = np.searchsorted(ends, ends[-1] * np.arange(1, count) / count) + 1
    edges = sorted({0, *cuts.tolist(), len(pages)})
    return [list(_together(pages[start:stop])) for start, stop in itertools.pairwise(edges)]


def _pages(group: RowGroupBytes, rows: Sequence[int]) -> Iterator[RowGroupBytes]:
    """Each page as a row group."""
    (chunk,) = group.chunks
    if len(rows) < 2:
        yield group
        return
    for page, num_rows in zip(chunk.pages, rows, strict=True):
        yield RowGroupBytes(num_rows, [replace(chunk, pages=[page], num_values=num_rows)])


def _together(pages: Sequence[RowGroupBytes]) -> Iterator[RowGroupBytes]:
    """Pages of the same chunk as one row group again."""
    for _, same in itertools.groupby(pages, key=lambda page: id(page.chunks[0].metadata)):
        first, *others = same
        (chunk,) = first.chunks
        if not others:
            yield first
            continue
        rows = first.num_rows + sum(page.num_rows for page in others)
        more = [page.chunks[0].pages[0] for page in others]
        yield RowGroupBytes(rows, [replace(chunk, pages=[*chunk.pages, *more], num_values=rows)])
