"""Measures what a scan does with one file. Scans without a profile pay for no clock.

A file is opened with a ``Profile``, to which its planner and its readers report what they do.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Sequence
from contextlib import AbstractContextManager, nullcontext

from intarsia.expr.tree import Node, shown, to_expression
from intarsia.io.source import ByteRange, Source
from intarsia.plan.file_account import Activity, Filtered
from intarsia.plan.plan import ENGINE, Amount, ScanPlan
from intarsia.process_state import ForkLock

_UNTIMED = nullcontext()
_NO_SECONDS = dict.fromkeys(Activity, 0.0)


class _Thread(threading.local):
    """The activity of a thread, and when it began."""

    activity: _During | None = None
    since = 0.0


_thread, _lock = _Thread(), ForkLock()


class NoProfile:
    """A profile that records nothing."""

    is_recording = False
    """True if it is worth computing what only a profile records."""
    plan: ScanPlan | None = None
    """The plan that an engine executed, else the last one. None if none is recorded."""

    def during(self, activity: Activity) -> AbstractContextManager[None]:
        """Returns a context whose time counts for ``activity``, except that of inner contexts."""
        del activity
        return _UNTIMED

    def planned(self, plan: ScanPlan) -> None:
        """Records the file's plan, in place of an earlier one of our readers."""

    def matched(self, num_rows: int) -> None:
        """Records that the scan gave ``num_rows`` more rows."""

    def filtered(self, condition: Node, tested: int, passed: int) -> None:
        """Records that ``passed`` of ``tested`` rows fulfilled a condition."""

    def pages(self, row_group: int, leaf: int, offsets: Collection[int] | None) -> None:
        """Records that the pages at ``offsets`` of a chunk were decoded. None stands for all."""

    def whole_chunks(self, num_groups: int, leaves: Sequence[int]) -> None:
        """Records that all pages of ``leaves`` in the first row groups were decoded."""

    def watched(self, source: Source) -> Source:
        """Returns a source whose reads are timed."""
        return source


NO_PROFILE = NoProfile()


class Profile(NoProfile):
    """The plan, pages, rows and seconds of one file. Seconds are those of all threads."""

    is_recording = True

    def __init__(self) -> None:
        self._seconds = _NO_SECONDS.copy()
        self._filtered: dict[str, Amount] = {}
        self.num_matches = 0
        """Rows that the scan gave."""
        self.chunks: dict[tuple[int, int], set[int] | None] = {}
        """Offsets of the decoded pages by row group and leaf; None if all pages were."""

    def during(self, activity: Activity) -> AbstractContextManager[None]:
        return _During(self, activity)

    def spend(self, activity: Activity, seconds: float) -> None:
        """Adds seconds to an activity."""
        with _lock:
            self._seconds[activity] += seconds

    def planned(self, plan: ScanPlan) -> None:
        if self.plan is None or self.plan.reader != ENGINE:
            self.plan = plan

    def matched(self, num_rows: int) -> None:
        self.num_matches += num_rows

    def filtered(self, condition: Node, tested: int, passed: int) -> None:
        text = shown(to_expression(condition))
        with _lock:
            self._filtered[text] = self._filtered.get(text, Amount()) + Amount(passed, tested)

    def pages(self, row_group: int, leaf: int, offsets: Collection[int] | None) -> None:
        with _lock:
            known = self.chunks.setdefault((row_group, leaf), set())
            if offsets is None:
                self.chunks[row_group, leaf] = None
            elif known is not None:
                known.update(offsets)

    def whole_chunks(self, num_groups: int, leaves: Sequence[int]) -> None:
        for row_group in range(num_groups):
            for leaf in leaves:
                self.pages(row_group, leaf, None)

    def watched(self, source: Source) -> Source:
        return _TimedSource(source, self)

    def seconds(self) -> dict[Activity, float]:
        """Returns the seconds of each activity so far."""
        return dict(self._seconds)

    def conditions(self) -> tuple[Filtered, ...]:
        """Returns the evaluated conditions, in the order in which they were first evaluated."""
        return tuple(Filtered(*item) for item in self._filtered.items())


class _During:
    """A context in which the thread's time counts for one activity of a profile."""

    __slots__ = ("_activity", "_outer", "_profile")

    def __init__(self, profile: Profile, activity: Activity) -> None:
        self._profile, self._activity = profile, activity

    def __enter__(self) -> None:
        self._outer = _turn_to(self)

    def __exit__(self, *exception: object) -> None:
        _turn_to(self._outer)

    def end(self, seconds: float) -> None:
        """Adds the time since the thread turned to this activity."""
        self._profile.spend(self._activity, seconds)


def _turn_to(activity: _During | None) -> _During | None:
    """Ends this thread's activity, if there is one, begins ``activity``, and returns the former."""
    now, before = time.perf_counter(), _thread.activity
    if before is not None:
        before.end(now - _thread.since)
    _thread.activity, _thread.since = activity, now
    return before


class _TimedSource:
    def __init__(self, inner: Source, profile: Profile) -> None:
        self._inner, self._profile = inner, profile

    @property
    def size(self) -> int:
        return self._inner.size

    def read(self, ranges: Sequence[ByteRange]) -> list[memoryview]:
        with self._profile.during(Activity.READING):
            return self._inner.read(ranges)
