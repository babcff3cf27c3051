"""``intarsia write``: rows of any file as one Parquet file with indexes."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

import click
import pyarrow as pa
import sqlglot
from sqlglot import exp

from intarsia.cli.column_names import column_names
from intarsia.cli.input import other_formats
from intarsia.cli.input.rows import RowQuery, check_is_other, check_order, in_order, rows_of
from intarsia.cli.output import terminal
from intarsia.cli.output.json_document import json_text
from intarsia.errors import PredicateError
from intarsia.expr.casts import cast_type
from intarsia.file.corrupt_data import OnCorrupt
from intarsia.indexing.add import IndexReport, list_indexes
from intarsia.memory import share
from intarsia.tables.data_files import TableFormatOption
from intarsia.writer.defaults import DEFAULT_ROW_GROUP_ROWS, default_page_rows
from intarsia.writer.parquet_writer import ParquetWriter
from intarsia.writer.row_buffer import ROW_GROUP_BYTES, row_groups
from intarsia.writer.type_annotations import placed

_ANY_BYTES = 2**62
_ZONED = re.compile(r"timestamp\[(s|ms|us|ns),\s*tz=([\w/+:-]+)\]")
_DECIMAL = re.compile(r"decimal\s*\(\s*(\d+)\s*,\s*(\d+)\s*\)", re.IGNORECASE)


def types_of(given: Sequence[str]) -> dict[str, pa.DataType]:
    """Returns the types in ``--type``, by the columns' names. Raises ``BadParameter``."""
    types = {}
    for text in given:
        name, has_type, kind = text.partition("=")
        if not has_type or not name:
            raise click.BadParameter(f"{text!r} is not COLUMN=TYPE")
        try:
            types[name] = _type(kind.strip())
        except (ValueError, PredicateError, sqlglot.ParseError) as error:
            raise click.BadParameter(f"there is no type {kind!r}") from error
    return types


def _type(text: str) -> pa.DataType:
    """Returns a type by its name in pyarrow or SQL."""
    decimal = _DECIMAL.fullmatch(text)
    if decimal:
        return pa.decimal128(int(decimal[1]), int(decimal[2]))
    zoned = _ZONED.fullmatch(text)
    if zoned:
        return pa.timestamp(zoned[1], zoned[2])
    try:
        return pa.type_for_alias(text)
    except ValueError:
        return cast_type(exp.DataType.build(text, dialect="duckdb"))


def write(
    source: str,
    out: str,
    indexes: Sequence[str],
    form: str | None,
    where: str | None,
    columns: str | None,
    limit: int | None,
    sort_by: str | None,
    compression: str,
    compression_level: int | None,
    row_group_size: int | None,
    max_rows_per_page: int | None,
    checkpoint_row_groups: int | None,
    keep_unfinished: bool,
    delimiter: str | None,
    no_header: bool,
    null: str | None,
    types: Mapping[str, pa.DataType],
    union_by_name: bool,
    partitioning: str | None,
    on_corrupt: OnCorrupt | None,
    page_size_limit: int | None,
    sidecar_folder: str | None,
    table_format: TableFormatOption,
    as_json: bool,
) -> None:
    """Writes the rows of a source to a Parquet file."""
    if out == other_formats.STDIN:
        raise click.UsageError("OUT is a file: Parquet is not written to standard output")
    form = other_formats.format_of(source, form, table_format)
    query = RowQuery(
        columns,
        where,
        limit,
        union_by_name,
        partitioning,
        on_corrupt,
        page_size_limit,
        sidecar_folder,
        table_format,
    )
    delimiter = "\t" if delimiter == r"\t" else delimiter
    text = other_formats.Text(delimiter, not no_header, null, types)
    _check_options(source, form, text, query)
    rows, total = rows_of(source, form, text, query)
    check_is_other(source, form, rows.files, out)
    order = None if sort_by is None else column_names(rows.schema, sort_by)
    check_order(rows.schema, order or ())
    size = row_group_size or DEFAULT_ROW_GROUP_ROWS
    name = os.path.basename(out)
    said = placed(rows.annotations, rows.schema, {})
    with ParquetWriter(
        out,
        rows.schema,
        indexes=indexes,
        checkpoint_row_groups=checkpoint_row_groups,
        keep_unfinished=keep_unfinished,
        compression=compression,
        compression_level=compression_level,
        max_rows_per_page=max_rows_per_page or default_page_rows(indexes),
        annotations=said.fields,
        write_statistics=True if said.ordered is None else list(said.ordered),
    ) as writer:
        with terminal.progress("writing") as update:
            tables = _counted(rows.tables, name, total, update)
            if order:
                tables = in_order(tables, rows.schema, order, size)
            most = share(ROW_GROUP_BYTES, 8) if row_group_size is None else _ANY_BYTES
            for group in row_groups(iter(tables), size, most):
                writer.write_table(group, size)
        if indexes:
            with terminal.progress("indexing") as update:
                update(name, 0, None)
                writer.close()
    (report,) = list_indexes(out)
    if as_json:
        click.echo(json_text(report.to_dict()))
    click.echo(_summary_of(report), err=True)


def _check_options(source: str, form: str, text: other_formats.Text, query: RowQuery) -> None:
    """Raises ``UsageError`` for options that do not apply to the format."""
    is_of_csv = text.delimiter is not None or not text.has_header or text.null is not None
    if is_of_csv and form != "csv":
        raise click.UsageError(f"--delimiter, --no-header and --null are of CSV, not of {form}")
    if text.types and form not in ("csv", "json"):
        raise click.UsageError(f"--type is of CSV and JSON, not of {form}")
    if text.delimiter is not None and not (len(text.delimiter) == 1 and text.delimiter.isascii()):
        raise click.UsageError(f"--delimiter is one character of ASCII, not {text.delimiter!r}")
    of_parquet = {
        "--union-by-name": query.union_by_name,
        "--on-corrupt": query.on_corrupt,
        "--page-size-limit": query.page_size_limit,
        "--sidecar-folder": query.sidecar_folder,
    }
    for name, value in of_parquet.items():
        if value and form != "parquet":
            raise click.UsageError(f"{name} is of Parquet, not of {form}")
    if source == other_formats.STDIN and form == "parquet":
        raise click.UsageError("standard input is read with --from csv, json or arrow")


def _counted(
    tables: Iterable[pa.Table], name: str, total: int | None, update: terminal.Update
) -> Iterator[pa.Table]:
    """Yields ``tables``, and reports progress after each."""
    done = 0
    for table in tables:
        yield table
        done += table.num_rows
        update(name if total else f"{name}: {terminal.plural(done, 'row')}", done, total)


def _summary_of(report: IndexReport) -> str:
    """Returns a line about the written file."""
    sizes = [(entry.name, entry.length) for entry in report.indexes]
    sizes += [(own.name, own.bytes) for own in report.standard]
    parts = [
        f"{terminal.clean(name)} {size:,} bytes ({size / report.file_bytes:.1%})"
        for name, size in sizes
    ]
    return (
        f"{terminal.clean(report.path)}: {terminal.plural(report.rows, 'row')}, "
        f"{report.file_bytes:,} bytes; {', '.join(parts) or 'no index'}"
    )
