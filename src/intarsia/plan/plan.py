"""Plans as data: who reads which rows of the files, and the positions of their bytes.

A ``ScanPlan`` is made for each group of files while a scan runs. A ``Plan`` has all files of a
query, with byte ranges. It is picklable, and Spark sends it to its tasks.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields

import pyarrow as pa

from intarsia.plan.page_ranges import ChunkSelection
from intarsia.pruning.predicates import Predicate
from intarsia.redaction import shown_redacted
from intarsia.row_ranges import RowRanges


@dataclass(frozen=True, slots=True)
class Amount:
    """A selected amount and the total that it is part of."""

    selected: int = 0
    total: int = 0

    def __add__(self, other: Amount) -> Amount:
        return Amount(self.selected + other.selected, self.total + other.total)

    def __str__(self) -> str:
        share = f" ({self.selected / self.total:.2%})" if self.total else ""
        return f"{self.selected:,} of {self.total:,}{share}"


amount = functools.lru_cache(maxsize=4096)(Amount)
"""Returns an ``Amount`` that equal ones share: an explanation has a dozen of them for each file."""


@dataclass(frozen=True, slots=True)
class Figures:
    """The amounts that a query reads, each with the total.

    ``pages`` are data pages of the columns that are read. The total of ``bytes`` is the size of the
    files. ``requests`` has no total.
    """

    files: Amount = field(default_factory=Amount)
    row_groups: Amount = field(default_factory=Amount)
    pages: Amount = field(default_factory=Amount)
    rows: Amount = field(default_factory=Amount)
    bytes: Amount = field(default_factory=Amount)
    requests: Amount = field(default_factory=Amount)

    def __add__(self, other: Figures) -> Figures:
        return Figures.sum([self, other])

    @classmethod
    def sum(cls, figures: Iterable[Figures]) -> Figures:
        """Returns the sum of any number of figures."""
        parts = list(figures)
        names = [field.name for field in fields(cls)]
        amounts = ([getattr(part, name) for part in parts] for name in names)
        return cls(
            *(Amount(sum(a.selected for a in of), sum(a.total for a in of)) for of in amounts)
        )


@dataclass(frozen=True, slots=True)
class Step:
    """One step of pruning: the candidate rows and row groups that are left after ``source``.

    ``source`` is for example statistics or an index.
    """

    source: str
    rows: int
    row_groups: int


Steps = tuple[tuple[str, RowRanges], ...]
"""Each source of information that pruning used, with the candidate rows that it left."""

PAGES, ROW_GROUPS, ENGINE, SKIPPED = "pages", "row groups", "engine", "none"
"""How a file is read: its pages that can match, whole row groups of several small files together,
by the engine's own reader, or not at all.
"""


@dataclass(frozen=True, slots=True)
class ScanPlan:
    """The plan of a group of files: the rows left by each step of pruning, their reader, and why.

    Readers execute it, and ``explain`` prints it. A scan makes one for each group that it reaches,
    so it starts before the last files are planned. The plan of a file continues that of its group.

    ``rows`` might match; with the reader ``ROW_GROUPS`` they match. ``are_likely`` is true if each
    page of theirs probably holds a matching row. That is so if an index of values or a range of one
    column selected them. ``by_predicate`` has the rows that might pass single predicates; all rows
    might pass the others.
    """

    rows: RowRanges
    steps: Steps = ()
    reader: str = PAGES
    reason: str = ""
    are_likely: bool = False
    by_predicate: Mapping[Predicate, RowRanges] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PlannedRead:
    """The parts of one chunk that a plan reads."""

    row_group: int
    leaf: int
    column: str
    selection: ChunkSelection


@dataclass(frozen=True, slots=True)
class ColumnPlan:
    """The data pages and bytes that a plan reads of one leaf of a file.

    ``without_page_index`` is the number of chunks without a page index, which are read whole.
    """

    column: str
    pages: Amount
    bytes: Amount
    without_page_index: int


@shown_redacted
@dataclass(frozen=True, slots=True)
class FilePlan:
    """One file's part of a plan.

    ``rows`` might match, counted from the start of the file. ``binding`` identifies the version of
    the file that was planned. ``constants`` are its partition values.
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
    """The plan of a query. ``files`` has only files with candidate rows; ``figures`` count all."""

    files: tuple[FilePlan, ...]
    figures: Figures

    @classmethod
    def of(cls, files: Iterable[FilePlan]) -> Plan:
        """Returns the plan of a query on ``files``, which include files without candidate rows."""
        plans = tuple(files)
        figures = Figures.sum(plan.figures for plan in plans)
        return cls(tuple(plan for plan in plans if plan.rows), figures)
