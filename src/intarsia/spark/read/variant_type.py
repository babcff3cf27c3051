"""VARIANT: to Arrow a struct of two fields of bytes, ``value`` and ``metadata``, never NULL.

Files store less of that: below a VARIANT that is NULL both are, and Spark's own files may have the
value shredded, with a third field of what all values have in common.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from intarsia.errors import UnsupportedError, Where
from intarsia.expr.nested_types import nullable, with_children
from intarsia.file.open_file import OpenedFile

_SHREDDED = "typed_value"


def as_output(table: pa.Table, output: pa.Schema, *, safe: bool = False) -> pa.Table:
    """``table`` in the types of ``output``, which Spark expects.

    What is finer than Spark's microseconds is cut off, or an error where that is ``safe``.
    """
    if not any(map(holds_variant, output)):
        return table.cast(output, safe=safe)
    table = table.cast(pa.schema(map(nullable, output)), safe=safe)
    output = pa.schema(map(_strict, output))
    columns = [
        pa.chunked_array([_filled(part, field.type) for part in column.chunks], field.type)
        for column, field in zip(table.columns, output, strict=True)
    ]
    return pa.Table.from_arrays(columns, schema=output)


def check_whole(file: OpenedFile, output: pa.Schema) -> None:
    """Raise ``UnsupportedError`` where a file stores a VARIANT of ``output`` shredded.

    Only Spark's own reader puts that together again.
    """
    names = {field.name for field in output if holds_variant(field)}
    paths = {leaf.path for leaf in file.schema.leaves if leaf.path[0] in names}
    for path in paths:
        # Beside the metadata, not anywhere: a field of one's own may be called that.
        if any(
            step == _SHREDDED and (*path[:at], "metadata") in paths for at, step in enumerate(path)
        ):
            raise UnsupportedError(
                "its VARIANTs are shredded: spark.read.parquet puts them together, and without a "
                "stated schema they are the structs that are stored",
                Where(file.name, column=path[0]),
            )


def _strict(field: pa.Field) -> pa.Field:
    """``field``, in which no part of a VARIANT may be NULL: so Spark knows it."""
    kind = with_children(field.type, _strict)
    if pa.types.is_struct(kind) and any(map(_is_of_variant, kind.fields)):
        kind = pa.struct([part.with_nullable(False) for part in kind.fields])
    return field.with_type(kind)


def _is_of_variant(field: pa.Field) -> bool:
    return field.metadata is not None and field.metadata.get(b"variant") == b"true"


def holds_variant(field: pa.Field) -> bool:
    """Is there a VARIANT in a column, as Spark's types have it?"""
    kind = field.type
    return _is_of_variant(field) or any(
        holds_variant(kind.field(i)) for i in range(kind.num_fields)
    )


def _filled(values: pa.Array, kind: pa.DataType) -> Any:
    """``values`` as ``kind``, with no bytes for what is NULL, below NULL, and may not be."""
    if not any(holds_variant(kind.field(i)) for i in range(kind.num_fields)):
        return values.cast(kind)
    mask = values.is_null() if values.null_count else None
    if pa.types.is_struct(kind):
        fields = [kind.field(i) for i in range(kind.num_fields)]
        held = [_below(values.field(i), field) for i, field in enumerate(fields)]
        return pa.StructArray.from_arrays(held, fields=fields, mask=mask)
    offsets = pa.array(values.offsets.to_numpy())  # of a slice, they take no mask
    if pa.types.is_map(kind):
        items = _below(values.items, kind.item_field)
        return pa.MapArray.from_arrays(offsets, values.keys, items, type=kind, mask=mask)
    held = _below(values.values, kind.value_field)
    return pa.ListArray.from_arrays(offsets, held, type=kind, mask=mask)


def _below(values: pa.Array, field: pa.Field) -> Any:
    if not field.nullable and values.null_count and pa.types.is_binary(field.type):
        values = values.fill_null(b"")
    return _filled(values, field.type)
