"""Computes the page of a query: an explanation as shares and strings."""

from __future__ import annotations

import posixpath
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields

from intarsia.parquet.value_display import plural
from intarsia.plan.explain_text import common_folder
from intarsia.plan.explanation import Explanation
from intarsia.plan.file_account import Activity, FileAccount, FileRead
from intarsia.plan.file_regions import ChunkMap, FileMap
from intarsia.plan.plan import Amount, Figures, FilePlan
from intarsia.redaction import redacted
from intarsia.report.byte_strip import Strip, bands_in, strip_of
from intarsia.report.format import NAME, begin, clip, condition, percent
from intarsia.report.page_lanes import Lane, cells_in, lane_of, rows_lane
from intarsia.report.row_axis import RowAxis, axis_of

MAX_SHOWN_FILES = 20
"""Files with rows that are shown."""
_SHOWN_COLUMNS, _SHOWN_WITHOUT = 20, 100
"""Columns of a file, and files without rows, that are shown."""
_COLUMNS_CHARACTERS = 4_000
"""Characters shown of the names of all columns."""
_READERS = {
    "engine": "Engines such as DuckDB read the files directly",
    "pages": "Engines such as DuckDB read the files through Intarsia's reader",
}
"""Sentences about which reader reads the files, by ``Explanation.reader``."""


@dataclass(frozen=True, slots=True)
class Figure:
    """How much of something is planned to be read, and how much was read."""

    name: str
    planned: Amount
    read: Amount | None


@dataclass(frozen=True, slots=True)
class Spent:
    """The time of one activity. ``start`` and ``share`` are shares of the whole."""

    activity: str
    seconds: float
    start: float
    share: float


@dataclass(frozen=True, slots=True)
class StepResult:
    """Rows that a step left: ``share`` of the file's, ``of_previous`` of those before."""

    source: str
    rows: int
    row_groups: int
    share: float
    of_previous: str


@dataclass(frozen=True, slots=True)
class Picture:
    """The rows and bytes of a file, and what is read of them. ``more`` columns are not shown."""

    axis: RowAxis
    candidates: Lane
    lanes: tuple[Lane, ...]
    more: int
    strip: Strip

    @property
    def per_cell(self) -> int:
        """The most pages that are drawn as one."""
        return max((lane.per_cell for lane in self.lanes), default=1)


@dataclass(frozen=True, slots=True)
class FileReport:
    """One file with rows that might match."""

    name: str
    rows: int
    row_groups: int
    to_read: str
    steps: tuple[StepResult, ...]
    stages: tuple[tuple[str, str], ...]
    """Conditions in order of evaluation, with the columns of each."""
    passed: tuple[tuple[str, Amount], ...]
    was_read: str
    remarks: tuple[str, ...]
    warnings: tuple[str, ...]
    picture: Picture | None


@dataclass(frozen=True, slots=True)
class SkippedFile:
    """A file without rows that might match, and the step that excluded the last of them."""

    name: str
    rows: int
    source: str
    remarks: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class QueryReport:
    """All parts of the page. ``more`` and ``more_without`` count files that are not shown."""

    filter: str
    columns: str
    folder: str
    lead: str
    figures: tuple[Figure, ...]
    spent: tuple[Spent, ...]
    seconds: float | None
    files: tuple[FileReport, ...]
    more: int
    without: tuple[SkippedFile, ...]
    cut_by: tuple[tuple[str, int], ...]
    more_without: int

    @property
    def is_analyzed(self) -> bool:
        """True if the query was run."""
        return self.seconds is not None


def report_of(explanation: Explanation) -> QueryReport:
    """Returns the page of an explanation. Files with maps are drawn."""
    files = explanation.files
    matching_files = [file for file in files if file.plan.rows]
    without = [file for file in files if not file.plan.rows]
    shown = matching_files[:MAX_SHOWN_FILES]
    maps = [file.map for file in shown if file.map is not None]
    lanes = sum(min(len({c.leaf for c in file_map.chunks}), _SHOWN_COLUMNS) for file_map in maps)
    limits = cells_in(lanes), bands_in(len(maps))
    base = common_folder([redacted(file.plan.path) for file in files])
    return QueryReport(
        condition(explanation.filter),
        begin(", ".join(explanation.columns), _COLUMNS_CHARACTERS),
        clip(base, NAME),
        _lead(explanation),
        tuple(_figures(explanation)),
        _spent(explanation.activities),
        explanation.seconds,
        tuple(_file(file, base, *limits) for file in shown),
        len(matching_files) - len(shown),
        tuple(_skipped_file(file, base) for file in without[:_SHOWN_WITHOUT]),
        tuple(Counter(file.plan.steps[-1].source for file in without).most_common()),
        max(len(without) - _SHOWN_WITHOUT, 0),
    )


def _lead(explanation: Explanation) -> str:
    """Returns the summary in a few sentences."""
    figures = explanation.read or explanation.planned
    verb = "were read" if explanation.read else "would be read"
    of_bytes = percent(figures.bytes.selected, figures.bytes.total)
    verdict = explanation.verdict[0].upper() + explanation.verdict[1:]
    return (
        f"{verdict}. {figures.pages.selected:,} of {plural(figures.pages.total, 'page')} and "
        f"{figures.bytes.selected:,} of {plural(figures.bytes.total, 'byte')}"
        f"{f' ({of_bytes})' if of_bytes else ''} {verb}.{_reader(explanation)}"
    )


def _reader(explanation: Explanation) -> str:
    """Returns a sentence about the reader of engines; empty if the query was run without one."""
    if not explanation.reason:
        return ""
    return f" {_READERS[explanation.reader]}: {explanation.reason}."


def _figures(explanation: Explanation) -> Iterator[Figure]:
    read = explanation.read
    for field in fields(Figures):
        was_read = None if read is None else getattr(read, field.name)
        planned = getattr(explanation.planned, field.name)
        yield Figure(field.name.replace("_", " "), planned, was_read)


def _spent(seconds: dict[Activity, float] | None) -> tuple[Spent, ...]:
    parts, start = [], 0.0
    whole = sum((seconds or {}).values())
    for activity, part in (seconds or {}).items():
        share = part / whole if whole else 0.0
        parts.append(Spent(activity.value, part, start, share))
        start += share
    return tuple(parts)


# --- files --------------------------------------------------------------------------------------


def _file(account: FileAccount, base: str, cells: int, bands: int) -> FileReport:
    plan, read = account.plan, account.read
    figures = plan.figures
    known = set(account.remarks)
    return FileReport(
        _name(account, base),
        figures.rows.total,
        figures.row_groups.total,
        f"{figures.pages.selected:,} of {plural(figures.pages.total, 'page')}, "
        f"{figures.bytes.selected:,} of {plural(figures.bytes.total, 'byte')}, in "
        f"{plural(figures.requests.selected, 'request')}",
        tuple(_steps(plan)),
        tuple((condition(s.condition), ", ".join(s.columns)) for s in account.stages),
        tuple((condition(c.condition), c.rows) for c in (read.conditions if read else ())),
        "" if read is None else _was_read(read),
        account.remarks,
        tuple(text for text in (read.remarks if read else ()) if text not in known),
        None if account.map is None else picture_of(plan, account.map, cells, bands),
    )


def _steps(plan: FilePlan) -> Iterator[StepResult]:
    rows = before = plan.figures.rows.total
    for step in plan.steps:
        share = step.rows / rows if rows else 0.0
        yield StepResult(step.source, step.rows, step.row_groups, share, percent(step.rows, before))
        before = step.rows


def _was_read(read: FileRead) -> str:
    figures = read.figures
    return (
        f"{plural(figures.rows.selected, 'row')}, {plural(figures.pages.selected, 'page')}, "
        f"{plural(figures.bytes.selected, 'byte')}, "
        f"{plural(figures.requests.selected, 'request')}, "
        f"{sum(read.seconds.values()):.4f} s"
    )


def _skipped_file(account: FileAccount, base: str) -> SkippedFile:
    plan = account.plan
    name, source = _name(account, base), plan.steps[-1].source
    return SkippedFile(name, plan.figures.rows.total, source, account.remarks)


def _name(account: FileAccount, base: str) -> str:
    path = redacted(account.plan.path)
    return clip(posixpath.relpath(path, base) if base else path, NAME)


# --- pictures -----------------------------------------------------------------------------------


def picture_of(plan: FilePlan, file_map: FileMap, cells: int, bands: int) -> Picture:
    """Returns what a plan reads of a file: lanes of at most ``cells`` cells, and a strip."""
    chunks: dict[int, list[ChunkMap]] = {}
    for chunk in file_map.chunks:
        chunks.setdefault(chunk.leaf, []).append(chunk)
    selections = {(read.row_group, read.leaf): read.selection for read in plan.reads}
    lanes = [
        lane_of(
            clip(column_chunks[0].column, NAME), column_chunks, selections, file_map.num_rows, cells
        )
        for column_chunks in _largest(plan, list(chunks.values()))
    ]
    ranges = [range_ for read in plan.reads for range_ in read.selection.byte_ranges]
    return Picture(
        axis_of(file_map.row_group_starts),
        rows_lane(plan.rows, file_map.num_rows, cells),
        tuple(lanes),
        len(chunks) - len(lanes),
        strip_of(file_map, ranges, bands),
    )


def _largest(plan: FilePlan, columns: Sequence[list[ChunkMap]]) -> Sequence[list[ChunkMap]]:
    """Returns the columns of which most bytes are read, in their order, each as its chunks."""
    if len(columns) <= _SHOWN_COLUMNS:
        return columns
    read_bytes: Counter[int] = Counter()
    for read in plan.reads:
        read_bytes[read.leaf] += read.selection.num_bytes
    shown_leaves = {leaf for leaf, _ in read_bytes.most_common(_SHOWN_COLUMNS)}
    return [column_chunks for column_chunks in columns if column_chunks[0].leaf in shown_leaves]
