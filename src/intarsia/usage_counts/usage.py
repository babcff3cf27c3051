"""Counts what indexes save, in memory until it is written to the file of counts."""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import threading
import time
from collections import OrderedDict
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from intarsia.errors import public
from intarsia.index.parquet_indexes import Bloom, PageIndex
from intarsia.index.registry import spec_name
from intarsia.io.storage import POLICY_NAME, SIDECAR_FOLDER, PathLike, folders_above
from intarsia.plan.pruner import BLOOM_FILTERS, INDEX, PAGE_INDEX
from intarsia.process_state import ForkLock, SharedState
from intarsia.row_ranges import RowRanges
from intarsia.usage_counts.usage_file import (
    Count,
    IndexUsage,
    UsageReport,
    add_counts,
    report,
    usage_path,
)

if TYPE_CHECKING:
    from intarsia.file.open_file import OpenedFile

__all__ = ["IndexUsage", "UsageReport", "disable", "enable", "report"]

_SETTING = "INTARSIA_USAGE"
"""The environment variable that enables counting: ``1``, or a folder for the counts."""
_WRITE_SECONDS = 10.0
"""Seconds after a query until its counts are written, along with those of later ones."""
_MAX_QUERIES = 64
"""Queries that may run at the same time. If more run, one may count twice."""


class _Counts(SharedState):
    """The counts of this process that are not written yet."""

    def __init__(self) -> None:
        setting = os.environ.get(_SETTING, "")
        self.is_enabled = setting not in ("", "0")
        self.folder = None if setting in ("", "0", "1") else os.path.abspath(setting)
        self._lock = ForkLock()
        self.clear()
        super().__init__()

    def clear(self) -> None:
        self._row_bytes: dict[tuple[str, tuple[str, ...]], float] = {}
        self._pending: dict[str, dict[str, Count]] = {}
        self._queries: OrderedDict[int, tuple[object, set[tuple[str, str]]]] = OrderedDict()
        self._is_writing = False

    def count(
        self,
        query: object,
        columns: tuple[str, ...],
        file: OpenedFile,
        steps: Sequence[tuple[str, RowRanges]],
    ) -> None:
        """Counts the steps of planning that used an index."""
        used = [
            (_name_of(source), before.num_rows - rows.num_rows)
            for (_, before), (source, rows) in pairwise(steps)
            if _name_of(source)
        ]
        if not used:
            return
        root = file.view.root or _root_of(file.name.rpartition("/")[0])
        key = root, columns
        row_bytes = self._row_bytes.get(key)
        if row_bytes is None:
            row_bytes = self._row_bytes[key] = _bytes_of_row(file, columns)
        with self._lock:
            _, seen = self._queries.setdefault(id(query), (query, set()))
            if len(self._queries) > _MAX_QUERIES:
                self._queries.popitem(last=False)
            counts = self._pending.setdefault(root, {})
            for name, rows in used:
                if (name, file.name) in seen:  # planned again
                    continue
                count = counts.setdefault(name, [0, 0, 0])
                count[0] += (name, "") not in seen
                count[1] += rows
                count[2] += int(rows * row_bytes)
                seen |= {(name, file.name), (name, "")}
            starts, self._is_writing = not self._is_writing, True
        if starts:
            threading.Thread(target=self._write_later, daemon=True).start()

    def _write_later(self) -> None:
        time.sleep(_WRITE_SECONDS)
        self.write()

    def write(self) -> None:
        """Writes what was counted. Counts that cannot be written are lost."""
        if not self._pending:  # at the end of a process, this waits for no lock without need
            return
        with self._lock:
            pending, self._pending, self._is_writing = self._pending, {}, False
        by_file: dict[str, dict[str, dict[str, Count]]] = {}
        for root, counts in pending.items():
            if os.path.isabs(root) and self.folder is None:
                root = _dataset_of(root)
            elif self.folder is None:
                continue  # remote storage, where no file can be added to
            name = root if self.folder is not None else ""
            by_file.setdefault(usage_path(root, self.folder), {})[name] = counts
        for path, of_file in by_file.items():
            with contextlib.suppress(Exception):
                add_counts(path, of_file)


_counts = _Counts()
atexit.register(_counts.write)


def count(
    query: object,
    columns: tuple[str, ...],
    file: OpenedFile,
    steps: Sequence[tuple[str, RowRanges]],
) -> None:
    """Counts what indexes left out of ``file`` in a query, if counting is enabled.

    ``steps`` are those of planning. ``columns`` are read. ``query`` is one object for all files of
    a query. Never raises an error.
    """
    if _counts.is_enabled and not file.profile.is_recording:
        with contextlib.suppress(Exception):
            _counts.count(query, columns, file, steps)


@public
def enable(path: PathLike | None = None) -> None:
    """Begins to count, in this process, which indexes save how many bytes in which data sets.

    Counts stay on this machine. They are written a few seconds after a query and at the end of the
    process, and lost if they cannot be. The environment variable ``INTARSIA_USAGE`` does the same:
    it is ``1`` or a folder.

    Parameters
    ----------
    path : str or path-like, optional
        A local folder for the counts of all data sets. By default ``_intarsia/usage.json`` in the
        folder of each local data set; data sets on remote storage are not counted then.

    Examples
    --------
    >>> ia.usage.enable()
    >>> ia.usage.disable()
    """
    _counts.write()
    _counts.folder = None if path is None else os.path.abspath(os.fspath(path))
    _counts.is_enabled = True


@public
def disable() -> None:
    """Ends counting, and writes what was counted.

    Examples
    --------
    >>> ia.usage.disable()
    """
    _counts.is_enabled = False
    _counts.write()


@functools.lru_cache(maxsize=1024)
def _name_of(source: str) -> str:
    """Returns the name of the index that a step of planning used. Empty if it used none."""
    if source == PAGE_INDEX:
        return spec_name(PageIndex())
    if source.startswith(f"{BLOOM_FILTERS} of "):
        return spec_name(Bloom(source.removeprefix(f"{BLOOM_FILTERS} of ")))
    return source.removeprefix(INDEX) if source.startswith(INDEX) else ""


@functools.lru_cache(maxsize=4096)
def _root_of(folder: str) -> str:
    """Returns the folder above ``key=value`` folders."""
    *_, root = folders_above(folder)
    return root


def _dataset_of(folder: str) -> str:
    """Returns the nearest folder from ``folder`` upwards that has a policy, else ``folder``."""
    above = folder
    while above not in ("", "/"):
        if os.path.isfile(os.path.join(above, SIDECAR_FOLDER, POLICY_NAME)):
            return above
        above = os.path.dirname(above)
    return folder


def _bytes_of_row(file: OpenedFile, columns: Sequence[str]) -> float:
    """Returns about how many bytes of the file a row of ``columns`` takes."""
    leaves = [leaf.index for leaf in file.schema.leaves if leaf.path[0] in columns]
    chunks = file.outlines(0, leaves)
    return sum(chunk.total_compressed_size for chunk in chunks) / max(file.num_rows_in(0), 1)
