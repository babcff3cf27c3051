"""State that all threads of a process share: one function drops it, one hook handles forks.

A forked child has a copy of the state, but only the thread that forked. A lock that another thread
held stays locked in the child, and a change that it was making stays incomplete. So the child
releases every ``ForkLock`` and drops every ``SharedState``. Both are registered by weak references.
"""

from __future__ import annotations

import gc
import os
import threading
import weakref
from typing import TYPE_CHECKING, Any


class ForkLock:
    """A lock that is released in a forked child, even if another thread of the parent held it."""

    __slots__ = ("__weakref__", "_lock")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        _locks.add(self)

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *exception: object) -> None:
        self._lock.release()

    def acquire_now(self) -> bool:
        """Acquires the lock if it is free. Returns True if it was acquired."""
        return self._lock.acquire(blocking=False)

    def release(self) -> None:
        self._lock.release()

    def renew(self) -> None:
        """Releases the lock. Only for a forked child, which has no other threads."""
        self._lock = threading.Lock()


class SharedState:
    """State that can be rebuilt at any time: caches, pools, connections.

    Subclasses call ``super().__init__()`` last: from then on, a fork in another thread calls
    ``after_fork``.
    """

    def __init__(self) -> None:
        _states.add(self)

    def clear(self) -> None:
        """Drops the state, which other threads may be using."""
        raise NotImplementedError

    def release_handles(self) -> None:
        """Closes handles of the operating system that can be opened again."""

    def after_fork(self) -> None:
        """Drops the state in a forked child, where all locks are free."""
        self.clear()


class _CollectionPause(SharedState):
    """Pauses Python's garbage collector while any thread is in a ``with`` of it.

    A long condition makes hundreds of thousands of objects, all of which stay. The collector looks
    at them again and again, which takes as long as making them.
    """

    def __init__(self) -> None:
        self._lock, self._threads, self._was_enabled = ForkLock(), 0, False
        super().__init__()

    def __enter__(self) -> None:
        with self._lock:
            if not self._threads:
                self._was_enabled = gc.isenabled()
            self._threads += 1
            gc.disable()

    def __exit__(self, *exception: object) -> None:
        with self._lock:
            if self._threads == 1 and self._was_enabled:
                gc.enable()
            self._threads -= 1

    def clear(self) -> None:
        """Changes nothing: the threads end the pause."""

    def after_fork(self) -> None:
        if self._threads and self._was_enabled:  # by threads that the child does not have
            gc.enable()
        self._threads = 0


_locks: weakref.WeakSet[ForkLock] = weakref.WeakSet()
_states: weakref.WeakSet[SharedState] = weakref.WeakSet()
_abandoned: list[object] = []
without_collection = _CollectionPause()
importing = threading.RLock()
"""Held during late imports, so that a forked child never has a half-finished import."""


def clear() -> None:
    """Drops all state that threads of this process share. Later queries start without caches.

    Running queries continue.
    """
    for state in list(_states):
        state.clear()


def release_handles() -> None:
    """Closes handles of the operating system that can be opened again. For too many open files."""
    for state in list(_states):
        state.release_handles()


def abandon(parent_object: object) -> None:
    """Keeps an object of the parent process alive in a forked child, so that it is never closed.

    Closing might wait for threads that the child does not have.
    """
    _abandoned.append(parent_object)


def _after_fork() -> None:
    importing.release()
    for lock in list(_locks):
        lock.renew()
    for state in list(_states):
        state.after_fork()


os.register_at_fork(
    before=importing.acquire, after_in_parent=importing.release, after_in_child=_after_fork
)

if TYPE_CHECKING:
    from functools import cached_property as cached_property
else:

    class cached_property:  # noqa: N801 # as in functools
        """``functools.cached_property`` of which all threads get the same value.

        Two threads may both compute it; the first result is stored. In Python 3.11 the library's
        own makes threads wait for each other, in later versions they get different values.
        """

        def __init__(self, function: Any) -> None:
            self._function, self.__doc__ = function, function.__doc__

        def __set_name__(self, owner: type, name: str) -> None:
            self._name = name

        def __get__(self, instance: Any, owner: type | None = None) -> Any:
            if instance is None:
                return self
            return instance.__dict__.setdefault(self._name, self._function(instance))
