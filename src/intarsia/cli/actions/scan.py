"""The commands ``scan`` and ``explain``."""

from __future__ import annotations

import click

from intarsia.cli.column_names import column_names
from intarsia.cli.output import html_file, row_stream, tables
from intarsia.cli.output.json_document import json_text
from intarsia.dataset.discovery import dataset
from intarsia.dataset.request_builder import check_columns
from intarsia.engines.duckdb.explain import explain_sql
from intarsia.file.corrupt_data import OnCorrupt
from intarsia.report.query_page import MAX_SHOWN_FILES
from intarsia.report.render import query_html
from intarsia.sql.where_clause import parse_where
from intarsia.tables.data_files import TableFormatOption

_TABLE_ROWS = 50
_TABLE = "data"
"""The name of the table in a SQL query."""


def scan(
    path: str,
    where: str | None,
    columns: str | None,
    limit: int | None,
    count: bool,
    form: str,
    on_corrupt: OnCorrupt | None,
    page_size_limit: int | None,
    union_by_name: bool,
    partitioning: str | None,
    sidecar_folder: str | None,
    table_format: TableFormatOption,
) -> None:
    """Prints the rows that match."""
    source = dataset(
        path,
        union_by_name=union_by_name,
        partitioning=partitioning,
        sidecar=sidecar_folder,
        on_corrupt=on_corrupt,
        page_size_limit=page_size_limit,
        table_format=table_format,
    )
    names = column_names(source.schema, columns)
    expression = None if where is None else parse_where(where, source.schema)
    if count:
        check_columns(source.schema, names)
        num_rows = source.count_rows(expression)
        click.echo(num_rows if limit is None else min(num_rows, limit))
        return
    if form == "table":
        shown = _TABLE_ROWS if limit is None else limit
        table = source.head(shown + 1, names, expression)
        is_cut = table.num_rows > shown
        tables.rows(table.slice(0, shown) if is_cut else table, more=limit is None and is_cut)
        return
    schema = source.head(0, names).schema
    print_rows = row_stream.csv(schema) if form == "csv" else row_stream.json_lines(schema, names)
    if limit is not None:
        print_rows(source.head(limit, names, expression).to_batches())
    else:
        print_rows(source.to_batches(names, expression))


def explain(
    path: str,
    where: str | None,
    columns: str | None,
    query: str | None,
    analyze: bool,
    as_json: bool,
    html: str | None,
    union_by_name: bool,
    partitioning: str | None,
    sidecar_folder: str | None,
    table_format: TableFormatOption,
) -> None:
    """Shows what a query reads."""
    html_file.check_option(html, as_json)
    source = dataset(
        path,
        union_by_name=union_by_name,
        partitioning=partitioning,
        sidecar=sidecar_folder,
        table_format=table_format,
    )
    if query is not None:
        for option, value in (("--where", where), ("--columns", columns), ("--html", html)):
            if value is not None:
                raise click.UsageError(f"{option} does not go with --sql")
        of_query = explain_sql(query, analyze=analyze, **{_TABLE: source})
        click.echo(json_text(of_query.to_dict(), indent=2) if as_json else of_query)
        return
    maps = 0 if html is None else MAX_SHOWN_FILES
    explanation = source.explain(
        column_names(source.schema, columns), where, analyze=analyze, maps=maps
    )
    if html is not None:
        html_file.save(html, query_html(explanation))
    elif as_json:
        click.echo(json_text(explanation.to_dict(), indent=2))
    else:
        click.echo(explanation)
