"""A summary of the files of a folder or glob on a terminal."""

from __future__ import annotations

import heapq
from collections import Counter
from dataclasses import dataclass, field
from posixpath import relpath

from intarsia.cli.output.file_view import null_text, problem
from intarsia.cli.output.labels import listed
from intarsia.cli.output.terminal import (
    Column,
    clean,
    cut,
    left_out,
    line,
    more,
    numbers,
    paragraph,
    plural,
    say,
    table,
)
from intarsia.errors import IntarsiaError
from intarsia.file.footer_summary import problems_of, summary_of
from intarsia.file.open_file import OpenedFile
from intarsia.parquet.enum_names import type_name
from intarsia.plan.explain_text import common_folder
from intarsia.redaction import redacted

_FILES = 20
_COLUMNS = 40
_WRITERS = 5


@dataclass(slots=True)
class _Column:
    """The leaves of one name. Sizes are in bytes."""

    name: str
    types: Counter[str] = field(default_factory=Counter)
    """The number of files by the column's type."""
    codecs: set[str] = field(default_factory=set)
    encodings: dict[str, None] = field(default_factory=dict)
    nulls: list[int] = field(default_factory=list)
    """The null counts of the chunks that have one."""
    chunks: int = 0
    compressed: int = 0
    uncompressed: int = 0
    indexes: Counter[str] = field(default_factory=Counter)
    """The number of files by the kind of an index on the column."""


@dataclass(frozen=True, slots=True)
class _File:
    name: str
    size: int
    rows: int
    row_groups: int
    indexes: tuple[str, ...]


class Summary:
    """Facts about all files, added one by one."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._files: list[_File] = []
        self._columns: dict[str, _Column] = {}
        self._writers: Counter[str] = Counter()
        self._indexes: dict[str, list[int]] = {}
        """The bytes that each index takes in the files that have it."""
        self._problems: list[IntarsiaError] = []

    @property
    def is_whole(self) -> bool:
        """True if all files could be decoded."""
        return not self._problems

    def fail(self, error: IntarsiaError) -> None:
        """Adds the error of a file that cannot be opened."""
        self._problems.append(error)

    def add(self, file: OpenedFile) -> None:
        """Adds a file. The caller may close it afterwards."""
        entries = file.sections.entries
        groups = len(file.metadata.row_groups)
        names = tuple(entry.name for entry in entries)
        self._files.append(_File(file.name, file.source.size, file.num_rows, groups, names))
        self._writers[file.metadata.created_by or "an unnamed writer"] += 1
        for entry in entries:
            self._indexes.setdefault(entry.name, []).append(entry.length)
        kinds = [(entry.on, entry.kind) for entry in entries]
        for leaf in file.schema.leaves:
            summary = summary_of(file, leaf)
            self._problems += problems_of([summary])
            column = self._columns.setdefault(leaf.name, _Column(leaf.name))
            column.types[type_name(leaf)] += 1
            column.codecs |= summary.codecs
            column.encodings |= summary.encodings
            column.nulls += summary.null_counts
            column.chunks += summary.chunks
            column.compressed += summary.compressed
            column.uncompressed += summary.uncompressed
            paged = "page" if summary.column_indexes else "offset"
            standard = [(paged, summary.page_indexes), ("bloom", summary.bloom_filters)]
            own = [kind for on, kind in kinds if file.schema.leaf(on) is leaf]
            column.indexes.update([*(kind for kind, sizes in standard if sizes), *own])

    def show(self, everything: bool) -> None:
        """Prints 20 files and the 40 largest columns, or all if ``everything`` is True."""
        size, rows = sum(f.size for f in self._files), sum(f.rows for f in self._files)
        groups = sum(file.row_groups for file in self._files)
        line(clean(self._path), middle=True, style="bold")
        paragraph(
            f"{plural(len(self._files), 'file')}, {size:,} bytes, {plural(rows, 'row')}, "
            f"{plural(groups, 'row group')}"
        )
        for name, count in self._writers.most_common(_WRITERS):
            paragraph(f"{plural(count, 'file')} written by {cut(clean(name), 120)}")
        if len(self._writers) > _WRITERS:
            paragraph(f"and others by {plural(len(self._writers) - _WRITERS, 'more writer')}")
        self._show_columns(size, everything)
        self._show_files(everything)
        self._show_indexes(size)
        for error in self._problems:
            problem(error)

    def _show_columns(self, size: int, everything: bool) -> None:
        columns = list(self._columns.values())
        largest = heapq.nlargest(_COLUMNS, columns, key=lambda column: column.compressed)
        shown = columns if everything else [c for c in columns if c in largest]
        if not shown:
            return
        say()
        titles = table(
            [
                Column("column", [clean(c.name) for c in shown], least=24, middle=True),
                Column("type", [", ".join(c.types) for c in shown], 1, least=12),
                Column("files", [self._share(c.types.total()) for c in shown], 5, right=True),
                Column("codec", [listed(sorted(c.codecs)) for c in shown], 7, least=6),
                Column("encodings", [listed(c.encodings) for c in shown], 8, least=9),
                Column("nulls", [null_text(c.nulls, c.chunks) for c in shown], 6, right=True),
                numbers("bytes", [c.compressed for c in shown], 2),
                Column("share", [f"{c.compressed / size:.1%}" for c in shown], 3, right=True),
                Column("indexes", [self._kinds(c) for c in shown], 4, least=18),
            ]
        )
        more(len(columns) - len(shown), "smaller column")
        left_out(titles)

    def _kinds(self, column: _Column) -> str:
        """Returns the index kinds of a column, with the number of files if not all have one."""
        indexes, files = column.indexes, column.types.total()
        return clean(
            listed(k if n == files else f"{k} {n:,}/{files:,}" for k, n in indexes.items())
        )

    def _share(self, count: int) -> str:
        return "all" if count == len(self._files) else f"{count:,}"

    def _show_files(self, everything: bool) -> None:
        shown = self._files if everything else self._files[:_FILES]
        if not shown:
            return
        base = common_folder([redacted(file.name) for file in self._files]) or "."
        names = [clean(relpath(redacted(file.name), base)) for file in shown]
        say()
        titles = table(
            [
                Column("file", names, least=24, middle=True),
                numbers("rows", [file.rows for file in shown], 1),
                numbers("row groups", [file.row_groups for file in shown], 3),
                numbers("bytes", [file.size for file in shown], 2),
                Column("indexes", [clean(listed(f.indexes)) for f in shown], 4, least=18),
            ]
        )
        more(len(self._files) - len(shown), "more file")
        left_out(titles)

    def _show_indexes(self, size: int) -> None:
        if self._indexes:
            say()
        for name, lengths in self._indexes.items():
            total, of = sum(lengths), plural(len(self._files), "file")
            where = f"{len(lengths):,} of {of}" if len(lengths) < len(self._files) else "every file"
            paragraph(
                f"index {clean(name)}: in {where}, {total:,} bytes, {total / size:.1%} of all"
            )
