"""Estimates what filters read of files, now and with other indexes, from sampled row groups.

::

    files    │ 1 │ 2 │   │ 3 │ 4 │ 5 │   │ 6 │   of two writers, with their row groups
    sample     1               4           6     views, to which indexes are added in memory
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from intarsia.advisor.row_group_sample import page_rows, sample_of
from intarsia.file.open_file import OpenedFile
from intarsia.plan.plan import ScanPlan
from intarsia.plan.planner import plan_rows
from intarsia.plan.pruner import BLOOM_FILTERS
from intarsia.pruning.partition_pruning import Constants
from intarsia.scan.read_estimate import plan_reads
from intarsia.scan.request import Request
from intarsia.scan.schema_adapter import roots_to_read

_MAX_SAMPLE_ROWS = 250_000
"""Rows of the sample. The first row group of each filter and writer may exceed them."""
_GROUPS_PER_FILTER = 4
"""Row groups that are sampled for each filter and writer, of those that may match."""


@dataclass(frozen=True, slots=True)
class Member:
    """A file and the row groups that may match each filter. One writer's files are alike."""

    file: OpenedFile
    constants: Constants
    remaining_groups: tuple[tuple[int, ...], ...]

    @property
    def writer(self) -> str:
        """The name of the program that wrote the file, without its version."""
        return (self.file.metadata.created_by or "").partition(" version ")[0]


@dataclass(frozen=True, slots=True)
class View:
    """A sample of a file, perhaps with indexes."""

    file: OpenedFile
    member: Member


class Measured(NamedTuple):
    """The estimated bytes of its columns that each filter reads, and the least that it can read."""

    reads: tuple[float, ...]
    least: tuple[float, ...]


class ReadCostEstimator:
    """Estimates the bytes that ``requests`` read of files, ``members``, and of a sample of them."""

    def __init__(self, members: Sequence[Member], requests: Sequence[Request]) -> None:
        self._members, self._requests = members, requests
        sampled = self._sampled()
        self.sampled_groups = sum(map(len, sampled.values()))
        self.views = tuple(
            View(sample_of(members[position].file, groups), members[position])
            for position, groups in sampled.items()
        )
        """The sample, without embedded indexes."""
        self.sampled_rows = sum(view.file.num_rows for view in self.views)
        self.num_rows = sum(member.file.num_rows for member in members)
        self.most_rows = max((member.file.num_rows for member in members), default=0)
        """Rows of the largest file."""
        numbers = range(len(requests))
        all_groups = [range(len(member.file.metadata.row_groups)) for member in members]
        self.totals = [sum(self._bytes(number, all_groups).values()) for number in numbers]
        """Bytes of each filter's columns, in all files."""
        self._matching_bytes = [
            self._bytes(number, [member.remaining_groups[number] for member in members])
            for number in numbers
        ]
        self.matching_totals = [counts.total() for counts in self._matching_bytes]
        """Bytes of each filter's columns, in the row groups in which it may match."""
        chosen = [sampled.get(position, ()) for position in range(len(members))]
        self._sampled_bytes = [
            self._bytes(
                number,
                [
                    set(sampled_file_groups) & set(m.remaining_groups[number])
                    for sampled_file_groups, m in zip(chosen, members, strict=True)
                ],
            )
            for number in numbers
        ]
        groups = sum(map(len, all_groups))
        self._group_bytes = [total / max(groups, 1) for total in self.totals]
        self._scales = [1.0 for _ in numbers]

    def start(self, views: Sequence[View]) -> Measured:
        """Returns what is read of the files as they are, to scale by later."""
        sample_reads, least = self.measured(views)
        reads = tuple(map(self._planned, range(len(self._requests))))
        self._scales = [
            file_bytes / sample_bytes if sample_bytes else 0.0
            for file_bytes, sample_bytes in zip(reads, sample_reads, strict=True)
        ]
        scaled = zip(self._scales, least, strict=True)
        return Measured(reads, tuple(scale * least_bytes for scale, least_bytes in scaled))

    def _sampled(self) -> dict[int, list[int]]:
        """Returns row groups by file: a few for each filter and writer, of those that may match."""
        chosen: dict[int, set[int]] = {}
        rows = 0
        writers = dict.fromkeys(member.writer for member in self._members)
        candidates = [
            [
                (position, group)
                for position, member in enumerate(self._members)
                for group in member.remaining_groups[number]
                if member.writer == writer
            ]
            for writer in writers
            for number in range(len(self._requests))
        ]
        for i in range(_GROUPS_PER_FILTER):  # the first for every filter, then the second, …
            for remaining in sorted(candidates, key=len):
                count = min(_GROUPS_PER_FILTER, len(remaining))
                has_one = any(group in chosen.get(position, ()) for position, group in remaining)
                if i >= count or (has_one and rows >= _MAX_SAMPLE_ROWS):
                    continue
                position, group = remaining[(2 * i + 1) * len(remaining) // (2 * count)]
                if group not in chosen.get(position, ()):
                    rows += self._members[position].file.num_rows_in(group)
                    chosen.setdefault(position, set()).add(group)
        return {position: sorted(groups) for position, groups in sorted(chosen.items())}

    def _bytes(self, number: int, groups: Sequence[Any]) -> Counter[str]:
        """Returns the bytes of a filter's columns in some row groups of each file, by writer."""
        size = Counter[str]()
        for member, file_groups in zip(self._members, groups, strict=True):
            roots = roots_to_read(member.file, self._requests[number], member.constants)
            size[member.writer] += sum(
                member.file.chunk(group, leaf).total_compressed_size
                for group in file_groups
                for root in roots
                for leaf in root.leaves
            )
        return size

    def _planned(self, number: int) -> float:
        """Returns the bytes of its columns that a filter reads of the files as they are."""
        size, request = 0, self._requests[number]
        for member in self._members:
            constants = member.constants
            planned = plan_rows(member.file, request.pruning, constants, request.schema)
            roots = roots_to_read(member.file, request, constants)
            rows = ScanPlan(planned.rows)  # no one reads the figures of its steps
            plan = plan_reads(member.file, roots, rows, constants, 0, count_pages=False)
            size += plan.figures.bytes.selected
        return size

    def is_guess(self, number: int, views: Sequence[View]) -> bool:
        """True if, in the files of some writer, no row of the sample might match a filter."""
        request, matching_rows = self._requests[number], Counter[str]()
        for view in views:
            planned = plan_rows(view.file, request.pruning, view.member.constants, request.schema)
            matching_rows[view.member.writer] += planned.rows.num_rows
        sampled = self._sampled_bytes[number]
        return any(sampled[writer] and not matching_rows[writer] for writer in sampled)

    def page_rows(self) -> int:
        """Returns average rows of a page in the file with the longest pages."""
        page_lengths = [0]
        for view in self.views:
            column_roots = (
                roots_to_read(view.file, r, view.member.constants) for r in self._requests
            )
            roots = [root for request_roots in column_roots for root in request_roots]
            page_lengths.append(
                page_rows(view.file, {leaf for root in roots for leaf in root.leaves})
            )
        return max(page_lengths)

    def measured(self, views: Sequence[View]) -> Measured:
        """Returns the estimated bytes that each filter reads, and the least."""
        reads, least = [], []
        rows = Counter[str]()
        for view in views:
            rows[view.member.writer] += view.file.num_rows
        for number, request in enumerate(self._requests):
            selected, by_bloom, page_bytes = Counter[str](), False, 0.0
            matching_bytes, sampled_bytes = (
                self._matching_bytes[number],
                self._sampled_bytes[number],
            )
            total_bytes = sum(matching_bytes.values())
            for view in views:
                writer = view.member.writer
                constants = view.member.constants
                planned = plan_rows(view.file, request.pruning, constants, request.schema)
                if not planned.rows and planned.steps[-1][0].startswith(BLOOM_FILTERS):
                    by_bloom = True
                roots = roots_to_read(view.file, request, constants)
                plan = plan_reads(view.file, roots, ScanPlan(planned.rows), constants, 0)
                selected[writer] += plan.figures.bytes.selected
                pages = (c.bytes.total / max(c.pages.total, 1) for c in plan.columns)
                share = matching_bytes[writer] / total_bytes if total_bytes else 0.0
                page_bytes += share * sum(pages) * view.file.num_rows / rows[writer]
            read = sum(
                size * min(1.0, selected[writer] / sampled_bytes[writer])
                for writer, size in matching_bytes.items()
                if sampled_bytes[writer]
            )
            # A value that no sampled row group has may be in another one. Reading it then costs a
            # row group, or a page of each column.
            floor = self._group_bytes[number] if by_bloom and not selected.total() else page_bytes
            least.append(self._scales[number] * min(total_bytes, floor))
            reads.append(max(self._scales[number] * read, least[-1]))
        return Measured(tuple(reads), tuple(least))
