"""The explanation of a query as numbers, text and JSON: amounts to read, rows left by each step."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from intarsia.notebook import notebook_html
from intarsia.parquet.value_display import plural
from intarsia.plan.explain_text import report
from intarsia.plan.file_account import UNOPENED, Activity, FileAccount, FileRead, QueryRun
from intarsia.plan.plan import ENGINE, PAGES, ROW_GROUPS, SKIPPED, Amount, Figures, Plan
from intarsia.redaction import shown_redacted


@dataclass(frozen=True, slots=True)
class ReaderGroup:
    """The files that are read by one reader, and why.

    ``reader`` is ``"pages"``, ``"row groups"``, ``"engine"`` or ``"none"``, as in ``FileAccount``.
    """

    reader: str
    reason: str
    figures: Figures

    def __str__(self) -> str:
        return f"{plural(self.figures.files.total, 'file')}: {self.reason}"


@shown_redacted
@dataclass(frozen=True, slots=True)
class Explanation:
    """The plan of a query and, if it was run, the actual reads. ``str`` prints it as a tree.

    The query that is run is the one that is explained: ``read`` has the files, pages, bytes and
    requests that it took, footers, indexes, sidecars and the catalog included.

    Examples
    --------
    >>> explanation = ia.dataset("logs.parquet").explain(filter="trace_id = 't7'")
    >>> explanation.planned.rows.total
    1000
    >>> ia.dataset("logs.parquet").explain(filter="trace_id = 'absent'").verdict
    'reads no rows; row-group statistics decided'
    """

    files: tuple[FileAccount, ...]
    """One account for each file of the data set, pruned files included."""
    filter: str
    """The filter as text."""
    columns: tuple[str, ...]
    """The output columns."""
    reader: str = "pages"
    """The reader if DuckDB, Polars or Spark runs the query: ``"engine"``, the engine's own reader,
    or ``"pages"``.
    """
    reason: str = ""
    """Why an engine's query has this reader. Empty if the query was run: see ``groups``."""
    unindexed: tuple[str, ...] = ()
    """Columns in the filter without any index in the first file that is read."""
    run: QueryRun | None = None
    """The rows and the elapsed time of the query, if it was run."""
    other_reads: tuple[int, int] = (0, 0)
    """Requests and bytes of the data set's catalog, and those that an engine reports."""

    def __repr__(self) -> str:
        return str(self)

    @property
    def is_analyzed(self) -> bool:
        """True if the query was run."""
        return self.run is not None

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
        if self.run is None:
            return None
        requests, num_bytes = self.other_reads
        total = Figures.sum(read.figures for read in self._reads)
        total += Figures(bytes=Amount(num_bytes), requests=Amount(requests))
        total = dataclasses.replace(total, rows=Amount(self.run.num_rows))
        return Figures(
            *(
                Amount(getattr(total, field.name).selected, getattr(self.planned, field.name).total)
                for field in fields(Figures)
            )
        )

    @property
    def activities(self) -> dict[Activity, float] | None:
        """Seconds of each activity in all threads. They may exceed the elapsed seconds."""
        if not self.is_analyzed:
            return None
        return {which: sum(read.seconds[which] for read in self._reads) for which in Activity}

    @property
    def seconds(self) -> float | None:
        """Elapsed seconds of the query; None unless it was run."""
        return None if self.run is None else self.run.seconds

    @property
    def groups(self) -> tuple[ReaderGroup, ...]:
        """The files by the reader that reads them, with the reason."""
        by_reader: dict[tuple[str, str], list[FileAccount]] = {}
        for file in self.files:
            reason = ""
            if file.reader == SKIPPED:
                reason = f"excluded by {file.plan.steps[-1].source}"
            by_reader.setdefault((file.reader, reason), []).append(file)
        order = (PAGES, ROW_GROUPS, ENGINE, SKIPPED)
        return tuple(
            ReaderGroup(reader, reason or _reason(reader, files), _total(files))
            for reader, reason in sorted(by_reader, key=lambda key: order.index(key[0]))
            for files in [by_reader[reader, reason]]
        )

    @property
    def verdict(self) -> str:
        """How much of the files the query reads, and what decided that, in one line."""
        figures, planned = self.read or self.planned, self.planned
        if not planned.files.total:
            return "reads nothing: there are no files"
        decided = _decided(self.files)
        if decided is None:
            return f"reads everything: {self._why_everything()}"
        if not planned.files.selected:
            return f"reads no rows; {decided} decided"
        share = figures.bytes.selected / max(figures.bytes.total, 1)
        return f"reads {100 * share:.3g} % of the bytes; {decided} decided"

    def _why_everything(self) -> str:
        if self.filter == "none":
            return "there is no filter"
        reason = "no index excludes rows"
        if self.unindexed:
            reason = f"no index on {', '.join(self.unindexed)}"
        pages = [column.pages.total for file in self.files for column in file.plan.columns]
        rows = max((file.plan.figures.rows.total for file in self.files), default=0)
        return f"{reason}; pages of {rows // max(pages):,} rows" if any(pages) else reason

    @property
    def _reads(self) -> list[FileRead]:
        return [file.read for file in self.files if file.read is not None]

    def __str__(self) -> str:
        heads = {"planned": self.planned} | ({"read": self.read} if self.read else {})
        paragraphs = {
            "verdict": self.verdict,
            "filter": self.filter,
            "columns": ", ".join(self.columns),
        }
        readers = {"readers": [(group.reader, str(group)) for group in self.groups]}
        if self.reason:
            title = "readers, if an engine such as DuckDB runs the query"
            readers[title] = [(self.reader, self.reason)]
        return report(paragraphs, readers, heads, self.seconds, self.activities, self.files)

    def _repr_html_(self) -> str:
        amounts = []
        for field in fields(Figures):
            planned, read = getattr(self.planned, field.name), getattr(self.read, field.name, None)
            was_read = () if read is None else (read.selected,)
            name = field.name.replace("_", " ")
            amounts.append((name, planned.total, planned.selected, *was_read))
        heads = ("", "of", "planned", "read")[: len(amounts[0])]
        readers = [(group.reader, group) for group in self.groups]
        tables = (heads, amounts), (("reader", "of"), readers)
        return notebook_html(f"Query: {self.verdict}", *tables, text=str(self))

    def to_dict(self) -> dict[str, Any]:
        """Returns the explanation as a dictionary for ``json.dumps``.

        Amounts are dictionaries with ``"selected"`` and ``"total"``.
        """
        document: dict[str, Any] = {
            "verdict": self.verdict,
            "filter": self.filter,
            "columns": list(self.columns),
            "reader": self.reader,
            "reason": self.reason,
            "readers": [_group(group) for group in self.groups],
            "planned": dataclasses.asdict(self.planned),
        }
        if self.read is not None and self.activities is not None:
            document["read"] = dataclasses.asdict(self.read)
            document["seconds"] = _seconds(self.activities)
            document["elapsed_seconds"] = self.seconds
        return document | {"files": [_file(file) for file in self.files]}


def _reason(reader: str, files: Sequence[FileAccount]) -> str:
    """Returns why ``files`` are read by ``reader``."""
    if reader == ROW_GROUPS:
        return "small files, decoded together without their indexes"
    if reader == ENGINE:
        return files[0].reason or "no row can be left out, pyarrow reads them"
    rows = _total(files).rows
    return f"{rows.selected / max(rows.total, 1):.2%} of their rows might match"


def _total(files: Sequence[FileAccount]) -> Figures:
    return Figures.sum(file.plan.figures for file in files)


def _decided(files: Sequence[FileAccount]) -> str | None:
    """Returns the step that excluded most rows of ``files``; None if no row was excluded.

    Files that were not opened count as the average of the others, if their rows are not known.
    """
    opened = [file.plan.figures.rows.total for file in files if file.plan.figures.rows.total]
    average = sum(opened) // len(opened) if opened else 1
    excluded: Counter[str] = Counter()
    for file in files:
        before = file.plan.figures.rows.total
        if not before and file.plan.steps and file.plan.steps[-1].source in UNOPENED:
            before = average
        for step in file.plan.steps:
            excluded[step.source] += before - step.rows
            before = step.rows
    [(source, rows), *_] = excluded.most_common(1) or [("", 0)]
    return source if rows > 0 else None


def _group(group: ReaderGroup) -> dict[str, Any]:
    return {
        "reader": group.reader,
        "reason": group.reason,
        "planned": dataclasses.asdict(group.figures),
    }


def _file(account: FileAccount) -> dict[str, Any]:
    plan, read = account.plan, account.read
    document: dict[str, Any] = {
        "path": plan.path,
        "reader": account.reader,
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
