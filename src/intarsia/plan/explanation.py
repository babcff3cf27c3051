"""What a query touches, and what each source of knowledge left over, as figures and as JSON."""

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
    """A plan, and where it was carried out, what was really read. Printed, it is a tree.

    ``files`` has an account of each file of the data set, be there a row that might match or none.
    ``is_analyzed`` says whether the query was run. ``reader`` says who reads the files when an
    engine such as DuckDB asks: ``"engine"``, its own reader, or ``"pages"``, ours; ``reason`` says
    why.
    """

    files: tuple[FileAccount, ...]
    filter: str
    columns: tuple[str, ...]
    is_analyzed: bool = False
    reader: str = "pages"
    reason: str = ""

    def __repr__(self) -> str:
        return str(self)

    @property
    def plan(self) -> Plan:
        return Plan.of(file.plan for file in self.files)

    @property
    def planned(self) -> Figures:
        """``files``, ``row_groups``, ``pages``, ``rows``, ``bytes`` and ``requests``, each with
        ``selected`` and ``total``.

        ``rows`` are those that might match, and ``bytes`` their pages in all columns.
        """
        return self.plan.figures

    @property
    def read(self) -> Figures | None:
        """The same of what was read: ``rows`` are those that did match, and ``bytes`` and
        ``requests`` include footers and indexes.
        """
        if not self.is_analyzed:
            return None
        found = sum((read.figures for read in self._reads), Figures())
        return Figures(
            *(
                Amount(getattr(found, f.name).selected, getattr(self.planned, f.name).total)
                for f in fields(Figures)
            )
        )

    @property
    def activities(self) -> dict[Activity, float] | None:
        """Seconds spent on each activity, one file and one unit of rows after the other."""
        if not self.is_analyzed:
            return None
        return {which: sum(read.seconds[which] for read in self._reads) for which in Activity}

    @property
    def seconds(self) -> float | None:
        """The time reading took: that of all activities."""
        return None if self.activities is None else sum(self.activities.values())

    @property
    def _reads(self) -> list[FileRead]:
        return [file.read for file in self.files if file.read is not None]

    def __str__(self) -> str:
        heads = {"planned": self.planned} | ({"read": self.read} if self.read else {})
        reader = f"{self.reader}: {self.reason}" if self.reason else self.reader
        return report(self.filter, self.columns, reader, heads, self.activities, self.files)

    def to_dict(self) -> dict[str, Any]:
        """All of it as what ``json.dumps`` takes. Amounts are ``{"selected", "total"}``."""
        found: dict[str, Any] = {
            "filter": self.filter,
            "columns": list(self.columns),
            "reader": self.reader,
            "reason": self.reason,
            "planned": dataclasses.asdict(self.planned),
        }
        if self.read is not None and self.activities is not None:
            found["read"] = dataclasses.asdict(self.read)
            found["seconds"] = _seconds(self.activities)
        return found | {"files": [_file(file) for file in self.files]}


def _file(account: FileAccount) -> dict[str, Any]:
    plan, read = account.plan, account.read
    found: dict[str, Any] = {
        "path": plan.path,
        "planned": dataclasses.asdict(plan.figures),
        "steps": [dataclasses.asdict(step) for step in plan.steps],
        "columns": [dataclasses.asdict(column) for column in plan.columns],
        "stages": [dataclasses.asdict(stage) for stage in account.stages],
        "remarks": list(account.remarks),
    }
    if read is not None:
        found["read"] = dataclasses.asdict(read.figures)
        found["seconds"] = _seconds(read.seconds)
        found["conditions"] = [dataclasses.asdict(condition) for condition in read.conditions]
        found["warnings"] = list(read.remarks)
    return found


def _seconds(activities: Mapping[Activity, float]) -> dict[str, float]:
    return {which.value: seconds for which, seconds in activities.items()}
