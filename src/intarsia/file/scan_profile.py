"""Measures where the time of a scan goes. Scans without a profile pay for no clock.

A file is opened with a ``Profile``, to which its readers report what they do.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext

import pyarrow.compute as pc

from intarsia.expr.tree import shown
from intarsia.io.source import ByteRange, Source
from intarsia.plan.file_account import Activity, Filtered
from intarsia.plan.plan import Amount

_UNTIMED = nullcontext()


class NoProfile:
    """A profile that records nothing."""

    def during(self, activity: Activity) -> AbstractContextManager[None]:
        """Returns a context whose time counts for ``activity``, except that of inner contexts."""
        del activity
        return _UNTIMED

    def filtered(self, condition: pc.Expression, tested: int, passed: int) -> None:
        """Records that ``passed`` of ``tested`` rows fulfilled a condition."""

    def pages(self, row_group: int, leaf: int, offsets: Collection[int] | None) -> None:
        """Records that the pages at ``offsets`` of a chunk were decoded. None stands for all."""

    def watched(self, source: Source) -> Source:
        """Returns a source whose reads are timed."""
        return source


NO_PROFILE = NoProfile()


class Profile(NoProfile):
    """Assigns all time to one activity or another, for a file that one thread reads at a time.

    Work in other threads counts only while the reading thread waits for it. So the seconds of all
    activities add up to the elapsed time.
    """

    def __init__(self) -> None:
        self._seconds = dict.fromkeys(Activity, 0.0)
        self._activity, self._since = Activity.OTHER, time.perf_counter()
        self._filtered: dict[str, Amount] = {}
        self.chunks: dict[tuple[int, int], set[int] | None] = {}
        """Offsets of the decoded pages by row group and leaf; None if all pages were."""

    @contextmanager
    def during(self, activity: Activity) -> Iterator[None]:
        outer = self._turn_to(activity)
        try:
            yield
        finally:
            self._turn_to(outer)

    def _turn_to(self, activity: Activity) -> Activity:
        now, before = time.perf_counter(), self._activity
        self._seconds[before] += now - self._since
        self._activity, self._since = activity, now
        return before

    def filtered(self, condition: pc.Expression, tested: int, passed: int) -> None:
        text = shown(condition)
        self._filtered[text] = self._filtered.get(text, Amount()) + Amount(passed, tested)

    def pages(self, row_group: int, leaf: int, offsets: Collection[int] | None) -> None:
        known = self.chunks.setdefault((row_group, leaf), set())
        if offsets is None:
            self.chunks[row_group, leaf] = None
        elif known is not None:
            known.update(offsets)

    def watched(self, source: Source) -> Source:
        return _TimedSource(source, self)

    def seconds(self) -> dict[Activity, float]:
        """Returns the seconds of each activity since the profile was made."""
        self._turn_to(self._activity)
        return dict(self._seconds)

    def conditions(self) -> tuple[Filtered, ...]:
        """Returns the evaluated conditions, in the order in which they were first evaluated."""
        return tuple(Filtered(*item) for item in self._filtered.items())


class _TimedSource:
    def __init__(self, inner: Source, profile: Profile) -> None:
        self._inner, self._profile = inner, profile

    @property
    def size(self) -> int:
        with self._profile.during(Activity.READING):
            return self._inner.size

    def read(self, ranges: Sequence[ByteRange]) -> list[memoryview]:
        with self._profile.during(Activity.READING):
            return self._inner.read(ranges)
