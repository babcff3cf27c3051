"""The command ``rewrite``."""

from __future__ import annotations

from typing import Any

import click

from intarsia.cli.options import CODECS, PATH, memory_limit_option, timeout_option
from intarsia.writer.defaults import DEFAULT_ROW_GROUP_ROWS, INDEXED_PAGE_ROWS, PAGE_ROWS


@click.command()
@click.argument("path", type=PATH)
@click.option(
    "--index",
    "indexes",
    metavar="INDEX",
    multiple=True,
    help="An index to embed, as index add takes it. May be given again. By default, those that "
    "files have.",
)
@click.option("--no-index", is_flag=True, help="New files get no index.")
@click.option(
    "--sort-by",
    metavar="A,B,…",
    help="Sort the rows of each folder by these columns, NULL last.",
)
@click.option(
    "--rows-per-page",
    "--max-rows-per-page",
    type=click.IntRange(1),
    metavar="ROWS",
    help=f"Rows of a page; by default {INDEXED_PAGE_ROWS:,} with indexes, {PAGE_ROWS:,} without.",
)
@click.option(
    "--row-group-rows",
    "--row-group-size",
    type=click.IntRange(1),
    metavar="ROWS",
    help=f"Rows of a row group; by default {DEFAULT_ROW_GROUP_ROWS:,}, or fewer that take 256 MB.",
)
@click.option(
    "--target-file-size",
    default="128 MB",
    show_default=True,
    metavar="SIZE",
    help="Merge smaller files up to this size; none replaces each file by one.",
)
@click.option(
    "--partition-by",
    metavar="A,B,…",
    help="Make the folders anew, named after the values of these columns.",
)
@click.option(
    "--compression", type=click.Choice(CODECS), help="By default that of most of the old bytes."
)
@click.option(
    "--where",
    metavar="SQL",
    help="Only folders for whose partition values this holds; with --output, only rows.",
)
@click.option(
    "--output",
    metavar="FOLDER",
    help="Write new files to this folder, which must be empty or not exist. PATH stays.",
)
@click.option("--only-small", is_flag=True, help="Only merge small files. Others stay.")
@click.option(
    "--keep", is_flag=True, help="Also into the policy of the folder PATH, for files to come."
)
@memory_limit_option
@timeout_option
@click.option("--json", "as_json", is_flag=True, help="The report as one JSON document.")
def rewrite(**options: Any) -> None:
    """Make the files of PATH anew: small pages, merged, sorted, with indexes.

    \b
    intarsia rewrite lake --index "lookup(trace_id)" --index msg:ngram
    intarsia rewrite lake --sort-by ts --where "day = '2024-06-01'"
    intarsia rewrite lake --partition-by day --output new-lake

    PATH is a folder, a Hive folder in it, or a file. All rows, columns, types and metadata stay.
    Indexes that files have are built anew.

    Readers see the old files or the new ones. If the command is killed, intarsia recover PATH
    finishes or undoes what it was doing: no row is lost or doubled. Call it while nobody writes.

    The exit code is 1 for an error. That includes files that another writer changed meanwhile:
    they were left as they were, and all others are done.
    """
    from intarsia.cli.actions import rewrite as body

    body.rewrite(**options)
