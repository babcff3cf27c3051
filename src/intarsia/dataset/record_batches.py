"""Record batches of tables, in a form that all engines can read.

An Arrow array may be a slice: an offset into memory that it shares. If a slice of structs, or of
lists of fixed size, contains structs, DuckDB 2.0 refuses the batch. arrow-rs 59, which DataFusion
uses, panics. So these columns are copied.
"""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Iterable

import numpy as np
import pyarrow as pa

from intarsia.expr.filterable_types import taken
from intarsia.scan.integrity.oversized_pages import fitting

BATCH_ROWS = 131_072
"""Usual maximum rows of a record batch: that of pyarrow's scanners."""

_EXTENSION = pa.BaseExtensionType


def batches_of(
    tables: Iterable[pa.Table], max_rows: int | None = None
) -> Generator[pa.RecordBatch]:
    """Yields the rows of ``tables``, at most ``max_rows`` at a time."""
    for table in tables:
        kinds = enumerate(table.schema.types)
        numbers = [i for i, kind in kinds if kind.num_fields or isinstance(kind, _EXTENSION)]
        for batch in table.to_batches(max_rows):
            for number in numbers:
                values = batch.column(number)
                if _is_misread(values):
                    batch = batch.set_column(number, batch.schema.field(number), copied(values))
            yield batch


def as_table(schema: pa.Schema, tables: Iterable[pa.Table]) -> pa.Table:
    """Returns all rows of ``tables`` as one table."""
    if (
        isinstance(tables, list) and len(tables) == 1
    ):  # as pyarrow's own scan of flat columns gives it
        return tables[0]
    return pa.Table.from_batches(list(batches_of(fitting(tables))), schema)


def or_empty_batch(
    schema: pa.Schema, batches: Generator[pa.RecordBatch]
) -> Generator[pa.RecordBatch]:
    """Yields ``batches``. If there is none, yields one without rows, which has the schema."""
    is_empty = True
    with contextlib.closing(batches):
        for batch in batches:
            is_empty = False
            yield batch
    if is_empty:
        yield empty_batch(schema)


def empty_batch(schema: pa.Schema) -> pa.RecordBatch:
    """Returns a batch without rows."""
    return pa.RecordBatch.from_arrays([pa.nulls(0, kind) for kind in schema.types], schema=schema)


def _is_misread(values: pa.Array) -> bool:
    """True if a slice of structs, or of lists of fixed size, contains a struct."""
    parts = _parts(values)
    if not parts:
        return False
    of_one_length = pa.types.is_struct(values.type) or pa.types.is_fixed_size_list(values.type)
    if values.offset and of_one_length and any(pa.types.is_struct(p.type) for p in parts):
        return True
    return any(map(_is_misread, parts))


def _parts(values: pa.Array) -> list[pa.Array]:
    """Returns the child arrays of a nested array."""
    kind = values.type
    if isinstance(values, pa.ExtensionArray):
        return [values.storage]
    if not kind.num_fields:
        return []
    if pa.types.is_struct(kind):
        return [values.field(number) for number in range(kind.num_fields)]
    return [values.keys, values.items] if pa.types.is_map(kind) else [values.values]


def copied(values: pa.Array | pa.Table) -> pa.Array | pa.Table:
    """Returns the same values in memory of their own."""
    rows = pa.array(np.arange(len(values)))
    if isinstance(values, pa.Table):
        return taken(values, rows)
    return taken(pa.table([values], [""]), rows).column(0).combine_chunks()
