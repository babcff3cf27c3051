"""Types of Arrow's that engines do not have, and those that they are handed instead."""

from __future__ import annotations

import pyarrow as pa

from intarsia.data.dataset import Dataset
from intarsia.errors import IntarsiaError
from intarsia.predicate.casts import is_uuid
from intarsia.predicate.constants import UUID_BYTES
from intarsia.predicate.expression import field_paths, read_expression
from intarsia.predicate.functions import is_list
from intarsia.predicate.nested import leaf_pairs, with_children

_MOST_DIGITS = 38
"""Of engines' decimals."""


def with_uuids(data: Dataset) -> pa.Schema:
    """The schema of a data set, with UUIDs where its files say that 16 bytes are one.

    ``pyarrow.dataset`` has them as bytes. The first file that has the column is asked, as far as
    files can be opened.
    """
    schema = data.schema
    for at, field in enumerate(schema):
        if any(kind == UUID_BYTES for kind, _ in leaf_pairs(field.type, field.type)):
            schema = schema.set(at, field.with_type(_uuids_in(data, field)))
    return schema


def _uuids_in(data: Dataset, field: pa.Field) -> pa.DataType:
    for path in data.files:
        try:
            file = data._cache.get(path)
        except (IntarsiaError, OSError):  # of which the scan tells
            break
        root = file.schema.root(field.name)
        if root is not None and root.all_leaves:
            return _marked(field.type, file.arrow_type(root))
    return field.type


def _marked(kind: pa.DataType, stored: pa.DataType) -> pa.DataType:
    """A type with UUIDs where a file has them."""
    if kind == UUID_BYTES and is_uuid(stored):
        return stored
    if pa.types.is_struct(kind) and pa.types.is_struct(stored):
        types = {field.name: field.type for field in stored}
        fields = (f.with_type(_marked(f.type, types.get(f.name, f.type))) for f in kind)
        return pa.struct(list(fields))
    if pa.types.is_map(kind) and pa.types.is_map(stored):
        key, item = kind.key_field, kind.item_field
        key = key.with_type(_marked(key.type, stored.key_type))
        return pa.map_(key, item.with_type(_marked(item.type, stored.item_type)))
    if is_list(kind) and is_list(stored):
        return with_children(kind, lambda f: f.with_type(_marked(f.type, stored.value_type)))
    return kind


def as_in_duckdb(schema: pa.Schema) -> pa.Schema:
    """``schema`` in types that DuckDB takes: for others, those in which it reads Parquet's."""
    return pa.schema(map(_duckdb_field, schema), schema.metadata)


def as_in_polars(schema: pa.Schema) -> pa.Schema:
    """``schema`` in types that Polars takes."""
    return pa.schema(map(_polars_field, schema), schema.metadata)


def asks_of_other_types(data: Dataset, schema: pa.Schema) -> bool:
    """May the filter of a data set mean something else by ``schema``?"""
    wanted = data._scan_options.get("filter")
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
    return field.with_type(with_children(_narrowed(field.type), _polars_field))


def _narrowed(kind: pa.DataType) -> pa.DataType:
    """Decimals of 256 bits in 128 where their digits have room in them, else as doubles."""
    if not pa.types.is_decimal256(kind):
        return kind
    is_wide = kind.precision > _MOST_DIGITS
    return pa.float64() if is_wide else pa.decimal128(kind.precision, kind.scale)
