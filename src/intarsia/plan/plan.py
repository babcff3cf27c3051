"""A plan as data: which rows of which files might answer a query, and where their bytes are.

Plans are frozen and picklable; Spark sends them to its tasks as they are.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, fields

import pyarrow as pa

from intarsia.plan.page_ranges import ChunkSelection
from intarsia.redaction import shown_redacted
from intarsia.row_ranges import RowRanges


@dataclass(frozen=True, slots=True)
class Amount:
    """So much of so much."""

    selected: int = 0
    total: int = 0

    def __add__(self, other: Amount) -> Amount:
        return Amount(self.selected + other.selected, self.total + other.total)

    def __str__(self) -> str:
        share = f" ({self.selected / self.total:.2%})" if self.total else ""
        return f"{self.selected:,} of {self.total:,}{share}"


@dataclass(frozen=True, slots=True)
class Figures:
    """What a query touches: each ``(selected, total)``.

    ``pages`` are data pages of the columns involved. ``bytes`` are bytes of the files, everything
    in them included in the total. ``requests`` has no total.
    """

    files: Amount = field(default_factory=Amount)
    row_groups: Amount = field(default_factory=Amount)
    pages: Amount = field(default_factory=Amount)
    rows: Amount = field(default_factory=Amount)
    bytes: Amount = field(default_factory=Amount)
    requests: Amount = field(default_factory=Amount)

    def __add__(self, other: Figures) -> Figures:
        return Figures(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))


@dataclass(frozen=True, slots=True)
class Step:
    """What one source of knowledge left of a file's rows, after the ones before it."""

    source: str
    rows: int
    row_groups: int


@dataclass(frozen=True, slots=True)
class PlannedRead:
    """The parts of one chunk that a plan reads."""

    row_group: int
    leaf: int
    column: str
    selection: ChunkSelection


@dataclass(frozen=True, slots=True)
class ColumnPlan:
    """What a plan reads of one leaf of a file: data pages, and bytes of its chunks.

    ``without_page_index`` counts the chunks that have none and are read whole, as far as is known
    before.
    """

    column: str
    pages: Amount
    bytes: Amount
    without_page_index: int


@shown_redacted
@dataclass(frozen=True, slots=True)
class FilePlan:
    """One file's part of a plan.

    ``rows`` might match, counted from the start of the file; ``binding`` tells whether the file is
    still the one that was planned; ``constants`` are the columns its folder fixes.
    """

    path: str
    binding: str
    rows: RowRanges
    constants: dict[str, pa.Scalar]
    reads: tuple[PlannedRead, ...]
    steps: tuple[Step, ...]
    figures: Figures
    columns: tuple[ColumnPlan, ...]


@dataclass(frozen=True, slots=True)
class Plan:
    """All files of a query, those without a row that might match left out of ``files``."""

    files: tuple[FilePlan, ...]
    figures: Figures

    @classmethod
    def of(cls, files: Iterable[FilePlan]) -> Plan:
        """The plan of a query over ``files``, all of those that count."""
        plans = tuple(files)
        figures = sum((plan.figures for plan in plans), Figures())
        return cls(tuple(plan for plan in plans if plan.rows), figures)
