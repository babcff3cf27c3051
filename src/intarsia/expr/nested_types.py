"""Types within types."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc

Path = tuple[str, ...]
"""The names that lead to a column, or on to a field of a struct."""


def nullable(field: pa.Field) -> pa.Field:
    """``field`` with NULL allowed at every level, but for keys of maps."""
    return field.with_nullable(True).with_type(with_children(field.type, nullable))


def with_children(kind: pa.DataType, change: Callable[[pa.Field], pa.Field]) -> pa.DataType:
    """A nested type with ``change`` made to its children; any other as it is."""
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


def type_at(fields: Iterable[pa.Field], path: Sequence[str]) -> pa.DataType | None:
    """The type of a column, or of a struct's field, by its path; None where there is not one."""
    name, *rest = path
    found = [field.type for field in fields if field.name == name]
    if len(found) != 1 or not rest:
        return found[0] if len(found) == 1 else None
    return type_at(found[0], rest) if pa.types.is_struct(found[0]) else None


def column_at(table: pa.Table, path: Sequence[str]) -> pa.ChunkedArray:
    """A column, or the values of a struct's field, by its path."""
    name, *rest = path
    column = table.column(name)
    return pc.struct_field(column, rest) if rest else column


def leaf_pairs(kind: pa.DataType, wide: pa.DataType) -> Iterator[tuple[pa.DataType, pa.DataType]]:
    """All in ``kind`` that is not nested, and what there is of ``wide``, which has the same."""
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
    """The type of the values of a dictionary; any other type as it is."""
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def has_dictionary(kind: pa.DataType) -> bool:
    """Is there a dictionary in ``kind``, however deep?"""
    return holds(kind, pa.types.is_dictionary)


def has_map(kind: pa.DataType) -> bool:
    """Is there a map in ``kind``, however deep?"""
    return holds(kind, pa.types.is_map)


def holds(kind: pa.DataType, is_one: Callable[[pa.DataType], bool]) -> bool:
    """True if ``kind``, or a type in it, is one that ``is_one`` holds for."""
    if isinstance(kind, pa.BaseExtensionType):
        kind = kind.storage_type
    held = (kind.field(number).type for number in range(kind.num_fields))
    return is_one(kind) or any(holds(one, is_one) for one in held)


def whole_maps(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """``values`` with maps that are all of what their arrays hold, not slices of these.

    Of a slice, pyarrow's casts leave keys and values at different places in their arrays, and its
    ``map_lookup`` takes them for the same: it gives the values of other keys.
    """
    if not has_map(values.type):
        return values
    return pa.chunked_array([pa.concat_arrays([chunk]) for chunk in values.chunks], values.type)


def with_whole_maps(table: pa.Table) -> pa.Table:
    """``table`` with ``whole_maps``."""
    for number, field in enumerate(table.schema):
        if has_map(field.type):
            table = table.set_column(number, field, whole_maps(table.column(number)))
    return table
