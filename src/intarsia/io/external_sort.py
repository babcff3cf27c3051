"""Sorting more entries than fit into memory: sorted runs on disk, merged by blocks."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType

import numpy as np

from intarsia import deadline, memory
from intarsia.errors import PathError
from intarsia.row_ranges import UInt64Array

_OPEN_FILES = "/proc/self/fd"
RUN_ENTRIES = 1 << 23
"""Entries held in memory, at 8 bytes, before they are written out as a run."""
BLOCK_ENTRIES = 1 << 20
"""Entries taken of each run at a time, and those of a block."""
_WORTHWHILE = 0.75
"""Repeats are looked for early while no larger part of the entries is left without them."""
_STEP_ENTRIES = 1 << 15
"""Entries looked through for repeats at a time."""
_FEW_RUNS = 3
"""So many are merged by an algorithm that knows runs; more are sorted anew, which is quicker."""


class Workspace:
    """Temporary files without names: nothing is left of them, even if the process is killed.

    Each is open until it is released or the block ends, and has a path by its number, below
    ``/proc/self/fd``. Systems without that folder get a folder of named files, which a process
    that is killed leaves behind.
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
        """Returns the path of a new, empty file, or one that no file has yet."""
        if os.path.isdir(_OPEN_FILES):
            number = _nameless()
            path = Path(_OPEN_FILES, str(number))
            self._open[path] = number
            return path
        if self._folder is None:
            self._folder = tempfile.TemporaryDirectory(
                prefix="intarsia-", ignore_cleanup_errors=True
            )
        self._files += 1
        return Path(self._folder.name, str(self._files))

    def release(self, path: Path) -> None:
        """Closes a file that is not opened again; what is mapped of it stays readable."""
        number = self._open.pop(path, None)
        if number is not None:
            os.close(number)


def _nameless() -> int:
    """Opens a temporary file that has no name. Raises ``OSError``."""
    folder = tempfile.gettempdir()
    with contextlib.suppress(OSError, AttributeError):  # some disks have only files with names
        return os.open(folder, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600)
    number, name = tempfile.mkstemp(prefix="intarsia-", dir=folder)
    os.unlink(name)
    return number


@contextlib.contextmanager
def on_disk() -> Iterator[None]:
    """What writes temporary files. Raises ``PathError`` where these cannot be written."""
    try:
        yield
    except PathError:
        raise
    except OSError as error:
        message = f"temporary files cannot be written: {error}; TMPDIR says where they go"
        raise PathError(message) from error


class Runs:
    """Entries, one number each, on their way to being sorted and distinct."""

    def __init__(self, work: Workspace) -> None:
        self._work = work
        self._held = np.empty(0, np.uint64)
        self._count = 0
        self._repeat = True
        self._written: list[UInt64Array] = []

    def add(self, entries: UInt64Array) -> None:
        """Take more entries, in any order: an array of one's own, which is sorted in its place."""
        deadline.check()
        if self._repeat:
            entries = self._lessened(entries)
        most = memory.share(8 * RUN_ENTRIES, 16) // 8
        if self._count + len(entries) > most:
            self._count = len(self._lessened(self._held[: self._count]))
            if self._count > most // 2:
                self._written.append(self._on_disk([self._held[: self._count]]))
                self._count = 0
        if len(entries) > most // 2:
            self._written.append(self._on_disk([_distinct(entries)]))
            return
        stop = self._count + len(entries)
        if stop > len(self._held):  # memory that nothing is written to is not taken
            held, self._held = self._held, np.empty(min(4 * stop, most), np.uint64)
            self._held[: self._count] = held[: self._count]
        self._held[self._count : stop] = entries
        self._count = stop

    def blocks(self) -> Iterator[UInt64Array]:
        """All entries, sorted and distinct, within blocks and from one to the next. Called once.

        Where a block ends does not depend on how entries came: each but the last is full.
        """
        runs = [*self._written, _distinct(self._held[: self._count])]
        yield from _filled(merged_blocks(runs) if self._written else iter(runs))

    def whole(self) -> UInt64Array:
        """All entries as one array, on disk where they are many. Called once, for ``blocks``."""
        if not self._written:
            return _distinct(self._held[: self._count])
        return self._on_disk(self.blocks())

    def _lessened(self, entries: UInt64Array) -> UInt64Array:
        """``entries`` sorted and distinct, which tells whether to look for repeats early on."""
        found = _distinct(entries)
        self._repeat = len(found) <= _WORTHWHILE * len(entries)
        return found

    def _on_disk(self, blocks: Sequence[UInt64Array] | Iterator[UInt64Array]) -> UInt64Array:
        with on_disk():
            path = self._work.new_path()
            with open(path, "wb") as out:
                for block in blocks:
                    block.tofile(out)
            found = np.memmap(path, dtype=np.uint64, mode="r")
            self._work.release(path)
        return found


def merged_blocks(runs: Sequence[UInt64Array]) -> Iterator[UInt64Array]:
    """Sorted runs as one: all entries up to the least of the ends of their next blocks at a time.

    ::

        run 1  1 4 7 9 │ 12 …       ends at 9
        run 2  2 3 5 6 │ 8 …        ends at 6: up to there nothing else can come in between
    """
    at = [0] * len(runs)
    while True:
        heads = {i: run[at[i] : at[i] + BLOCK_ENTRIES] for i, run in enumerate(runs)}
        heads = {i: head for i, head in heads.items() if len(head)}
        if not heads:
            return
        limit = min(head[-1] for head in heads.values())
        deadline.check()
        parts = []
        for i, head in heads.items():
            count = int(np.searchsorted(head, limit, side="right"))
            parts.append(head[:count])
            at[i] += count
        yield _distinct(np.concatenate(parts), are_runs=len(parts) <= _FEW_RUNS)


def _distinct(entries: UInt64Array, *, are_runs: bool = False) -> UInt64Array:
    """The first of ``entries``, after they were sorted and moved up in their place, each once.

    ``are_runs`` where they are a few runs.
    """
    entries.sort(kind="stable" if are_runs else None)
    count, last = 0, None
    for at in range(0, len(entries), _STEP_ENTRIES):  # which the processor's cache holds
        step = entries[at : at + _STEP_ENTRIES]
        differ = np.ones(len(step), dtype=np.bool_)
        np.not_equal(step[1:], step[:-1], out=differ[1:])
        differ[0] = last is None or step[0] != last
        last = step[-1]
        if differ.all() and count == at:
            count += len(step)
            continue
        kept = step[differ]
        entries[count : count + len(kept)] = kept
        count += len(kept)
    return entries[:count]


def _filled(blocks: Iterator[UInt64Array]) -> Iterator[UInt64Array]:
    """The same entries in blocks of ``BLOCK_ENTRIES``, and what is left; one block at least."""
    held = np.empty(0, np.uint64)
    for block in blocks:
        while len(held) + len(block) > BLOCK_ENTRIES:  # what is left is not empty
            room = BLOCK_ENTRIES - len(held)
            yield np.concatenate([held, block[:room]]) if len(held) else block[:room]
            held, block = block[:0], block[room:]
        held = np.concatenate([held, block]) if len(held) else block
    yield held
