"""An explanation as text: the figures of all files, then a tree with a branch for each of them.

Lines are made for 80 columns; only names and conditions can be longer.
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
_MARGIN = 9
_SHOWN_FILES = 20
_SHOWN_COLUMNS = 20
_TIMED = "seconds, one file and one unit of rows after the other"


class Node(NamedTuple):
    """A line of the tree, and what hangs from it."""

    text: str
    under: Sequence[Node] = ()


def report(
    condition: str,
    columns: Sequence[str],
    reader: str,
    heads: Mapping[str, Figures],
    activities: Mapping[Activity, float] | None,
    files: Sequence[FileAccount],
) -> str:
    """The whole text. ``heads`` are figures of all files, by their titles."""
    texts = {"filter": condition, "columns": ", ".join(columns), "reader": reader}
    lines = [line for title, text in texts.items() for line in _wrapped(title, text)]
    for title, figures in heads.items():
        lines += [title, *_figures(figures)]
        if title == "read" and activities is not None:
            lines.append(f"  seconds     {sum(activities.values()):.4f}")
    if activities is not None:
        lines += [_TIMED, *_activities(activities)]
    base = common_folder([redacted(file.plan.path) for file in files])
    return "\n".join([*lines, f"files in {clean(base)}", *_drawn(_files(files, base))])


def _wrapped(title: str, text: str) -> list[str]:
    return textwrap.wrap(
        clean(text),
        _WIDTH,
        initial_indent=title.ljust(_MARGIN),
        subsequent_indent=" " * _MARGIN,
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
    whole = sum(seconds.values())
    return [
        f"  {which.value:<11} {spent:.4f}" + (f" ({spent / whole:.1%})" if whole else "")
        for which, spent in seconds.items()
    ]


# --- files --------------------------------------------------------------------------------------


def _files(files: Sequence[FileAccount], base: str) -> list[Node]:
    left = [file for file in files if file.plan.rows]
    nodes = [_file(file, base) for file in left[:_SHOWN_FILES]]
    if len(left) > _SHOWN_FILES:
        nodes.append(Node(f"… and {plural(len(left) - _SHOWN_FILES, 'more file')}"))
    if len(left) < len(files):
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
    """Each step, with the share it left of what the one before it did."""
    before = [rows, *(step.rows for step in steps)]
    cells = [
        (
            clean(step.source),
            plural(step.rows, "row"),
            f"{step.rows / had:.2%}" if had else "",
            plural(step.row_groups, "row group"),
        )
        for step, had in zip(steps, before, strict=False)
    ]
    return Node(f"{plural(before[-1], 'row')} might match", _aligned(cells))


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
    chosen = list(columns)
    if len(columns) > _SHOWN_COLUMNS:
        chosen = heapq.nlargest(_SHOWN_COLUMNS, columns, key=lambda column: column.bytes.selected)
    nodes = _aligned(
        (
            clean(column.column),
            f"{of(column.pages)} pages",
            f"{of(column.bytes)} bytes",
            "no page index: whole chunks" if column.without_page_index else "",
        )
        for column in chosen
    )
    if len(chosen) < len(columns):
        nodes.append(Node(f"… and {len(columns) - len(chosen):,} that take less"))
    requests = plural(figures.requests.selected, "request")
    return Node(f"to read: {of(figures.pages)} pages, {of(figures.bytes)} bytes, {requests}", nodes)


def _read(read: FileRead, known: Sequence[str]) -> Node:
    parts = [
        Node(f"{of(condition.rows)} rows passed {clean(condition.condition)}")
        for condition in read.conditions
    ]
    whole = sum(read.seconds.values()) or 1.0
    spent = [f"{which.value} {part / whole:.0%}" for which, part in read.seconds.items()]
    parts += [Node(clean(remark)) for remark in read.remarks if remark not in known]
    return Node(_read_line([read]), [*parts, Node(", ".join(spent))])


def _read_line(reads: Sequence[FileRead]) -> str:
    found = sum((read.figures for read in reads), Figures())
    seconds = sum(sum(read.seconds.values()) for read in reads)
    parts = [
        plural(found.rows.selected, "row"),
        plural(found.pages.selected, "page"),
        plural(found.bytes.selected, "byte"),
        plural(found.requests.selected, "request"),
    ]
    return f"was read: {', '.join(parts)}, {seconds:.4f} s"


def _without_rows(files: Sequence[FileAccount], base: str) -> Node:
    """Files of which nothing is left, by what left nothing of them."""
    counts = Counter(file.plan.steps[-1].source for file in files)
    parts = _aligned(
        (f"by {clean(source)}", plural(count, "file"), "") for source, count in counts.items()
    )
    parts += [
        Node(clean(f"{_name(file, base)}: {remark}"))
        for file in files[:_SHOWN_FILES]
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
    """The folder all of ``paths`` are in."""
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
    """Cells in columns, the first flush left, all others but the last flush right."""
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
    """So much of so much."""
    return f"{amount.selected:,} of {amount.total:,}"
