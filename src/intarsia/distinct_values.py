"""Sorted arrays without repeats."""

from __future__ import annotations

from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

N = TypeVar("N", bound=np.generic)


def distinct(values: NDArray[N]) -> NDArray[N]:
    """Returns sorted, distinct values. ``np.unique`` hashes first, which is far slower here."""
    if len(values) < 2:
        return values
    return without_repeats(np.sort(values))


def without_repeats(values: NDArray[N]) -> NDArray[N]:
    """Returns sorted ``values`` without repeats, or ``values`` itself if there are none."""
    is_new = values[1:] != values[:-1]
    return values if is_new.all() else values[np.concatenate(([True], is_new))]
