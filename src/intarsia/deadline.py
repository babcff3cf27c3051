"""Stops work early: at a time limit, or when the caller no longer needs the result.

A context variable holds the current ``Stop``; tasks in threads inherit it. Work calls ``check``
between files, units, reads and pages. ``threads`` checks before each task it starts, and waits for
results until the limit at most. ``Stopped`` is not an ``Exception``, so code that continues after
errors does not continue after it. Public calls turn it into ``QueryTimeoutError``.
"""

from __future__ import annotations

import contextlib
import functools
import math
import os
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from contextvars import ContextVar
from typing import Any, ParamSpec, TypeVar

from intarsia.errors import QueryTimeoutError
from intarsia.limits import number_of_bytes

P = ParamSpec("P")
T = TypeVar("T")
_MAX_SHOWN_CHARACTERS = 200
"""Characters of a query or path that a message shows."""


class Stopped(BaseException):  # like KeyboardInterrupt, not an error
    """Raised in work that has to stop."""

    def __init__(self, stop: Stop) -> None:
        super().__init__()
        self.stop = stop

    @property
    def error(self) -> QueryTimeoutError:
        """The error that the caller gets."""
        return QueryTimeoutError(
            f"stopped at the time limit of {self.stop.seconds:g} s while {self.stop.doing}; give a "
            "longer timeout, or ask for less"
        )


class Stop:
    """Stops work after ``seconds``, after a call of ``now``, or together with the ``outer`` work.

    ``doing`` describes the work in the error. ``memory_limit`` is the number of bytes that the work
    may use; by default that of ``outer``.
    """

    __slots__ = ("_end", "_is_now", "_outer", "doing", "memory_limit", "seconds")

    def __init__(
        self,
        seconds: float | None = None,
        doing: str = "",
        outer: Stop | None = None,
        memory_limit: int | None = None,
    ) -> None:
        self.seconds, self.doing, self._outer = seconds or 0.0, doing, outer
        self.memory_limit: int | None = memory_limit
        if memory_limit is None and outer is not None:
            self.memory_limit = outer.memory_limit
        self._end = math.inf if seconds is None else time.monotonic() + seconds
        self._is_now = False

    def now(self) -> None:
        """Stops the work at its next check."""
        self._is_now = True

    def check(self) -> None:
        """Raises ``Stopped`` if the work has to stop."""
        stop: Stop | None = self
        while stop is not None:
            if stop._is_now or time.monotonic() >= stop._end:
                raise Stopped(stop)
            stop = stop._outer

    @property
    def seconds_left(self) -> float | None:
        """Seconds until the limit, or None without a limit."""
        end = self._earliest_end
        return None if end == math.inf else max(end - time.monotonic(), 0.0)

    @property
    def _earliest_end(self) -> float:
        return self._end if self._outer is None else min(self._end, self._outer._earliest_end)


_current: ContextVar[Stop | None] = ContextVar("_current", default=None)


def current() -> Stop | None:
    """Returns the ``Stop`` of this context, or None."""
    return _current.get()


def check() -> None:
    """Raises ``Stopped`` if the work of this context has to stop."""
    stop = _current.get()
    if stop is not None:
        stop.check()


def is_limited() -> bool:
    """True if the work of this context has a time limit."""
    return seconds_left() is not None


def seconds_left() -> float | None:
    """Returns the seconds until the limit of this context, or None without a limit."""
    stop = _current.get()
    return None if stop is None else stop.seconds_left


def pause(seconds: float) -> None:
    """Sleeps for ``seconds``, or until the limit. Raises ``Stopped`` at the limit."""
    remaining = seconds_left()
    time.sleep(seconds if remaining is None else min(seconds, remaining))
    check()


@contextlib.contextmanager
def active(stop: Stop | None) -> Iterator[None]:
    """Makes ``stop`` the ``Stop`` of the block. With None nothing stops it, as for cleaning up."""
    before = _current.set(stop)
    try:
        yield
    finally:
        _current.reset(before)


def iterate_active(stop: Stop | None, items: Iterable[T]) -> Generator[T]:
    """Yields ``items``. The code that makes each item runs with ``stop``."""
    iterator = iter(items)
    try:
        while True:
            with active(stop):
                check()
                try:
                    item = next(iterator)
                except StopIteration:
                    return
            yield item
    finally:
        close = getattr(iterator, "close", None)
        if close is not None:
            close()


@contextlib.contextmanager
def time_limit(
    timeout: float | None, doing: str, memory_limit: int | str | None = None
) -> Iterator[None]:
    """Raises ``QueryTimeoutError`` if the block takes longer than ``timeout`` seconds.

    None is no limit. ``memory_limit`` is as for ``set_memory_limit``. Raises ``TypeError`` or
    ``ValueError`` for an invalid limit.
    """
    stop = stop_after(timeout, doing, memory_limit)
    if stop is None:
        yield
        return
    with active(stop), as_timeout_error(stop):
        yield


def stop_after(
    timeout: float | None, doing: str, memory_limit: int | str | None = None
) -> Stop | None:
    """Returns a ``Stop`` with these limits, or None without a limit.

    Raises ``TypeError`` or ``ValueError`` for an invalid limit, as ``time_limit`` does.
    """
    limit_bytes = number_of_bytes(memory_limit)
    if timeout is None:
        return None if limit_bytes is None else Stop(None, doing, _current.get(), limit_bytes)
    if isinstance(timeout, bool) or not isinstance(timeout, int | float):
        raise TypeError(f"timeout is a number of seconds, not {timeout!r}")
    if not 0 < timeout < math.inf:
        raise ValueError(f"timeout is a number of seconds above 0, not {timeout!r}")
    return Stop(timeout, doing, _current.get(), limit_bytes)


@contextlib.contextmanager
def as_timeout_error(stop: Stop) -> Iterator[None]:
    """Turns ``Stopped`` by ``stop`` into ``QueryTimeoutError``."""
    try:
        yield
    except Stopped as stopped:
        if stopped.stop is not stop:  # an outer call has the limit
            raise
        raise stopped.error from None


def time_limited(doing: str) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Decorates a function: implements its arguments ``timeout`` and ``memory_limit``.

    The function itself ignores both. ``doing`` and its first argument, a path or query, describe
    the work in the error.
    """

    def decorated(function: Callable[P, T]) -> Callable[P, T]:
        @functools.wraps(function)
        def limited(*args: P.args, **kwargs: P.kwargs) -> T:
            timeout: Any = kwargs.pop("timeout", None)
            memory_limit: Any = kwargs.pop("memory_limit", None)
            if timeout is None and memory_limit is None:
                return function(*args, **kwargs)
            subject = args[0] if args else kwargs.get("path", "")
            with time_limit(timeout, f"{doing} {shown(subject)}", memory_limit):
                return function(*args, **kwargs)

        return limited

    return decorated


def shown(what: object) -> str:
    """Returns a path, query or data set as messages show it, on one line."""
    if isinstance(what, list | tuple) and what:
        others = f" and {len(what) - 1:,} more" if len(what) > 1 else ""
        return f"{shown(what[0])}{others}"
    text = os.fspath(what) if isinstance(what, str | os.PathLike) else repr(what)
    text = " ".join(text.split())
    return text if len(text) <= _MAX_SHOWN_CHARACTERS else f"{text[:_MAX_SHOWN_CHARACTERS]}…"
