"""Work in threads, results in order: pyarrow decodes and reads without the interpreter's lock.

All scans share one pool for decoding, and one for waiting on storage. Work that is itself done in a
pool and divides its own work does so in its own thread: nothing in a pool waits for that pool.
"""

from __future__ import annotations

import itertools
import os
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

import pyarrow as pa

T = TypeVar("T")
Task = Callable[[], T]

_COMPUTE, _WAIT = "intarsia-compute", "intarsia-wait"
_lock = threading.Lock()
_pools: dict[str, ThreadPoolExecutor] = {}


def in_order(tasks: Iterable[Task[T]], ahead: int) -> Generator[T]:
    """What each of ``tasks`` returns, in their order.

    Up to ``ahead`` tasks are under way besides the one whose result is due; with 0 of them, or a
    lone task, all is done in the caller's thread. The first exception ends it. Tasks not begun when
    the caller loses interest are not begun at all.
    """
    tasks = iter(tasks)
    few = list(itertools.islice(tasks, 2)) if ahead else []
    if len(few) < 2 or _is_in(_COMPUTE):
        for task in itertools.chain(few, tasks):
            yield task()
        return
    pool = _pool(_COMPUTE)
    pending: deque[Future[T]] = deque(pool.submit(task) for task in few)
    try:
        while pending:
            for task in itertools.islice(tasks, ahead + 1 - len(pending)):
                pending.append(pool.submit(task))
            yield pending.popleft().result()
    finally:
        for future in pending:
            future.cancel()


def all_of(tasks: Iterable[Task[T]]) -> list[T]:
    """What each of ``tasks`` returns, on as many cores as pyarrow uses."""
    return list(in_order(tasks, pa.cpu_count() - 1))


def all_awaited(tasks: Sequence[Task[T]]) -> list[T]:
    """What each of ``tasks`` returns, which wait for storage: all under way at once, in effect."""
    if len(tasks) < 2 or _is_in(_WAIT):
        return [task() for task in tasks]
    return [future.result() for future in [begin(task) for task in tasks]]


def begin(task: Task[T]) -> Future[T]:
    """Start a task that waits for storage."""
    return _pool(_WAIT).submit(task)


def _is_in(name: str) -> bool:
    return threading.current_thread().name.startswith(name)


def _pool(name: str) -> ThreadPoolExecutor:
    """The pool of that name, of as many threads as pyarrow has for the same purpose."""
    with _lock:
        if name not in _pools:
            size = pa.cpu_count() if name == _COMPUTE else pa.io_thread_count()
            _pools[name] = ThreadPoolExecutor(size, thread_name_prefix=name)
        return _pools[name]


def _forget_pools() -> None:
    """A forked process has the pools, and none of their threads."""
    global _lock  # it may have been held when the process forked
    _lock = threading.Lock()
    _pools.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_pools)
