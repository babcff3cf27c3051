"""The commands ``inspect`` and ``pages``."""

from __future__ import annotations

from typing import Any

import click

from intarsia.cli.options import all_option, html_option, table_format_option

_column = click.option(
    "-c",
    "--column",
    "names",
    metavar="NAME",
    multiple=True,
    help="Only this column; one with fields stands for all of them. May be given again.",
)


@click.command()
@click.argument("path")
@_column
@all_option
@click.option("--json", "as_json", is_flag=True, help="The whole footer as one JSON document.")
@html_option
@table_format_option
def inspect(**options: Any) -> None:
    """Show what a Parquet file holds: columns, sizes, encodings, indexes, key/values.

    PATH is a file, folder, glob or URI. With --column, show that column row group by row group:
    bounds, sizes, indexes. A type is followed by ? where values may be NULL, by * where a row may
    have several. Of indexes, offset is a page index that has no bounds. In a file of more than 40
    columns those that take most are shown. The files of a folder or glob are summed up, unless
    --column or --json asks for each.

    --json gives the footer with the specification's names, bounds as values, other bytes in base
    64; with --column, its row groups have the chunks of that column only. Of several files, each
    has a line.

    --html, of one file, shows where in it every page is, by rows and by bytes: of all columns, or
    of those of --column.

    The exit code is 1 where a part of a file could not be decoded; the rest is shown.
    """
    from intarsia.cli.actions import inspect as body

    body.inspect(**options)


@click.command()
@click.argument("path")
@_column
@click.option(
    "--row-group",
    "row_groups",
    type=click.IntRange(0),
    metavar="N",
    multiple=True,
    help="Only this row group, counted from 0. May be given again.",
)
@click.option("--dictionary", is_flag=True, help="Show the entries of dictionaries instead.")
@all_option
@click.option("--json", "as_json", is_flag=True, help="All of them as one JSON array.")
@table_format_option
def pages(**options: Any) -> None:
    """Show the pages of a Parquet file: rows, nulls, bounds, offsets, sizes, checksums.

    PATH is a file, folder, glob or URI. Rows are counted from the start of the row group, offsets
    from the start of the file; bytes are those of the page without its header. Bounds are the
    column index's, else the page's own. 100 pages, or entries of dictionaries, are shown of a file
    unless --all asks for more.

    The exit code is 1 where a chunk could not be decoded; the others are shown.
    """
    from intarsia.cli.actions import inspect as body

    body.pages(**options)
