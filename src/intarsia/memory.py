"""The memory limit: what a call may take, and what each part of its work may take of that.

::

    limit ├── 1/2   one unit of work: pages that are decoded together, and copies of them
          ├── 1/2   a table that a call returns; or DuckDB
          ├── 1/8   units read ahead; a row group that is written; footers that are cached
          ├── 1/16  a piece of which indexes are built; entries held before they go to disk
          └── 1/32  a unit, as a rule: so small that all parts together stay below the limit

The call's own limit is carried with its time limit (``deadline``). Without one, the limit of the
process counts. Where there is neither, ``share`` gives what is usual.
"""

from __future__ import annotations

import math
import os
import resource
from pathlib import Path

from intarsia import deadline
from intarsia.errors import OutOfMemoryError
from intarsia.limits import number_of_bytes

_ADVICE = "give a higher memory limit, or ask for fewer columns at a time"
_SMALL_BYTES = 1024 * 1024  # less than this is never refused
_RESERVE_BYTES = 32 * 1024 * 1024
"""Left of a limit of the address space: a small allocation of pyarrow's that fails may end the
process."""
_STATM = Path("/proc/self/statm")
_of_process: int | None = None


def set_memory_limit(limit: int | str | None) -> None:
    """Limits the memory that each call takes from now on, in all threads of this process.

    ``limit`` is a number of bytes, at least 64 MiB, or a string as DuckDB takes it: ``"256MB"`` is
    256,000,000 bytes, ``"1GiB"`` is 2**30. None, the default, is no limit. Calls that run at the
    same time may take as much each. ``docs/limits.md`` says what counts.

    Raises ``TypeError`` or ``ValueError`` for a limit that is none of these.

    >>> ia.set_memory_limit("1GB")
    """
    global _of_process
    _of_process = number_of_bytes(limit)


def memory_limit() -> int | None:
    """Returns how many bytes a call may take: its own limit or the process's. None if unlimited."""
    stop = deadline.current()
    own = None if stop is None else stop.memory_limit
    return _of_process if own is None else own


def has_limit() -> bool:
    """True if the call has a memory limit."""
    return memory_limit() is not None


def is_limited() -> bool:
    """True if the call has a limit of time or memory, which pyarrow's own scans do not keep."""
    return deadline.is_limited() or has_limit()


def share(usual: int, parts: int) -> int:
    """Returns ``usual``, or one of ``parts`` of the limit if that is less."""
    limit = memory_limit()
    return usual if limit is None else min(usual, limit // parts)


class Room:
    """The bytes that one unit of work may allocate."""

    def __init__(self) -> None:
        limit = memory_limit()
        self._left = math.inf if limit is None else limit / 2
        allowed, _ = resource.getrlimit(resource.RLIMIT_AS)
        if allowed != resource.RLIM_INFINITY and _STATM.exists():
            pages = int(_STATM.read_text().split()[0])
            taken = pages * os.sysconf("SC_PAGE_SIZE")
            self._left = min(self._left, allowed - taken - _RESERVE_BYTES)

    @property
    def is_limited(self) -> bool:
        """False if it never ends, so that nothing has to be counted."""
        return self._left < math.inf

    def take(self, num_bytes: int, what: str) -> None:
        """Counts an allocation that is about to be made.

        Raises ``OutOfMemoryError`` if it is not small and does not fit.
        """
        if num_bytes > max(self._left, _SMALL_BYTES):
            raise OutOfMemoryError(
                f"{what} takes {num_bytes:,} bytes to decode, copies included, where "
                f"{max(int(self._left), 0):,} may be taken; {_ADVICE}"
            )
        self._left -= num_bytes
