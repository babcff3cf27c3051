"""Work in threads, results in order: pyarrow decodes and reads without the interpreter's lock.

All scans share one pool for decoding, one for waiting on storage, and one for work on files that
are far, which waits most of the time and uses the other two. Work that is itself done in a pool and
divides its own work does so in its own thread: nothing in a pool waits for that pool.

Work can be stopped: nothing is begun after a time limit, and nobody waits longer for a result.
Tasks under way whose results nobody waits for any more stop at their next check (``deadline``).
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

from intarsia import deadline, memory
from intarsia.deadline import Stop
from intarsia.errors import IntarsiaError
from intarsia.process_state import ForkLock, SharedState

T = TypeVar("T")
Task = Callable[[], T]

_OURS = "intarsia-"
_COMPUTE, _FAR, _WAIT = f"{_OURS}compute", f"{_OURS}far", f"{_OURS}wait"
_REQUEST = f"{_OURS}request"
_LOOK_SECONDS = 0.25  # a signal that comes just before a wait does not end that wait
_MAX_REQUESTS = 64  # of callers in threads of their own, so that these can be interrupted
THREADED_BYTES = 128 * 1024
"""Less than this is decoded sooner than a thread is woken."""
_HEAVY = 128 * 1024 * 1024
_here = threading.local()


def _weightless(_: object) -> float:
    return 0.0


def _never(_: object) -> bool:
    return False


def in_order(
    tasks: Iterable[Task[T]],
    ahead: int,
    *,
    is_far: bool = False,
    weigh: Callable[[Any], float] = _weightless,
    is_little: Callable[[Any], bool] = _never,
) -> Generator[T]:
    """What each of ``tasks`` returns, in their order.

    Up to ``ahead`` tasks are under way besides the one whose result is due; with 0 of them, or a
    lone task, all is done in the caller's thread. The first exception ends it. Tasks not begun when
    the caller loses interest are not begun at all. Tasks that ``is_far`` says wait most of the time
    are done in threads of their own; those that ``weigh`` together more than 128 MiB are under way
    only as long as they are no more than pyarrow has cores, and one; with a memory limit, those
    that weigh more than an eighth of it are under way alone. What ``is_little`` is done in
    the caller's thread when it is due: to wake another takes longer.
    """
    left = _Tasks(iter(tasks))
    few = [task for task in (left.next(), left.next()) if task is not None] if ahead else []
    if len(few) < 2 or _is_in(_COMPUTE) or (is_far and (_is_in(_FAR) or _is_in(_WAIT))):
        while (task := left.next(few)) is not None:
            deadline.check()
            yield task()
        left.check()
        return
    process, pool = os.getpid(), _pool(_FAR if is_far else _COMPUTE)
    is_limited, heavy = memory.has_limit(), memory.share(_HEAVY, 8)
    pending: deque[tuple[Future[T] | Task[T], float]] = deque()
    weight, due = 0.0, left.next(few)
    stop = Stop(outer=deadline.current())
    try:
        while due is not None or pending:
            while due is not None and len(pending) <= ahead:
                own = weigh(due)
                least = 0 if is_limited else pa.cpu_count()
                if len(pending) > least and weight + own > heavy:
                    break
                pending.append((due if is_little(due) else _submitted(pool, due, stop), own))
                weight += own
                due = left.next(few) if len(pending) <= ahead else None
            check_process(process, "a scan")
            first, own = pending.popleft()
            deadline.check()
            yield result_of(first) if isinstance(first, Future) else first()
            weight -= own
            if due is None:
                due = left.next(few)
    finally:
        stop.now()
        for begun, _ in pending:
            if isinstance(begun, Future) and process == os.getpid():
                begun.cancel()
    left.check()


class _Tasks(Generic[T]):
    """Tasks, one after the other; what ends them is kept until those before it are done."""

    def __init__(self, tasks: Iterator[Task[T]]) -> None:
        self._tasks = tasks
        self._error: Exception | None = None

    def next(self, first: list[Task[T]] | None = None) -> Task[T] | None:
        """The next task, after those of ``first``, which it takes; None where there is none."""
        if first:
            return first.pop(0)
        if self._error is None:
            try:
                return next(self._tasks, None)
            except (IntarsiaError, OSError, pa.ArrowException) as error:
                self._error = error
        return None

    def check(self) -> None:
        """Raise what ended them, if it was not their end."""
        if self._error is not None:
            raise self._error


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


def each_in_one_thread(items: Iterable[T]) -> Iterator[T]:
    """``items``, each of which is come by in ``one_thread``."""
    left = iter(items)
    while True:
        with one_thread():
            try:
                item = next(left)
            except StopIteration:
                return
        yield item


def may_divide() -> bool:
    """May this thread have others do some of its work?"""
    return getattr(_here, "may_divide", True)


def all_awaited(tasks: Sequence[Task[T]]) -> list[T]:
    """What each of ``tasks`` returns, which wait for storage: all under way at once, in effect."""
    if len(tasks) < 2 or _is_in(_WAIT):
        return [task() for task in tasks]
    futures = [begin(task) for task in tasks]
    try:
        return [result_of(future) for future in futures]
    finally:
        for future in futures:
            future.cancel()


def awaited(task: Task[T]) -> T:
    """What a request to remote storage gives.

    A thread of the caller's waits for it in such a way that Ctrl-C and a time limit end the wait.
    The request itself goes on until storage answers, and its answer is dropped.
    """
    can_be_stopped = deadline.is_limited() or (
        threading.current_thread() is threading.main_thread()
    )
    if not can_be_stopped or _is_in(_OURS):
        return task()
    return result_of(_submitted(_pool(_REQUEST), task))


def result_of(future: Future[T]) -> T:
    """The result of a task, waited for up to the time limit. Raises ``Stopped`` after that."""
    while not future.done():
        left = deadline.seconds_left()
        concurrent.futures.wait(
            [future], _LOOK_SECONDS if left is None else min(left, _LOOK_SECONDS)
        )
        deadline.check()
    return future.result()


def begin(task: Task[T]) -> Future[T]:
    """Start a task that waits for storage, and that a time limit does not stop once it runs."""
    return _submitted(_pool(_WAIT), task)


def _submitted(pool: ThreadPoolExecutor, task: Task[T], stop: Stop | None = None) -> Future[T]:
    """``task``, done in the pool; at once where the interpreter exits and its threads are gone.

    ``stop`` may stop it.
    """
    try:
        return pool.submit(contextvars.copy_context().run, _run, task, stop)
    except RuntimeError:
        done: Future[T] = Future()
        done.set_result(task())
        return done


def check_process(number: int, what: str) -> None:
    """Raise ``IntarsiaError`` unless ``number`` is this process: its parent began ``what``."""
    if number != os.getpid():
        message = f"{what} cannot go on in a forked process: its threads are in the parent"
        raise IntarsiaError(f"{message}. Begin it again in the child")


def _run(task: Task[T], stop: Stop | None) -> T:
    with deadline.active(stop):
        deadline.check()
        return task()


def _is_in(name: str) -> bool:
    return threading.current_thread().name.startswith(name)


def _pool(name: str) -> ThreadPoolExecutor:
    """The pool of that name, of as many threads as pyarrow has now for the same purpose."""
    size = pa.cpu_count() if name == _COMPUTE else pa.io_thread_count()
    if name == _REQUEST:
        size = _MAX_REQUESTS
    return _pools.pool(name, size)


class _Pools(SharedState):
    """Pools by name. A forked process has none of their threads."""

    def __init__(self) -> None:
        self._lock = ForkLock()
        self._known: dict[str, tuple[int, ThreadPoolExecutor]] = {}
        super().__init__()

    def pool(self, name: str, size: int) -> ThreadPoolExecutor:
        """Returns the pool ``name``, which has ``size`` threads."""
        with self._lock:
            known = self._known.get(name)
            if known is None or known[0] != size:
                known = self._known[name] = size, ThreadPoolExecutor(size, thread_name_prefix=name)
            return known[1]

    def clear(self) -> None:
        with self._lock:
            self._known.clear()  # their threads end once they have done their work


_pools = _Pools()
