"""Merging: arrays of some leaves of one root each, zipped into one array of them all.

::

    list<struct<a>>   [{a: 1}, {a: 2}]  NULL  []     ┐
                                                     ├  list<struct<a, b>>
    list<struct<b>>   [{b: x}, {b: y}]  NULL  []     ┘

Every array tells the same of what lies above its leaves: which structs are NULL, where lists begin
and end. Leaves are counted through a type in order, as the schema of the file lists them, so that
children of one name are told apart. Pure: arrays in, arrays out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from intarsia.errors import FormatError

_JOINED_BYTES = 1 << 27
"""Chunks of up to this many bytes are joined before they are merged; no offset can overflow."""


@dataclass(frozen=True, slots=True)
class Part:
    """Some leaves of a root, by their positions among all of its leaves, and their values."""

    leaves: tuple[int, ...]
    values: pa.ChunkedArray


def merge(full: pa.DataType, parts: Sequence[Part]) -> pa.ChunkedArray:
    """All leaves of ``parts`` in one array; every part has the same rows.

    ``full`` is the type of the root with all of its leaves. Parts have the types pyarrow gives when
    it reads these leaves only, without extensions of more than one leaf; the result has them.
    Raises ``FormatError`` where the parts contradict each other.
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
    """The type with every extension of more than one leaf replaced by what stores it."""
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
    """How many columns of a Parquet file hold values of this type."""
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
    """One array of some leaves, within a node of the type."""

    leaves: tuple[int, ...]
    values: pa.Array

    def holds(self, leaves: range) -> bool:
        return any(leaf in leaves for leaf in self.leaves)


def _aligned(columns: Sequence[pa.ChunkedArray]) -> Iterator[list[pa.Array]]:
    """Arrays of the same rows of every column, one after the other; one of no rows, if none."""
    lengths = {len(column) for column in columns}
    if len(lengths) > 1:
        raise FormatError(f"leaves of {' and '.join(map(str, sorted(lengths)))} rows")
    (length,) = lengths
    if all(column.get_total_buffer_size() <= _JOINED_BYTES for column in columns):
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
    """One array of all leaves of ``parts``, of which ``first`` is the first ``full`` may have.

    Values that are not ``nullable`` may be NULL, in some parts only, where a struct around them is.
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
        lists = [_without_views(part) for part in parts]
        return _as_views(full, _merge_lists(full, first, lists, nullable))
    return _merge_lists(full, first, parts, nullable)


def _merge_structs(
    full: pa.DataType, first: int, parts: Sequence[_Leaves], nullable: bool
) -> pa.StructArray:
    children, fields = [], []
    taken = [0] * len(parts)  # children of each part that are spoken for
    for field in full:
        leaves = range(first, first + num_leaves(field.type))
        first = leaves.stop
        own = []
        for i, part in enumerate(parts):
            if part.holds(leaves):
                own.append(_Leaves(part.leaves, part.values.field(taken[i])))
                taken[i] += 1
        if own:
            of_field = _within(leaves, own)
            children.append(_merge(field.type, leaves.start, of_field, nullable=field.nullable))
            fields.append(field.with_type(children[-1].type))
    return pa.StructArray.from_arrays(children, fields=fields, mask=_nulls(parts, nullable))


def _within(leaves: range, parts: Sequence[_Leaves]) -> list[_Leaves]:
    return [
        _Leaves(tuple(leaf for leaf in part.leaves if leaf in leaves), part.values)
        for part in parts
    ]


def _merge_lists(
    full: pa.DataType, first: int, parts: Sequence[_Leaves], nullable: bool
) -> pa.Array:
    """Lists of either offset size; those of other kinds are made of them."""
    offsets, values = _unlisted(parts)
    items = _merge(full.value_type, first, values)
    type_ = _list_of(parts[0].values.type, full.value_field.with_type(items.type))
    kind = pa.LargeListArray if pa.types.is_large_list(type_) else pa.ListArray
    return kind.from_arrays(offsets, items, type=type_, mask=_nulls(parts, nullable))


def _merge_maps(
    full: pa.DataType, first: int, parts: Sequence[_Leaves], nullable: bool
) -> pa.Array:
    """Maps; without any leaf of the keys or of the values, lists, as pyarrow reads them."""
    offsets, values = _unlisted(parts)
    entries = _merge(pa.struct([full.key_field, full.item_field]), first, values)
    mask = _nulls(parts, nullable)
    if entries.type.num_fields < 2:
        field = parts[0].values.type.value_field.with_type(entries.type)
        return pa.ListArray.from_arrays(offsets, entries, type=pa.list_(field), mask=mask)
    keys, items = entries.field(0), entries.field(1)
    key_field, item_field = (entries.type.field(i) for i in range(2))
    type_ = pa.map_(key_field, item_field, full.keys_sorted)
    return pa.MapArray.from_arrays(offsets, keys, items, type=type_, mask=mask)


def _unlisted(parts: Sequence[_Leaves]) -> tuple[pa.Array, list[_Leaves]]:
    """The offsets of lists or maps, counted from 0, and what the lists hold.

    Raises ``FormatError`` where lists of one leaf are longer than those of another.
    """
    found = None
    values = []
    for part in parts:
        lists = part.values
        offsets = lists.offsets.to_numpy()
        start, stop = int(offsets[0]), int(offsets[-1])
        if found is None:
            found = offsets - offsets[0]
        elif not np.array_equal(found, offsets - offsets[0]):
            raise FormatError("leaves of one list differ in its length")
        values.append(_Leaves(part.leaves, lists.values.slice(start, stop - start)))
    return pa.array(found), values


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


def _without_views(part: _Leaves) -> _Leaves:
    """The same lists one after the other, as list views need not be."""
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
    """Which of the values are NULL, if any. Raises ``FormatError`` where parts differ in that."""
    if not nullable or not any(part.values.null_count for part in parts):
        return None
    nulls = parts[0].values.is_null()
    if not all(part.values.is_null().equals(nulls) for part in parts[1:]):
        raise FormatError("leaves of one group differ in its NULLs")
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
    """A list of the kind of ``type_`` that holds ``field``."""
    if pa.types.is_fixed_size_list(type_):
        return pa.list_(field, type_.list_size)
    return next((make(field) for is_kind, make in _LISTS if is_kind(type_)), pa.list_(field))
