"""The schema that the user passes: which columns of a data set are read, and in which types."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import pyarrow as pa

from intarsia.dataset.schema_unification import common_type, is_readable_as
from intarsia.dataset.spark_footer import collations_of
from intarsia.errors import PredicateError, UnsupportedError, Where
from intarsia.expr.nested_types import nullable
from intarsia.spark.types import arrow_schema, spark_schema

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


def parse_user_schema(schema: StructType | str, *, keeps_collations: bool = False) -> pa.Schema:
    """Returns a Spark schema, or its DDL text, as an Arrow schema whose fields are all nullable.

    Raises ``PredicateError`` if it has no columns, or two of one name. Raises ``TypeError`` if it
    is neither a StructType nor a string. Raises ``UnsupportedError`` for a collation, which Arrow
    lacks, unless Spark ``keeps_collations`` itself.
    """
    from pyspark.sql.types import StructType

    if not isinstance(schema, StructType | str):
        kind = f"{type(schema).__module__}.{type(schema).__name__}"
        raise TypeError(f"a schema is a StructType of Spark or its DDL text, not {kind}")
    parsed = StructType.fromDDL(schema) if isinstance(schema, str) else schema
    if not parsed.names or len(set(parsed.names)) < len(parsed.names):
        raise PredicateError("a schema must have columns, each with a name of its own")
    collated = {} if keeps_collations else collations_of(parsed.jsonValue())
    for name, collation in collated.items():
        raise UnsupportedError(
            f"the collation {collation} would be lost: spark.read.format('intarsia') keeps it",
            Where(column=name),
        )
    return pa.schema(map(nullable, arrow_schema(parsed)))


def with_required_fields(
    batches: Iterable[pa.RecordBatch], schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """Yields batches with NOT NULL as in ``schema``; ``UnsupportedError`` for NULLs."""
    for batch in batches:
        if batch.schema.equals(schema):
            yield batch
            continue
        for field, column in zip(schema, batch.columns, strict=True):
            if _has_null(column, field):
                problem = "it contains NULL, but the schema declares it NOT NULL"
                raise UnsupportedError(problem, Where(column=field.name))
        try:
            yield batch.cast(schema)
        except pa.ArrowInvalid:  # for values below a NULL
            columns = [pa.array(c.to_pylist(), f.type) for c, f in zip(batch, schema, strict=True)]
            yield pa.RecordBatch.from_arrays(columns, schema=schema)


def _has_null(column: pa.Array, field: pa.Field) -> bool:
    """True if ``column`` contains NULL where ``field``, or a field within it, allows none."""
    if column.null_count:
        if not field.nullable:
            return True
        column = column.drop_null()
    kind = field.type
    if pa.types.is_struct(kind):
        return any(map(_has_null, column.flatten(), kind.fields))
    if pa.types.is_map(kind):
        first, stop = column.offsets[0].as_py(), column.offsets[-1].as_py()
        return _has_null(column.items.slice(first, stop - first), kind.item_field)
    if pa.types.is_list(kind):
        return _has_null(column.flatten(), kind.value_field)
    return False


def with_user_types(schema: pa.Schema, stated: pa.Schema) -> pa.Schema:
    """Returns ``schema`` with the columns and types of ``stated``, the user's schema.

    A column keeps the file's wider type if Spark has the same type for both. Raises
    ``PredicateError`` for a column whose name differs from a file's only by case.
    """
    names = {name.lower(): name for name in schema.names}
    for field in stated:
        position = schema.get_field_index(field.name)
        if position < 0 and field.name.lower() in names:
            problem = (
                f"column {field.name!r} of the schema is {names[field.name.lower()]!r} in files"
            )
            raise PredicateError(f"{problem}: names are case-sensitive here")
        if position < 0:
            schema = schema.append(field)
        else:
            file_field = schema.field(position)
            schema = schema.set(position, file_field.with_type(_widened(file_field, field.type)))
    return schema


def _widened(file_field: pa.Field, stated: pa.DataType) -> pa.DataType:
    """Returns the user's type, or a wider one that is the same in Spark."""
    if _type_in_spark(file_field) != stated:
        return stated
    return common_type([file_field.type, stated], is_readable_as) or file_field.type


def _type_in_spark(field: pa.Field) -> pa.DataType:
    return arrow_schema(spark_schema(pa.schema([field])))[0].type


def check_types(schema: pa.Schema, stated: Iterable[pa.Field]) -> None:
    """Raises ``PredicateError`` if the user's schema has other types than that of a table."""
    for field in stated:
        position = schema.get_field_index(field.name)
        own_type = field.type if position < 0 else _type_in_spark(nullable(schema.field(position)))
        if own_type != field.type:
            problem = f"it is {own_type} in the table, and {field.type} in the schema that is given"
            raise PredicateError(f"column {field.name!r}: {problem}; cast it in Spark")


def check_keys(folders: pa.Schema) -> None:
    """Raises ``UnsupportedError`` for a partition key of a zoned timestamp or a decimal type."""
    for key in folders:
        if getattr(key.type, "tz", None):
            raise UnsupportedError(
                "names of folders are in some time zone: timestamp_ntz or string reads them",
                Where(column=key.name),
            )
        if pa.types.is_decimal(key.type):
            problem = f"names of folders cannot be read as {key.type}: string or double reads them"
            raise UnsupportedError(problem, Where(column=key.name))
