"""The types in which pyarrow filters and compares values.

pyarrow does not filter or take rows of string and byte views. It does not compare UUIDs, JSON or
16-bit floats. Columns of these types are read in other types, and returned in their own.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from intarsia.expr.casts import without_extension
from intarsia.expr.nested_types import whole_maps, with_children, with_whole_maps

VIEWED = {pa.string_view(): pa.large_string(), pa.binary_view(): pa.large_binary()}
"""View types, and the types that hold strings or bytes of the same length."""
_REPLACEMENTS = {**VIEWED, pa.float16(): pa.float32()}
"""Types that pyarrow does not filter or compare, and types that hold the same values."""


def filterable_type(kind: pa.DataType) -> pa.DataType:
    """Returns a type that pyarrow filters: ``kind`` without views, UUIDs, JSON and float16.

    These are replaced at any depth.
    """
    if kind.id not in _MAY_CHANGE:
        return kind
    kind = without_extension(kind)
    if isinstance(kind, pa.BaseExtensionType):  # registered by the user; it may have no hash
        return kind
    if kind in _REPLACEMENTS:
        return _REPLACEMENTS[kind]
    return with_children(kind, lambda field: field.with_type(filterable_type(field.type)))


_MAY_CHANGE = {
    kind.id
    for kind in (
        *_REPLACEMENTS,
        pa.uuid(),
        pa.struct([]),
        pa.map_(pa.string(), pa.null()),
        pa.list_(pa.null()),
        pa.large_list(pa.null()),
        pa.list_(pa.null(), 1),
    )
}


def filterable_schema(schema: pa.Schema) -> pa.Schema:
    """Returns ``schema`` with each field in its ``filterable_type``."""
    if _MAY_CHANGE.isdisjoint([kind.id for kind in schema.types]):
        return schema
    fields = [field.with_type(filterable_type(field.type)) for field in schema]
    return pa.schema(fields, schema.metadata)


def restorer_of(schema: pa.Schema) -> Callable[[pa.Table], pa.Table]:
    """Returns a function that gives tables the types and the metadata of ``schema`` again."""
    changed = {
        field.name: field
        for field in schema
        if field.type.id in _MAY_CHANGE and filterable_type(field.type) != field.type
    }

    def restore(table: pa.Table) -> pa.Table:
        if not table.num_columns:  # a table without columns would lose its row count
            rows = table.append_column("", pa.nulls(table.num_rows))
            return rows.replace_schema_metadata(schema.metadata).select([])
        for number, field in enumerate(table.schema if changed else ()):
            original = changed.get(field.name)
            if original is not None and filterable_type(original.type) == field.type:
                values = whole_maps(table.column(number)).cast(original.type)
                table = table.set_column(number, original, values)
        return table.replace_schema_metadata(schema.metadata)

    return restore


def taken(table: pa.Table, rows: pa.Array) -> pa.Table:
    """Returns rows of a table as ``Table.take`` does, but also for views."""
    schema = table.schema
    filterable = filterable_schema(schema)
    if filterable is schema or filterable.equals(schema):
        return table.take(rows)
    return with_whole_maps(table).cast(filterable).take(rows).cast(schema)
