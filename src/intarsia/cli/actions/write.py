"""``intarsia write``: rows of any file as a Parquet file, or a folder of files, with indexes."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import click
import pyarrow as pa
import sqlglot
from pyarrow.dataset import WrittenFile
from sqlglot import exp

from intarsia.cli.column_names import column_names, split_names
from intarsia.cli.input import other_formats
from intarsia.cli.input.rows import (
    RowQuery,
    check_is_other,
    check_order,
    in_order,
    is_same_place,
    rows_of,
    with_schema,
)
from intarsia.cli.output import terminal
from intarsia.cli.output.json_document import json_text
from intarsia.errors import PathError, PredicateError
from intarsia.expr.casts import cast_type
from intarsia.expr.filterable_types import filterable_type
from intarsia.expr.nested_types import without_dictionary
from intarsia.indexing.add import IndexReport, list_indexes
from intarsia.memory import share
from intarsia.scan.parquet_file import open_file
from intarsia.writer.dataset import ExistingData, write_dataset
from intarsia.writer.defaults import DEFAULT_ROW_GROUP_ROWS
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
        kind = exp.DataType.build(text, dialect="duckdb")
        if kind.is_type("map") and len(kind.expressions) == 2:
            return pa.map_(*(_type(one.sql("duckdb")) for one in kind.expressions))
        return cast_type(kind)


def write(
    source: str,
    out: str,
    form: str | None,
    columns: str | None,
    where: str | None,
    limit: int | None,
    sort_by: str | None,
    partition_by: str | None,
    existing_data_behavior: ExistingData | None,
    max_rows_per_file: int | None,
    row_group_rows: int | None,
    rows_per_page: int | None,
    indexes: Sequence[str],
    compression: str | None,
    compression_level: int | None,
    checkpoint_row_groups: int | None,
    keep_unfinished: bool,
    delimiter: str | None,
    no_header: bool,
    null: str | None,
    types: Mapping[str, pa.DataType],
    schema_from: str | None,
    as_json: bool,
    **opening: Any,
) -> None:
    """Writes the rows of a source to a Parquet file, or to a folder of files.

    ``opening`` has arguments of ``dataset``.
    """
    if out == other_formats.STDIN:
        raise click.UsageError("OUT is a file: Parquet is not written to standard output")
    form = other_formats.format_of(source, form, opening["table_format"])
    keys = [] if partition_by is None else split_names(partition_by, "--partition-by")
    if schema_from is not None:
        if types:
            raise click.UsageError("--schema-from and --type exclude each other")
        if form in ("csv", "json"):
            types = _types_of_file(schema_from, form)
    delimiter = "\t" if delimiter == r"\t" else delimiter
    text = other_formats.Text(delimiter, not no_header, null, types)
    query = RowQuery(columns, where, limit, opening)
    _check_options(source, form, text, opening)
    rows, total = rows_of(source, form, text, query)
    if schema_from is not None:
        rows = with_schema(rows, source, schema_from, keys)
    is_replaced = existing_data_behavior in ("overwrite", "delete_matching")
    if not (is_replaced and is_same_place(source, out)):
        check_is_other(source, form, rows.files, out)
    order = [] if sort_by is None else column_names(rows.schema, sort_by)
    check_order(rows.schema, [*order, *keys])
    stored = pa.schema([field for field in rows.schema if field.name not in keys])
    said = placed(rows.annotations, stored, {})
    settings: dict[str, Any] = {
        "indexes": indexes or None,
        "checkpoint_row_groups": checkpoint_row_groups,
        "keep_unfinished": keep_unfinished,
        "compression_level": compression_level,
        "annotations": said.fields,
        "write_statistics": True if said.ordered is None else list(said.ordered),
    }
    if compression is not None:
        settings["compression"] = compression
    if rows_per_page is not None:
        settings["max_rows_per_page"] = rows_per_page
    name = os.path.basename(out.rstrip("/"))

    def tables(update: terminal.Update) -> Iterator[pa.Table]:
        counted = _counted(rows.tables, name, total, update)
        return in_order(counted, order) if order else counted

    if partition_by or existing_data_behavior or max_rows_per_file or out.endswith("/"):
        settings |= {
            "partition_by": keys,
            "sort_by": () if order else None,  # sorted already
            "existing_data_behavior": existing_data_behavior or "error",
            "max_rows_per_file": max_rows_per_file,
            "max_rows_per_group": row_group_rows,
        }
        _write_folder(tables, rows.schema, out, settings, as_json=as_json)
    else:
        _write_file(tables, rows.schema, out, row_group_rows, settings, as_json=as_json)


def _write_folder(
    tables: Callable[[terminal.Update], Iterator[pa.Table]],
    schema: pa.Schema,
    out: str,
    settings: Mapping[str, Any],
    *,
    as_json: bool,
) -> None:
    """Writes rows to a folder, and prints the number of new files, their rows and bytes."""
    files: list[WrittenFile] = []
    with terminal.progress("writing") as update:
        try:
            write_dataset(tables(update), out, schema=schema, file_visitor=files.append, **settings)
        except ValueError as error:
            if type(error) is not ValueError:
                raise
            raise PathError(f"{out}: cannot be written: {error}") from error
    rows = sum(file.metadata.num_rows for file in files)
    num_bytes = sum(file.size for file in files)
    if as_json:
        document = {"path": out, "files": len(files), "rows": rows, "file_bytes": num_bytes}
        click.echo(json_text(document))
    click.echo(
        f"{terminal.clean(out)}: {terminal.plural(rows, 'row')} in "
        f"{terminal.plural(len(files), 'file')}, {num_bytes:,} bytes",
        err=True,
    )


def _write_file(
    tables: Callable[[terminal.Update], Iterator[pa.Table]],
    schema: pa.Schema,
    out: str,
    row_group_rows: int | None,
    settings: Mapping[str, Any],
    *,
    as_json: bool,
) -> None:
    """Writes rows to a file, and prints a line about it."""
    size = row_group_rows or DEFAULT_ROW_GROUP_ROWS
    most = share(ROW_GROUP_BYTES, 8) if row_group_rows is None else _ANY_BYTES
    with ParquetWriter(out, schema, **settings) as writer:
        with terminal.progress("writing") as update:
            for group in row_groups(tables(update), size, most):
                writer.write_table(group, row_group_rows)
                del group  # frees it before the next one is made, or indexes are built
        if settings["indexes"]:
            with terminal.progress("indexing") as update:
                update(os.path.basename(out), 0, None)
                writer.close()
    (report,) = list_indexes(out)
    if as_json:
        click.echo(json_text(report.to_dict()))
    click.echo(_summary_of(report), err=True)


def _types_of_file(path: str, form: str) -> dict[str, pa.DataType]:
    """Returns the types in which text is read to become the columns of a Parquet file."""
    types = {field.name: field.type for field in open_file(path).schema_arrow}
    if form == "json":
        return types
    return {name: without_dictionary(filterable_type(kind)) for name, kind in types.items()}


def _check_options(
    source: str, form: str, text: other_formats.Text, opening: Mapping[str, Any]
) -> None:
    """Raises ``UsageError`` for options that do not apply to the format."""
    is_of_csv = text.delimiter is not None or not text.has_header or text.null is not None
    if is_of_csv and form != "csv":
        raise click.UsageError(f"--delimiter, --no-header and --null are of CSV, not of {form}")
    if text.types and form not in ("csv", "json"):
        raise click.UsageError(f"--type is of CSV and JSON, not of {form}")
    if text.delimiter is not None and not (len(text.delimiter) == 1 and text.delimiter.isascii()):
        raise click.UsageError(f"--delimiter is one character of ASCII, not {text.delimiter!r}")
    of_parquet = ("union_by_name", "on_corrupt", "page_size_limit", "sidecar")
    for argument in of_parquet:
        if opening[argument] and form != "parquet":
            option = "sidecar-folder" if argument == "sidecar" else argument.replace("_", "-")
            raise click.UsageError(f"--{option} is of Parquet, not of {form}")
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
