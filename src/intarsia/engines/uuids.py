"""UUIDs, which are bytes to data sets of Arrow's: engines that know them are given them as such."""

from __future__ import annotations

import pyarrow as pa

from intarsia.data.dataset import Dataset
from intarsia.engines.coded import some_of
from intarsia.errors import IntarsiaError
from intarsia.predicate.casts import is_uuid
from intarsia.predicate.constants import UUID_BYTES
from intarsia.predicate.functions import is_list
from intarsia.predicate.nested import with_children


def with_uuids(data: Dataset) -> pa.Schema:
    """The schema of a data set, with UUIDs where its files say that 16 bytes are one.

    The first file, the last and one in their middle are asked, until one has the column.
    """
    schema = data.schema
    for at, field in enumerate(schema):
        if _has_bytes(field.type):
            schema = schema.set(at, field.with_type(_asked(data, field)))
    return schema


def _has_bytes(kind: pa.DataType) -> bool:
    """Are there 16 bytes in it, however deep?"""
    held = (kind.field(number).type for number in range(kind.num_fields))
    return kind == UUID_BYTES or any(map(_has_bytes, held))


def _asked(data: Dataset, field: pa.Field) -> pa.DataType:
    """The type of a column as a file has it."""
    for path in some_of(data.files):
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
        return pa.struct(list(fields)) if len(types) == stored.num_fields else kind
    if pa.types.is_map(kind) and pa.types.is_map(stored):
        key, item = kind.key_field, kind.item_field
        key = key.with_type(_marked(key.type, stored.key_type))
        return pa.map_(key, item.with_type(_marked(item.type, stored.item_type)))
    if is_list(kind) and is_list(stored):
        return with_children(kind, lambda f: f.with_type(_marked(f.type, stored.value_type)))
    return kind
