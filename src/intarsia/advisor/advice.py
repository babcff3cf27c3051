"""Defines the advice on indexes for a list of filters, as a table and as JSON."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from intarsia.file.page_layout import LONG_PAGES, PageLayout
from intarsia.redaction import shown_redacted


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
    layout : PageLayout or None
        The pages of the file in which a lookup reads the largest share.
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
    layout: PageLayout | None = None

    @property
    def indexes(self) -> list[str]:
        """The proposed indexes, as ``add_indexes`` takes them."""
        return [proposal.index for proposal in self.proposals]

    def to_dict(self) -> dict[str, Any]:
        """Returns all attributes as values that JSON can represent."""
        return dataclasses.asdict(self)

    def __repr__(self) -> str:
        return str(self)

    def __str__(self) -> str:
        lines = [
            f"{self.path}: {self.files:,} files, {self.rows:,} rows, {self.bytes:,} bytes; "
            f"{self.sampled:,} of {self.row_groups:,} row groups sampled",
            "",
        ]
        if self.proposals:
            rows = [("index", "bytes", "share of files", "serves filters")]
            for proposal in self.proposals:
                share = proposal.bytes / max(self.bytes, 1)
                served = ", ".join(str(number + 1) for number in proposal.filters)
                rows.append((proposal.index, f"{proposal.bytes:,}", f"{share:.1%}", served))
            lines += _table(rows)
        else:
            lines.append("no index pays")
        filter_rows = [("", "filter", "reads now", "then", "why")]
        for number, advice in enumerate(self.filters):
            percentages = (
                f"{part / max(advice.total, 1):.1%}" for part in (advice.now, advice.then)
            )
            now, then = percentages
            guess = "~" * advice.is_guess
            filter_rows.append((str(number + 1), advice.filter, now, guess + then, advice.reason))
        lines += ["", *_table(filter_rows)]
        if any(advice.is_guess for advice in self.filters):
            lines += ["", "~ a guess: no row of the sample can match, but rows elsewhere may"]
        if self.page_rows >= LONG_PAGES:
            lines += [
                "",
                f"A page has up to {self.page_rows:,} rows, and pages are read whole. Files that",
                "write_table writes anew have shorter pages, so that indexes let more be skipped.",
            ]
        if self.layout is not None and self.layout.is_coarse:
            lines.append(f"All columns: {self.layout}")
        return "\n".join(lines)


def _table(rows: Sequence[tuple[str, ...]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
