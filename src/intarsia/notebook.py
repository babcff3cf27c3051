"""HTML by which results show themselves in notebooks: the bodies of ``_repr_html_``.

Names and values from files are redacted and escaped. There are no scripts and no styles that would
leave the cell.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from intarsia.control_characters import shown_in_text
from intarsia.redaction import redacted

Table = tuple[Sequence[str], Sequence[Sequence[object]]]
"""The heads of a table's columns, and its rows."""
_MAX_ROWS = 100
"""Rows of a table that are shown."""


def notebook_html(title: str, *tables: Table, text: str = "") -> str:
    """Returns a title, tables without rows left out, and ``text`` to unfold."""
    parts = [f"<div><strong>{_cell(title)}</strong>", *map(_table, tables)]
    if text:
        parts.append(f"<details><summary>as text</summary><pre>{_cell(text)}</pre></details>")
    return "".join([*parts, "</div>"])


def _table(table: Table) -> str:
    heads, rows = table
    if not rows:
        return ""
    lines = [_row("th", heads), *(_row("td", row) for row in rows[:_MAX_ROWS])]
    if len(rows) > _MAX_ROWS:
        lines.append(_row("td", [f"… and {len(rows) - _MAX_ROWS:,} more"]))
    return f"<table>{''.join(lines)}</table>"


def _row(tag: str, cells: Sequence[object]) -> str:
    shown = "".join(f'<{tag} style="text-align: left">{_cell(cell)}</{tag}>' for cell in cells)
    return f"<tr>{shown}</tr>"


def _cell(value: object) -> str:
    shown = f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
    return escape(shown_in_text(redacted(shown)))
