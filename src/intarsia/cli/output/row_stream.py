"""Rows of any number on stdout, as CSV or JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import click
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv

from intarsia.cli.output.json_document import jsonable
from intarsia.control_characters import shown_in_json
from intarsia.errors import first_duplicate
from intarsia.expr.casts import is_uuid
from intarsia.expr.constants import DECIMALS
from intarsia.expr.nested_types import without_dictionary
from intarsia.expr.scalar_format import readable_values

Print = Callable[[Iterable[pa.RecordBatch]], None]

_BYTES = (
    pa.types.is_binary,
    pa.types.is_large_binary,
    pa.types.is_fixed_size_binary,
    pa.types.is_binary_view,
)
_AS_IN_JSON = (pa.types.is_integer, pa.types.is_boolean, pa.types.is_string)
_YEARS = 30_000
"""Years around 1970 that pyarrow's calendar covers, roughly."""
_LINES = 10_000
"""Rows of JSON that are printed at a time."""


def printer(form: str, schema: pa.Schema, names: Sequence[str]) -> Print:
    """Returns a function that prints rows as ``csv`` or ``json``, which ``form`` says."""
    return csv(schema) if form == "csv" else json_lines(schema, names)


def csv(schema: pa.Schema) -> Print:
    """Returns a function that prints rows as CSV.

    Raises ``UsageError`` for columns that CSV cannot hold. The function raises it for timestamps
    beyond the calendar.
    """
    flat = _flat(schema)

    def print_rows(batches: Iterable[pa.RecordBatch]) -> None:
        with pacsv.CSVWriter(sys.stdout.buffer, flat) as writer:
            for batch in batches:
                for column in batch.columns:
                    _check_moments(column)
                writer.write_batch(_with_uuids_as_text(batch).cast(flat))

    return print_rows


def json_lines(schema: pa.Schema, paths: Sequence[str]) -> Print:
    """Returns a function that prints rows as JSON, an object a line.

    Columns of one name are printed by their ``paths``. Raises ``UsageError`` if these are equal.
    """
    names = schema.names if len(set(schema.names)) == len(schema) else list(paths)
    twice = first_duplicate(names)
    if twice is not None:
        raise click.UsageError(f"two columns are called {twice}: --format csv can print them")
    encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False).encode

    def print_rows(batches: Iterable[pa.RecordBatch]) -> None:
        for batch in batches:
            for start in range(0, batch.num_rows, _LINES):
                columns = map(_jsonables, batch.slice(start, _LINES).columns)
                rows = (dict(zip(names, r, strict=True)) for r in zip(*columns, strict=True))
                click.echo(shown_in_json("\n".join(map(encode, rows))))

    return print_rows


def _flat(schema: pa.Schema) -> pa.Schema:
    """Returns the columns in types that pyarrow can write as CSV."""
    fields = []
    for field in schema:
        kind = pa.string() if is_uuid(field.type) else field.type
        if isinstance(kind, pa.BaseExtensionType):
            kind = kind.storage_type
        plain = without_dictionary(kind)
        is_bytes = any(check(plain) for check in _BYTES)
        if is_bytes or pa.types.is_nested(kind):
            what = "bytes" if is_bytes else "nested"
            raise click.UsageError(f"column {field.name} is {what}: --format json can print it")
        fields.append(field.with_type(pa.large_string() if pa.types.is_string_view(kind) else kind))
    return pa.schema(fields)


def _with_uuids_as_text(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Replaces UUIDs by strings. pyarrow would cast their bytes."""
    for number, field in enumerate(batch.schema):
        if is_uuid(field.type):
            texts = [None if one is None else str(one) for one in batch.column(number).to_pylist()]
            batch = batch.set_column(number, field.name, pa.array(texts, pa.string()))
    return batch


def _check_moments(column: pa.Array) -> None:
    """Raises ``UsageError`` for timestamps beyond pyarrow's calendar, which it prints wrongly."""
    if not pa.types.is_timestamp(column.type):
        return
    limit = _YEARS * 365 * 86_400 * 10 ** DECIMALS[column.type.unit]
    low, high = pc.min_max(column.cast(pa.int64())).as_py().values()
    if low is not None and (low < -limit or high > limit):
        raise click.UsageError("moments are beyond the calendar: --format json can print them")


def _jsonables(column: pa.Array) -> list[Any]:
    """Returns values in types of JSON."""
    values, kind = readable_values(column), column.type
    is_finite = pa.types.is_floating(kind) and pc.all(pc.is_finite(column), min_count=0).as_py()
    if is_finite or any(check(kind) for check in _AS_IN_JSON):
        return values
    return [jsonable(value) for value in values]
