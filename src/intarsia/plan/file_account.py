"""What is to be told of a query, file by file: beside the plan, what it does not use and why, the
order of its conditions, and what carrying it out took.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from intarsia.plan.file_regions import FileMap
from intarsia.plan.plan import Amount, Figures, FilePlan
from intarsia.redaction import shown_redacted


class Activity(Enum):
    """What a scan spends its time on."""

    PLANNING = "planning"
    """Opening the file; statistics and indexes, whose own pages are decoded."""
    READING = "reading"
    """Waiting for storage, whatever the bytes are."""
    DECODING = "decoding"
    """From pages to columns in the data set's types."""
    FILTERING = "filtering"
    """Evaluating conditions, and which rows that leaves."""
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class Stage:
    """One of a filter's conditions, evaluated on what the ones before it left."""

    condition: str
    columns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Filtered:
    """A condition that was evaluated: the rows that passed, of those it was asked of."""

    condition: str
    rows: Amount


@shown_redacted
@dataclass(frozen=True, slots=True)
class FileRead:
    """What was really read of one file: footers and indexes included in bytes and requests.

    ``seconds`` are those of each activity; together they are the time the file took. ``remarks``
    are what was warned of meanwhile: what only pages that are read can tell of an index.
    """

    figures: Figures
    seconds: Mapping[Activity, float]
    conditions: tuple[Filtered, ...]
    remarks: tuple[str, ...] = ()


@shown_redacted
@dataclass(frozen=True, slots=True)
class FileAccount:
    """One file: its plan, in which ``stages`` the filter is evaluated, and what was read.

    There are no stages where the filter is a single condition, and one where all its conditions are
    evaluated at once, as they are on few rows.

    ``remarks`` say which indexes are there and were of no use, or are missing, and why. ``map``,
    where it was asked for, is where the pages of the columns are.
    """

    plan: FilePlan
    stages: tuple[Stage, ...] = ()
    remarks: tuple[str, ...] = ()
    read: FileRead | None = None
    map: FileMap | None = None
