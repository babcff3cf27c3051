"""Arrow's views of texts and bytes, which pyarrow neither takes nor filters: as large ones."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

VIEWED = {pa.string_view(): pa.large_string(), pa.binary_view(): pa.large_binary()}
"""Views, and types of as many characters or bytes."""


def without_views(kind: pa.DataType) -> pa.DataType:
    """``kind``, or where there are views in it, one that holds the same without."""
    if kind.id not in _MAY_HOLD_VIEWS:
        return kind
    if kind in VIEWED:
        return VIEWED[kind]
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(without_views(field.type)) for field in kind])
    if pa.types.is_map(kind):
        key, item = kind.key_field, kind.item_field
        return pa.map_(
            key.with_type(without_views(key.type)), item.with_type(without_views(item.type))
        )
    for is_kind, of in _LISTS:
        if is_kind(kind):
            return of(kind.value_field.with_type(without_views(kind.value_type)))
    if pa.types.is_fixed_size_list(kind):
        held = kind.value_field.with_type(without_views(kind.value_type))
        return pa.list_(held, kind.list_size)
    return kind


_LISTS: tuple[tuple[Callable[[pa.DataType], bool], Callable[[pa.Field], pa.DataType]], ...] = (
    (pa.types.is_list, pa.list_),
    (pa.types.is_large_list, pa.large_list),
)
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
    fields = [field.with_type(without_views(field.type)) for field in schema]
    return pa.schema(fields, schema.metadata)


def giver_of(schema: pa.Schema) -> Callable[[pa.Table], pa.Table]:
    """What gives tables the metadata of ``schema``, and views again where that has them."""
    viewed = {field.name: field for field in schema if without_views(field.type) != field.type}

    def give(table: pa.Table) -> pa.Table:
        if not table.num_columns:  # whose rows would be forgotten
            return table
        for number, field in enumerate(table.schema if viewed else ()):
            own = viewed.get(field.name)
            if own is not None and without_views(own.type) == field.type:
                table = table.set_column(number, own, table.column(number).cast(own.type))
        return table.replace_schema_metadata(schema.metadata)

    return give


def taken(table: pa.Table, rows: pa.Array) -> pa.Table:
    """As ``Table.take``, of views as well."""
    plain = schema_without_views(table.schema)
    if plain.equals(table.schema):
        return table.take(rows)
    return table.cast(plain).take(rows).cast(table.schema)
