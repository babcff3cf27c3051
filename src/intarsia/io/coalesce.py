"""Joins byte ranges that are cheaper to read in one request. Does no I/O."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from intarsia.io.source import ByteRange


class Group(NamedTuple):
    """One request: ``length`` bytes from ``offset`` with the ranges at positions ``members``."""

    offset: int
    length: int
    members: tuple[int, ...]


def coalesce(ranges: Sequence[ByteRange], gap: int) -> list[Group]:
    """Returns requests that cover all ``ranges``. Ranges at most ``gap`` bytes apart share one.

    Every range lies inside exactly one group. Groups are in order of offset, and more than ``gap``
    bytes apart.

    ::

        ranges    ##..##..........###
        gap 2     ######..........###
    """
    order = sorted(range(len(ranges)), key=lambda i: ranges[i])
    groups: list[Group] = []
    start = stop = 0
    members: list[int] = []
    for i in order:
        offset, length = ranges[i]
        if members and offset > stop + gap:
            groups.append(Group(start, stop - start, tuple(members)))
            members = []
        if not members:
            start = stop = offset
        stop = max(stop, offset + length)
        members.append(i)
    if members:
        groups.append(Group(start, stop - start, tuple(members)))
    return groups
