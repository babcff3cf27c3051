"""Reads strings as dictionary indices, and evaluates conditions once for each entry.

pyarrow returns the file's indices together with the dictionary without duplicates. If a dictionary
has duplicates, the indices would therefore mean other strings.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from intarsia.decode.page_validation import data_page_encodings, has_dictionary_pages_only
from intarsia.decode.splice import RowGroupBytes
from intarsia.errors import FormatError, PredicateError
from intarsia.expr.nested_types import Path
from intarsia.file.open_file import OpenedFile
from intarsia.parquet.metadata import DICTIONARY_ENCODINGS, ColumnMetaData
from intarsia.parquet.page_header import read_page_header
from intarsia.parquet.schema import Leaf, Schema

Holds = Callable[[pa.ChunkedArray], pa.ChunkedArray]
"""Returns TRUE, FALSE or NULL for each string, and for NULL."""
_DICTIONARY_TYPES = {
    kind: pa.dictionary(pa.int32(), kind) for kind in (pa.string(), pa.large_string())
}
_MIN_VALUES = 16 * 1024
"""Chunks with fewer values are decoded as strings. Engines get indices of larger chunks only,
because each batch carries the whole dictionary.
"""
_MAX_DICTIONARY_BYTES = 256 * 1024
"""A larger stored dictionary may have many entries."""
_MAX_BYTES_PER_VALUE = 3
"""Uncompressed bytes of indices and dictionary together. With more, distinct strings are many."""
_CAST_ROWS = 4096
"""Rows cast at a time if the strings of all rows are too long for one array."""


class NotDictionaryEncodedError(Exception):
    """The strings of a chunk cannot be read as dictionary indices."""


def dictionary_type(kind: pa.DataType) -> pa.DataType | None:
    """Returns the dictionary type for a string type; None for other types."""
    for string, dictionary in _DICTIONARY_TYPES.items():  # user-defined types may have no hash
        if string == kind:
            return dictionary
    return None


def dictionary_form(kind: pa.DataType) -> pa.DataType | None:
    """Returns the dictionary type for strings, or for maps with string keys; None for others."""
    if not pa.types.is_map(kind):
        return dictionary_type(kind)
    key = dictionary_type(kind.key_type)
    return None if key is None else pa.map_(kind.key_field.with_type(key), kind.item_field)


def is_string_dictionary(kind: pa.DataType) -> bool:
    """True if it is the dictionary type of a string type."""
    return bool(pa.types.is_dictionary(kind)) and kind == dictionary_type(kind.value_type)


def with_dictionaries(field: pa.Field, paths: Collection[Path], *parents: str) -> pa.Field:
    """Returns a field with dictionary types for the strings and map keys at ``paths``.

    ``parents`` are the names of the structs around the field.
    """
    path = (*parents, field.name)
    if path in paths:
        return field.with_type(dictionary_form(field.type))
    if not any(other[: len(path)] == path for other in paths):
        return field
    return field.with_type(
        pa.struct([with_dictionaries(other, paths, *path) for other in field.type])
    )


def string_leaf(schema: Schema, path: Path) -> Leaf | None:
    """Returns the leaf of the strings, or of the map keys, at ``path``."""
    return next((leaf for leaf in schema.leaves if leaf.path[: len(path)] == path), None)


def may_be_dictionary_encoded(file: OpenedFile, groups: Iterable[int], leaf: int) -> bool:
    """True if the footer and earlier reads allow all chunks of a leaf to be dictionary-encoded."""
    return all(
        (group, leaf) not in file.without_dictionary_indices
        and _may_be_indices(file.chunk(group, leaf))
        for group in groups
    )


def _may_be_indices(chunk: ColumnMetaData) -> bool:
    """True if the footer allows the chunk to be dictionary-encoded.

    Some writers do not store how many pages have each encoding.
    """
    if data_page_encodings(chunk):
        return has_dictionary_pages_only(chunk)
    return chunk.start < chunk.data_page_offset and not DICTIONARY_ENCODINGS.isdisjoint(
        chunk.encodings
    )


def has_few_entries(file: OpenedFile, groups: Iterable[int], leaf: int) -> bool:
    """True if the dictionaries of a leaf's chunks are small compared with their values."""
    return all(_is_small(file.chunk(group, leaf)) for group in groups)


def _is_small(chunk: ColumnMetaData) -> bool:
    stored, count = chunk.data_page_offset - chunk.start, chunk.num_values
    is_small = (
        0 < stored <= _MAX_DICTIONARY_BYTES
        and chunk.total_uncompressed_size <= _MAX_BYTES_PER_VALUE * count
    )
    return is_small and count >= _MIN_VALUES


def check_dictionary_encoding(
    file: OpenedFile,
    group: int,
    leaf: int,
    dictionary: memoryview | None,
    pages: Iterable[memoryview],
) -> None:
    """Raises ``NotDictionaryEncodedError`` unless all pages of a chunk are dictionary-encoded.

    ``dictionary`` is the bytes before the first data page, ``pages`` the data pages read.
    """
    has_only_indices = has_dictionary_pages_only(file.chunk(group, leaf))
    if _num_entries(dictionary) is None or not (has_only_indices or all(map(_are_codes, pages))):
        file.without_dictionary_indices.add((group, leaf))
        raise NotDictionaryEncodedError


def _are_codes(pages: memoryview) -> bool:
    """True if all of these consecutive pages are dictionary-encoded."""
    at = 0
    try:
        while at < pages.nbytes:
            header, length = read_page_header(pages[at:])
            data = header.data_page_header or header.data_page_header_v2
            if data is None or data.encoding not in DICTIONARY_ENCODINGS:
                return False
            at += length + header.compressed_page_size
    except FormatError:  # decoding it will say what is wrong
        return False
    return True


def check_distinct(
    values: pa.ChunkedArray, path: Path, groups: Sequence[RowGroupBytes], at: int
) -> None:
    """Raises ``NotDictionaryEncodedError`` if pyarrow removed duplicates from a dictionary.

    Raises ``FormatError`` if an index is not in the dictionary. ``values`` are all rows of
    ``groups``. The indices are of the leaf at ``path``, whose chunk is number ``at`` of each group.
    """
    stops = np.cumsum([group.num_rows for group in groups])
    row = 0
    for chunk in filter(len, values.chunks):
        array = _dictionary_at(chunk, path[1:])
        group = groups[int(np.searchsorted(stops, row, side="right"))]
        if len(array.dictionary) != _num_entries(group.chunks[at].dictionary):
            raise NotDictionaryEncodedError
        range_of_indices = pc.min_max(array.indices)
        if range_of_indices["max"].is_valid and not (
            0
            <= range_of_indices["min"].as_py()
            <= range_of_indices["max"].as_py()
            < len(array.dictionary)
        ):
            raise FormatError("index not in dictionary bounds")
        row += len(chunk)


def _dictionary_at(values: pa.Array, path: Path) -> pa.DictionaryArray:
    """Returns the dictionary array at a path below a column; for maps, that of the keys.

    Maps of which only the keys were read are lists of structs with one field.
    """
    for name in path:
        if pa.types.is_map(values.type):
            return values.keys
        if pa.types.is_list(values.type):
            return values.values.field(0)
        values = values.field(name)
    return values


def _num_entries(dictionary: memoryview | None) -> int | None:
    """Returns the number of entries by the dictionary page's header; None without a header."""
    if dictionary is None:
        return None
    try:
        header = read_page_header(dictionary)[0].dictionary_page_header
    except FormatError:  # decoding it will say what is wrong
        return None
    return None if header is None else header.num_values


def map_entries(values: pa.ChunkedArray, evaluate: Holds) -> pa.ChunkedArray:
    """Evaluates a condition once for each dictionary entry, and returns its result by row."""
    return pa.chunked_array([_map_entries(chunk, evaluate) for chunk in values.chunks], pa.bool_())


def _map_entries(chunk: pa.DictionaryArray, evaluate: Holds) -> pa.Array:
    entries, indices = chunk.dictionary, chunk.indices
    nulls = pa.nulls(1 if indices.null_count else 0, entries.type)
    try:
        flags = evaluate(pa.chunked_array([entries, nulls])).combine_chunks()
    except (PredicateError, pa.ArrowException):  # perhaps because of an entry that no row has
        entries, indices = _used_entries(entries, indices)
        flags = evaluate(pa.chunked_array([entries, nulls])).combine_chunks()
    if indices.null_count:
        if flags[-1].is_valid:
            indices = indices.fill_null(len(entries))
        else:
            flags = flags.slice(0, len(entries))
    true_entries = [] if flags.null_count else pc.indices_nonzero(flags)
    if len(true_entries) == 1:  # faster than looking up each index
        return pc.equal(indices, true_entries[0].cast(indices.type))
    return flags.take(indices)


def _used_entries(entries: pa.Array, indices: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Returns the entries that indices refer to, and the indices into these."""
    reencoded = indices.dictionary_encode()
    return entries.take(reencoded.dictionary), reencoded.indices


def with_string_columns(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Casts dictionary columns of ``table`` to the string types of ``schema``."""
    columns = [
        column if column.type == field.type else cast_to_strings(column, field.type)
        for column, field in zip(table.columns, schema, strict=True)
    ]
    return pa.Table.from_arrays(columns, schema=schema)


def cast_to_strings(values: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    """Casts dictionary values to ``kind``, the type with strings."""
    try:
        return values.cast(kind)
    except pa.ArrowInvalid:
        starts = (
            (chunk, start) for chunk in values.chunks for start in range(0, len(chunk), _CAST_ROWS)
        )
        parts = [chunk.slice(start, _CAST_ROWS).cast(kind) for chunk, start in starts]
        return pa.chunked_array(parts, kind)
