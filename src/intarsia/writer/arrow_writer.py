"""Wraps pyarrow's writer so that null counts and bounds are right.

pyarrow leaves NULL structs out of the null counts of dictionaries below them, in chunks and in
pages. Other readers use these counts. pyarrow counts right for plain strings, and makes the same
pages of them. Dictionaries of strings within structs, lists and maps are therefore written as plain
strings. The stored Arrow schema keeps the dictionary types.

pyarrow also counts NULL as one more used value of a dictionary. If all values but one are used, it
writes the bounds of the whole dictionary and marks them as exact. DuckDB answers from these bounds.
This writer removes the unused value first.
"""

from __future__ import annotations

import base64
import inspect
import re
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from intarsia.decode.synthetic_footer import ARROW_SCHEMA
from intarsia.errors import instead
from intarsia.expr.nested_types import with_children
from intarsia.writer.defaults import DEFAULT_ROW_GROUP_ROWS

_LARGE_TYPES = {
    pa.string(): pa.large_string(),
    pa.large_string(): pa.large_string(),
    pa.binary(): pa.large_binary(),
    pa.large_binary(): pa.large_binary(),
}
"""Types that dictionaries within nested types are written as, by the type of their values."""
_NOT_OPTIONS = ("table", "where", "kwargs")
"""Arguments of pyarrow's ``write_table`` that are not options."""
_CODECS = ("none", "snappy", "gzip", "brotli", "lz4", "zstd")


class ArrowWriter(pq.ParquetWriter):  # type: ignore[misc]  # pyarrow is not typed
    """A ``pyarrow.parquet.ParquetWriter`` with the same arguments."""

    def __init__(self, where: Any, schema: pa.Schema, **options: Any) -> None:
        fields = [field.with_type(_counted(field.type, is_within=False)) for field in schema]
        counted = pa.schema(fields, schema.metadata)
        self._cast_to = None if counted.equals(schema) else counted
        self._has_dictionaries = any(map(pa.types.is_dictionary, counted.types))
        stores_schema = options.pop("store_schema", True)
        try:
            super().__init__(
                where, counted, store_schema=stores_schema and not self._cast_to, **options
            )
        except TypeError as error:
            raise _unknown_option(error) from error
        except pa.ArrowException as error:
            raise _unknown_codec(error) from error
        if stores_schema and self._cast_to:
            named = [own.with_name(new.name) for own, new in zip(schema, self.schema, strict=True)]
            encoded_schema = base64.b64encode(pa.schema(named, schema.metadata).serialize())
            self.add_key_value_metadata(
                {**(schema.metadata or {}), ARROW_SCHEMA.encode(): encoded_schema}
            )

    def write_table(self, table: pa.Table, row_group_size: int | None = None) -> None:
        """Writes a table, as pyarrow's method does."""
        if self._cast_to is None and not self._has_dictionaries:
            super().write_table(table, row_group_size)
            return
        size = DEFAULT_ROW_GROUP_ROWS if row_group_size in (None, -1) else row_group_size
        step = size if size > 0 else max(table.num_rows, 1)  # pyarrow reports a size below 1
        for start in range(0, max(table.num_rows, 1), step):
            part = table.slice(start, step)
            part = part if self._cast_to is None else part.cast(self._cast_to)
            super().write_table(_without_unused(part), size)


def _unknown_option(error: TypeError) -> TypeError:
    """Returns an error with the known options if pyarrow lacks one, else ``error``."""
    unknown = re.search(r"unexpected keyword argument '(\w+)'", str(error))
    if unknown is None:
        return error
    known = [
        name for name in inspect.signature(pq.write_table).parameters if name not in _NOT_OPTIONS
    ]
    return TypeError(f"option {unknown[1]!r} is not there{instead(unknown[1], known)}")


def _unknown_codec(error: pa.ArrowException) -> pa.ArrowException:
    """Returns an error with the known codecs if pyarrow lacks one, else ``error``."""
    unknown = re.fullmatch(r"Unsupported compression: (.*)", str(error))
    if unknown is None:
        return error
    return pa.ArrowInvalid(
        f"compression {unknown[1]!r} is not supported; use one of {', '.join(_CODECS)}"
    )


def _without_unused(table: pa.Table) -> pa.Table:
    """Returns ``table`` without dictionary values that alone are unused, beside NULLs."""
    for number, column in enumerate(table.columns):
        if not (pa.types.is_dictionary(column.type) and column.null_count):
            continue
        if all(_used_indices(chunk) is None for chunk in column.chunks):
            continue
        # Chunks get one dictionary: where dictionaries differ, pyarrow ends dictionary encoding.
        unified = column.unify_dictionaries().combine_chunks()
        used = _used_indices(unified)
        column_without = pa.chunked_array(
            [unified if used is None else _with_used_values(unified, used)], column.type
        )
        table = table.set_column(number, table.schema.field(number), column_without)
    return table


def _used_indices(chunk: pa.DictionaryArray) -> pa.Array | None:
    """Returns the used indices if one value is unused and there are NULLs, else None."""
    if not chunk.null_count:
        return None
    used = chunk.indices.unique().drop_null().sort()
    return used if len(used) == len(chunk.dictionary) - 1 else None


def _with_used_values(chunk: pa.DictionaryArray, used: pa.Array) -> pa.DictionaryArray:
    used_values = chunk.dictionary.take(used)
    indices = pc.index_in(chunk.indices, value_set=used).cast(chunk.type.index_type)
    return pa.DictionaryArray.from_arrays(indices, used_values, ordered=chunk.type.ordered)


def _counted(kind: pa.DataType, *, is_within: bool) -> pa.DataType:
    if pa.types.is_dictionary(kind):
        return _LARGE_TYPES.get(kind.value_type, kind) if is_within else kind
    is_within = is_within or pa.types.is_nested(kind)
    return with_children(
        kind, lambda field: field.with_type(_counted(field.type, is_within=is_within))
    )
