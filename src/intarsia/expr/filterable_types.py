"""The types in which pyarrow filters and compares values.

pyarrow neither takes nor filters views of strings and bytes, and compares no UUIDs, no JSON and no
floats of 16 bits.
These columns are read in other types, and given back in their own.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from intarsia.expr.casts import without_extension
from intarsia.expr.nested_types import whole_maps, with_children, with_whole_maps

VIEWED = {pa.string_view(): pa.large_string(), pa.binary_view(): pa.large_binary()}
"""Views, and types of as many characters or bytes."""
_INSTEAD = {**VIEWED, pa.float16(): pa.float32()}
"""Types that pyarrow does not filter or compare, and those that hold the same values."""


def filterable_type(kind: pa.DataType) -> pa.DataType:
    """Returns ``kind`` with views, UUIDs, JSON and float16 in types that pyarrow filters.

    They may be at any depth.
    """
    if kind.id not in _MAY_CHANGE:
        return kind
    kind = without_extension(kind)
    if isinstance(kind, pa.BaseExtensionType):  # a user's own, which may have no hash
        return kind
    if kind in _INSTEAD:
        return _INSTEAD[kind]
    return with_children(kind, lambda field: field.with_type(filterable_type(field.type)))


_MAY_CHANGE = {
    kind.id
    for kind in (
        *_INSTEAD,
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
    if not any(kind.id in _MAY_CHANGE for kind in schema.types):
        return schema
    fields = [field.with_type(filterable_type(field.type)) for field in schema]
    return pa.schema(fields, schema.metadata)


def restorer_of(schema: pa.Schema) -> Callable[[pa.Table], pa.Table]:
    """Returns a function that gives tables the types and the metadata of ``schema`` again."""
    changed = {field.name: field for field in schema if filterable_type(field.type) != field.type}

    def restore(table: pa.Table) -> pa.Table:
        if not table.num_columns:  # whose rows would be forgotten
            rows = table.append_column("", pa.nulls(table.num_rows))
            return rows.replace_schema_metadata(schema.metadata).select([])
        for number, field in enumerate(table.schema if changed else ()):
            own = changed.get(field.name)
            if own is not None and filterable_type(own.type) == field.type:
                values = whole_maps(table.column(number)).cast(own.type)
                table = table.set_column(number, own, values)
        return table.replace_schema_metadata(schema.metadata)

    return restore


def taken(table: pa.Table, rows: pa.Array) -> pa.Table:
    """As ``Table.take``, of views as well."""
    schema = table.schema
    plain = filterable_schema(schema)
    if plain is schema or plain.equals(schema):
        return table.take(rows)
    return with_whole_maps(table).cast(plain).take(rows).cast(schema)
