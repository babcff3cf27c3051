"""A schema that is stated: which columns to read of a data set, and in which types."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import pyarrow as pa

from intarsia.dataset.schema_unification import can_be_read, common_type
from intarsia.errors import PredicateError, UnsupportedError, Where
from intarsia.expr.nested_types import nullable
from intarsia.spark.read.spark_footer import collations_of
from intarsia.spark.types import arrow_schema, spark_schema

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


def stated_schema(schema: StructType | str, *, keeps_collations: bool = False) -> pa.Schema:
    """A schema of Spark's, or its text, as Arrow has it; all may be NULL.

    Raises ``PredicateError`` where it has no columns, or two of one name, ``UnsupportedError`` for
    a collation, which Arrow has none of, unless Spark ``keeps_collations`` itself, ``TypeError``
    for anything else.
    """
    from pyspark.sql.types import StructType

    if not isinstance(schema, StructType | str):
        kind = f"{type(schema).__module__}.{type(schema).__name__}"
        raise TypeError(f"a schema is a StructType of Spark's, or the text of one, not {kind}")
    parsed = StructType.fromDDL(schema) if isinstance(schema, str) else schema
    if not parsed.names or len(set(parsed.names)) < len(parsed.names):
        raise PredicateError("a schema has columns, and each once")
    collated = {} if keeps_collations else collations_of(parsed.jsonValue())
    for name, collation in collated.items():
        raise UnsupportedError(
            f"the collation {collation} would be lost: spark.read.format('intarsia') keeps it",
            Where(column=name),
        )
    return pa.schema(map(nullable, arrow_schema(parsed)))


def held_to(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """``batches`` with what ``schema`` says is never NULL, which Spark wants to see of them.

    Raises ``UnsupportedError`` where something is NULL all the same.
    """
    for batch in batches:
        if batch.schema.equals(schema):
            yield batch
            continue
        for field, column in zip(schema, batch.columns, strict=True):
            if _lacks_values(column, field):
                problem = "there are NULLs, where the schema says that there are none"
                raise UnsupportedError(problem, Where(column=field.name))
        try:
            yield batch.cast(schema)
        except pa.ArrowInvalid:  # for what is beneath a NULL
            columns = [pa.array(c.to_pylist(), f.type) for c, f in zip(batch, schema, strict=True)]
            yield pa.RecordBatch.from_arrays(columns, schema=schema)


def _lacks_values(column: pa.Array, field: pa.Field) -> bool:
    """Is there a NULL where ``field``, or a field within it, has none?"""
    if column.null_count:
        if not field.nullable:
            return True
        column = column.drop_null()
    kind = field.type
    if pa.types.is_struct(kind):
        return any(map(_lacks_values, column.flatten(), kind.fields))
    if pa.types.is_map(kind):
        first, stop = column.offsets[0].as_py(), column.offsets[-1].as_py()
        return _lacks_values(column.items.slice(first, stop - first), kind.item_field)
    if pa.types.is_list(kind):
        return _lacks_values(column.flatten(), kind.value_field)
    return False


def as_stated(schema: pa.Schema, stated: pa.Schema) -> pa.Schema:
    """``schema`` with the columns that are stated; where Spark has the same type, as wide in both.

    Raises ``PredicateError`` for a column that is there but for the case of its letters.
    """
    names = {name.lower(): name for name in schema.names}
    for field in stated:
        at = schema.get_field_index(field.name)
        if at < 0 and field.name.lower() in names:
            problem = (
                f"column {field.name!r} of the schema is {names[field.name.lower()]!r} in files"
            )
            raise PredicateError(f"{problem}: names are told apart by case here")
        if at < 0:
            schema = schema.append(field)
        else:
            own = schema.field(at)
            schema = schema.set(at, own.with_type(_as_wide(own, field.type)))
    return schema


def _as_wide(own: pa.Field, stated: pa.DataType) -> pa.DataType:
    """The stated type, or where Spark has the same for a file's, one that other files' fit too."""
    if arrow_schema(spark_schema(pa.schema([own])))[0].type != stated:
        return stated
    return common_type([own.type, stated], can_be_read) or own.type


def check_keys(folders: pa.Schema) -> None:
    """Raise ``UnsupportedError`` for a key of folders that is to be read as moments or decimals."""
    for key in folders:
        if getattr(key.type, "tz", None):
            raise UnsupportedError(
                "names of folders are in some time zone: timestamp_ntz or string reads them",
                Where(column=key.name),
            )
        if pa.types.is_decimal(key.type):
            problem = f"names of folders cannot be read as {key.type}: string or double reads them"
            raise UnsupportedError(problem, Where(column=key.name))
