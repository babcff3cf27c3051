"""Files that DuckDB reads by itself, as a view over ``read_parquet``."""

from __future__ import annotations

import pyarrow as pa

from intarsia.data.hand_over import HandOver
from intarsia.read.portable import plain_type

_KEY_TYPES = {
    pa.string(): "VARCHAR",
    pa.int32(): "INTEGER",
    pa.int64(): "BIGINT",
    pa.date32(): "DATE",
}
_ONE = {pa.float32(): "1::FLOAT", pa.float64(): "1::DOUBLE"}


def create_view(name: str, handed: HandOver) -> str:
    """Returns the statement that makes a temporary view of ``handed``."""
    return f"CREATE OR REPLACE TEMPORARY VIEW {_name(name)} AS {query_of(handed)}"


def query_of(handed: HandOver) -> str:
    """Returns the SELECT that gives the rows and columns of ``handed``."""
    columns = ", ".join(_column(handed, field) for field in handed.schema) or 'NULL AS "none"'
    files = ", ".join(map(_text, handed.files))
    options = f"hive_partitioning = {bool(handed.folder_keys)}, union_by_name = false"
    if handed.folder_keys:
        types = ", ".join(_key_type(handed.schema.field(name)) for name in handed.folder_keys)
        options += f", hive_types_autocast = false, hive_types = {{{types}}}"
    return f"SELECT {columns} FROM read_parquet([{files}], {options})"


def _column(handed: HandOver, field: pa.Field) -> str:
    name = _name(field.name)
    if field.name not in handed.without_nan:
        return name
    # DuckDB takes bounds of a plain column for those of all its values, NaN included.
    return f"{name} * {_ONE[field.type]} AS {name}"


def _key_type(field: pa.Field) -> str:
    return f"{_text(field.name)}: {_KEY_TYPES[plain_type(field.type)]}"


def _name(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _text(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
