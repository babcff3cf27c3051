"""Divides the pages of one flat leaf among threads: each gets about as many rows.

::

row groups   [p0 p1 p2]  [p3 p4 p5 p6]
shares       [p0 p1 p2]  [p3] │ [p4 p5 p6]
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from intarsia.decode.splice import RowGroupBytes


def shares(
    groups: Sequence[RowGroupBytes], page_rows: Sequence[Sequence[int]], count: int
) -> list[list[RowGroupBytes]]:
    """Returns ``groups`` in at most ``count`` lists, cut between pages where these are known."""
    group_page_rows = [
        rows or (group.num_rows,) for group, rows in zip(groups, page_rows, strict=True)
    ]
    ends = np.cumsum([num_rows for rows in group_page_rows for num_rows in rows])
    if len(ends) < 2:
        return [list(groups)]
    first_pages = [0, *itertools.accumulate(map(len, group_page_rows))]
    cuts = np.searchsorted(ends, ends[-1] * np.arange(1, count) / count) + 1
    edges = sorted({0, *cuts.tolist(), len(ends)})
    return [
        [
            _with_pages(group, rows, slice(max(start - first, 0), stop - first))
            for group, rows, first in zip(groups, group_page_rows, first_pages, strict=False)
            if first < stop and first + len(rows) > start
        ]
        for start, stop in itertools.pairwise(edges)
    ]


def _with_pages(group: RowGroupBytes, page_rows: Sequence[int], pages: slice) -> RowGroupBytes:
    """Returns the given pages of a row group."""
    rows = page_rows[pages]
    if len(rows) == len(page_rows):
        return group
    (chunk,) = group.chunks
    part = chunk._replace(pages=chunk.pages[pages], num_values=sum(rows))
    return RowGroupBytes(part.num_values, [part])
