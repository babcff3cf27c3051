"""pyarrow's writer, with counts of NULL and bounds that hold.

Arrow's leaves NULL structs out of the counts of NULL of dictionaries below them, in chunks and in
pages, and other readers go by those. Texts it counts, and it makes the same pages of them: so those
within structs, lists and maps are written as texts, and the Arrow schema that is stored says what
they were.

It also takes NULL for one more value of a dictionary: where all of its values but one are used,
bounds are those of the whole dictionary, and said to be exact. DuckDB answers by them. The value
that is not used is left out before.
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
from intarsia.writer.defaults import USUAL_ROW_GROUP

_TEXTS = {
    pa.string(): pa.large_string(),
    pa.large_string(): pa.large_string(),
    pa.binary(): pa.large_binary(),
    pa.large_binary(): pa.large_binary(),
}
_GIVEN = ("table", "where", "kwargs")
"""Of the arguments of pyarrow's ``write_table``, those that are no options."""
_CODECS = ("none", "snappy", "gzip", "brotli", "lz4", "zstd")


class ArrowWriter(pq.ParquetWriter):  # type: ignore[misc]  # pyarrow is not typed
    """As ``pyarrow.parquet.ParquetWriter``, whose arguments it takes."""

    def __init__(self, where: Any, schema: pa.Schema, **options: Any) -> None:
        fields = [field.with_type(_counted(field.type, is_within=False)) for field in schema]
        counted = pa.schema(fields, schema.metadata)
        self._cast_to = None if counted.equals(schema) else counted
        self._has_dictionaries = any(map(pa.types.is_dictionary, counted.types))
        stores = options.pop("store_schema", True)
        try:
            super().__init__(where, counted, store_schema=stores and not self._cast_to, **options)
        except TypeError as error:
            raise _unknown_option(error) from error
        except pa.ArrowException as error:
            raise _unknown_codec(error) from error
        if stores and self._cast_to:
            named = [own.with_name(new.name) for own, new in zip(schema, self.schema, strict=True)]
            told = base64.b64encode(pa.schema(named, schema.metadata).serialize())
            self.add_key_value_metadata({**(schema.metadata or {}), ARROW_SCHEMA.encode(): told})

    def write_table(self, table: pa.Table, row_group_size: int | None = None) -> None:
        """As pyarrow's."""
        if self._cast_to is None and not self._has_dictionaries:
            super().write_table(table, row_group_size)
            return
        size = USUAL_ROW_GROUP if row_group_size in (None, -1) else row_group_size
        step = size if size > 0 else max(table.num_rows, 1)  # of no size, pyarrow says that
        for start in range(0, max(table.num_rows, 1), step):
            part = table.slice(start, step)
            part = part if self._cast_to is None else part.cast(self._cast_to)
            super().write_table(_without_unused(part), size)


def _unknown_option(error: TypeError) -> TypeError:
    """Of an option that pyarrow does not know, an error that says which are."""
    unknown = re.search(r"unexpected keyword argument '(\w+)'", str(error))
    if unknown is None:
        return error
    known = [name for name in inspect.signature(pq.write_table).parameters if name not in _GIVEN]
    return TypeError(f"option {unknown[1]!r} is not there{instead(unknown[1], known)}")


def _unknown_codec(error: pa.ArrowException) -> pa.ArrowException:
    """Of a codec that pyarrow does not know, an error that says which are."""
    unknown = re.fullmatch(r"Unsupported compression: (.*)", str(error))
    if unknown is None:
        return error
    return pa.ArrowInvalid(f"compression {unknown[1]!r} is none of {', '.join(_CODECS)}")


def _without_unused(table: pa.Table) -> pa.Table:
    """``table`` without what is the only value of a dictionary not used, beside NULLs."""
    for number, column in enumerate(table.columns):
        if not (pa.types.is_dictionary(column.type) and column.null_count):
            continue
        if all(_used_of(chunk) is None for chunk in column.chunks):
            continue
        # With one dictionary for all: where they differ, Arrow writes values from then on.
        one = column.unify_dictionaries().combine_chunks()
        used = _used_of(one)
        found = pa.chunked_array([one if used is None else _with_used(one, used)], column.type)
        table = table.set_column(number, table.schema.field(number), found)
    return table


def _used_of(chunk: pa.DictionaryArray) -> pa.Array | None:
    """The indices of the values in use, where that is all but one and NULLs take its place."""
    if not chunk.null_count:
        return None
    used = chunk.indices.unique().drop_null().sort()
    return used if len(used) == len(chunk.dictionary) - 1 else None


def _with_used(chunk: pa.DictionaryArray, used: pa.Array) -> pa.DictionaryArray:
    known = chunk.dictionary.take(used)
    indices = pc.index_in(chunk.indices, value_set=used).cast(chunk.type.index_type)
    return pa.DictionaryArray.from_arrays(indices, known, ordered=chunk.type.ordered)


def _counted(kind: pa.DataType, *, is_within: bool) -> pa.DataType:
    if pa.types.is_dictionary(kind):
        return _TEXTS.get(kind.value_type, kind) if is_within else kind
    is_within = is_within or pa.types.is_nested(kind)
    return with_children(
        kind, lambda field: field.with_type(_counted(field.type, is_within=is_within))
    )
