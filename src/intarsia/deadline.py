"""Work that is stopped before its end: at a time limit, or when its caller no longer waits for it.

A ``Stop`` is carried in a context variable, which tasks in threads inherit. Work calls ``check`` at
the boundaries of files, units, reads and pages. ``parallel`` does so for everything that it hands
out, and waits for results no longer than the limit. ``Stopped`` is no ``Exception``: code that
goes on after an error must not go on after it. A public call turns it into ``QueryTimeoutError``.
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
_MAX_SHOWN = 200
"""Characters of a query or path in a message."""


class Stopped(BaseException):  # like KeyboardInterrupt, it is no error
    """Raised in work that has to stop."""

    def __init__(self, stop: Stop) -> None:
        super().__init__()
        self.stop = stop

    @property
    def error(self) -> QueryTimeoutError:
        """The error for the caller."""
        return QueryTimeoutError(
            f"stopped at the time limit of {self.stop.seconds:g} s while {self.stop.doing}; give a "
            "longer timeout, or ask for less"
        )


class Stop:
    """Tells work when to stop: after ``seconds``, if given, once ``now`` is called, or with the
    work that it is a part of.

    ``memory_limit`` is the number of bytes that the work may take, if it has a limit of its own.
    """

    __slots__ = ("_is_now", "_outer", "_until", "doing", "memory_limit", "seconds")

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
        self._until = math.inf if seconds is None else time.monotonic() + seconds
        self._is_now = False

    def now(self) -> None:
        """Has the work stop at its next check."""
        self._is_now = True

    def check(self) -> None:
        """Raises ``Stopped`` if the work has to stop."""
        stop: Stop | None = self
        while stop is not None:
            if stop._is_now or time.monotonic() >= stop._until:
                raise Stopped(stop)
            stop = stop._outer

    @property
    def seconds_left(self) -> float | None:
        """How long the work may go on; None without a limit."""
        until = self._soonest
        return None if until == math.inf else max(until - time.monotonic(), 0.0)

    @property
    def _soonest(self) -> float:
        return self._until if self._outer is None else min(self._until, self._outer._soonest)


_current: ContextVar[Stop | None] = ContextVar("_current", default=None)


def current() -> Stop | None:
    """Returns what tells the work of this context to stop. None if nothing does."""
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
    """How long the work of this context may go on; None without a limit."""
    stop = _current.get()
    return None if stop is None else stop.seconds_left


def pause(seconds: float) -> None:
    """Sleeps for ``seconds``, or until the limit; then raises ``Stopped`` if that has come."""
    left = seconds_left()
    time.sleep(seconds if left is None else min(seconds, left))
    check()


@contextlib.contextmanager
def active(stop: Stop | None) -> Iterator[None]:
    """A context that ``stop`` stops. With None, nothing stops it, as tidying up needs."""
    before = _current.set(stop)
    try:
        yield
    finally:
        _current.reset(before)


def each_active(stop: Stop | None, items: Iterable[T]) -> Generator[T]:
    """Yields ``items``, each of which is made in the context of ``stop``."""
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
    """A context that raises ``QueryTimeoutError`` after ``timeout`` seconds; None is no limit.

    ``memory_limit`` is as for ``set_memory_limit``. Raises ``TypeError`` or ``ValueError`` for a
    limit that is no positive number.
    """
    stop = stop_after(timeout, doing, memory_limit)
    if stop is None:
        yield
        return
    with active(stop), telling_of(stop):
        yield


def stop_after(
    timeout: float | None, doing: str, memory_limit: int | str | None = None
) -> Stop | None:
    """Returns the ``Stop`` of a call with these limits; None without one. As ``time_limit``."""
    most = number_of_bytes(memory_limit)
    if timeout is None:
        return None if most is None else Stop(None, doing, _current.get(), most)
    if isinstance(timeout, bool) or not isinstance(timeout, int | float):
        raise TypeError(f"timeout is a number of seconds, not {timeout!r}")
    if not 0 < timeout < math.inf:
        raise ValueError(f"timeout is a number of seconds above 0, not {timeout!r}")
    return Stop(timeout, doing, _current.get(), most)


@contextlib.contextmanager
def telling_of(stop: Stop) -> Iterator[None]:
    """A context in which ``Stopped`` by ``stop`` becomes ``QueryTimeoutError``."""
    try:
        yield
    except Stopped as stopped:
        if stopped.stop is not stop:  # a call around this one has the limit
            raise
        raise stopped.error from None


def time_limited(doing: str) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Gives effect to the arguments ``timeout`` and ``memory_limit`` of a function.

    The function itself ignores them.

    ``doing`` and the first argument, a path or query, name the work in the error.
    """

    def decorated(function: Callable[P, T]) -> Callable[P, T]:
        @functools.wraps(function)
        def limited(*args: P.args, **kwargs: P.kwargs) -> T:
            timeout: Any = kwargs.pop("timeout", None)
            memory_limit: Any = kwargs.pop("memory_limit", None)
            if timeout is None and memory_limit is None:
                return function(*args, **kwargs)
            what = args[0] if args else kwargs.get("path", "")
            with time_limit(timeout, f"{doing} {shown(what)}", memory_limit):
                return function(*args, **kwargs)

        return limited

    return decorated


def shown(what: object) -> str:
    """Returns a path, query or data set as a message names it."""
    if isinstance(what, list | tuple) and what:
        others = f" and {len(what) - 1:,} more" if len(what) > 1 else ""
        return f"{shown(what[0])}{others}"
    text = os.fspath(what) if isinstance(what, str | os.PathLike) else repr(what)
    text = " ".join(text.split())
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}…"
