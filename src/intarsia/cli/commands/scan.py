"""The commands ``scan``, ``sql`` and ``explain``."""

from __future__ import annotations

import click

from intarsia.cli.options import (
    PATH,
    Action,
    columns_option,
    dataset_options,
    html_option,
    limit_option,
    on_corrupt_option,
    page_size_limit_option,
    where_option,
)


@click.command(cls=Action)
@click.argument("path", type=PATH)
@where_option
@columns_option
@limit_option
@click.option(
    "--order-by",
    metavar="A,B DESC,…",
    help="Sort the rows by these columns, NULL last. Without --limit all rows are in memory.",
)
@click.option("--count", is_flag=True, help="Print how many rows there are instead.")
@click.option(
    "--format",
    "form",
    type=click.Choice(["table", "csv", "json"]),
    default="table",
    show_default=True,
    help="json is one object a line, bytes in base 64; table shows 50 rows unless --limit says "
    "otherwise.",
)
@on_corrupt_option
@page_size_limit_option
@dataset_options
def scan() -> None:
    """Print the rows of PATH, a file, folder, glob or URI, that match.

    CSV cannot hold lists, structs and bytes; JSON can.
    """


@click.command(cls=Action)
@click.argument("query")
@click.argument("tables", type=PATH, nargs=-1, metavar="[NAME=PATH]…")
@click.option(
    "--format",
    "form",
    type=click.Choice(["table", "csv", "json", "parquet"]),
    help="table by default, or what the name of --output says; table shows 50 rows.",
)
@click.option(
    "--output",
    type=PATH,
    metavar="FILE",
    help="Write the result to this file; one that is there is replaced.",
)
@dataset_options
def sql() -> None:
    """Print the result of QUERY, SQL that DuckDB runs over Parquet files.

    \b
    intarsia sql "SELECT status, count(*) FROM logs GROUP BY ALL" logs=lake/logs
    intarsia sql - logs=lake/logs users=users.parquet --output errors.parquet < errors.sql

    QUERY may be - for standard input. PATH is a file, folder, glob or URI. The options apply to
    all tables.
    """


@click.command(cls=Action)
@click.argument("path", type=PATH)
@where_option
@columns_option
@click.option(
    "--sql",
    "query",
    help="A SQL query of the table data in place of --where and --columns; DuckDB runs it.",
)
@click.option(
    "--analyze", is_flag=True, help="Run the query as well; show what was read, and the time."
)
@click.option("--json", "as_json", is_flag=True, help="All of it, of every file, as JSON.")
@html_option
@dataset_options
def explain() -> None:
    """Show which rows, pages and bytes of PATH a query reads, and what each index left.

    20 files are shown, and the 20 largest columns of each.

    --html draws the pages of each file, by rows and by bytes, and which of them are read.
    """
