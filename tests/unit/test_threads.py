"""Results in order, no more work started than requested, and no deadlock."""

import threading
import time
import warnings
from functools import partial

import pytest

from intarsia.errors import quiet, warn
from intarsia.threads import all_of, in_order


def square(number, begun=None):
    if begun is not None:
        begun.append(number)
    time.sleep(0.001 * (number % 3))
    return number * number


@pytest.mark.parametrize("ahead", [0, 1, 2, 5, 100])
@pytest.mark.parametrize("count", [0, 1, 2, 3, 50])
def test_results_come_in_the_order_of_the_tasks(ahead, count):
    tasks = (partial(square, number) for number in range(count))
    assert list(in_order(tasks, ahead)) == [number * number for number in range(count)]


def test_at_most_so_many_are_begun_ahead():
    begun = []
    results = in_order((partial(square, number, begun) for number in range(50)), 2)
    assert next(results) == 0
    time.sleep(0.05)
    assert len(begun) <= 3
    assert next(results) == 1
    time.sleep(0.05)
    assert len(begun) <= 4
    results.close()
    time.sleep(0.05)
    assert len(begun) <= 4


def test_tasks_of_one_who_is_quiet_are_quiet():
    def warned():
        with warnings.catch_warnings(record=True) as heard:
            warnings.simplefilter("always")
            list(in_order([partial(warn, "a"), partial(warn, "b"), partial(warn, "c")], 2))
        return len(heard)

    assert warned() == 3
    with quiet():
        assert warned() == 0
    assert warned() == 3


def test_a_lone_task_runs_where_it_is_asked_for():
    assert list(in_order([threading.current_thread], 5)) == [threading.current_thread()]


def test_what_is_little_is_done_in_the_callers_thread_when_it_is_due():
    begun = []

    def task(number):
        begun.append(number)
        return number, threading.current_thread() is threading.main_thread()

    def is_little(task):
        return task.args[0] % 2 == 0

    results = in_order((partial(task, n) for n in range(20)), 3, is_little=is_little)
    assert next(results) == (0, True)
    time.sleep(0.05)
    assert sorted(begun) == [0, 1, 3], "2 is not due yet"
    assert list(results) == [(number, number % 2 == 0) for number in range(1, 20)]


def test_tasks_may_divide_their_own_work():
    def task(number):
        return sum(all_of(partial(square, number + i) for i in range(4)))

    tasks = [partial(task, number) for number in range(20)]
    assert all_of(tasks) == [sum((n + i) ** 2 for i in range(4)) for n in range(20)]


def test_the_first_failure_ends_it():
    def fail():
        raise ValueError("no")

    results = in_order([partial(square, 1), fail, partial(square, 2)], 2)
    assert next(results) == 1
    with pytest.raises(ValueError, match="no"):
        next(results)
    assert list(results) == []
