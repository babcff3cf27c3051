"""The commands of ``intarsia index``."""

from __future__ import annotations

import json
from collections.abc import Sequence

import click

from intarsia.cli import show, terminal
from intarsia.cli.options import all_option, sidecar_folder_option, table_format_option
from intarsia.data.table_files import TableFormatOption
from intarsia.index.registry import kinds, parse
from intarsia.write.advise import advise
from intarsia.write.drop import drop_indexes
from intarsia.write.embed import IndexReport, add_indexes, list_indexes
from intarsia.write.export import export_index

_json = click.option("--json", "as_json", is_flag=True, help="One JSON object a file, one a line.")


@click.group()
def index() -> None:
    """Add, list, export and drop the indexes of files."""


@index.command("add", epilog=f"Kinds: {', '.join(kinds())}.")
@click.argument("path")
@click.argument("indexes", nargs=-1, required=True, metavar="INDEX…")
@click.option(
    "--sidecar", is_flag=True, help="In a file beside each, in _intarsia/: no file is changed."
)
@sidecar_folder_option
@click.option(
    "--missing",
    is_flag=True,
    help="Only to files that do not have it, with the same settings; bloom filters, with any.",
)
@click.option("--all", "everything", is_flag=True, help="List the indexes of each file as well.")
@table_format_option
@_json
def index_add(
    path: str,
    indexes: Sequence[str],
    sidecar: bool,
    sidecar_folder: str | None,
    missing: bool,
    table_format: TableFormatOption,
    everything: bool,
    as_json: bool,
) -> None:
    """Add each INDEX to PATH, a file, folder, glob or URI.

    \b
    trace_id:lookup                          an index of our own on a column,
    lookup(trace_id, granule_rows=1024)      the same with a setting
    distinct(status)                         for columns of few values: any test; minmax: ranges
    lookup(lower(email))                     on a function of columns
    bloom(user_id, fpp=0.01)                 a bloom filter for each of its chunks
    page_index                               page indexes for all columns,
    page_index(ts, user_id)                  or for these

    Page indexes and bloom filters are the format's own: other readers use them as well; chunks that
    have a page index keep it. Quote an INDEX with parentheses. A file keeps all its bytes; every
    other reader still reads it. One that cannot have an INDEX, as it lacks the column, goes
    without; where no file can have it, none is changed.

    Shows a line for each INDEX, over all files; with --all, what each file has as well.
    """
    wanted = [parse(text) for text in indexes]
    with terminal.progress("indexing") as progress:
        where = _beside(sidecar, sidecar_folder)
        reports = add_indexes(
            path,
            wanted,
            sidecar=where,
            replace=not missing,
            progress=progress,
            table_format=table_format,
        )
    if as_json:
        show.as_json(reports)
    else:
        if everything:
            show.indexes(reports, everything)
        show.summary(reports, "added")
        show.added(reports)


@index.command("drop")
@click.argument("path")
@click.argument("indexes", nargs=-1, metavar="INDEX…")
@click.option("--all", "everything", is_flag=True, help="Every index that was added.")
@click.option(
    "--sidecar", is_flag=True, help="From the sidecars in _intarsia/: no file is changed."
)
@sidecar_folder_option
@table_format_option
@_json
def index_drop(
    path: str,
    indexes: Sequence[str],
    everything: bool,
    sidecar: bool,
    sidecar_folder: str | None,
    table_format: TableFormatOption,
    as_json: bool,
) -> None:
    """Take each INDEX off PATH, a file, folder, glob or URI, and return its space.

    \b
    trace_id:lookup                          an index, as it is listed
    user_id:bloom                            the bloom filters that were added to a column
    page_index                               the page indexes that were added

    What a file was written with stays, and is reported as kept. A file that loses all that was
    added is, byte for byte, what it was before.

    Shows a line for each index, over all files.
    """
    if everything == bool(indexes):
        raise click.UsageError("name each INDEX, or drop every one that was added by --all")
    with terminal.progress("dropping") as progress:
        where = _beside(sidecar, sidecar_folder)
        reports = drop_indexes(
            path,
            indexes or None,
            all=everything,
            sidecar=where,
            progress=progress,
            table_format=table_format,
        )
    if as_json:
        show.as_json(reports)
        return
    show.summary(reports, "dropped")
    changed = sum(bool(report.dropped) for report in reports)
    click.echo(f"{changed:,} of {terminal.plural(len(reports), 'file')} changed", err=True)


@index.command("list")
@click.argument("path")
@sidecar_folder_option
@table_format_option
@all_option
@_json
def index_list(
    path: str,
    sidecar_folder: str | None,
    table_format: TableFormatOption,
    everything: bool,
    as_json: bool,
) -> None:
    """List the indexes of the files of PATH: those embedded, those beside, and the format's own."""
    reports = list_indexes(path, sidecar=sidecar_folder, table_format=table_format)
    _show(reports, everything, as_json)


def _beside(sidecar: bool, folder: str | None) -> bool | str:
    """Where sidecars are; an empty folder's name is one that is refused."""
    return sidecar if folder is None else folder


def _show(reports: Sequence[IndexReport], everything: bool, as_json: bool) -> None:
    if as_json:
        show.as_json(reports)
    else:
        show.indexes(reports, everything)
        show.missing(reports)


@index.command("export")
@click.argument("path")
@click.argument("index")
@click.argument("out")
@sidecar_folder_option
def index_export(path: str, index: str, out: str, sidecar_folder: str | None) -> None:
    """Write INDEX of the file PATH to OUT, a Parquet file that any tool reads.

    It has a row for each key and granule, or, of kinds that sum up, for each granule. An OUT that
    is there is replaced.
    """
    export_index(path, index, out, sidecar=sidecar_folder)


@index.command("advise")
@click.argument("path")
@click.option("--where", "filters", metavar="SQL", multiple=True, required=True, help="May recur.")
@table_format_option
@click.option("--json", "as_json", is_flag=True, help="All of it as JSON.")
def index_advise(
    path: str, filters: Sequence[str], table_format: TableFormatOption, as_json: bool
) -> None:
    """Propose indexes of PATH for the conditions of queries, from a sample of its row groups.

    Ask for values that occur: of others, bounds may tell already, which makes any index look idle.
    """
    found = advise(path, filters, table_format=table_format)
    click.echo(json.dumps(found.to_dict(), ensure_ascii=False) if as_json else str(found))
