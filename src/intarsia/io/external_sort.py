"""Sorts more integers than fit into memory: sorted runs on disk, merged block by block."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Protocol

import numpy as np

import intarsia.deadline as deadline
import intarsia.memory as memory
from intarsia.errors import PathError
from intarsia.row_ranges import UInt64Array

_OPEN_FILES_FOLDER = "/proc/self/fd"
RUN_ENTRIES = 1 << 23
"""Entries of 8 bytes that stay in memory before they are written out as a run, or are merged."""
BLOCK_ENTRIES = 1 << 20
"""Entries of an output block, and the most entries that are read of a run at a time."""
_MAX_DISTINCT_FRACTION = 0.75
"""Added entries are deduplicated at once as long as at most this fraction is distinct."""
_STEP_ENTRIES = 1 << 15
"""Entries that are compared for duplicates at a time. They fit into the processor's cache."""
_MAX_STABLE_SORT_RUNS = 3
"""Up to this number of runs, a stable sort, which detects runs, is faster than a new sort."""


class Workspace:
    """Temporary files without names, which disappear even if the process is killed.

    Each file stays open until it is released or the block ends. Its path is its descriptor below
    ``/proc/self/fd``. On systems without that folder, named files in a temporary folder are used; a
    killed process leaves them behind.
    """

    def __init__(self) -> None:
        self._open: dict[Path, int] = {}
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._files = 0

    def __enter__(self) -> Workspace:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for path in list(self._open):
            self.release(path)
        if self._folder is not None:
            self._folder.cleanup()

    def new_path(self) -> Path:
        """Returns the path of a new file. The file is empty or does not exist yet."""
        if os.path.isdir(_OPEN_FILES_FOLDER):
            descriptor = _open_unnamed_file()
            path = Path(_OPEN_FILES_FOLDER, str(descriptor))
            self._open[path] = descriptor
            return path
        if self._folder is None:
            self._folder = tempfile.TemporaryDirectory(
                prefix="intarsia-", ignore_cleanup_errors=True
            )
        self._files += 1
        return Path(self._folder.name, str(self._files))

    def release(self, path: Path) -> None:
        """Closes a file that is not opened again. Memory maps of it stay readable."""
        descriptor = self._open.pop(path, None)
        if descriptor is not None:
            os.close(descriptor)


def _open_unnamed_file() -> int:
    """Opens a temporary file that has no name, and returns its descriptor. Raises ``OSError``."""
    folder = tempfile.gettempdir()
    with contextlib.suppress(OSError, AttributeError):  # some disks need a name for each file
        return os.open(folder, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600)
    descriptor, name = tempfile.mkstemp(prefix="intarsia-", dir=folder)
    os.unlink(name)
    return descriptor


@contextlib.contextmanager
def on_disk() -> Iterator[None]:
    """Raises ``PathError`` if temporary files cannot be written in this block."""
    try:
        yield
    except PathError:
        raise
    except OSError as error:
        message = f"temporary files cannot be written: {error}; set TMPDIR to another folder"
        raise PathError(message) from error


class Run(Protocol):
    """Sorted entries of which parts are read."""

    def __len__(self) -> int: ...

    def __getitem__(self, part: slice, /) -> UInt64Array: ...


@dataclass(frozen=True, slots=True)
class _StoredRun:
    """A run in a file. A memory map would keep all that was read of it in memory."""

    path: Path
    start: int
    """The first entry's number in the file."""
    count: int

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, part: slice) -> UInt64Array:
        first, stop, _ = part.indices(self.count)
        offset = (self.start + first) * 8
        try:
            entries = np.fromfile(self.path, np.uint64, stop - first, offset=offset)
        except OSError as error:
            raise PathError(f"temporary files cannot be read: {error}") from error
        if len(entries) < stop - first:
            raise PathError("a temporary file is shorter than what was written to it")
        return entries


class Runs:
    """Collects integers and returns them sorted and distinct."""

    def __init__(self, work: Workspace) -> None:
        self._work = work
        self._buffer = np.empty(0, np.uint64)
        self._count = 0
        self._has_duplicates = True
        self._runs: list[_StoredRun] = []

    def add(self, entries: UInt64Array) -> None:
        """Adds entries in any order. Sorts the array in place: the caller must not use it again."""
        deadline.check()
        if self._has_duplicates:
            entries = self._deduplicated(entries)
        max_entries = _max_entries()
        if self._count + len(entries) > max_entries:
            self._count = len(self._deduplicated(self._buffer[: self._count]))
            if self._count > max_entries // 2:
                self._store(self._buffer[: self._count])
                self._count = 0
        if len(entries) > max_entries // 2:
            self._store(_distinct(entries))
            return
        stop = self._count + len(entries)
        if stop > len(self._buffer):  # memory is only used once it is written to
            buffer, self._buffer = self._buffer, np.empty(min(4 * stop, max_entries), np.uint64)
            self._buffer[: self._count] = buffer[: self._count]
        self._buffer[self._count : stop] = entries
        self._count = stop

    def blocks(self) -> Iterator[UInt64Array]:
        """Yields all entries, sorted and distinct, in full blocks but for the last. Called once."""
        last = _distinct(self._buffer[: self._count])
        if not self._runs:
            yield from _filled(iter([last]))
            return
        try:
            yield from _filled(merged_blocks([*self._runs, last]))
        finally:
            self._work.release(self._runs[0].path)

    def whole(self) -> UInt64Array:
        """Returns all entries, on disk if they are many. Called once, not after ``blocks``."""
        if not self._runs:
            return _distinct(self._buffer[: self._count])
        with on_disk():
            path = self._work.new_path()
            with open(path, "wb") as out:
                for block in self.blocks():
                    block.tofile(out)
            entries = np.memmap(path, dtype=np.uint64, mode="r")
            self._work.release(path)
        return entries

    def _deduplicated(self, entries: UInt64Array) -> UInt64Array:
        """Sorts and deduplicates ``entries``, and decides if later ones are deduplicated early."""
        distinct = _distinct(entries)
        self._has_duplicates = len(distinct) <= _MAX_DISTINCT_FRACTION * len(entries)
        return distinct

    def _store(self, run: UInt64Array) -> None:
        """Writes sorted entries out, one run after the other in one file."""
        with on_disk():
            if self._runs:
                path, start = self._runs[-1].path, self._runs[-1].start + len(self._runs[-1])
            else:
                path, start = self._work.new_path(), 0
            with open(path, "ab") as out:
                run.tofile(out)
            self._runs.append(_StoredRun(path, start, len(run)))


def _max_entries() -> int:
    """Returns how many entries stay in memory before they are written out, or are merged."""
    return memory.share(8 * RUN_ENTRIES, 16) // 8


def merged_blocks(runs: Sequence[Run]) -> Iterator[UInt64Array]:
    """Merges sorted runs, block by block. Each entry is read once.

    Each step looks at the next entries of every run, its head. It yields all entries up to the
    smallest of the last entries of the heads.

    ::

        run 1  1 4 7 9 │ 12 …       head ends at 9
        run 2  2 3 5 6 │ 8 …        head ends at 6: no entry up to 6 can follow
    """
    step = min(BLOCK_ENTRIES, _max_entries() // (len(runs) + 1) + 1)
    heads = [np.empty(0, np.uint64) for _ in runs]
    positions = [0] * len(runs)
    while True:
        for i, run in enumerate(runs):
            count = min(step - len(heads[i]), len(run) - positions[i])
            if count > 0 and len(heads[i]) <= step // 2:
                new = run[positions[i] : positions[i] + count]
                heads[i] = np.concatenate([heads[i], new])
                positions[i] += count
        if not any(map(len, heads)):
            return
        limit = min(head[-1] for head in heads if len(head))
        deadline.check()
        counts = [int(np.searchsorted(head, limit, side="right")) for head in heads]
        parts = [head[:count] for head, count in zip(heads, counts, strict=True) if count]
        heads = [head[count:] for head, count in zip(heads, counts, strict=True)]
        yield _distinct(np.concatenate(parts), are_runs=len(parts) <= _MAX_STABLE_SORT_RUNS)


def _distinct(entries: UInt64Array, *, are_runs: bool = False) -> UInt64Array:
    """Sorts ``entries`` in place, runs if ``are_runs``; returns the part with distinct ones."""
    entries.sort(kind="stable" if are_runs else None)
    count, last = 0, None
    for start in range(0, len(entries), _STEP_ENTRIES):
        step = entries[start : start + _STEP_ENTRIES]
        differ = np.ones(len(step), dtype=np.bool_)
        np.not_equal(step[1:], step[:-1], out=differ[1:])
        differ[0] = last is None or step[0] != last
        last = step[-1]
        if differ.all() and count == start:
            count += len(step)
            continue
        distinct = step[differ]
        entries[count : count + len(distinct)] = distinct
        count += len(distinct)
    return entries[:count]


def _filled(blocks: Iterator[UInt64Array]) -> Iterator[UInt64Array]:
    """Yields the same entries in blocks of ``BLOCK_ENTRIES``, then the rest; at least one block."""
    pending, count = [np.empty(0, np.uint64)], 0
    for block in blocks:
        while count + len(block) > BLOCK_ENTRIES:  # so that the last block is not empty
            missing = BLOCK_ENTRIES - count
            yield np.concatenate([*pending, block[:missing]])
            pending, count, block = [], 0, block[missing:]
        pending.append(block)
        count += len(block)
    yield np.concatenate(pending)
