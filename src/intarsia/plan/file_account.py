"""The parts of an explanation for each file: plan, unused indexes, conditions, actual reads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from intarsia.plan.file_regions import FileMap
from intarsia.plan.plan import PAGES, Amount, Figures, FilePlan
from intarsia.redaction import shown_redacted

FOLDERS, TABLE, CATALOG = "folders", "table", "catalog"
"""Names of the steps that exclude files before they are opened."""
UNOPENED = (FOLDERS, TABLE, CATALOG)


class Activity(Enum):
    """An activity on which a scan spends time."""

    PLANNING = "planning"
    """Opening the file, and evaluating statistics and indexes."""
    READING = "reading"
    """Waiting for storage, for data or indexes."""
    DECODING = "decoding"
    """Decoding pages to columns in the data set's types."""
    FILTERING = "filtering"
    """Evaluating conditions, and removing rows that fail."""
    OTHER = "other"

    __hash__ = object.__hash__  # members are compared by identity; that of Enum is slow


@dataclass(frozen=True, slots=True)
class EngineReads:
    """The requests, the bytes and the rows of an engine's own reader, as the engine reports."""

    requests: int = 0
    bytes: int = 0
    rows: int = 0


@dataclass(frozen=True, slots=True)
class QueryRun:
    """A query that was run: the rows it gave, its elapsed seconds, and who read all of them.

    ``reader`` is ``ENGINE`` if the engine's own reader read all files, else empty.
    """

    num_rows: int
    seconds: float
    reader: str = ""


@dataclass(frozen=True, slots=True)
class Stage:
    """One of a filter's conditions, evaluated on the rows that passed the ones before."""

    condition: str
    columns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Filtered:
    """A condition that was evaluated: the rows that passed, of those it was evaluated on."""

    condition: str
    rows: Amount


@shown_redacted
@dataclass(frozen=True, slots=True)
class FileRead:
    """The actual reads of one file. Bytes and requests include the footer and indexes.

    ``seconds`` is the time of each activity in all threads. ``remarks`` are the warnings during
    the scan, for example about an index that pages contradict.
    """

    figures: Figures
    seconds: Mapping[Activity, float]
    conditions: tuple[Filtered, ...]
    remarks: tuple[str, ...] = ()


@shown_redacted
@dataclass(frozen=True, slots=True)
class FileAccount:
    """One file of an explanation: its plan, the stages of the filter, and the actual reads.

    A filter of a single condition has no stages. If all conditions are evaluated at once, as for
    few rows, there is one stage. ``remarks`` name indexes that were not used or are missing, with
    the reason. ``map`` has the positions of pages, if the caller requested it. ``reader`` is
    ``"pages"``, ``"row groups"``, ``"engine"`` or ``"none"``; ``reason`` is why an engine reads.
    """

    plan: FilePlan
    stages: tuple[Stage, ...] = ()
    remarks: tuple[str, ...] = ()
    read: FileRead | None = None
    map: FileMap | None = None
    reader: str = PAGES
    reason: str = ""
