"""The commands of ``intarsia index``."""

from __future__ import annotations

from collections.abc import Sequence

import click

from intarsia.advisor.advise import advise
from intarsia.cli.input.table_source import table_or_path
from intarsia.cli.output import tables, terminal
from intarsia.cli.output.json_document import json_text
from intarsia.index.registry import parse
from intarsia.indexing.add import Addition, list_indexes
from intarsia.indexing.drop import drop_indexes
from intarsia.indexing.export import export_index
from intarsia.rewrite.rewrite import rewrite as rewrite_files
from intarsia.tables.data_files import TableFormatOption, table_of
from intarsia.writer.defaults import INDEXED_PAGE_ROWS


def index_add(
    path: str,
    indexes: Sequence[str],
    in_sidecar: bool,
    sidecar: str | None,
    missing: bool,
    page_index: bool,
    keep: bool,
    rewrite: bool,
    table_format: TableFormatOption,
    everything: bool,
    as_json: bool,
) -> None:
    """Adds indexes to files."""
    specs = [parse(text) for text in indexes]
    if rewrite and (in_sidecar or sidecar is not None):
        raise click.UsageError("--rewrite changes the files, with --sidecar they stay as they are")
    data = table_or_path(path)
    if rewrite and table_of(data) is not None:
        raise click.UsageError("--rewrite is of plain files: the engine of a table rewrites those")
    addition = Addition(
        data,
        specs,
        sidecar=in_sidecar if sidecar is None else sidecar,
        table_format=table_format,
        keep=keep,
    )
    if rewrite:
        _rewrite_coarse_files(addition)
    else:
        addition.warn_of_coarse_pages()
    with terminal.progress("indexing") as progress:
        reports = addition.run(replace=not missing, page_index=page_index, progress=progress)
    if as_json:
        tables.as_json(reports)
    else:
        if everything:
            tables.indexes(reports, everything)
        tables.summary(reports, "added")
        tables.added(reports)


def _rewrite_coarse_files(addition: Addition) -> None:
    """Rewrites the files whose pages are so long that an index saves little, each by itself."""
    with terminal.progress("rewriting") as progress:
        for file in addition.coarse_files:
            rewrite_files(
                file,
                rows_per_page=INDEXED_PAGE_ROWS,
                target_file_size=None,
                filesystem=addition.filesystem,
                progress=progress,
            )
    count = terminal.plural(len(addition.coarse_files), "file")
    click.echo(f"{count} with long pages rewritten", err=True)


def index_drop(
    path: str,
    indexes: Sequence[str],
    everything: bool,
    in_sidecar: bool,
    sidecar: str | None,
    table_format: TableFormatOption,
    as_json: bool,
) -> None:
    """Drops indexes of files."""
    if everything == bool(indexes):
        raise click.UsageError("name each INDEX, or drop every one that was added by --all")
    with terminal.progress("dropping") as progress:
        reports = drop_indexes(
            table_or_path(path),
            indexes or None,
            all=everything,
            sidecar=in_sidecar if sidecar is None else sidecar,
            progress=progress,
            table_format=table_format,
        )
    if as_json:
        tables.as_json(reports)
        return
    tables.summary(reports, "dropped")
    changed = sum(bool(report.dropped) for report in reports)
    click.echo(f"{changed:,} of {terminal.plural(len(reports), 'file')} changed", err=True)


def index_list(
    path: str,
    sidecar: str | None,
    table_format: TableFormatOption,
    everything: bool,
    as_json: bool,
) -> None:
    """Lists the indexes of files."""
    reports = list_indexes(table_or_path(path), sidecar=sidecar, table_format=table_format)
    if as_json:
        tables.as_json(reports)
    else:
        tables.indexes(reports, everything)
        tables.missing(reports)


def index_export(path: str, index: str, out: str, sidecar: str | None) -> None:
    """Writes an index to a Parquet file."""
    export_index(path, index, out, sidecar=sidecar)


def index_advise(
    path: str, filters: Sequence[str], table_format: TableFormatOption, as_json: bool
) -> None:
    """Proposes indexes for the conditions of queries."""
    advice = advise(table_or_path(path), filters, table_format=table_format)
    click.echo(json_text(advice.to_dict()) if as_json else str(advice))
