"""Makes the fixed cases that index kinds are checked with, before Hypothesis makes random ones.

Each granule holds one value many times. NULL and NaN are among the values: kinds often forget them.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from intarsia.testing.strategies import COMPARISONS, SEARCHES, example_values

BLOCK_ROWS = 3
"""Rows of one cell. They are a row group of their own, as a granule never crosses row groups."""
_MAX_VALUES = 4
"""The most values that are not NULL or NaN."""


def cells_of(kind: pa.DataType, extra: Sequence[Any]) -> list[Any]:
    """Returns the first few of ``extra``, or usual values if there are none, with NULL and NaN."""
    values = [value for value in extra if value is not None] or example_values(kind)
    values = values[:_MAX_VALUES]
    return [*values, None, *[math.nan] * pa.types.is_floating(kind)]


def blocks_of(kind: pa.DataType, cells: Sequence[Any]) -> pa.Array:
    """Returns each of ``cells`` ``BLOCK_ROWS`` times."""
    return pa.array([cell for cell in cells for _ in range(BLOCK_ROWS)], kind)


def all_conditions(
    subject: pc.Expression, kind: pa.DataType, cells: Sequence[Any], searches: Sequence[str]
) -> Iterator[pc.Expression]:
    """Yields comparisons of ``subject`` with ``cells``, IN lists, searches, and their negations."""
    for condition in itertools.chain(
        [subject.is_null()],
        [pc.is_nan(subject)] * pa.types.is_floating(kind),
        _comparisons(subject, kind, cells),
        (
            subject.isin(pa.array(members, kind))
            for cell in cells
            for members in ([cell], [cell, None])
        ),
        _searches(subject, cells, [SEARCHES[name] for name in searches]),
    ):
        yield condition
        yield ~condition


def _comparisons(
    subject: pc.Expression, kind: pa.DataType, cells: Sequence[Any]
) -> Iterator[pc.Expression]:
    for cell, compare in itertools.product(cells, COMPARISONS):
        yield compare(subject, pc.scalar(pa.scalar(cell, kind)))


def _searches(
    subject: pc.Expression, cells: Sequence[Any], searches: Sequence[Callable[..., pc.Expression]]
) -> Iterator[pc.Expression]:
    strings = [cell for cell in cells if isinstance(cell, str)]
    for string, search, ignore_case in itertools.product(strings, searches, (False, True)):
        yield search(subject, _plain(string), ignore_case=ignore_case)


def _plain(string: str) -> str:
    """Returns the string without characters that have a meaning in patterns."""
    return "".join(c for c in string if c.isalnum() or c == " ")
