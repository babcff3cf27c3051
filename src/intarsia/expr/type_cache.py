"""Results kept by Arrow types, of which those that a user registers need have no hash."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


def kept(function: Callable[P, T]) -> Callable[P, T]:
    """``function``, whose last 256 results are kept, as far as its arguments have a hash."""
    known = functools.lru_cache(maxsize=256)(function)

    @functools.wraps(function)
    def result(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return known(*args, **kwargs)  # type: ignore[arg-type]  # whether they have one shows
        except TypeError:
            return function(*args, **kwargs)

    return result
