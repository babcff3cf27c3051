"""Arrow types that engines lack, and the types that they get instead."""

from __future__ import annotations

import pyarrow as pa

from intarsia.dataset.dataset import Dataset
from intarsia.expr.casts import without_extension
from intarsia.expr.nested_types import with_children
from intarsia.expr.tree import field_paths, read_expression

_MAX_DIGITS = 38
"""The most decimal digits of engines' decimals."""


def as_in_duckdb(schema: pa.Schema) -> pa.Schema:
    """Returns ``schema`` in types that DuckDB has: those in which it reads Parquet files."""
    return pa.schema(map(_duckdb_field, schema), schema.metadata)


def as_in_polars(schema: pa.Schema) -> pa.Schema:
    """Returns ``schema`` in types that Polars has."""
    return pa.schema(map(_polars_field, schema), schema.metadata)


def filters_by_other_types(data: Dataset, schema: pa.Schema) -> bool:
    """True if a data set's own filter uses columns whose types differ in ``schema``."""
    condition = data.scan_source.filter
    if condition is None:
        return False
    used = field_paths(read_expression(condition))
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
    """Returns 128 bits for decimals of 256 bits if their digits fit, else doubles."""
    if not pa.types.is_decimal256(kind):
        return kind
    is_wide = kind.precision > _MAX_DIGITS
    return pa.float64() if is_wide else pa.decimal128(kind.precision, kind.scale)
