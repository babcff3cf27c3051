"""Arrow's views of texts and bytes, which pyarrow neither takes nor filters: as large ones."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from intarsia.predicate.nested import with_children

VIEWED = {pa.string_view(): pa.large_string(), pa.binary_view(): pa.large_binary()}
"""Views, and types of as many characters or bytes."""


def without_views(kind: pa.DataType) -> pa.DataType:
    """``kind``, or where there are views in it, one that holds the same without."""
    if kind.id not in _MAY_HOLD_VIEWS:
        return kind
    if kind in VIEWED:
        return VIEWED[kind]
    return with_children(kind, lambda field: field.with_type(without_views(field.type)))


_MAY_HOLD_VIEWS = {
    kind.id
    for kind in (
        *VIEWED,
        pa.struct([]),
        pa.map_(pa.string(), pa.null()),
        pa.list_(pa.null()),
        pa.large_list(pa.null()),
        pa.list_(pa.null(), 1),
    )
}


def schema_without_views(schema: pa.Schema) -> pa.Schema:
    """``schema`` with the types of its fields ``without_views``."""
    if not any(kind.id in _MAY_HOLD_VIEWS for kind in schema.types):
        return schema
    fields = [field.with_type(without_views(field.type)) for field in schema]
    return pa.schema(fields, schema.metadata)


def giver_of(schema: pa.Schema) -> Callable[[pa.Table], pa.Table]:
    """What gives tables the metadata of ``schema``, and views again where that has them."""
    viewed = {field.name: field for field in schema if without_views(field.type) != field.type}

    def give(table: pa.Table) -> pa.Table:
        if not table.num_columns:  # whose rows would be forgotten
            rows = table.append_column("", pa.nulls(table.num_rows))
            return rows.replace_schema_metadata(schema.metadata).select([])
        for number, field in enumerate(table.schema if viewed else ()):
            own = viewed.get(field.name)
            if own is not None and without_views(own.type) == field.type:
                table = table.set_column(number, own, table.column(number).cast(own.type))
        return table.replace_schema_metadata(schema.metadata)

    return give


def taken(table: pa.Table, rows: pa.Array) -> pa.Table:
    """As ``Table.take``, of views as well."""
    schema = table.schema
    plain = schema_without_views(schema)
    if plain is schema or plain.equals(schema):
        return table.take(rows)
    return table.cast(plain).take(rows).cast(schema)
