"""The memory limit of a call, and the share of each part of its work.

::

    limit ├── 1/2   one unit of work: pages that are decoded together, and their copies
          ├── 1/2   the table that a call returns; or DuckDB
          ├── 1/4   a bloom filter that is built
          ├── 1/8   units read ahead; a row group that is written; cached footers
          ├── 1/16  a batch of entries for an index build; entries in memory before they are spilled
          │         or while they are merged
          └── 1/32  a typical unit: so small that all parts together stay below the limit

The limit of a call travels with its time limit, see ``deadline``. Without one, the limit of the
process applies. If neither is set, ``share`` returns the usual size.
"""

from __future__ import annotations

import math
import os
import resource
from pathlib import Path

import intarsia.deadline as deadline
from intarsia.errors import OutOfMemoryError
from intarsia.limits import number_of_bytes

_ADVICE = "give a higher memory limit, or ask for fewer columns at a time"
_SMALL_BYTES = 1024 * 1024
"""Allocations up to this number of bytes are never refused."""
_RESERVE_BYTES = 32 * 1024 * 1024
"""Bytes that stay free below a limit of the address space. If a small allocation fails inside
pyarrow, the process may abort.
"""
_STATM = Path("/proc/self/statm")
_process_limit: int | None = None


def set_memory_limit(limit: int | str | None) -> None:
    """Limits the memory of each later call, in all threads of this process.

    Calls that run at the same time may each use as much as the limit. ``docs/limits.md`` says which
    memory counts.

    Parameters
    ----------
    limit : int or str or None
        Bytes, at least 64 MiB, or a string with a unit as in DuckDB: ``"256MB"`` is 256,000,000
        bytes, ``"1GiB"`` is 2**30. None, the default of the process, is no limit.

    Raises
    ------
    TypeError
        If ``limit`` has another type.
    ValueError
        If the string is malformed, or the limit is below 64 MiB.

    Examples
    --------
    >>> ia.set_memory_limit("1GB")
    >>> ia.memory_limit()
    1000000000
    """
    global _process_limit
    _process_limit = number_of_bytes(limit)


def memory_limit() -> int | None:
    """Returns the memory limit of a call in bytes.

    Returns
    -------
    int or None
        The limit of the running call if it has its own, else that of the process. None if there is
        no limit.

    Examples
    --------
    >>> ia.set_memory_limit(None)
    >>> ia.memory_limit() is None
    True
    """
    stop = deadline.current()
    own = None if stop is None else stop.memory_limit
    return _process_limit if own is None else own


def has_limit() -> bool:
    """True if the call has a memory limit."""
    return memory_limit() is not None


def is_limited() -> bool:
    """True if the call has a time or memory limit, which pyarrow's scanner does not enforce."""
    return deadline.is_limited() or has_limit()


def share(usual: int, parts: int) -> int:
    """Returns ``usual``, or the limit divided by ``parts`` if that is smaller. Unit: bytes."""
    limit = memory_limit()
    return usual if limit is None else min(usual, limit // parts)


class AllocationBudget:
    """The bytes that one unit of work may still allocate."""

    def __init__(self) -> None:
        limit = memory_limit()
        self._remaining_bytes = math.inf if limit is None else limit / 2
        allowed, _ = resource.getrlimit(resource.RLIMIT_AS)
        if allowed != resource.RLIM_INFINITY and _STATM.exists():
            pages = int(_STATM.read_text().split()[0])
            used = pages * os.sysconf("SC_PAGE_SIZE")
            self._remaining_bytes = min(self._remaining_bytes, allowed - used - _RESERVE_BYTES)

    @property
    def is_limited(self) -> bool:
        """False if there is no limit, so that nothing has to be counted."""
        return self._remaining_bytes < math.inf

    def take(self, num_bytes: int, what: str) -> None:
        """Counts an allocation of ``num_bytes`` before it is made.

        Raises ``OutOfMemoryError`` if the allocation is larger than 1 MiB and does not fit.
        """
        if num_bytes > max(self._remaining_bytes, _SMALL_BYTES):
            raise OutOfMemoryError(
                f"{what} takes {num_bytes:,} bytes to decode, copies included, where "
                f"{max(int(self._remaining_bytes), 0):,} may be taken; {_ADVICE}"
            )
        self._remaining_bytes -= num_bytes
