"""The explanation of a query as numbers, text and JSON: amounts to read, rows left by each step."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from intarsia.plan.explain_text import report
from intarsia.plan.file_account import Activity, FileAccount, FileRead
from intarsia.plan.plan import Amount, Figures, Plan
from intarsia.redaction import shown_redacted


@shown_redacted
@dataclass(frozen=True, slots=True)
class Explanation:
    """The plan of a query and, if it was run, the actual reads. ``str`` prints it as a tree.

    Examples
    --------
    >>> explanation = ia.dataset("logs.parquet").explain(filter="trace_id = 't7'")
    >>> explanation.planned.rows.total
    1000
    """

    files: tuple[FileAccount, ...]
    """One account for each file of the data set, pruned files included."""
    filter: str
    """The filter as text."""
    columns: tuple[str, ...]
    """The output columns."""
    is_analyzed: bool = False
    """True if the query was run."""
    reader: str = "pages"
    """The reader if an engine such as DuckDB runs the query: ``"engine"`` is the engine's own,
    ``"pages"`` is Intarsia's.
    """
    reason: str = ""
    """Why this reader is chosen."""

    def __repr__(self) -> str:
        return str(self)

    @property
    def plan(self) -> Plan:
        """The plan of all files."""
        return Plan.of(file.plan for file in self.files)

    @property
    def planned(self) -> Figures:
        """Planned amounts: ``selected`` and ``total`` of files, row groups, pages, rows, bytes.

        Also ``requests``. ``rows`` might match; ``bytes`` are those of their pages in all columns.
        """
        return self.plan.figures

    @property
    def read(self) -> Figures | None:
        """Actual amounts; None unless the query was run.

        ``rows`` matched; ``bytes`` and ``requests`` include footers and indexes.
        """
        if not self.is_analyzed:
            return None
        total = sum((read.figures for read in self._reads), Figures())
        return Figures(
            *(
                Amount(getattr(total, field.name).selected, getattr(self.planned, field.name).total)
                for field in fields(Figures)
            )
        )

    @property
    def activities(self) -> dict[Activity, float] | None:
        """Seconds of each activity, with files and units read one after the other."""
        if not self.is_analyzed:
            return None
        return {which: sum(read.seconds[which] for read in self._reads) for which in Activity}

    @property
    def seconds(self) -> float | None:
        """Seconds of all activities; None unless the query was run."""
        return None if self.activities is None else sum(self.activities.values())

    @property
    def _reads(self) -> list[FileRead]:
        return [file.read for file in self.files if file.read is not None]

    def __str__(self) -> str:
        heads = {"planned": self.planned} | ({"read": self.read} if self.read else {})
        reader = f"{self.reader}: {self.reason}" if self.reason else self.reader
        return report(self.filter, self.columns, reader, heads, self.activities, self.files)

    def to_dict(self) -> dict[str, Any]:
        """Returns the explanation as a dictionary for ``json.dumps``.

        Amounts are dictionaries with ``"selected"`` and ``"total"``.
        """
        document: dict[str, Any] = {
            "filter": self.filter,
            "columns": list(self.columns),
            "reader": self.reader,
            "reason": self.reason,
            "planned": dataclasses.asdict(self.planned),
        }
        if self.read is not None and self.activities is not None:
            document["read"] = dataclasses.asdict(self.read)
            document["seconds"] = _seconds(self.activities)
        return document | {"files": [_file(file) for file in self.files]}


def _file(account: FileAccount) -> dict[str, Any]:
    plan, read = account.plan, account.read
    document: dict[str, Any] = {
        "path": plan.path,
        "planned": dataclasses.asdict(plan.figures),
        "steps": [dataclasses.asdict(step) for step in plan.steps],
        "columns": [dataclasses.asdict(column) for column in plan.columns],
        "stages": [dataclasses.asdict(stage) for stage in account.stages],
        "remarks": list(account.remarks),
    }
    if read is not None:
        document["read"] = dataclasses.asdict(read.figures)
        document["seconds"] = _seconds(read.seconds)
        document["conditions"] = [dataclasses.asdict(condition) for condition in read.conditions]
        document["warnings"] = list(read.remarks)
    return document


def _seconds(activities: Mapping[Activity, float]) -> dict[str, float]:
    return {which.value: seconds for which, seconds in activities.items()}
