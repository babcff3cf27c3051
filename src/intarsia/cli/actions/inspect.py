"""The commands ``inspect`` and ``pages``: what is in files, by their footers and page by page."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import click
import pyarrow.fs as pafs

from intarsia.cli.column_names import selected
from intarsia.cli.exit_codes import PARTIAL_SUCCESS
from intarsia.cli.output import column_view, file_view, html_file, pages_view, terminal
from intarsia.cli.output.files_view import Summary
from intarsia.cli.output.json_document import describe, json_text
from intarsia.errors import IntarsiaError
from intarsia.file.file_footer import ChunkId
from intarsia.file.open_file import OpenedFile
from intarsia.file.sidecar_discovery import places_of
from intarsia.io.glob import is_glob
from intarsia.io.retry import infos_of
from intarsia.io.storage import FileSource, resolve
from intarsia.redaction import redacted
from intarsia.report.render import file_html
from intarsia.scan.parquet_file import open_file, open_source
from intarsia.tables.data_files import TableFormatOption, data_files

_Files = Iterator[tuple[str, OpenedFile | IntarsiaError]]
"""Names and open files, or the error of a file that cannot be shown."""


def inspect(
    path: str,
    names: Sequence[str],
    everything: bool,
    as_json: bool,
    html: str | None,
    table_format: TableFormatOption,
) -> None:
    """Shows what files hold."""
    html_file.check_option(html, as_json)
    if html is not None and everything:
        raise click.UsageError("--html has what it has room for: --all does not go with it")
    if _is_several(path):
        if html is not None:
            raise click.UsageError("--html is of one file, and this is a folder or a glob")
        if names or as_json:
            whole = _inspect_all(_each(path, table_format, names), names, everything, as_json)
        else:
            whole = _sum_up(path, _each(path, table_format), everything)
    else:
        whole = _inspect(open_file(path), names, everything, as_json, html)
    sys.exit(0 if whole else PARTIAL_SUCCESS)


def _inspect(
    file: OpenedFile, names: Sequence[str], everything: bool, as_json: bool, html: str | None
) -> bool:
    """Shows a file. Returns False if a part of it could not be decoded."""
    leaves = selected(file.schema, names)
    if html is not None:
        text, whole = file_html(file, leaves)
        html_file.save(html, text)
    elif as_json:
        document, whole = describe(file, leaves)
        click.echo(json_text(document, indent=2))
    elif names:
        whole = column_view.columns(file, leaves, everything)
    else:
        whole = file_view.overview(file, everything)
    return whole


def _inspect_all(files: _Files, names: Sequence[str], everything: bool, as_json: bool) -> bool:
    """Shows each file of a folder or glob. Returns False if a part could not be decoded."""
    whole = True
    for name, file in files:
        if as_json:
            document, is_whole = _described(name, file, names)
            click.echo(json_text(document))
            whole &= is_whole
            continue
        pages_view.file_heading(name)
        if isinstance(file, IntarsiaError):
            file_view.problem(file)
            whole = False
        else:
            whole &= column_view.columns(file, selected(file.schema, names), everything)
    return whole


def _described(
    name: str, file: OpenedFile | IntarsiaError, names: Sequence[str]
) -> tuple[dict[str, Any], bool]:
    if isinstance(file, IntarsiaError):
        return {"file": redacted(name), "error": str(file)}, False
    return describe(file, selected(file.schema, names))


def _sum_up(path: str, files: _Files, everything: bool) -> bool:
    """Shows a summary of all files. Returns False if one could not be decoded."""
    summary = Summary(path)
    with terminal.progress("inspecting") as update:
        for number, (name, file) in enumerate(files):
            update(name, number, None)
            if isinstance(file, IntarsiaError):
                summary.fail(file)
            else:
                summary.add(file)
    summary.show(everything)
    return summary.is_whole


def pages(
    path: str,
    names: Sequence[str],
    row_groups: Sequence[int],
    dictionary: bool,
    everything: bool,
    as_json: bool,
    table_format: TableFormatOption,
) -> None:
    """Shows the pages of files."""
    several = _is_several(path)

    def chunks(file: OpenedFile) -> list[ChunkId]:
        leaves = selected(file.schema, names)
        groups = _row_groups(len(file.metadata.row_groups), row_groups, must_be=not several)
        return [(group, leaf.index) for group in groups for leaf in leaves]

    files = _each(path, table_format, names) if several else iter([(path, open_file(path))])
    if as_json:
        whole = pages_view.as_json(files, chunks, dictionary=dictionary, named=several)
    else:
        whole = True
        for name, file in files:
            if several:
                pages_view.file_heading(name)
            if isinstance(file, IntarsiaError):
                file_view.problem(file)
                whole = False
                continue
            shown = pages_view.dictionaries if dictionary else pages_view.pages
            whole &= shown(file, chunks(file), everything)
    sys.exit(0 if whole else PARTIAL_SUCCESS)


def _row_groups(count: int, numbers: Sequence[int], *, must_be: bool) -> Sequence[int]:
    """Returns the ``numbers`` below ``count``, or all. Raises ``UsageError`` if one ``must_be``."""
    for number in numbers:
        if must_be and number >= count:
            raise click.UsageError(f"row group {number} is not there; there are {count}")
    return [number for number in numbers if number < count] if numbers else range(count)


def _is_several(path: str) -> bool:
    """True if the path is a folder or a glob, not a file."""
    on, at = resolve(path)
    try:
        kind = infos_of(on, at).type
    except (OSError, UnicodeError):
        return False  # opening it raises the error
    return kind == pafs.FileType.Directory or (kind == pafs.FileType.NotFound and is_glob(at))


def _each(path: str, table_format: TableFormatOption, columns: Sequence[str] = ()) -> _Files:
    """Yields the files of a folder or glob, open one at a time, or why one cannot be shown."""
    on, names = data_files(path, table_format=table_format)
    places = places_of(on, None)
    for name in names:
        with contextlib.ExitStack() as stack:
            opened: OpenedFile | IntarsiaError
            try:
                source = stack.enter_context(contextlib.closing(FileSource(on, name)))
                opened = open_source(source, places=places)
                selected(opened.schema, columns)
            except IntarsiaError as error:
                opened = error
            yield name, opened
