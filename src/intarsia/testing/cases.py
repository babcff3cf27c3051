"""Cases that every kind of index is put through, before Hypothesis makes its own.

Each granule holds one cell over and over, NULL or NaN among them, as these are what kinds forget.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from intarsia.testing.strategies import COMPARISONS, SEARCHES, usual_of

BLOCK_ROWS = 3
"""Rows of one cell, in a row group of their own: a granule does not go beyond one."""
_MOST_VALUES = 4


def cells_of(kind: pa.DataType, extra: Sequence[Any]) -> list[Any]:
    """The first few of ``extra``, or usual ones where there are none; NULL; and NaN of floats."""
    values = [value for value in extra if value is not None] or usual_of(kind)
    values = values[:_MOST_VALUES]
    return [*values, None, *[math.nan] * pa.types.is_floating(kind)]


def blocks_of(kind: pa.DataType, cells: Sequence[Any]) -> pa.Array:
    """Each of ``cells``, ``BLOCK_ROWS`` times."""
    return pa.array([cell for cell in cells for _ in range(BLOCK_ROWS)], kind)


def all_conditions(
    subject: pc.Expression, kind: pa.DataType, cells: Sequence[Any], searches: Sequence[str]
) -> Iterator[pc.Expression]:
    """Comparisons of ``subject`` with each of ``cells``, sets of them, and searches for them."""
    for found in itertools.chain(
        [subject.is_null()],
        [pc.is_nan(subject)] * pa.types.is_floating(kind),
        _comparisons(subject, kind, cells),
        (subject.isin(pa.array(some, kind)) for cell in cells for some in ([cell], [cell, None])),
        _searches(subject, cells, [SEARCHES[name] for name in searches]),
    ):
        yield found
        yield ~found


def _comparisons(
    subject: pc.Expression, kind: pa.DataType, cells: Sequence[Any]
) -> Iterator[pc.Expression]:
    for cell, compare in itertools.product(cells, COMPARISONS):
        yield compare(subject, pc.scalar(pa.scalar(cell, kind)))


def _searches(
    subject: pc.Expression, cells: Sequence[Any], searches: Sequence[Callable[..., pc.Expression]]
) -> Iterator[pc.Expression]:
    texts = [cell for cell in cells if isinstance(cell, str)]
    for text, search, ignore_case in itertools.product(texts, searches, (False, True)):
        yield search(subject, _plain(text), ignore_case=ignore_case)


def _plain(text: str) -> str:
    """The text without what a pattern means otherwise."""
    return "".join(c for c in text if c.isalnum() or c == " ")
