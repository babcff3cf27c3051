"""Merges arrays of some leaves of a root into one array of all of them.

::

    list<struct<a>>   [{a: 1}, {a: 2}]  NULL  []     ┐
                                                     ├  list<struct<a, b>>
    list<struct<b>>   [{b: x}, {b: y}]  NULL  []     ┘

All arrays must agree on the levels above their leaves: which structs are NULL, and where lists
begin and end. Leaves are numbered through a type in the order of the file's schema, so children
with the same name are distinguished. Pure: arrays in, arrays out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from intarsia.errors import FormatError

_MAX_COMBINED_BYTES = 1 << 27
"""Columns of up to this many bytes are combined into one chunk: 32-bit offsets cannot overflow."""


@dataclass(frozen=True, slots=True)
class Part:
    """Values of some leaves of a root. ``leaves`` are positions among all leaves of the root."""

    leaves: tuple[int, ...]
    values: pa.ChunkedArray


def merge(full: pa.DataType, parts: Sequence[Part]) -> pa.ChunkedArray:
    """Returns one array with all leaves of ``parts``, which all have the same rows.

    ``full`` is the type of the root with all of its leaves. Each part has the type that pyarrow
    gives when it reads only these leaves, without extension types of more than one leaf. The result
    has these extension types. Raises ``FormatError`` if parts disagree on NULLs or lengths of
    lists.
    """
    ordered = sorted(parts, key=lambda part: part.leaves)
    merged = [
        _merge(
            full,
            0,
            [_Leaves(part.leaves, values) for part, values in zip(ordered, arrays, strict=True)],
        )
        for arrays in _aligned([part.values for part in ordered])
    ]
    return pa.chunked_array(merged)


def as_storage(type_: pa.DataType) -> pa.DataType:
    """Returns the type with storage types in place of extension types of more than one leaf."""
    if isinstance(type_, pa.BaseExtensionType):
        return as_storage(type_.storage_type) if num_leaves(type_) > 1 else type_
    if pa.types.is_struct(type_):
        return pa.struct([_stored(field) for field in type_])
    if pa.types.is_map(type_):
        return pa.map_(_stored(type_.key_field), _stored(type_.item_field), type_.keys_sorted)
    if _is_list(type_):
        return _list_of(type_, _stored(type_.value_field))
    return type_


def _stored(field: pa.Field) -> pa.Field:
    return field.with_type(as_storage(field.type))


def num_leaves(type_: pa.DataType) -> int:
    """Returns how many columns of a Parquet file hold values of this type."""
    if isinstance(type_, pa.BaseExtensionType):
        return num_leaves(type_.storage_type)
    if pa.types.is_struct(type_):
        return sum(num_leaves(field.type) for field in type_)
    if pa.types.is_map(type_):
        return num_leaves(type_.key_type) + num_leaves(type_.item_type)
    if _is_list(type_):
        return num_leaves(type_.value_type)
    return 1


@dataclass(frozen=True, slots=True)
class _Leaves:
    """An array of some leaves, within a node of the type."""

    leaves: tuple[int, ...]
    values: pa.Array

    def holds(self, leaves: range) -> bool:
        return any(leaf in leaves for leaf in self.leaves)


def _aligned(columns: Sequence[pa.ChunkedArray]) -> Iterator[list[pa.Array]]:
    """Yields arrays of the same rows of every column. Yields one of no rows if there are none."""
    lengths = {len(column) for column in columns}
    if len(lengths) > 1:
        raise FormatError(
            f"leaves of one column have {' and '.join(map(str, sorted(lengths)))} rows"
        )
    (length,) = lengths
    if all(column.get_total_buffer_size() <= _MAX_COMBINED_BYTES for column in columns):
        yield [column.combine_chunks() for column in columns]
        return
    ends = {end for column in columns for end in np.cumsum([len(c) for c in column.chunks])}
    start = 0
    for end in sorted(int(end) for end in ends | {length}):
        if end > start:
            yield [column.slice(start, end - start).combine_chunks() for column in columns]
        start = end


def _merge(
    full: pa.DataType, first: int, parts: Sequence[_Leaves], *, nullable: bool = True
) -> pa.Array:
    """Returns one array of all leaves of ``parts``.

    ``first`` is the number of the first leaf of ``full``. If not ``nullable``, values can only be
    NULL where a struct around them is, and maybe not in all parts.
    """
    if len(parts) == 1 and as_storage(full) == full:
        return parts[0].values
    if isinstance(full, pa.BaseExtensionType):
        storage = _merge(full.storage_type, first, parts, nullable=nullable)
        return pa.ExtensionArray.from_storage(full, storage)
    if pa.types.is_struct(full):
        return _merge_structs(full, first, parts, nullable)
    if pa.types.is_map(full):
        return _merge_maps(full, first, parts, nullable)
    if pa.types.is_fixed_size_list(full):
        return _merge_fixed_size_lists(full, first, parts, nullable)
    if _is_list_view(full):
        lists = [_as_lists(part) for part in parts]
        return _as_views(full, _merge_lists(full, first, lists, nullable))
    return _merge_lists(full, first, parts, nullable)


def _merge_structs(
    full: pa.DataType, first: int, parts: Sequence[_Leaves], nullable: bool
) -> pa.StructArray:
    children, fields = [], []
    next_child = [0] * len(parts)  # by part
    for field in full:
        leaves = range(first, first + num_leaves(field.type))
        first = leaves.stop
        field_parts = []
        for i, part in enumerate(parts):
            if part.holds(leaves):
                field_parts.append(_Leaves(part.leaves, part.values.field(next_child[i])))
                next_child[i] += 1
        if field_parts:
            field_leaves = _restricted_to(leaves, field_parts)
            children.append(_merge(field.type, leaves.start, field_leaves, nullable=field.nullable))
            fields.append(field.with_type(children[-1].type))
    return pa.StructArray.from_arrays(children, fields=fields, mask=_nulls(parts, nullable))


def _restricted_to(leaves: range, parts: Sequence[_Leaves]) -> list[_Leaves]:
    return [
        _Leaves(tuple(leaf for leaf in part.leaves if leaf in leaves), part.values)
        for part in parts
    ]


def _merge_lists(
    full: pa.DataType, first: int, parts: Sequence[_Leaves], nullable: bool
) -> pa.Array:
    """Merges lists with 32-bit or 64-bit offsets. List views are converted to these first."""
    offsets, values = _offsets_and_items(parts)
    items = _merge(full.value_type, first, values)
    type_ = _list_of(parts[0].values.type, full.value_field.with_type(items.type))
    kind = pa.LargeListArray if pa.types.is_large_list(type_) else pa.ListArray
    return kind.from_arrays(offsets, items, type=type_, mask=_nulls(parts, nullable))


def _merge_maps(
    full: pa.DataType, first: int, parts: Sequence[_Leaves], nullable: bool
) -> pa.Array:
    """Merges maps, which are lists if no leaf of keys, or of values, is read."""
    offsets, values = _offsets_and_items(parts)
    entries = _merge(pa.struct([full.key_field, full.item_field]), first, values)
    mask = _nulls(parts, nullable)
    if entries.type.num_fields < 2:
        field = parts[0].values.type.value_field.with_type(entries.type)
        return pa.ListArray.from_arrays(offsets, entries, type=pa.list_(field), mask=mask)
    keys, items = entries.field(0), entries.field(1)
    key_field, item_field = (entries.type.field(i) for i in range(2))
    type_ = pa.map_(key_field, item_field, full.keys_sorted)
    return pa.MapArray.from_arrays(offsets, keys, items, type=type_, mask=mask)


def _offsets_and_items(parts: Sequence[_Leaves]) -> tuple[pa.Array, list[_Leaves]]:
    """Returns offsets and items of lists or maps. Raises ``FormatError`` if they differ."""
    common_offsets = None
    values = []
    for part in parts:
        lists = part.values
        offsets = lists.offsets.to_numpy()
        start, stop = int(offsets[0]), int(offsets[-1])
        if common_offsets is None:
            common_offsets = offsets - offsets[0]
        elif not np.array_equal(common_offsets, offsets - offsets[0]):
            raise FormatError("leaves of one list disagree on its length")
        values.append(_Leaves(part.leaves, lists.values.slice(start, stop - start)))
    return pa.array(common_offsets), values


def _merge_fixed_size_lists(
    full: pa.DataType, first: int, parts: Sequence[_Leaves], nullable: bool
) -> pa.Array:
    size = full.list_size
    values = [
        _Leaves(
            part.leaves,
            part.values.values.slice(part.values.offset * size, len(part.values) * size),
        )
        for part in parts
    ]
    items = _merge(full.value_type, first, values)
    type_ = _list_of(full, full.value_field.with_type(items.type))
    mask = _nulls(parts, nullable)
    return pa.FixedSizeListArray.from_arrays(items, type=type_, mask=mask)


def _as_lists(part: _Leaves) -> _Leaves:
    """Converts list views, which may overlap or be in any order, to consecutive lists."""
    views = part.values
    mask = views.is_null()
    sizes = np.where(mask.to_numpy(zero_copy_only=False), 0, views.sizes.to_numpy())
    ends = np.cumsum(sizes, dtype=sizes.dtype)
    rows = np.arange(sizes.sum()) + np.repeat(views.offsets.to_numpy() - (ends - sizes), sizes)
    kind = pa.LargeListArray if pa.types.is_large_list_view(views.type) else pa.ListArray
    offsets = pa.array(np.concatenate(([0], ends), dtype=sizes.dtype))
    return _Leaves(part.leaves, kind.from_arrays(offsets, views.values.take(rows), mask=mask))


def _as_views(full: pa.DataType, lists: pa.Array) -> pa.Array:
    offsets = lists.offsets.to_numpy()
    type_ = _list_of(full, lists.type.value_field)
    kind = pa.LargeListViewArray if pa.types.is_large_list_view(full) else pa.ListViewArray
    starts, sizes = pa.array(offsets[:-1]), pa.array(np.diff(offsets))
    mask = lists.is_null() if lists.null_count else None
    return kind.from_arrays(starts, sizes, lists.values, type=type_, mask=mask)


def _nulls(parts: Sequence[_Leaves], nullable: bool) -> pa.Array | None:
    """Returns which values are NULL, or None. Raises ``FormatError`` if parts disagree."""
    if not nullable or not any(part.values.null_count for part in parts):
        return None
    nulls = parts[0].values.is_null()
    if not all(part.values.is_null().equals(nulls) for part in parts[1:]):
        raise FormatError("leaves of one group disagree on its NULLs")
    return nulls


def _is_list_view(type_: pa.DataType) -> bool:
    return bool(pa.types.is_list_view(type_) or pa.types.is_large_list_view(type_))


def _is_list(type_: pa.DataType) -> bool:
    return bool(
        pa.types.is_list(type_)
        or pa.types.is_large_list(type_)
        or pa.types.is_fixed_size_list(type_)
        or _is_list_view(type_)
    )


_LISTS: tuple[tuple[Callable[[pa.DataType], bool], Callable[[pa.Field], pa.DataType]], ...] = (
    (pa.types.is_large_list, pa.large_list),
    (pa.types.is_list_view, pa.list_view),
    (pa.types.is_large_list_view, pa.large_list_view),
)


def _list_of(type_: pa.DataType, field: pa.Field) -> pa.DataType:
    """Returns a list type of the same kind as ``type_``, with ``field`` as its items."""
    if pa.types.is_fixed_size_list(type_):
        return pa.list_(field, type_.list_size)
    return next((make(field) for is_kind, make in _LISTS if is_kind(type_)), pa.list_(field))
