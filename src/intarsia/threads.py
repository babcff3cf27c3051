"""Runs tasks in threads and returns results in order: pyarrow releases the interpreter's lock.

All scans share three pools. One decodes, and one waits for storage. The third works on remote
files: its tasks mostly wait, and use the other two pools. A task in a pool that could divide its
work does not: it does all of it in its own thread. So no task waits for its own pool.

Work can be stopped: after a time limit, no task starts, and no thread waits longer for a result.
Running tasks whose results are no longer needed stop at their next check (``deadline``).
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import contextvars
import os
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Generic, TypeVar

import pyarrow as pa

import intarsia.deadline as deadline
import intarsia.memory as memory
from intarsia.deadline import Stop
from intarsia.errors import IntarsiaError
from intarsia.process_state import ForkLock, SharedState

T = TypeVar("T")
Task = Callable[[], T]

_PREFIX = "intarsia-"
_COMPUTE, _REMOTE, _WAIT = f"{_PREFIX}compute", f"{_PREFIX}far", f"{_PREFIX}wait"
_REQUEST = f"{_PREFIX}request"
_WAIT_SECONDS = 0.25
"""Longest single wait. A signal that arrives just before a wait would not end it."""
_MAX_REQUESTS = 64
"""Threads for requests of callers, which Ctrl-C and time limits can then interrupt."""
THREADED_BYTES = 128 * 1024
"""Below this size the calling thread decodes; waking a thread takes longer."""
_MAX_WEIGHT_BYTES = 128 * 1024 * 1024
"""Total weight of running tasks, above which only one task per core runs."""
_local = threading.local()


def _no_weight(_: object) -> float:
    return 0.0


def _never(_: object) -> bool:
    return False


def in_order(
    tasks: Iterable[Task[T]],
    ahead: int,
    *,
    is_far: bool = False,
    weigh: Callable[[Any], float] = _no_weight,
    is_little: Callable[[Any], bool] = _never,
) -> Generator[T]:
    """Yields the results of ``tasks`` in their order. The first exception ends the iteration.

    Up to ``ahead`` tasks run besides the one whose result is next. If ``ahead`` is 0, or there is
    only one task, the calling thread does the work. Tasks that have not started when the caller
    stops iterating are never started.

    ``is_far`` says that the tasks mostly wait for storage; they get a pool of their own. ``weigh``
    returns the bytes of a task. If running tasks together exceed 128 MiB, only as many tasks as
    pyarrow has cores, and one more, run at the same time. With a memory limit, tasks that together
    exceed an eighth of it run one at a time. ``is_little`` says that a task is too small for a
    thread; the caller's thread runs it when its result is next.
    """
    remaining = _Tasks(iter(tasks))
    first_tasks = (
        [task for task in (remaining.next(), remaining.next()) if task is not None] if ahead else []
    )
    if len(first_tasks) < 2 or _is_in(_COMPUTE) or (is_far and (_is_in(_REMOTE) or _is_in(_WAIT))):
        while (task := remaining.next(first_tasks)) is not None:
            deadline.check()
            yield task()
        remaining.check()
        return
    process, pool = os.getpid(), _pool(_REMOTE if is_far else _COMPUTE)
    is_limited, max_weight = memory.has_limit(), memory.share(_MAX_WEIGHT_BYTES, 8)
    pending: deque[tuple[Future[T] | Task[T], float]] = deque()
    weight, next_task = 0.0, remaining.next(first_tasks)
    stop = Stop(outer=deadline.current())
    try:
        while next_task is not None or pending:
            while next_task is not None and len(pending) <= ahead:
                task_weight = weigh(next_task)
                min_tasks = 0 if is_limited else pa.cpu_count()
                if len(pending) > min_tasks and weight + task_weight > max_weight:
                    break
                pending.append(
                    (
                        next_task if is_little(next_task) else _submitted(pool, next_task, stop),
                        task_weight,
                    )
                )
                weight += task_weight
                next_task = remaining.next(first_tasks) if len(pending) <= ahead else None
            check_process(process, "a scan")
            first, task_weight = pending.popleft()
            deadline.check()
            yield result_of(first) if isinstance(first, Future) else first()
            weight -= task_weight
            if next_task is None:
                next_task = remaining.next(first_tasks)
    finally:
        stop.now()
        for submitted, _ in pending:
            if isinstance(submitted, Future) and process == os.getpid():
                submitted.cancel()
    remaining.check()


class _Tasks(Generic[T]):
    """An iterator over tasks. It keeps an error of the underlying one until ``check``."""

    def __init__(self, tasks: Iterator[Task[T]]) -> None:
        self._tasks = tasks
        self._error: Exception | None = None

    def next(self, first: list[Task[T]] | None = None) -> Task[T] | None:
        """Returns the next task, or None at the end. Tasks in ``first`` are taken first."""
        if first:
            return first.pop(0)
        if self._error is None:
            try:
                return next(self._tasks, None)
            except (IntarsiaError, OSError, pa.ArrowException) as error:
                self._error = error
        return None

    def check(self) -> None:
        """Raises the error that ended the tasks, if there was one."""
        if self._error is not None:
            raise self._error


def run_io_tasks(tasks: Iterable[Task[T]]) -> Generator[T]:
    """Yields results of tasks that wait for storage. As many run as pyarrow has threads for I/O."""
    return in_order(tasks, pa.io_thread_count(), is_far=True)


def all_of(tasks: Iterable[Task[T]]) -> list[T]:
    """Returns the results of ``tasks``, using all cores, or this thread only in ``one_thread``."""
    return list(in_order(tasks, pa.cpu_count() - 1 if may_use_threads() else 0))


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Makes this thread do all of its work itself while the block runs."""
    before = may_use_threads()
    _local.may_use_threads = False
    try:
        yield
    finally:
        _local.may_use_threads = before


def each_in_one_thread(items: Iterable[T]) -> Iterator[T]:
    """Yields ``items``. The code that makes each item runs in ``one_thread``."""
    iterator = iter(items)
    while True:
        with one_thread():
            try:
                item = next(iterator)
            except StopIteration:
                return
        yield item


def may_use_threads() -> bool:
    """True if this thread may let other threads do some of its work."""
    return getattr(_local, "may_use_threads", True)


def await_all(tasks: Sequence[Task[T]]) -> list[T]:
    """Returns the results of tasks that wait for storage, and that run concurrently."""
    if len(tasks) < 2 or _is_in(_WAIT):
        return [task() for task in tasks]
    futures = [begin(task) for task in tasks]
    try:
        return [result_of(future) for future in futures]
    finally:
        for future in futures:
            future.cancel()


def awaited(task: Task[T]) -> T:
    """Returns the result of a request to remote storage.

    Another thread makes the request, so that Ctrl-C and a time limit can end the wait. The request
    itself then goes on until storage answers, and the answer is dropped.
    """
    can_be_stopped = deadline.is_limited() or (
        threading.current_thread() is threading.main_thread()
    )
    if not can_be_stopped or _is_in(_PREFIX):
        return task()
    return result_of(_submitted(_pool(_REQUEST), task))


def result_of(future: Future[T]) -> T:
    """Waits for the result of a task. Raises ``Stopped`` at the time limit."""
    while not future.done():
        remaining = deadline.seconds_left()
        concurrent.futures.wait(
            [future], _WAIT_SECONDS if remaining is None else min(remaining, _WAIT_SECONDS)
        )
        deadline.check()
    return future.result()


def begin(task: Task[T]) -> Future[T]:
    """Starts a task that waits for storage. A time limit does not stop it once it runs."""
    return _submitted(_pool(_WAIT), task)


def _submitted(pool: ThreadPoolExecutor, task: Task[T], stop: Stop | None = None) -> Future[T]:
    """Runs a task in the pool, under ``stop``.

    At exit of the interpreter pools no longer accept tasks; then the calling thread runs it.
    """
    try:
        return pool.submit(contextvars.copy_context().run, _run, task, stop)
    except RuntimeError:
        done: Future[T] = Future()
        done.set_result(task())
        return done


def check_process(process_id: int, what: str) -> None:
    """Raises ``IntarsiaError`` unless this process, ``process_id``, began ``what``."""
    if process_id != os.getpid():
        message = f"{what} cannot go on in a forked process: its threads are in the parent"
        raise IntarsiaError(f"{message}. Begin it again in the child")


def _run(task: Task[T], stop: Stop | None) -> T:
    with deadline.active(stop):
        deadline.check()
        return task()


def _is_in(name: str) -> bool:
    return threading.current_thread().name.startswith(name)


def _pool(name: str) -> ThreadPoolExecutor:
    """Returns the pool ``name``, with as many threads as pyarrow uses for the same purpose."""
    size = pa.cpu_count() if name == _COMPUTE else pa.io_thread_count()
    if name == _REQUEST:
        size = _MAX_REQUESTS
    return _pools.pool(name, size)


class _Pools(SharedState):
    """Thread pools by name. A forked child has none of their threads."""

    def __init__(self) -> None:
        self._lock = ForkLock()
        self._pools_by_name: dict[str, tuple[int, ThreadPoolExecutor]] = {}
        super().__init__()

    def pool(self, name: str, size: int) -> ThreadPoolExecutor:
        """Returns the pool ``name`` with ``size`` threads."""
        with self._lock:
            sized_pool = self._pools_by_name.get(name)
            if sized_pool is None or sized_pool[0] != size:
                sized_pool = self._pools_by_name[name] = (
                    size,
                    ThreadPoolExecutor(size, thread_name_prefix=name),
                )
            return sized_pool[1]

    def clear(self) -> None:
        with self._lock:
            self._pools_by_name.clear()  # the threads end when their work is done


_pools = _Pools()
