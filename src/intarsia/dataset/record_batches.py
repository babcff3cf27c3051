"""Batches of what was read, as engines can take them.

An Arrow array may be a slice: an offset into memory that it shares. Where a struct lies within such
a struct, or within such a list of fixed size, DuckDB 2.0 refuses the batch, and arrow-rs 59, which
DataFusion has, panics. These columns are copied.
"""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Iterable

import numpy as np
import pyarrow as pa

from intarsia.expr.filterable_types import taken
from intarsia.scan.integrity.oversized_pages import fitting


def batches_of(
    tables: Iterable[pa.Table], most_rows: int | None = None
) -> Generator[pa.RecordBatch]:
    """The rows of ``tables``, up to ``most_rows`` at a time."""
    for table in tables:
        for batch in table.to_batches(most_rows):
            for number, values in enumerate(batch.columns):
                if _is_misread(values):
                    batch = batch.set_column(number, batch.schema.field(number), copied(values))
            yield batch


def as_table(schema: pa.Schema, tables: Iterable[pa.Table]) -> pa.Table:
    """All rows of ``tables`` as one table."""
    if isinstance(tables, list) and len(tables) == 1:  # pyarrow's own scan, of flat columns
        return tables[0]
    return pa.Table.from_batches(list(batches_of(fitting(tables))), schema)


def or_empty(schema: pa.Schema, batches: Generator[pa.RecordBatch]) -> Generator[pa.RecordBatch]:
    """``batches``, or where there is none, one without rows, which tells their schema."""
    is_empty = True
    with contextlib.closing(batches):
        for batch in batches:
            is_empty = False
            yield batch
    if is_empty:
        yield empty_batch(schema)


def empty_batch(schema: pa.Schema) -> pa.RecordBatch:
    """A batch of no rows."""
    return pa.RecordBatch.from_arrays([pa.nulls(0, kind) for kind in schema.types], schema=schema)


def _is_misread(values: pa.Array) -> bool:
    """Is there a struct within a slice of structs, or of lists of fixed size?"""
    parts = _parts(values)
    if not parts:
        return False
    of_one_length = pa.types.is_struct(values.type) or pa.types.is_fixed_size_list(values.type)
    if values.offset and of_one_length and any(pa.types.is_struct(p.type) for p in parts):
        return True
    return any(map(_is_misread, parts))


def _parts(values: pa.Array) -> list[pa.Array]:
    """The arrays that a nested one is made of."""
    kind = values.type
    if isinstance(values, pa.ExtensionArray):
        return [values.storage]
    if not kind.num_fields:
        return []
    if pa.types.is_struct(kind):
        return [values.field(number) for number in range(kind.num_fields)]
    return [values.keys, values.items] if pa.types.is_map(kind) else [values.values]


def copied(values: pa.Array | pa.Table) -> pa.Array | pa.Table:
    """The same values, and no slice of others."""
    rows = pa.array(np.arange(len(values)))
    if isinstance(values, pa.Table):
        return taken(values, rows)
    return taken(pa.table([values], [""]), rows).column(0).combine_chunks()
