"""Types of Arrow's that engines do not have, and those that they are handed instead."""

from __future__ import annotations

import pyarrow as pa

from intarsia.dataset.dataset import Dataset
from intarsia.expr.casts import without_extension
from intarsia.expr.nested_types import with_children
from intarsia.expr.tree import field_paths, read_expression

_MOST_DIGITS = 38
"""Of engines' decimals."""


def as_in_duckdb(schema: pa.Schema) -> pa.Schema:
    """``schema`` in types that DuckDB takes: for others, those in which it reads Parquet's."""
    return pa.schema(map(_duckdb_field, schema), schema.metadata)


def as_in_polars(schema: pa.Schema) -> pa.Schema:
    """``schema`` in types that Polars takes."""
    return pa.schema(map(_polars_field, schema), schema.metadata)


def asks_of_other_types(data: Dataset, schema: pa.Schema) -> bool:
    """May the filter of a data set mean something else by ``schema``?"""
    wanted = data.scan_source.filter
    if wanted is None:
        return False
    used = field_paths(read_expression(wanted))
    names = data.schema.names if used is None else [path[0] for path in used]
    return any(data.schema.field(name).type != schema.field(name).type for name in names)


def _duckdb_field(field: pa.Field) -> pa.Field:
    if pa.types.is_float16(field.type):
        return field.with_type(pa.float32())
    return field.with_type(with_children(_narrowed(field.type), _duckdb_field))


def _polars_field(field: pa.Field) -> pa.Field:
    kind = without_extension(field.type)  # Polars compares no JSON with strings
    return field.with_type(with_children(_narrowed(kind), _polars_field))


def _narrowed(kind: pa.DataType) -> pa.DataType:
    """Decimals of 256 bits in 128 where their digits have room in them, else as doubles."""
    if not pa.types.is_decimal256(kind):
        return kind
    is_wide = kind.precision > _MOST_DIGITS
    return pa.float64() if is_wide else pa.decimal128(kind.precision, kind.scale)
