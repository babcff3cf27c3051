"""A schema that is stated: which columns to read of a data set, and in which types."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from intarsia.data.united import can_be_read, common_type
from intarsia.errors import PredicateError, UnsupportedError, Where
from intarsia.predicate.nested import nullable
from intarsia.spark.types import arrow_schema, spark_schema

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


def stated_schema(schema: StructType | str) -> pa.Schema:
    """A schema of Spark's, or its text, as Arrow has it; all may be NULL.

    Raises ``PredicateError`` where it has no columns, or two of one name, ``TypeError`` for
    anything else.
    """
    from pyspark.sql.types import StructType

    if not isinstance(schema, StructType | str):
        kind = f"{type(schema).__module__}.{type(schema).__name__}"
        raise TypeError(f"a schema is a StructType of Spark's, or the text of one, not {kind}")
    parsed = StructType.fromDDL(schema) if isinstance(schema, str) else schema
    if not parsed.names or len(set(parsed.names)) < len(parsed.names):
        raise PredicateError("a schema has columns, and each once")
    return pa.schema(map(nullable, arrow_schema(parsed)))


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
