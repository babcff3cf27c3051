"""The file of usage counts: by data set, index and day.

::

    {"version": 1, "datasets": {"": {"since": "2026-01-31",
        "indexes": {"trace_id:lookup": {"2026-01-31": [queries, rows, bytes]}}}}}

In a data set's own folder, its name is ``""``. In a folder that the user chose it is its path.
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pyarrow.fs as pafs

from intarsia.errors import FormatError, public
from intarsia.io.atomic_replace import locked
from intarsia.io.local_path import local_path
from intarsia.io.small_file import read_small_file, write_small_file
from intarsia.io.storage import SIDECAR_FOLDER, PathLike, resolve
from intarsia.limits import MAX_USAGE_BYTES
from intarsia.parquet.value_display import plural
from intarsia.redaction import shown_redacted

USAGE_NAME = "usage.json"
_DAYS_KEPT = 400
"""Days whose counts stay in the file."""
Count = list[int]
"""The number of queries, of rows that were not read, and of their bytes."""


@dataclass(frozen=True, slots=True)
class IndexUsage:
    """The savings by one index.

    Attributes
    ----------
    name : str
        The name of the index, such as ``"trace_id:lookup"``, or ``"page_index"``.
    queries : int
        The number of queries that used it.
    rows, bytes : int
        The rows that it left out, and about how many bytes of the files these take.
    last_used : str
        The last day on which it was used, in UTC, such as ``"2026-01-31"``.
    """

    name: str
    queries: int
    rows: int
    bytes: int
    last_used: str


@shown_redacted
@dataclass(frozen=True, slots=True)
class UsageReport:
    """The savings by the indexes of a data set. Printed, it is a line an index.

    Attributes
    ----------
    path : str
        The data set's folder.
    since : str
        The day of the first count, in UTC. Empty if nothing was counted.
    days : int
        The number of days, up to today, that are summed up.
    indexes : tuple of IndexUsage
        The indexes that were ever used, those that saved most bytes first.
    """

    path: str
    since: str
    days: int
    indexes: tuple[IndexUsage, ...]

    def of_index(self, name: str) -> str:
        """Returns in words what an index saved. Empty if nothing was counted."""
        if not self.since:
            return ""
        known = {one.name: one for one in self.indexes}.get(name)
        if known is not None and known.queries:
            queries = "1 query" if known.queries == 1 else f"{known.queries:,} queries"
            return f"{queries}, {_size(known.bytes)} not read"
        passed = (_today() - _day_of(self.since, _today())).days + 1
        return f"not used in {plural(min(self.days, passed), 'day')}"

    def to_dict(self) -> dict[str, Any]:
        """Returns all attributes as values that JSON can represent."""
        return dataclasses.asdict(self)

    def __repr__(self) -> str:
        return str(self)

    def __str__(self) -> str:
        if not self.since:
            return f"{self.path}: nothing was counted; intarsia.usage.enable() begins"
        lines = [f"{self.path}: since {self.since}, the last {plural(self.days, 'day')}"]
        lines += [f"  {one.name}: {self.of_index(one.name)}" for one in self.indexes]
        return "\n".join(lines)


@public
def report(path: PathLike, *, days: int = 30, folder: PathLike | None = None) -> UsageReport:
    """Returns what the indexes of a data set saved in the last days.

    Parameters
    ----------
    path : str or path-like
        The folder of the data set.
    days : int, default 30
        The number of days, up to today, that are summed up.
    folder : str or path-like, optional
        The folder that was given to ``enable``. By default the counts in the data set's folder.

    Returns
    -------
    UsageReport
        The report, which prints as text.

    Raises
    ------
    FormatError
        If the file of counts is damaged.

    Examples
    --------
    >>> ia.usage.enable()
    >>> _ = ia.dataset("lake").count_rows("trace_id = 't0'")
    >>> ia.usage.disable()  # writes what was counted
    >>> ia.usage.report("lake").of_index("page_index") != ""
    True
    """
    filesystem, root = resolve(path, None)
    root = (local_path(root, filesystem) or root).rstrip("/")
    file = usage_path(root, None if folder is None else os.fspath(folder))
    name = "" if folder is None else root
    known = read_counts(file).get(name, {})
    first = str(_today() - timedelta(days - 1))
    indexes = []
    for index, by_day in known.get("indexes", {}).items():
        recent = [count for day, count in by_day.items() if day >= first]
        queries, rows, num_bytes = (sum(parts) for parts in zip((0, 0, 0), *recent, strict=True))
        indexes.append(IndexUsage(index, queries, rows, num_bytes, max(by_day, default="")))
    indexes.sort(key=lambda one: (-one.bytes, one.name))
    return UsageReport(root, known.get("since", ""), days, tuple(indexes))


def usage_of(root: str, filesystem: pafs.FileSystem) -> tuple[UsageReport | None, str]:
    """Returns the report on the data set in the folder ``root``, and an error or ``""``.

    The report is None if nothing was counted there, or if there is no such local folder.
    """
    local = local_path(root, filesystem) if root else None
    if local is None:
        return None, ""
    try:
        used = report(local)
    except (FormatError, OSError) as error:
        return None, str(error)
    return (used, "") if used.since else (None, "")


def usage_path(root: str, folder: str | None) -> str:
    """Returns the path of the file that has the counts of the data set in the folder ``root``."""
    return (
        os.path.join(root, SIDECAR_FOLDER, USAGE_NAME)
        if folder is None
        else os.path.join(folder, USAGE_NAME)
    )


def read_counts(path: str) -> dict[str, Any]:
    """Returns the counts by data set. Empty if there is no file.

    Raises ``FormatError`` if it is damaged, and ``PathError`` if it cannot be read.
    """
    try:
        data = read_small_file(pafs.LocalFileSystem(), path, "the file", MAX_USAGE_BYTES)
        if data is None:
            return {}
        document = json.loads(data)
        datasets: dict[str, Any] = document["datasets"]
        for known in datasets.values():
            for by_day in known["indexes"].values():
                for queries, rows, num_bytes in by_day.values():
                    if not all(math.isfinite(one) for one in (queries, rows, num_bytes)):
                        raise ValueError("a count is not finite")
            if not isinstance(known["since"], str):
                raise TypeError("since is not a day")
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise FormatError(f"{path}: not a file of usage counts: {error!r:.200}") from error
    return datasets


def add_counts(path: str, counts: Mapping[str, Mapping[str, Count]]) -> None:
    """Adds counts, by data set and index, to the file of counts, as those of today.

    A damaged file is replaced. Raises ``OSError`` if the file cannot be written.
    """
    folder, today = os.path.dirname(path), str(_today())
    os.makedirs(folder, exist_ok=True)
    with locked(folder):
        try:
            datasets = read_counts(path)
        except FormatError:
            datasets = {}
        oldest = str(_today() - timedelta(_DAYS_KEPT))
        for name, indexes in counts.items():
            known = datasets.setdefault(name, {"since": today, "indexes": {}})
            for index, count in indexes.items():
                by_day = known["indexes"].setdefault(index, {})
                old = by_day.get(today, [0, 0, 0])
                by_day[today] = [a + b for a, b in zip(old, count, strict=True)]
                for day in [day for day in by_day if day < oldest]:
                    del by_day[day]
        document = {"version": 1, "datasets": datasets}
        write_small_file(pafs.LocalFileSystem(), path, json.dumps(document).encode())


def _today() -> date:
    return datetime.now(UTC).date()


def _day_of(text: str, default: date) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError:
        return default


def _size(num_bytes: int) -> str:
    """Returns a size with a decimal unit, such as ``41.0 GB``."""
    units = ("bytes", "kB", "MB", "GB", "TB", "PB")
    power = min(int(math.log(max(num_bytes, 1), 1000)), len(units) - 1)
    return f"{num_bytes / 1000**power:,.1f} {units[power]}" if power else f"{num_bytes:,} bytes"
