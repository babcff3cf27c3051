"""Work in threads, results in order: pyarrow decodes and reads without the interpreter's lock.

All scans share one pool for decoding, one for waiting on storage, and one for work on files that
are far, which waits most of the time and uses the other two. Work that is itself done in a pool and
divides its own work does so in its own thread: nothing in a pool waits for that pool.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

import pyarrow as pa

T = TypeVar("T")
Task = Callable[[], T]

_COMPUTE, _FAR, _WAIT = "intarsia-compute", "intarsia-far", "intarsia-wait"
_lock = threading.Lock()
_pools: dict[str, tuple[int, ThreadPoolExecutor]] = {}
_here = threading.local()


def in_order(tasks: Iterable[Task[T]], ahead: int, *, is_far: bool = False) -> Generator[T]:
    """What each of ``tasks`` returns, in their order.

    Up to ``ahead`` tasks are under way besides the one whose result is due; with 0 of them, or a
    lone task, all is done in the caller's thread. The first exception ends it. Tasks not begun when
    the caller loses interest are not begun at all. Tasks that ``is_far`` says wait most of the time
    are done in threads of their own.
    """
    tasks = iter(tasks)
    few = list(itertools.islice(tasks, 2)) if ahead else []
    if len(few) < 2 or _is_in(_COMPUTE) or (is_far and (_is_in(_FAR) or _is_in(_WAIT))):
        for task in itertools.chain(few, tasks):
            yield task()
        return
    pool = _pool(_FAR if is_far else _COMPUTE)
    pending: deque[Future[T]] = deque(pool.submit(task) for task in few)
    try:
        while pending:
            for task in itertools.islice(tasks, ahead + 1 - len(pending)):
                pending.append(pool.submit(task))
            yield pending.popleft().result()
    finally:
        for future in pending:
            future.cancel()


def waited_for(tasks: Iterable[Task[T]]) -> Generator[T]:
    """As ``in_order``, of tasks that wait for storage: as many as pyarrow has threads for that."""
    return in_order(tasks, pa.io_thread_count(), is_far=True)


def all_of(tasks: Iterable[Task[T]]) -> list[T]:
    """What each of ``tasks`` returns, on as many cores as pyarrow uses; one in ``one_thread``."""
    return list(in_order(tasks, pa.cpu_count() - 1 if may_divide() else 0))


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """A context in which this thread does all of its work itself."""
    before = may_divide()
    _here.may_divide = False
    try:
        yield
    finally:
        _here.may_divide = before


def may_divide() -> bool:
    """May this thread have others do some of its work?"""
    return getattr(_here, "may_divide", True)


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
    """The pool of that name, of as many threads as pyarrow has now for the same purpose."""
    size = pa.cpu_count() if name == _COMPUTE else pa.io_thread_count()
    with _lock:
        known = _pools.get(name)
        if known is None or known[0] != size:
            known = _pools[name] = size, ThreadPoolExecutor(size, thread_name_prefix=name)
        return known[1]


def _forget_pools() -> None:
    """A forked process has the pools, and none of their threads."""
    global _lock  # it may have been held when the process forked
    _lock = threading.Lock()
    _pools.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_pools)
