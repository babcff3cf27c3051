"""Which indexes would pay for a list of filters, as a table and as JSON."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from intarsia.redaction import shown_redacted

LONG_PAGES = 32_768
"""Pages of so many rows are worth a word: an index spares the others only."""


@dataclass(frozen=True, slots=True)
class Proposal:
    """An index that pays: as text for ``add_indexes``, and about as many bytes as it would take.

    ``filters`` are the numbers, from 0, of those it serves.
    """

    index: str
    bytes: int
    filters: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class FilterAdvice:
    """One filter: how many bytes of its columns are read as things are, and about how many with
    what is proposed, of ``total`` ones; and why.

    ``is_guess``: of some writer's files, no row of the sample might match then.
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
    """Indexes that are proposed for the files at a path, and what they do for each filter.

    All bytes are estimates from ``sampled`` of ``row_groups`` row groups, as are the ``page_rows``
    that a page of the filters' columns has where they are most. Printed, it is a table.
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

    @property
    def indexes(self) -> list[str]:
        """What ``add_indexes`` is to be given."""
        return [proposal.index for proposal in self.proposals]

    def to_dict(self) -> dict[str, Any]:
        """All of it as JSON values."""
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
            rows = [("index", "bytes", "of the files", "for filters")]
            for proposal in self.proposals:
                share = proposal.bytes / max(self.bytes, 1)
                served = ", ".join(str(number + 1) for number in proposal.filters)
                rows.append((proposal.index, f"{proposal.bytes:,}", f"{share:.1%}", served))
            lines += _table(rows)
        else:
            lines.append("no index pays")
        told = [("", "filter", "reads now", "then", "why")]
        for number, one in enumerate(self.filters):
            shares = (f"{part / max(one.total, 1):.1%}" for part in (one.now, one.then))
            now, then = shares
            guess = "~" * one.is_guess
            told.append((str(number + 1), one.filter, now, guess + then, one.reason))
        lines += ["", *_table(told)]
        if any(one.is_guess for one in self.filters):
            lines += ["", "~ a guess: no row of the sample might match, and others do elsewhere"]
        if self.page_rows >= LONG_PAGES:
            lines += [
                "",
                f"A page has up to {self.page_rows:,} rows, and is the least that is read of a "
                "column: of files",
                "that write_table makes anew, with shorter pages, indexes have less read.",
            ]
        return "\n".join(lines)


def _table(rows: Sequence[tuple[str, ...]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
