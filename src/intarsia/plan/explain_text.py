"""Prints an explanation as text: amounts of all files, then a tree with a branch for each file.

Lines fit 80 columns, except for long names and conditions.
"""

from __future__ import annotations

import heapq
import posixpath
import textwrap
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from typing import NamedTuple

from intarsia.parquet.value_display import clean, plural
from intarsia.plan.file_account import Activity, FileAccount, FileRead, Stage
from intarsia.plan.plan import Amount, ColumnPlan, Figures, Step
from intarsia.redaction import redacted

_WIDTH = 80
_TITLE_WIDTH = 9
_MAX_SHOWN_FILES = 20
_MAX_SHOWN_COLUMNS = 20
_SECONDS_TITLE = "seconds in all threads"


class Node(NamedTuple):
    """A line of the tree, and the lines below it."""

    text: str
    under: Sequence[Node] = ()


def report(
    paragraphs: Mapping[str, str],
    readers: Mapping[str, Sequence[tuple[str, str]]],
    figures_by_title: Mapping[str, Figures],
    seconds: float | None,
    activities: Mapping[Activity, float] | None,
    files: Sequence[FileAccount],
) -> str:
    """Returns the whole text. ``figures_by_title`` has the amounts of all files.

    ``readers`` has lists by title: the name of a reader, with the files that it reads and why.
    """
    lines = [line for title, text in paragraphs.items() for line in _wrapped(title, text)]
    for title, texts in readers.items():
        lines += [title, *(clean(f"  {name:<11} {text}") for name, text in texts)]
    for title, figures in figures_by_title.items():
        lines += [title, *_figures(figures)]
        if title == "read" and activities is not None:
            lines.append(f"  seconds     {seconds or 0.0:.4f}")
    if activities is not None:
        lines += [_SECONDS_TITLE, *_activities(activities)]
    base = common_folder([redacted(file.plan.path) for file in files])
    return "\n".join([*lines, f"files in {clean(base)}", *_drawn(_files(files, base))])


def _wrapped(title: str, text: str) -> list[str]:
    return textwrap.wrap(
        clean(text),
        _WIDTH,
        initial_indent=title.ljust(_TITLE_WIDTH),
        subsequent_indent=" " * _TITLE_WIDTH,
        break_long_words=False,
        break_on_hyphens=False,
    ) or [title]


def _figures(figures: Figures) -> list[str]:
    return [
        f"  {field.name:<11} {amount if amount.total else f'{amount.selected:,}'}"
        for field in fields(figures)
        for amount in [getattr(figures, field.name)]
    ]


def _activities(seconds: Mapping[Activity, float]) -> list[str]:
    total = sum(seconds.values())
    return [
        f"  {which.value:<11} {part:.4f}" + (f" ({part / total:.1%})" if total else "")
        for which, part in seconds.items()
    ]


# --- files --------------------------------------------------------------------------------------


def _files(files: Sequence[FileAccount], base: str) -> list[Node]:
    candidate_files = [file for file in files if file.plan.rows]
    nodes = [_file(file, base) for file in candidate_files[:_MAX_SHOWN_FILES]]
    if len(candidate_files) > _MAX_SHOWN_FILES:
        nodes.append(Node(f"… and {plural(len(candidate_files) - _MAX_SHOWN_FILES, 'more file')}"))
    if len(candidate_files) < len(files):
        nodes.append(_without_rows([file for file in files if not file.plan.rows], base))
    return nodes


def _file(account: FileAccount, base: str) -> Node:
    plan = account.plan
    rows, groups = plan.figures.rows.total, plan.figures.row_groups.total
    parts = [_steps(plan.steps, rows)]
    if account.stages:
        parts.append(_stages(account.stages))
    parts.append(_columns(plan.columns, plan.figures))
    parts += [Node(clean(remark)) for remark in account.remarks]
    if account.read is not None:
        parts.append(_read(account.read, account.remarks))
    return Node(
        f"{clean(_name(account, base))}: {plural(rows, 'row')}, {plural(groups, 'row group')}",
        parts,
    )


def _steps(steps: Sequence[Step], rows: int) -> Node:
    """Returns a line for each step, with the share of rows that it left of the step before."""
    rows_before = [rows, *(step.rows for step in steps)]
    cells = [
        (
            clean(step.source),
            plural(step.rows, "row"),
            f"{step.rows / previous:.2%}" if previous else "",
            plural(step.row_groups, "row group"),
        )
        for step, previous in zip(steps, rows_before, strict=False)
    ]
    return Node(f"{plural(rows_before[-1], 'row')} might match", _aligned(cells))


def _stages(stages: Sequence[Stage]) -> Node:
    if len(stages) == 1:
        return Node("all conditions are evaluated at once")
    return Node(
        "conditions are evaluated in this order",
        [
            Node(clean(f"{i}. {stage.condition}  on {', '.join(stage.columns)}"))
            for i, stage in enumerate(stages, 1)
        ],
    )


def _columns(columns: Sequence[ColumnPlan], figures: Figures) -> Node:
    shown = list(columns)
    if len(columns) > _MAX_SHOWN_COLUMNS:
        shown = heapq.nlargest(
            _MAX_SHOWN_COLUMNS, columns, key=lambda column: column.bytes.selected
        )
    nodes = _aligned(
        (
            clean(column.column),
            f"{of(column.pages)} pages",
            f"{of(column.bytes)} bytes",
            "no page index: whole chunks" if column.without_page_index else "",
        )
        for column in shown
    )
    if len(shown) < len(columns):
        nodes.append(Node(f"… and {len(columns) - len(shown):,} that take less"))
    requests = plural(figures.requests.selected, "request")
    return Node(f"to read: {of(figures.pages)} pages, {of(figures.bytes)} bytes, {requests}", nodes)


def _read(read: FileRead, shown_remarks: Sequence[str]) -> Node:
    parts = [
        Node(f"{of(condition.rows)} rows passed {clean(condition.condition)}")
        for condition in read.conditions
    ]
    total = sum(read.seconds.values()) or 1.0
    shares = [f"{which.value} {part / total:.0%}" for which, part in read.seconds.items()]
    parts += [Node(clean(remark)) for remark in read.remarks if remark not in shown_remarks]
    return Node(_read_line([read]), [*parts, Node(", ".join(shares))])


def _read_line(reads: Sequence[FileRead]) -> str:
    total = sum((read.figures for read in reads), Figures())
    seconds = sum(sum(read.seconds.values()) for read in reads)
    parts = [
        plural(total.rows.selected, "row"),
        plural(total.pages.selected, "page"),
        plural(total.bytes.selected, "byte"),
        plural(total.requests.selected, "request"),
    ]
    return f"was read: {', '.join(parts)}, {seconds:.4f} s"


def _without_rows(files: Sequence[FileAccount], base: str) -> Node:
    """Returns the pruned files, counted by the step that pruned them."""
    counts = Counter(file.plan.steps[-1].source for file in files)
    parts = _aligned(
        (f"by {clean(source)}", plural(count, "file"), "") for source, count in counts.items()
    )
    parts += [
        Node(clean(f"{_name(file, base)}: {remark}"))
        for file in files[:_MAX_SHOWN_FILES]
        for remark in file.remarks
    ]
    reads = [file.read for file in files if file.read is not None]
    if reads:
        parts.append(Node(_read_line(reads)))
    return Node(f"{plural(len(files), 'file')} without a row that might match", parts)


def _name(account: FileAccount, base: str) -> str:
    path = redacted(account.plan.path)
    return posixpath.relpath(path, base) if base else path


def common_folder(paths: Sequence[str]) -> str:
    """Returns the deepest folder that contains all ``paths``."""
    return posixpath.commonpath([posixpath.dirname(path) for path in paths])


# --- text ---------------------------------------------------------------------------------------


def _drawn(nodes: Sequence[Node]) -> list[str]:
    lines = []
    for node in nodes:
        is_last = node is nodes[-1]
        lines.append(("└─ " if is_last else "├─ ") + node.text)
        lines += [("   " if is_last else "│  ") + line for line in _drawn(node.under)]
    return lines


def _aligned(rows: Iterable[tuple[str, ...]]) -> list[Node]:
    """Aligns cells in columns: the first and the last to the left, the others to the right."""
    rows = list(rows)
    if not rows:
        return []
    widths = [max(map(len, cells)) for cells in zip(*rows, strict=True)]
    *inner, _ = range(len(widths))
    return [
        Node(
            "  ".join(
                [row[0].ljust(widths[0]), *(row[i].rjust(widths[i]) for i in inner[1:]), row[-1]]
            ).rstrip()
        )
        for row in rows
    ]


def of(amount: Amount) -> str:
    """Formats an amount as "1 of 2"."""
    return f"{amount.selected:,} of {amount.total:,}"
