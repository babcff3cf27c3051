"""Defines the advice on indexes for a list of filters, as a table and as JSON."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from intarsia.notebook import notebook_html
from intarsia.redaction import shown_redacted
from intarsia.writer.defaults import INDEXED_PAGE_ROWS

if TYPE_CHECKING:
    from intarsia.usage_counts.usage_file import UsageReport

MIN_ROWS_TO_REWRITE = 8 * INDEXED_PAGE_ROWS
"""Rows of a page from which a rewrite is estimated. An index can only skip whole pages."""


@dataclass(frozen=True, slots=True)
class Proposal:
    """An index that pays.

    Attributes
    ----------
    index : str
        The index, as ``add_indexes`` takes it.
    bytes : int
        The estimated bytes of the index in all files.
    filters : tuple of int
        The numbers of the filters that the index serves, from 0.
    """

    index: str
    bytes: int
    filters: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class FilterAdvice:
    """The bytes that one filter reads, now and with the proposed indexes.

    Attributes
    ----------
    filter : str
        The filter.
    total : int
        The bytes of the filter's columns in all files.
    now, then : int
        The bytes of these columns that are read now, and with the proposed indexes.
    reason : str
        The indexes that serve the filter, or why there are none.
    is_guess : bool
        True if, for the files of some writer, no row of the sample might match with
        the proposed indexes.
    """

    filter: str
    total: int
    now: int
    then: int
    reason: str
    is_guess: bool = False


@dataclass(frozen=True, slots=True)
class Layout:
    """Bytes that filters read after ``intarsia rewrite`` wrote the files with short pages.

    Attributes
    ----------
    page_rows : int
        The rows of a page then.
    bytes : int
        The bytes of all files, about as many as are written once.
    filters : tuple of int
        The numbers of the filters that read less, by a fifth or more, than with indexes alone.
    proposals : tuple of Proposal
        The indexes that pay then.
    reads : tuple of int
        The bytes that each filter reads then, with these indexes.
    """

    page_rows: int
    bytes: int
    filters: tuple[int, ...]
    proposals: tuple[Proposal, ...]
    reads: tuple[int, ...]


@shown_redacted
@dataclass(frozen=True, slots=True)
class Advice:
    """Indexes that are proposed for the files at a path, and what they save for each filter.

    All bytes are estimates from a sample of row groups. Printed, the advice is a table.

    Attributes
    ----------
    path : str
        The path that was given, or the first one.
    files, rows, bytes, row_groups : int
        The size of the data set. Rows, bytes and row groups are estimates if not all files were
        read.
    sampled : int
        The number of row groups in the sample.
    proposals : tuple of Proposal
        The proposed indexes, the best one first.
    filters : tuple of FilterAdvice
        The filters, in order.
    page_rows : int
        The average rows of a page in the file with the longest pages of the filters' columns.
    layout : Layout or None
        The costs of a rewrite with short pages, and its savings. None if it saves little.
    usage : UsageReport or None
        The savings by existing indexes in the last 30 days, if they were counted.
    """

    path: str
    files: int
    rows: int
    bytes: int
    row_groups: int
    sampled: int
    proposals: tuple[Proposal, ...]
    filters: tuple[FilterAdvice, ...]
    page_rows: int
    layout: Layout | None = None
    usage: UsageReport | None = None

    @property
    def indexes(self) -> list[str]:
        """The proposed indexes, as ``add_indexes`` takes them."""
        return [proposal.index for proposal in self.proposals]

    def to_dict(self) -> dict[str, Any]:
        """Returns all attributes as values that JSON can represent."""
        return dataclasses.asdict(self)

    def _row(self, proposal: Proposal) -> tuple[str, ...]:
        """Returns a row of the table of costs."""
        share = f"{proposal.bytes / max(self.bytes, 1):.1%}"
        served = ", ".join(str(number + 1) for number in proposal.filters)
        return proposal.index, f"{proposal.bytes:,}", share, served

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        title = f"Indexes that pay: {', '.join(self.indexes) or 'none'}"
        proposals = list(map(self._row, self.proposals))
        filters = []
        for one in self.filters:
            now, then = (f"{part / max(one.total, 1):.1%}" for part in (one.now, one.then))
            filters.append((one.filter, now, then, one.reason))
        return notebook_html(
            title,
            (("index", "bytes", "share of files", "serves filters"), proposals),
            (("filter", "reads now", "then", "why"), filters),
            text=str(self),
        )

    def __str__(self) -> str:
        lines = [
            f"{self.path}: {self.files:,} files, {self.rows:,} rows, {self.bytes:,} bytes; "
            f"{self.sampled:,} of {self.row_groups:,} row groups sampled",
            "",
        ]
        rows: list[tuple[str, ...]] = [("what", "bytes", "share of files", "serves filters")]
        rows += map(self._row, self.proposals)
        if self.layout is not None:
            files = Proposal("intarsia rewrite", self.layout.bytes, self.layout.filters)
            rows.append(self._row(files))
            rows += (("+ " + row[0], *row[1:]) for row in map(self._row, self.layout.proposals))
        lines += _table(rows) if len(rows) > 1 else ["no index pays"]
        rewritten = () if self.layout is None else ("rewritten",)
        filter_rows: list[tuple[str, ...]] = [
            ("", "filter", "reads now", "then", *rewritten, "why")
        ]
        for number, advice in enumerate(self.filters):
            parts = [advice.now, advice.then]
            parts += [] if self.layout is None else [self.layout.reads[number]]
            now, then, *later = (f"{part / max(advice.total, 1):.1%}" for part in parts)
            guess = "~" * advice.is_guess
            row = (str(number + 1), advice.filter, now, guess + then, *later, advice.reason)
            filter_rows.append(row)
        lines += ["", *_table(filter_rows)]
        if any(advice.is_guess for advice in self.filters):
            lines += ["", "~ a guess: no row of the sample can match, but rows elsewhere may"]
        if self.layout is not None:
            options = [f"--rows-per-page {self.layout.page_rows}"]
            options += [f"--index {shlex.quote(one.index)}" for one in self.layout.proposals]
            lines += [
                "",
                f"A page has up to {self.page_rows:,} rows, and pages are read whole. After this",
                "command, the indexes marked with + pay, and filters read what rewritten says:",
                f"  intarsia rewrite {shlex.quote(self.path)} {' '.join(options)}",
            ]
        if self.usage is not None:
            lines += ["", "Indexes that were used before:"]
            lines += [
                f"  {one.name}: {self.usage.of_index(one.name)}" for one in self.usage.indexes
            ]
        return "\n".join(lines)


def _table(rows: Sequence[tuple[str, ...]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
