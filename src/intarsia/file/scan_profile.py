"""Where the time of a scan goes, for those who ask; an unwatched scan pays for no clock.

A file is opened with a ``Profile``, which whatever reads the file tells what it does.
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


class Unwatched:
    """The profile of a file that nobody asks about."""

    def during(self, activity: Activity) -> AbstractContextManager[None]:
        """A context: the time in it goes to ``activity``, but for what contexts within it take."""
        del activity
        return _UNTIMED

    def filtered(self, condition: pc.Expression, tested: int, passed: int) -> None:
        """Of ``tested`` rows, ``passed`` fulfilled a condition."""

    def pages(self, row_group: int, leaf: int, offsets: Collection[int] | None) -> None:
        """Pages of a chunk were decoded, which begin at ``offsets``; None stands for all."""

    def watched(self, source: Source) -> Source:
        """A source whose reads are timed."""
        return source


UNWATCHED = Unwatched()


class Profile(Unwatched):
    """A clock that is always on one activity, for a file that is read by one thread at a time.

    What that thread has others do at the same time, decoding columns, counts as long as it waits
    for them: so all activities together take as long as the whole.
    """

    def __init__(self) -> None:
        self._seconds = dict.fromkeys(Activity, 0.0)
        self._activity, self._since = Activity.OTHER, time.perf_counter()
        self._filtered: dict[str, Amount] = {}
        self.chunks: dict[tuple[int, int], set[int] | None] = {}
        """The pages decoded, by row group and leaf, each once: their offsets; None for all."""

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
        """Seconds of each activity since the profile was made."""
        self._turn_to(self._activity)
        return dict(self._seconds)

    def conditions(self) -> tuple[Filtered, ...]:
        """The conditions evaluated, in the order of their first time."""
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
