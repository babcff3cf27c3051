"""A cache of results by Arrow types. Types that a user registers may have no hash."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


def cached_by_type(function: Callable[P, T]) -> Callable[P, T]:
    """Returns ``function`` with its last 256 results cached.

    Calls with arguments that have no hash are not cached.
    """
    known = functools.lru_cache(maxsize=256)(function)

    @functools.wraps(function)
    def result(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return known(*args, **kwargs)  # type: ignore[arg-type]  # whether they have one shows
        except TypeError:
            return function(*args, **kwargs)

    return result
