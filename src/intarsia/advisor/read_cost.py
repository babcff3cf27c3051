"""What filters read of files, and about what they would: told by row groups that stand for others.

::

    files    │ 1 │ 2 │   │ 3 │ 4 │ 5 │   │ 6 │   of two writers, their row groups
    sample     1               4           6     views, to which indexes are added in memory
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from intarsia.advisor.row_group_sample import page_rows, sample_of
from intarsia.file.open_file import OpenedFile
from intarsia.pruning.partition_pruning import Constants
from intarsia.scan.file_planner import BLOOM_FILTERS, plan_rows
from intarsia.scan.read_estimate import plan_reads
from intarsia.scan.request import Request
from intarsia.scan.schema_adapter import roots_to_read

_MOST_ROWS = 400_000
"""Of the sample, but for one row group a filter and writer."""
_GROUPS = 4
"""Row groups that are sampled for each filter, of those its statistics leave, of each writer."""


@dataclass(frozen=True, slots=True)
class Member:
    """A file of the data set, and which of its row groups each filter leaves.

    Files of one ``writer`` are taken to be alike: their row groups and pages are as long.
    """

    file: OpenedFile
    constants: Constants
    left: tuple[tuple[int, ...], ...]

    @property
    def writer(self) -> str:
        return (self.file.metadata.created_by or "").partition(" version ")[0]


@dataclass(frozen=True, slots=True)
class View:
    """A sample of a file, perhaps with indexes."""

    file: OpenedFile
    member: Member


class Measured(NamedTuple):
    """About how many bytes of its columns each filter reads, and the least that it can."""

    reads: tuple[float, ...]
    least: tuple[float, ...]


class Gauge:
    """Measures what ``requests`` read of files, ``members``, and of views of a sample of them."""

    def __init__(self, members: Sequence[Member], requests: Sequence[Request]) -> None:
        self._members, self._requests = members, requests
        sampled = self._sampled()
        self.sampled_groups = sum(map(len, sampled.values()))
        self.views = tuple(
            View(sample_of(members[at].file, groups), members[at]) for at, groups in sampled.items()
        )
        """The sample, without embedded indexes."""
        self.sampled_rows = sum(view.file.num_rows for view in self.views)
        self.most_rows = max((member.file.num_rows for member in members), default=0)
        """Of one file."""
        numbers = range(len(requests))
        every = [range(len(member.file.metadata.row_groups)) for member in members]
        self.totals = [sum(self._bytes(number, every).values()) for number in numbers]
        """Of each filter's columns, in all files."""
        self._all_left = [
            self._bytes(number, [member.left[number] for member in members]) for number in numbers
        ]
        chosen = [sampled.get(at, ()) for at in range(len(members))]
        self._in_sample = [
            self._bytes(
                number,
                [set(own) & set(m.left[number]) for own, m in zip(chosen, members, strict=True)],
            )
            for number in numbers
        ]
        groups = sum(map(len, every))
        self._group = [total / max(groups, 1) for total in self.totals]
        self._scales = [1.0 for _ in numbers]

    def start(self, views: Sequence[View]) -> Measured:
        """What is read of the files as they are, of which ``views`` have the indexes.

        All that is measured later is in proportion to it.
        """
        told, least = self.measured(views)
        reads = tuple(map(self._planned, range(len(self._requests))))
        self._scales = [now / one if one else 0.0 for now, one in zip(reads, told, strict=True)]
        return Measured(reads, least)

    def _sampled(self) -> dict[int, list[int]]:
        """Row groups by file: for each filter some of those left of each writer, evenly spread."""
        found: dict[int, set[int]] = {}
        rows = 0
        writers = dict.fromkeys(member.writer for member in self._members)
        every = [
            [
                (at, group)
                for at, member in enumerate(self._members)
                for group in member.left[number]
                if member.writer == writer
            ]
            for writer in writers
            for number in range(len(self._requests))
        ]
        for i in range(_GROUPS):  # the first for every filter, then the second, …
            for left in every:
                count = min(_GROUPS, len(left))
                if i >= count or (i and rows >= _MOST_ROWS):
                    continue
                at, group = left[(2 * i + 1) * len(left) // (2 * count)]
                if group not in found.get(at, ()):
                    rows += self._members[at].file.num_rows_in(group)
                    found.setdefault(at, set()).add(group)
        return {at: sorted(groups) for at, groups in sorted(found.items())}

    def _bytes(self, number: int, groups: Sequence[Any]) -> Counter[str]:
        """Of the filter's columns in some row groups of each file, by the files' writers."""
        size = Counter[str]()
        for member, own in zip(self._members, groups, strict=True):
            roots = roots_to_read(member.file, self._requests[number], member.constants)
            size[member.writer] += sum(
                member.file.chunk(group, leaf).total_compressed_size
                for group in own
                for root in roots
                for leaf in root.leaves
            )
        return size

    def _planned(self, number: int) -> float:
        """How many bytes of its columns a filter reads of the files as they are."""
        size, request = 0, self._requests[number]
        for member in self._members:
            left = plan_rows(member.file, request.pruning, member.constants, request.schema)
            roots = roots_to_read(member.file, request, member.constants)
            size += plan_reads(
                member.file, roots, left, member.constants, 0, count_pages=False
            ).figures.bytes.selected
        return size

    def is_guess(self, number: int, views: Sequence[View]) -> bool:
        """Might no row of the sample match a filter, of the files of one writer?"""
        request, found = self._requests[number], Counter[str]()
        for view in views:
            left = plan_rows(view.file, request.pruning, view.member.constants, request.schema)
            found[view.member.writer] += left.rows.num_rows
        sampled = self._in_sample[number]
        return any(sampled[writer] and not found[writer] for writer in sampled)

    def page_rows(self) -> int:
        """The most rows that a page of the filters' columns has, on average of a file's first row
        group in the sample.
        """
        found = [0]
        for view in self.views:
            asked = (roots_to_read(view.file, r, view.member.constants) for r in self._requests)
            roots = [root for of_one in asked for root in of_one]
            found.append(page_rows(view.file, {leaf for root in roots for leaf in root.leaves}))
        return max(found)

    def measured(self, views: Sequence[View]) -> Measured:
        """About how many bytes of its columns each filter reads, and the least it can.

        What the sample tells is in proportion to what is read of the files as they are.
        """
        found, units = [], []
        rows = Counter[str]()
        for view in views:
            rows[view.member.writer] += view.file.num_rows
        for number, request in enumerate(self._requests):
            selected, by_bloom, page = Counter[str](), False, 0.0
            left_now, in_sample = self._all_left[number], self._in_sample[number]
            whole = sum(left_now.values())
            for view in views:
                writer = view.member.writer
                constants = view.member.constants
                left = plan_rows(view.file, request.pruning, constants, request.schema)
                if not left.rows and left.steps[-1].source.startswith(BLOOM_FILTERS):
                    by_bloom = True
                roots = roots_to_read(view.file, request, constants)
                plan = plan_reads(view.file, roots, left, constants, 0)
                selected[writer] += plan.figures.bytes.selected
                pages = (c.bytes.total / max(c.pages.total, 1) for c in plan.columns)
                share = left_now[writer] / whole if whole else 0.0
                page += share * sum(pages) * view.file.num_rows / rows[writer]
            read = sum(
                size * min(1.0, selected[writer] / in_sample[writer])
                for writer, size in left_now.items()
                if in_sample[writer]
            )
            # A value that is in no sampled row group may be in another: in one unit of the index.
            units.append(self._group[number] if by_bloom and not selected.total() else page)
            found.append(self._scales[number] * max(read, min(whole, units[-1])))
        return Measured(tuple(found), tuple(units))
