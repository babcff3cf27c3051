"""Nested Arrow types: structs, lists, maps and dictionaries."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc

Path = tuple[str, ...]
"""The name of a column, followed by the names of struct fields below it."""


def nullable(field: pa.Field) -> pa.Field:
    """Returns ``field`` with NULL allowed at every level, except for keys of maps."""
    return field.with_nullable(True).with_type(with_children(field.type, nullable))


def with_children(kind: pa.DataType, change: Callable[[pa.Field], pa.Field]) -> pa.DataType:
    """Returns a nested type with ``change`` applied to its children; any other type unchanged."""
    if pa.types.is_struct(kind):
        return pa.struct([change(field) for field in kind.fields])
    if pa.types.is_map(kind):
        key = change(kind.key_field).with_nullable(False)
        return pa.map_(key, change(kind.item_field))
    if pa.types.is_list(kind):
        return pa.list_(change(kind.value_field))
    if pa.types.is_large_list(kind):
        return pa.large_list(change(kind.value_field))
    if pa.types.is_fixed_size_list(kind):
        return pa.list_(change(kind.value_field), kind.list_size)
    return kind


def type_at(fields: pa.Schema | pa.StructType, path: Sequence[str]) -> pa.DataType | None:
    """Returns the type of a column, or of a struct's field, by its path.

    Returns None if the path names no field, or more than one.
    """
    name, *rest = path
    positions = fields.get_all_field_indices(name)
    return type_within(fields.field(positions[0]).type, rest) if len(positions) == 1 else None


def type_within(kind: pa.DataType, path: Sequence[str]) -> pa.DataType | None:
    """Returns the type of a struct's field by its path. For an empty path, that is ``kind``."""
    if not path:
        return kind
    return type_at(kind, path) if pa.types.is_struct(kind) else None


def column_at(table: pa.Table, path: Sequence[str]) -> pa.ChunkedArray:
    """Returns a column, or the values of a struct's field, by its path."""
    name, *rest = path
    column = table.column(name)
    return pc.struct_field(column, rest) if rest else column


def leaf_pairs(kind: pa.DataType, wide: pa.DataType) -> Iterator[tuple[pa.DataType, pa.DataType]]:
    """Yields each type in ``kind`` that is not nested, with its counterpart in ``wide``.

    ``wide`` has the same structure, and may have more struct fields.
    """
    if pa.types.is_null(kind) or not pa.types.is_nested(kind):
        yield kind, wide
    elif pa.types.is_struct(kind):
        for field in kind.fields:
            yield from leaf_pairs(field.type, wide.field(field.name).type)
    elif pa.types.is_map(kind):
        yield from leaf_pairs(kind.key_type, wide.key_type)
        yield from leaf_pairs(kind.item_type, wide.item_type)
    else:
        yield from leaf_pairs(kind.value_type, wide.value_type)


def without_dictionary(kind: pa.DataType) -> pa.DataType:
    """Returns the value type of a dictionary type; any other type unchanged."""
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def has_dictionary(kind: pa.DataType) -> bool:
    """True if ``kind`` is or contains a dictionary type, at any depth."""
    return holds(kind, pa.types.is_dictionary)


def has_map(kind: pa.DataType) -> bool:
    """True if ``kind`` is or contains a map type, at any depth."""
    return holds(kind, pa.types.is_map)


def holds(kind: pa.DataType, predicate: Callable[[pa.DataType], bool]) -> bool:
    """True if ``predicate`` is true for ``kind`` or a type within it, at any depth."""
    if isinstance(kind, pa.BaseExtensionType):
        kind = kind.storage_type
    children = (kind.field(number).type for number in range(kind.num_fields))
    return predicate(kind) or any(holds(child, predicate) for child in children)


def whole_maps(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """Returns ``values`` with each chunk of maps copied, so that it is no slice of longer arrays.

    pyarrow's casts of a sliced map array leave keys and values at different offsets. Its
    ``map_lookup`` then pairs them wrongly: it returns the values of other keys.
    """
    if not has_map(values.type):
        return values
    return pa.chunked_array([pa.concat_arrays([chunk]) for chunk in values.chunks], values.type)


def with_whole_maps(table: pa.Table) -> pa.Table:
    """Returns ``table`` with ``whole_maps`` applied to each column that holds maps."""
    for number, field in enumerate(table.schema):
        if has_map(field.type):
            table = table.set_column(number, field, whole_maps(table.column(number)))
    return table


def leaves(kind: pa.DataType) -> list[pa.DataType]:
    """Returns the types of a type's leaves; a list of just the type itself if it is not nested."""
    if not pa.types.is_nested(kind):
        return [kind]
    return [leaf for i in range(kind.num_fields) for leaf in leaves(kind.field(i).type)]
