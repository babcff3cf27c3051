"""The command ``rewrite``."""

from __future__ import annotations

import click

from intarsia.cli.options import (
    CODECS,
    PATH,
    Action,
    layout_options,
    report_json_option,
    resource_limit_options,
)


@click.command(cls=Action)
@click.argument("path", type=PATH)
@layout_options
@click.option("--no-index", is_flag=True, help="New files get no index.")
@click.option(
    "--target-file-size",
    default="128 MB",
    show_default=True,
    metavar="SIZE",
    help="Merge smaller files up to this size; none replaces each file by one.",
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
@resource_limit_options
@report_json_option
def rewrite() -> None:
    """Make the files of PATH anew: small pages, merged, sorted, with indexes.

    \b
    intarsia rewrite lake --index "lookup(trace_id)" --index msg:ngram
    intarsia rewrite lake --sort-by ts --where "day = '2024-06-01'"
    intarsia rewrite lake --partition-by day --output new-lake

    PATH is a folder, a Hive folder in it, or a file. All rows, columns, types and metadata stay.
    Without --index and --no-index, the indexes that files have are built anew.

    Readers see the old files or the new ones. If the command is killed, intarsia recover PATH
    finishes or undoes what it was doing: no row is lost or doubled. Call it while nobody writes.

    The exit code is 1 for an error. That includes files that another writer changed meanwhile:
    they were left as they were, and all others are done.
    """
