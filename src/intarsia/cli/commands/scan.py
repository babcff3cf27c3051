"""The commands ``scan``, ``sql`` and ``explain``."""

from __future__ import annotations

from typing import Any

import click

from intarsia.cli.options import (
    PATH,
    columns_option,
    html_option,
    limit_option,
    memory_limit_option,
    on_corrupt_option,
    page_size_limit_option,
    partitioning_option,
    sidecar_folder_option,
    table_format_option,
    timeout_option,
    union_by_name_option,
    where_option,
)


@click.command()
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
@union_by_name_option
@partitioning_option
@sidecar_folder_option
@table_format_option
@memory_limit_option
@timeout_option
def scan(**options: Any) -> None:
    """Print the rows of PATH, a file, folder, glob or URI, that match.

    CSV cannot hold lists, structs and bytes; JSON can.
    """
    from intarsia.cli.actions import scan as body

    body.scan(**options)


@click.command()
@click.argument("query")
@click.argument("tables", nargs=-1, metavar="[NAME=PATH]…")
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
@union_by_name_option
@partitioning_option
@sidecar_folder_option
@table_format_option
@memory_limit_option
@timeout_option
def sql(**options: Any) -> None:
    """Print the result of QUERY, SQL that DuckDB runs over Parquet files.

    \b
    intarsia sql "SELECT status, count(*) FROM logs GROUP BY ALL" logs=lake/logs
    intarsia sql - logs=lake/logs users=users.parquet --output errors.parquet < errors.sql

    QUERY may be - for standard input. PATH is a file, folder, glob or URI. The options apply to
    all tables.
    """
    from intarsia.cli.actions import scan as body

    body.sql(**options)


@click.command()
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
@union_by_name_option
@partitioning_option
@sidecar_folder_option
@table_format_option
@memory_limit_option
@timeout_option
def explain(**options: Any) -> None:
    """Show which rows, pages and bytes of PATH a query reads, and what each index left.

    20 files are shown, and the 20 largest columns of each.

    --html draws the pages of each file, by rows and by bytes, and which of them are read.
    """
    from intarsia.cli.actions import scan as body

    body.explain(**options)
