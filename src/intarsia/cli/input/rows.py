"""The rows that ``write`` writes: read from files, filtered, limited and sorted."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import click
import pyarrow as pa

from intarsia.cli.column_names import column_names
from intarsia.cli.input import other_formats
from intarsia.cli.input.other_formats import Incoming
from intarsia.cli.output import terminal
from intarsia.dataset.discovery import dataset
from intarsia.dataset.request_builder import check_columns, confuses_pyarrow, fields_at, paths_of
from intarsia.errors import PathError, PredicateError, first_duplicate, unknown_column
from intarsia.expr.evaluate import evaluate
from intarsia.expr.filterable_types import filterable_schema, restorer_of
from intarsia.io.external_sort import Workspace
from intarsia.io.glob import HIDDEN, is_glob, means
from intarsia.io.storage import resolve
from intarsia.scan.parquet_file import open_file
from intarsia.scan.request import without_rows
from intarsia.scan.scan import limited
from intarsia.sql.where_clause import parse_where
from intarsia.threads import run_io_tasks
from intarsia.writer.input_rows import input_rows
from intarsia.writer.row_sorting import sorted_tables
from intarsia.writer.type_annotations import Annotations, agreed_where_possible, annotations_of

_AHEAD = {"batch_readahead": 4, "fragment_readahead": 2}
"""Read ahead less than pyarrow's scan does by default, to save memory."""


class RowQuery(NamedTuple):
    """The rows and columns to write, and how Parquet files are opened."""

    columns: str | None
    where: str | None
    limit: int | None
    opening: Mapping[str, Any]
    """Arguments of ``dataset``."""


def rows_of(
    source: str, form: str, text: other_formats.Text, query: RowQuery
) -> tuple[Incoming, int | None]:
    """Returns the rows, and how many there are if a terminal shows progress and footers tell.

    Raises ``UsageError`` for two columns of one name, and for a column called ``__filename``.
    """
    count = None
    if form == "parquet":
        rows, count = _of_data_set(source, query)
    else:
        others = other_formats.read(source, form, text, query.opening["table_format"])
        rows = _of_others(others, query)
    names = rows.schema.names
    if confuses_pyarrow(rows.schema):
        raise click.UsageError("pyarrow reads no file with a column that is called __filename")
    twice = first_duplicate(names)
    if twice is not None:
        raise click.UsageError(f"two columns are called {twice}: one of them can be written")
    if query.limit is not None:
        rows = rows._replace(tables=limited(rows.tables, query.limit))
    return rows, count


def _of_data_set(source: str, query: RowQuery) -> tuple[Incoming, int | None]:
    data = dataset(source, **query.opening)
    names = column_names(data.schema, query.columns)
    filter_ = None if query.where is None else parse_where(query.where, data.schema)
    schema = data.head(0, names, filter_).schema
    count = None
    if filter_ is None and terminal.errors.is_terminal:
        num_rows = data.count_rows()
        count = num_rows if query.limit is None else min(num_rows, query.limit)

    def tables() -> Iterator[pa.Table]:
        for batch in data.to_batches(names, filter_, **_AHEAD):
            table = pa.Table.from_batches([batch])
            yield table if table.schema.equals(schema) else table.cast(schema)

    counts, chosen = Counter(schema.names), set(names)
    whole = [name for name in schema.names if name in chosen and counts[name] == 1]
    own = pa.schema([schema.field(name) for name in whole])
    return Incoming(schema, tables(), data.files, _annotations(source, data.files, own)), count


def _annotations(source: str, files: Sequence[str], schema: pa.Schema) -> Annotations:
    """Returns annotations that all ``files`` have in common, for columns of ``schema``."""
    on, _ = resolve(source)

    def of(file: str) -> tuple[pa.Schema, Annotations]:
        opened = open_file(file, on)
        return opened.schema_arrow, annotations_of(opened.schema)

    return agreed_where_possible([*run_io_tasks(partial(of, file) for file in files)], schema)


def _of_others(rows: Incoming, query: RowQuery) -> Incoming:
    """Returns the selected rows and columns of ``rows``."""
    names = column_names(rows.schema, query.columns)
    check_columns(rows.schema, names)
    plain, give = filterable_schema(rows.schema), restorer_of(rows.schema)
    paths = paths_of(plain, names)
    for path in paths:
        if path[0] not in plain.names:
            raise PredicateError(f"column {path[0]!r} is given by scans of Parquet only")
    filter_ = None if query.where is None else parse_where(query.where, rows.schema)

    def picked(table: pa.Table) -> pa.Table:
        table = table if table.schema.equals(plain) else table.cast(plain)
        if filter_ is not None:
            table = evaluate(filter_, table)
        return give(fields_at(paths, plain, table))

    return rows._replace(schema=picked(without_rows(plain)).schema, tables=map(picked, rows.tables))


def with_schema(rows: Incoming, source: str, schema_from: str, added: Sequence[str]) -> Incoming:
    """Returns the rows of ``source`` in the columns and types of the Parquet file ``schema_from``.

    Columns called ``added`` stay as they are, after these, if the file lacks them. Raises
    ``FormatError`` if other columns differ.
    """
    file = open_file(schema_from)
    own = file.schema_arrow
    more = [field for field in rows.schema if field.name in added and field.name not in own.names]
    schema = pa.schema([*own, *more], rows.schema.metadata)
    other_formats.check_same_columns(source, rows.schema, schema_from, schema)
    _, tables = input_rows(rows.tables, schema)
    return rows._replace(schema=schema, tables=tables, annotations=annotations_of(file.schema))


def check_order(schema: pa.Schema, names: Sequence[str]) -> None:
    """Raises ``PredicateError`` for a name that is not a column to be written."""
    for name in names:
        if name not in schema.names:
            raise unknown_column(name, schema.names)


def in_order(tables: Iterable[pa.Table], names: Sequence[str]) -> Iterator[pa.Table]:
    """Yields the rows sorted by columns, NULL last. Many rows are sorted on disk."""
    with Workspace() as work:
        yield from sorted_tables(iter(tables), names, work)


def check_is_other(source: str, form: str, files: Sequence[str], out: str) -> None:
    """Raises ``PathError`` if the file ``out`` is, or would be, one of the files that are read."""
    if source == other_formats.STDIN:
        return
    (on, path), (target_on, target) = resolve(source), resolve(out)
    if not on.equals(target_on):
        return
    place = os.path.realpath(target)
    if any(os.path.realpath(file) == place for file in files):
        raise PathError(f"{out}: rows are read from this file, which is not to be changed")
    is_read = form == "parquet" or other_formats.format_of_name(out) == form
    if is_read and _is_within(path, place):
        raise PathError(
            f"{out}: it would be one of the files of {source}, and its rows there twice"
        )


def is_same_place(source: str, out: str) -> bool:
    """True if both are one local folder, or one path of the same storage."""
    if source == other_formats.STDIN:
        return False
    (on, path), (target_on, target) = resolve(source), resolve(out)
    return bool(on.equals(target_on)) and os.path.realpath(path) == os.path.realpath(target)


def _is_within(source: str, place: str) -> bool:
    """True if a local file at ``place`` would be one of the files of the path ``source``."""
    if is_glob(source) and not os.path.exists(source):
        parts = Path(source).parts
        first = next(number for number, part in enumerate(parts) if is_glob(part))
        base = os.path.realpath(Path(*parts[:first]))  # there may be links on the way
        pattern = os.path.join(base, *parts[first:])
        return any(means(pattern, str(one)) for one in (place, *Path(place).parents))
    below = Path(place)
    folder = Path(os.path.realpath(source))
    if not folder.is_dir() or not below.is_relative_to(folder):
        return False
    return not any(part.startswith(HIDDEN) for part in below.relative_to(folder).parts)
