"""The Arrow types in which Spark exchanges data."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from intarsia.errors import UnsupportedError, Where
from intarsia.expr.nested_types import with_children

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

_NEAREST = {
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20, 0),
    pa.float16(): pa.float32(),
    pa.date64(): pa.date32(),
    pa.large_string(): pa.string(),
    pa.string_view(): pa.string(),
    pa.large_binary(): pa.binary(),
    pa.binary_view(): pa.binary(),
}


def spark_schema(schema: pa.Schema) -> StructType:
    """Returns Spark's schema. Raises ``UnsupportedError`` for a type that Spark lacks."""
    from pyspark.errors import PySparkException
    from pyspark.sql.pandas.types import from_arrow_schema

    nearest = pa.schema([field.with_type(_nearest(field.type)) for field in schema])
    try:
        return from_arrow_schema(nearest)
    except PySparkException as error:
        raise UnsupportedError(f"Spark has no type for a column: {error}") from error


def arrow_schema(schema: StructType) -> pa.Schema:
    """Returns the Arrow schema in which Spark exchanges data of ``schema``, timestamps in UTC.

    Raises ``UnsupportedError`` for a type that Spark cannot exchange, such as intervals of months
    or void that is never NULL.
    """
    from pyspark.errors import PySparkException
    from pyspark.sql.pandas.types import to_arrow_schema
    from pyspark.sql.types import StructType

    fields: list[pa.Field] = []
    for field in schema:
        try:
            fields += to_arrow_schema(StructType([field]), timezone="UTC")
        except (PySparkException, ValueError) as error:  # the latter for the void of array()
            kind = field.dataType.simpleString()
            message = f"Spark gives Python no values of type {kind}: {error}"
            raise UnsupportedError(message, Where(column=field.name)) from error
    return pa.schema(fields)


def _nearest(kind: pa.DataType) -> pa.DataType:
    """Returns the Spark type that holds every value of ``kind``, to microseconds."""
    if kind in _NEAREST:
        return _NEAREST[kind]
    if pa.types.is_dictionary(kind):
        return _nearest(kind.value_type)
    if isinstance(kind, pa.BaseExtensionType):
        return _nearest(kind.storage_type)
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", kind.tz)
    if pa.types.is_duration(kind):
        return pa.duration("us")
    if pa.types.is_fixed_size_binary(kind):
        return pa.binary()
    if pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        kind = pa.list_(kind.value_field)
    return with_children(kind, lambda field: field.with_type(_nearest(field.type)))


def with_leaves(field: pa.Field, old: pa.DataType, new: pa.DataType) -> pa.Field:
    """Returns ``field`` with each leaf of the type ``old`` replaced by one of the type ``new``."""
    kind = with_children(field.type, lambda inner: with_leaves(inner, old, new))
    return field.with_type(new if field.type == old else kind)
