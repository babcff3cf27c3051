"""State that the threads of a process share: one place to drop it, and one hook for forks.

A forked child has a copy of the state and only the thread that forked. A lock that another thread
held stays locked in the child for ever, and what that thread was changing stays half changed. So
the child opens every ``ForkLock`` and drops every ``SharedState``. Both register weakly.
"""

from __future__ import annotations

import os
import sys
import threading
import weakref
from functools import cached_property as _cached_property
from typing import TYPE_CHECKING, Any


class ForkLock:
    """A lock that is open in a forked child, whoever held it in the parent."""

    __slots__ = ("__weakref__", "_lock")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        _locks.add(self)

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *exception: object) -> None:
        self.release()

    def acquire_now(self) -> bool:
        """Acquires the lock if it is free, and says whether it did. ``release`` opens it."""
        return self._lock.acquire(blocking=False)

    def release(self) -> None:
        self._lock.release()

    def renew(self) -> None:
        """Open the lock. Only a forked child may do so, which has no other threads."""
        self._lock = threading.Lock()


class SharedState:
    """State that can be made again at any time: caches, pools, connections.

    Subclasses call ``super().__init__()`` last: from then on, a fork in another thread calls
    ``after_fork``.
    """

    def __init__(self) -> None:
        _states.add(self)

    def clear(self) -> None:
        """Drop the state. Threads may use it meanwhile."""
        raise NotImplementedError

    def release_handles(self) -> None:
        """Close handles of the operating system that can be opened again."""

    def after_fork(self) -> None:
        """Drop the state in a forked child. All locks are open."""
        self.clear()


_locks: weakref.WeakSet[ForkLock] = weakref.WeakSet()
_states: weakref.WeakSet[SharedState] = weakref.WeakSet()
_abandoned: list[object] = []
importing = threading.RLock()
"""Held while a module is imported late, so that no fork leaves a half-done import to the child."""


def clear() -> None:
    """Drop all state that threads of this process share: later queries begin as a first one does.

    Queries under way go on.
    """
    for state in list(_states):
        state.clear()


def release_handles() -> None:
    """Close what handles of the operating system can be opened again: there are too many."""
    for state in list(_states):
        state.release_handles()


def abandon(thing: object) -> None:
    """Keep what a forked child has from its parent, and never close it.

    Closing might wait for threads that the child does not have.
    """
    _abandoned.append(thing)


def _after_fork() -> None:
    importing.release()
    for lock in list(_locks):
        lock.renew()
    for state in list(_states):
        state.after_fork()


os.register_at_fork(
    before=importing.acquire, after_in_parent=importing.release, after_in_child=_after_fork
)

if TYPE_CHECKING or sys.version_info >= (3, 12):
    cached_property = _cached_property
else:

    class cached_property:  # noqa: N801 # as in functools
        """``functools.cached_property`` without the lock that it has in Python 3.11.

        All instances of a class share that lock, and threads hold it while they read files. Here
        two threads may both compute the value; the first one stays.
        """

        def __init__(self, function: Any) -> None:
            self._function, self.__doc__ = function, function.__doc__

        def __set_name__(self, owner: type, name: str) -> None:
            self._name = name

        def __get__(self, instance: Any, owner: type | None = None) -> Any:
            if instance is None:
                return self
            return instance.__dict__.setdefault(self._name, self._function(instance))
