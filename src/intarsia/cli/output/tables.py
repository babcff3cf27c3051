"""How rows and indexes look in a terminal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, Literal

import click
import pyarrow as pa

from intarsia.cli.output.json_document import json_text
from intarsia.cli.output.terminal import Column, clean, escaped, plural, say, whole_table
from intarsia.expr.scalar_format import readable_values
from intarsia.file.health import missing_in
from intarsia.index.directory import IndexEntry
from intarsia.indexing.add import IndexReport, StandardReport

_FILES = 20
_NUMBERS = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal)


def indexes(reports: Sequence[IndexReport], everything: bool) -> None:
    """Prints indexes and their sizes, of 20 files or of all if ``everything`` is True."""
    shown = reports if everything else reports[:_FILES]
    for report in shown:
        say(clean(report.path))
        for entry in report.indexes:
            say(f"  {embedded(entry, report.rows, report.file_bytes)}")
        for entry in report.sidecar:
            say(f"  {embedded(entry, report.rows, report.file_bytes)}, in its sidecar")
        for standard in report.standard:
            say(f"  {own(standard)}")
        if not (report.indexes or report.sidecar or report.standard):
            say("  no index")
        for problem in report.problems:
            say(f"  {clean(problem)}")
    if len(shown) < len(reports):
        say(f"… and {plural(len(reports) - len(shown), 'file')} more: --all shows them")


def missing(reports: Sequence[IndexReport]) -> None:
    """Prints which indexes some files lack that others have."""
    names = {r.path: frozenset(e.name for e in (*r.indexes, *r.sidecar)) for r in reports}
    unfit = {report.path: report.unfit for report in reports}
    for name, lacking in missing_in(names).items():
        able = [path for path in lacking if name not in unfit[path]]
        why = _reasons(name, reports)
        of = plural(len(reports), "file")
        if able:
            what = f"{clean(name)} is missing in {len(able):,} of {of}"
            say("; ".join([f"{what}: index add --no-replace adds it", *why]))
        else:
            say("; ".join([f"{clean(name)}: {len(reports) - len(lacking):,} of {of}", *why]))


def _reasons(name: str, reports: Sequence[IndexReport]) -> list[str]:
    """Returns the reasons why files cannot have an index, with the number of files."""
    counts = Counter(
        reason
        for report in reports
        for other, reason in zip(report.unfit, report.reasons, strict=True)
        if other == name
    )
    return [
        f"{count:,} {'has' if count == 1 else 'have'} {clean(reason)}"
        if reason.startswith("no column")
        else f"{count:,} cannot have it: {clean(reason)}"
        for reason, count in counts.items()
    ]


def summary(reports: Sequence[IndexReport], done: Literal["added", "dropped"]) -> None:
    """Prints a line for each index: the number of files that were changed, and of others."""
    of = plural(len(reports), "file")
    named = (name for r in reports for name in (*getattr(r, done), *r.kept, *r.unfit))
    for name in dict.fromkeys(named):
        acted = [report for report in reports if name in getattr(report, done)]
        num_kept = sum(name in report.kept for report in reports)
        size = f", {_size(name, acted)}" if done == "added" and acted else ""
        verb = "added to" if done == "added" else "dropped from"
        parts = [f"{verb} {len(acted):,} of {of}{size}"] if acted or not num_kept else []
        if num_kept and done == "added":
            parts.append(f"{num_kept:,} of {of} had it already")
        elif num_kept:
            parts.append(f"kept in {num_kept:,} of {of}: it was there before")
        others = len(reports) - len(acted) - num_kept
        if others and done == "dropped":
            parts.append(f"{others:,} had no such index")
        say(f"{clean(name)}: {'; '.join([*parts, *_reasons(name, reports)])}")


def _size(name: str, reports: Sequence[IndexReport]) -> str:
    """Returns the size of an index in the files that it was added to."""
    entries = [entry for report in reports for entry in report.entries if entry.name == name]
    length = sum(entry.length for entry in entries)
    length += sum(own.bytes for report in reports for own in report.standard if own.name == name)
    rows = sum(report.rows for report in reports)
    bits = f", {length * 8 / max(rows, 1):.1f} bits a row" if entries else ""
    return f"{length:,} bytes{bits}"


def added(reports: Sequence[IndexReport]) -> None:
    """Prints the number of files that were indexed, and of others."""
    given = sum(bool(report.added) for report in reports)
    unfit = sum(bool(report.unfit) and not report.added for report in reports)
    parts = [
        f"{given:,} of {plural(len(reports), 'file')} indexed",
        *([f"{had:,} had it all"] if (had := len(reports) - given - unfit) else []),
        *([f"{unfit:,} cannot have it"] if unfit else []),
    ]
    click.echo(", ".join(parts), err=True)


def as_json(reports: Sequence[IndexReport]) -> None:
    """Prints a JSON object for each file, one a line."""
    for report in reports:
        click.echo(json_text(report.to_dict()))


def embedded(entry: IndexEntry, rows: int, file_bytes: int) -> str:
    """Returns the name and size of an embedded index."""
    bits = entry.length * 8 / max(rows, 1)
    share = entry.length / file_bytes
    size = f"{entry.length:,} bytes, {bits:.1f} bits a row, {share:.1%} of the file"
    return f"{clean(entry.name)}: {size}"


def own(report: StandardReport) -> str:
    """Returns the name and size of indexes of the format."""
    on = plural(report.chunks, "chunk") if report.chunks else "a column that it does not name"
    return f"{clean(report.name)}: on {on}, {report.bytes:,} bytes"


def printable(value: Any) -> Any:
    """Returns ``value`` in types that print in lists and structs as by themselves."""
    match value:
        case None | bool() | int() | float() | str() | bytes():
            return value
        case dict():
            return {name: printable(one) for name, one in value.items()}
        case list():
            return [printable(one) for one in value]
        case tuple():
            return tuple(map(printable, value))
    return str(value)


def rows(table: pa.Table, more: bool) -> None:
    """Prints rows as a table."""
    columns = []
    for field, values in zip(table.schema, table.columns, strict=True):
        cells = [
            "NULL" if v is None else escaped(str(printable(v))) for v in readable_values(values)
        ]
        kind = field.type
        right = any(check(kind) for check in _NUMBERS)
        columns.append(Column(clean(field.name), cells, right=right))
    whole_table(columns)
    say(f"{plural(table.num_rows, 'row')}{', and there are more' if more else ''}")
