"""The commands ``inspect`` and ``pages``."""

from __future__ import annotations

import click

from intarsia.cli.options import PATH, Action, all_option, html_option, table_format_option

_column = click.option(
    "-c",
    "--column",
    "names",
    metavar="NAME",
    multiple=True,
    help="Only this column; one with fields stands for all of them. May be given again.",
)


@click.command(cls=Action)
@click.argument("path", type=PATH)
@_column
@all_option
@click.option("--json", "as_json", is_flag=True, help="The whole footer as one JSON document.")
@html_option
@table_format_option
def inspect() -> None:
    """Show what a Parquet file holds: columns, sizes, encodings, indexes, key/values.

    PATH is a file, folder, glob or URI. With --column, show that column row group by row group:
    bounds, sizes, indexes. A type has "?" if values may be NULL, and "*" if a row may have
    several. The index "offset" is a page index without bounds. If there are more than 40 columns,
    the largest are shown. Files of a folder or glob are summed up, unless --column or --json asks
    for each.

    --json prints the footer with the names of the specification. Bounds are values, other bytes are
    in base 64. With --column, row groups have only the chunks of that column. Each of several
    files has a line.

    --html shows where the pages of one file are, by rows and by bytes.

    The exit code is 3 if a part of a file could not be decoded. The rest is shown.
    """


@click.command(cls=Action)
@click.argument("path", type=PATH)
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
def pages() -> None:
    """Show the pages of a Parquet file: rows, nulls, bounds, offsets, sizes, checksums.

    PATH is a file, folder, glob or URI. Rows count from the start of the row group, offsets from
    the start of the file. Bytes are those of the page without its header. Bounds are those of the
    column index, else of the page. Without --all, 100 pages or entries of a file are shown.

    The exit code is 3 if a chunk could not be decoded. The others are shown.
    """
