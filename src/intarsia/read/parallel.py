"""Work in threads, results in order: pyarrow decodes and reads without the interpreter's lock.

All scans share one pool. Work that is itself done in the pool and divides its own work does so in
its own thread: nothing in the pool waits for the pool.
"""

from __future__ import annotations

import itertools
import os
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

import pyarrow as pa

T = TypeVar("T")
Task = Callable[[], T]

_NAME = "intarsia"
_lock = threading.Lock()
_pool: ThreadPoolExecutor | None = None


def in_order(tasks: Iterable[Task[T]], ahead: int) -> Generator[T]:
    """What each of ``tasks`` returns, in their order.

    Up to ``ahead`` tasks are under way besides the one whose result is due; with 0 of them, or a
    lone task, all is done in the caller's thread. The first exception ends it. Tasks not begun when
    the caller loses interest are not begun at all.
    """
    tasks = iter(tasks)
    few = list(itertools.islice(tasks, 2)) if ahead else []
    if len(few) < 2 or threading.current_thread().name.startswith(_NAME):
        for task in itertools.chain(few, tasks):
            yield task()
        return
    pool = _shared_pool()
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
    return list(in_order(tasks, pa.cpu_count()))


def _shared_pool() -> ThreadPoolExecutor:
    global _pool  # one for the process, made when first needed
    with _lock:
        if _pool is None:
            _pool = ThreadPoolExecutor(pa.cpu_count(), thread_name_prefix=_NAME)
        return _pool


def _forget_pool() -> None:
    """A forked process has the pool, and none of its threads."""
    global _pool, _lock  # as above
    _pool, _lock = None, threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_pool)
