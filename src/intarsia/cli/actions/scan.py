"""The commands ``scan``, ``sql`` and ``explain``."""

from __future__ import annotations

import contextlib
import io
import sys
from collections.abc import Sequence
from typing import Any

import click
import pyarrow as pa
import pyarrow.compute as pc

from intarsia.cli.column_names import column_names
from intarsia.cli.input import other_formats
from intarsia.cli.input.table_source import opened
from intarsia.cli.output import html_file, row_stream, tables
from intarsia.cli.output.json_document import json_text
from intarsia.dataset.dataset import Dataset
from intarsia.dataset.request_builder import check_columns
from intarsia.dataset.top_k import first_rows
from intarsia.duckdb_session import require_duckdb
from intarsia.engines.duckdb.explain import explain_sql
from intarsia.engines.duckdb.sql import opened_table, run_query
from intarsia.expr.filterable_types import taken
from intarsia.io.atomic_replace import replacing
from intarsia.io.storage import resolve
from intarsia.report.query_page import MAX_SHOWN_FILES
from intarsia.report.render import query_html
from intarsia.sql.query.limit_pushdown import First
from intarsia.sql.where_clause import parse_where
from intarsia.writer.parquet_writer import ParquetWriter
from intarsia.writer.row_sorting import order_of

_TABLE_ROWS = 50
_TABLE = "data"
"""The name of the table in a SQL query."""


def scan(
    path: str,
    where: str | None,
    columns: str | None,
    limit: int | None,
    order_by: str | None,
    count: bool,
    form: str,
    **opening: Any,
) -> None:
    """Prints the rows that match. ``opening`` has arguments of ``dataset``."""
    source = opened(path, **opening)
    names = column_names(source.schema, columns)
    expression = None if where is None else parse_where(where, source.schema)
    if count:
        check_columns(source.schema, names)
        num_rows = source.count_rows(expression)
        click.echo(num_rows if limit is None else min(num_rows, limit))
        return
    order = _order_of(source.schema, order_by)
    most = _TABLE_ROWS + 1 if form == "table" and limit is None else limit
    if order:
        rows = _ordered(source, names, expression, order, most)
    elif most is not None:
        rows = source.head(most, names, expression)
    else:
        schema = source.head(0, names).schema
        row_stream.printer(form, schema, names)(source.to_batches(names, expression))
        return
    _print(rows, form, names, may_have_more=limit is None)


def _print(rows: pa.Table, form: str, names: Sequence[str], *, may_have_more: bool) -> None:
    """Prints rows. A table that ``may_have_more`` shows 50 of them."""
    if form == "table":
        is_cut = may_have_more and rows.num_rows > _TABLE_ROWS
        tables.rows(rows.slice(0, _TABLE_ROWS) if is_cut else rows, more=is_cut)
    else:
        row_stream.printer(form, rows.schema, names)(rows.to_batches())


def _order_of(schema: pa.Schema, order_by: str | None) -> list[tuple[str, bool]]:
    """Returns the columns in ``--order-by``, and for each whether it descends."""
    order = []
    for name in [] if order_by is None else column_names(schema, order_by):
        is_name = name in schema.names
        column, _, direction = (name, "", "") if is_name else name.rpartition(" ")
        if direction.upper() in ("ASC", "DESC") and column:
            order.append((column.strip(), direction.upper() == "DESC"))
        else:
            order.append((name, False))
    return order


def _ordered(
    source: Dataset,
    names: Sequence[str],
    filter_: pc.Expression | None,
    order: Sequence[tuple[str, bool]],
    limit: int | None,
) -> pa.Table:
    """Returns the rows in order, at most ``limit`` of them."""
    (column, descends), *_ = order
    if limit is not None and source.schema.names.count(column) == 1:
        first = first_rows(source, First(column, limit, descends), filter_)
        if first is not None:
            filter_ = first if filter_ is None else filter_ & first
    table = source.to_table([*names, *(column for column, _ in order)], filter_)
    columns = range(len(names), table.num_columns)
    row_order = order_of(table, columns, "at_end", [descends for _, descends in order])
    return taken(table.select(range(len(names))), row_order.slice(0, limit))


def sql(
    query: str,
    tables: Sequence[str],
    form: str | None,
    output: str | None,
    **opening: Any,
) -> None:
    """Prints or writes the result of a query."""
    form = form or ("table" if output is None else other_formats.format_of_name(output))
    if form not in ("table", "csv", "json", "parquet"):
        raise click.UsageError(f"{output}: --format says what to write to this name")
    if form == "parquet" and output is None:
        raise click.UsageError("Parquet is not written to standard output: --output names a file")
    require_duckdb()
    by_name = {}
    for table in tables:
        name, is_given, path = table.partition("=")
        if not (name and is_given):
            raise click.UsageError(f"{table!r} is not NAME=PATH")
        by_name[name] = opened_table(opened(path, **opening))
    if query == other_formats.STDIN:
        query = sys.stdin.read()
    result = run_query(query, (), by_name)
    if form == "parquet" and output is not None:
        with ParquetWriter(output, result.schema) as writer:
            writer.write_table(result)
    elif output is None:
        _print(result, form, result.schema.names, may_have_more=True)
    else:
        filesystem, path = resolve(output)
        with replacing(path, filesystem) as create, create() as file:
            text = io.TextIOWrapper(file, encoding="utf-8", write_through=True)
            with contextlib.redirect_stdout(text):
                _print(result, form, result.schema.names, may_have_more=False)
            text.detach()


def explain(
    path: str,
    where: str | None,
    columns: str | None,
    query: str | None,
    analyze: bool,
    as_json: bool,
    html: str | None,
    **opening: Any,
) -> None:
    """Shows what a query reads."""
    html_file.check_option(html, as_json)
    source = opened(path, **opening)
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
