"""VARIANT columns: in Arrow a struct of two binary fields, ``value`` and ``metadata``, never NULL.

Files can differ from this. If a VARIANT is NULL, files store both fields as NULL. Spark's own files
may shred the value: a third field then holds the parts that all values have in common.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from intarsia.errors import UnsupportedError, Where
from intarsia.expr.nested_types import nullable, with_children
from intarsia.file.open_file import OpenedFile

_SHREDDED = "typed_value"


def as_output(table: pa.Table, output: pa.Schema, *, safe: bool = False) -> pa.Table:
    """Returns ``table`` in Spark's types; cuts nanoseconds, or raises an error if ``safe``."""
    if not any(map(holds_variant, output)):
        return table.cast(output, safe=safe)
    table = table.cast(pa.schema(map(nullable, output)), safe=safe)
    output = pa.schema(map(_with_required_parts, output))
    columns = [
        pa.chunked_array([_filled(part, field.type) for part in column.chunks], field.type)
        for column, field in zip(table.columns, output, strict=True)
    ]
    return pa.Table.from_arrays(columns, schema=output)


def check_whole(file: OpenedFile, output: pa.Schema) -> None:
    """Raises ``UnsupportedError`` if a VARIANT is shredded: only Spark's reader joins it."""
    names = {field.name for field in output if holds_variant(field)}
    paths = {leaf.path for leaf in file.schema.leaves if leaf.path[0] in names}
    for path in paths:
        # Only next to a metadata field: a user's own field may have this name too.
        if any(
            step == _SHREDDED and (*path[:at], "metadata") in paths for at, step in enumerate(path)
        ):
            raise UnsupportedError(
                "its VARIANTs are shredded: spark.read.parquet assembles them; read without a "
                "schema, they are the structs that the file stores",
                Where(file.name, column=path[0]),
            )


def _with_required_parts(field: pa.Field) -> pa.Field:
    """Returns ``field`` with the parts of each VARIANT declared NOT NULL, as Spark expects."""
    kind = with_children(field.type, _with_required_parts)
    if pa.types.is_struct(kind) and any(map(_is_variant_part, kind.fields)):
        kind = pa.struct([part.with_nullable(False) for part in kind.fields])
    return field.with_type(kind)


def _is_variant_part(field: pa.Field) -> bool:
    return field.metadata is not None and field.metadata.get(b"variant") == b"true"


def holds_variant(field: pa.Field) -> bool:
    """True if a column is or contains a VARIANT, in Spark's types."""
    kind = field.type
    return _is_variant_part(field) or any(
        holds_variant(kind.field(i)) for i in range(kind.num_fields)
    )


def _filled(values: pa.Array, kind: pa.DataType) -> Any:
    """Returns ``values`` as ``kind``, with empty bytes for NULLs in required fields."""
    if not any(holds_variant(kind.field(i)) for i in range(kind.num_fields)):
        return values.cast(kind)
    mask = values.is_null() if values.null_count else None
    if pa.types.is_struct(kind):
        fields = [kind.field(i) for i in range(kind.num_fields)]
        children = [_filled_child(values.field(i), field) for i, field in enumerate(fields)]
        return pa.StructArray.from_arrays(children, fields=fields, mask=mask)
    offsets = pa.array(values.offsets.to_numpy())  # offsets of a slice accept no mask
    if pa.types.is_map(kind):
        items = _filled_child(values.items, kind.item_field)
        return pa.MapArray.from_arrays(offsets, values.keys, items, type=kind, mask=mask)
    children = _filled_child(values.values, kind.value_field)
    return pa.ListArray.from_arrays(offsets, children, type=kind, mask=mask)


def _filled_child(values: pa.Array, field: pa.Field) -> Any:
    if not field.nullable and values.null_count and pa.types.is_binary(field.type):
        values = values.fill_null(b"")
    return _filled(values, field.type)
