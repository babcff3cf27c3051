"""Computes the map of a lake: files by folder and age, three times with another colour.

::

    day=1   ▮▮▮▯    coverage    ▮ all indexes, ▯ none
    day=2   ▮▯      page size   ▮ long pages, ▯ short ones
    day=3   ▮       file size   ▮ large, ▯ small
"""

from __future__ import annotations

import math
import posixpath
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime

from intarsia.parquet.value_display import plural
from intarsia.plan.explain_text import common_folder
from intarsia.redaction import redacted
from intarsia.report.format import NAME, clip
from intarsia.report.page_lanes import Cell, cells_in

_MAX_LANES = 60
"""Lanes of a map. If there are more folders, neighbours share a lane."""
_SHORT, _LONG = 1024, 131_072
"""Rows of a page that are drawn palest and darkest."""


@dataclass(frozen=True, slots=True)
class LakeFile:
    """One file. ``covered`` is the share of the indexes that it has; ``changed`` may be unknown."""

    path: str
    size: int
    rows: int
    page_rows: int
    changed: datetime | None
    covered: float


@dataclass(frozen=True, slots=True)
class LakeLane:
    """The files of one folder, or of several neighbours, the oldest first."""

    name: str
    cells: tuple[Cell, ...]
    files: int


@dataclass(frozen=True, slots=True)
class LakeMap:
    """All lanes in one colour. ``pale`` and ``dark`` say what the colour means."""

    title: str
    colour: str
    pale: str
    dark: str
    lanes: tuple[LakeLane, ...]


@dataclass(frozen=True, slots=True)
class LakePage:
    """The page: a title, facts by name, and the maps."""

    name: str
    facts: tuple[tuple[str, str], ...]
    maps: tuple[LakeMap, ...]


def lake_page(name: str, facts: Sequence[tuple[str, str]], files: Sequence[LakeFile]) -> LakePage:
    """Returns the map of ``files``, with facts above it."""
    lanes = _lanes_of(files)
    most = cells_in(3 * len(lanes))
    widest = max((-(-len(members) // _per_cell(members, most)) for _, members in lanes), default=1)
    sizes = [file.size for file in files if file.size]
    smallest, largest = min(sizes, default=1), max(sizes, default=1)

    def drawn(share: Callable[[LakeFile], float]) -> tuple[LakeLane, ...]:
        return tuple(
            LakeLane(clip(title, NAME), _cells(members, share, most, widest), len(members))
            for title, members in lanes
        )

    return LakePage(
        clip(name, NAME),
        tuple(facts),
        (
            LakeMap("Coverage", "f", "no index", "all indexes", drawn(lambda file: file.covered)),
            LakeMap(
                "Page size",
                "m",
                f"pages of {_SHORT:,} rows or less",
                f"{_LONG:,} or more",
                drawn(lambda file: _log_share(file.page_rows, _SHORT, _LONG)),
            ),
            LakeMap(
                "File size",
                "section",
                f"{smallest:,} bytes",
                f"{largest:,} bytes",
                drawn(lambda file: _log_share(file.size, smallest, largest)),
            ),
        ),
    )


def _lanes_of(files: Sequence[LakeFile]) -> list[tuple[str, list[LakeFile]]]:
    """Returns the files by folder, the oldest first, under the folder's name."""
    folders: dict[str, list[LakeFile]] = {}
    base = common_folder([redacted(file.path) for file in files]) if files else ""
    for file in files:
        folder = posixpath.dirname(redacted(file.path))
        folders.setdefault(posixpath.relpath(folder, base) if base else folder, []).append(file)
    names = sorted(folders)
    step = max(-(-len(names) // _MAX_LANES), 1)
    lanes = []
    for start in range(0, len(names), step):
        group = names[start : start + step]
        title = group[0] if len(group) == 1 else f"{group[0]} … {group[-1]}"
        members = [file for name in group for file in folders[name]]
        members.sort(key=lambda file: (_seconds(file), file.path))
        lanes.append((title, members))
    return lanes


def _seconds(file: LakeFile) -> float:
    return 0.0 if file.changed is None else file.changed.timestamp()


def _log_share(value: int, least: int, most: int) -> float:
    """Returns where ``value`` lies between two bounds, on a logarithmic scale from 0 to 1."""
    if value <= least or most <= least:
        return 0.0
    return min(math.log(value / least) / math.log(most / least), 1.0)


def _per_cell(files: Sequence[LakeFile], most: int) -> int:
    """Returns how many files share a cell, so that a lane has at most ``most`` cells."""
    return -(-len(files) // most)


def _cells(
    files: Sequence[LakeFile], share: Callable[[LakeFile], float], most: int, widest: int
) -> tuple[Cell, ...]:
    """Returns a cell for each file, or for several neighbours if there are more than ``most``."""
    per_cell = _per_cell(files, most)
    cells = []
    for number, start in enumerate(range(0, len(files), per_cell)):
        group = files[start : start + per_cell]
        mean = sum(map(share, group)) / len(group)
        place = number / widest, 1 / widest
        cells.append(Cell(*place, mean, len(group), _text(group)))
    return tuple(cells)


def _text(files: Sequence[LakeFile]) -> str:
    first, last = files[0], files[-1]
    names = posixpath.basename(redacted(first.path))
    if len(files) > 1:
        names = (
            f"{plural(len(files), 'file')}, {names} to {posixpath.basename(redacted(last.path))}"
        )
    dates = [f"{one.changed:%Y-%m-%d}" for one in (first, last) if one.changed]
    days = " to ".join(dict.fromkeys(dates)) or "unknown age"
    covered = sum(file.covered for file in files) / len(files)
    pages = max(file.page_rows for file in files)
    size = sum(file.size for file in files)
    return f"{names}: {days}, {covered:.0%} covered, pages of {pages:,} rows, {size:,} bytes"
