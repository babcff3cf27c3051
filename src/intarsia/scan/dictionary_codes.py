"""Texts that are read as codes of a dictionary: which may be, and conditions asked of each once.

pyarrow gives a chunk's codes as they are in the file beside its dictionary without repetitions, so
the codes of a dictionary that repeats a text would mean others.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from intarsia.decode.page_validation import has_codes_only, told_encodings
from intarsia.decode.splice import RowGroupBytes
from intarsia.errors import FormatError, PredicateError
from intarsia.expr.nested_types import Path
from intarsia.file.open_file import OpenedFile
from intarsia.parquet.metadata import DICTIONARY_ENCODINGS, ColumnMetaData
from intarsia.parquet.page_header import read_page_header
from intarsia.parquet.schema import Leaf, Schema

Holds = Callable[[pa.ChunkedArray], pa.ChunkedArray]
"""Says TRUE, FALSE or NULL of each text, and of NULL."""
_CODED = {kind: pa.dictionary(pa.int32(), kind) for kind in (pa.string(), pa.large_string())}
_LEAST_VALUES = 16 * 1024
"""Of a chunk: the texts of fewer are soon decoded. (Engines are handed codes of longer chunks only:
each batch then comes with all of a dictionary.)
"""
_MOST_BYTES = 256 * 1024
"""Of a dictionary as it is stored: the texts of a longer one may be many."""
_BYTES_A_VALUE = 3
"""Of codes and dictionary together, decompressed: where there are more, texts are many."""
_PART = 4096
"""Rows that are cast at once, where all of them make more text than one array can hold."""


class NotCodedError(Exception):
    """The texts of a chunk cannot be read as codes."""


def coded_type(kind: pa.DataType) -> pa.DataType | None:
    """What texts of a type are as codes; None for whatever is no text."""
    # A type of a user's need have no hash.
    return next((coded for text, coded in _CODED.items() if text == kind), None)


def coded_form(kind: pa.DataType) -> pa.DataType | None:
    """What texts, or maps of which the keys are texts, are with codes; None for whatever else."""
    if not pa.types.is_map(kind):
        return coded_type(kind)
    key = coded_type(kind.key_type)
    return None if key is None else pa.map_(kind.key_field.with_type(key), kind.item_field)


def is_coded(kind: pa.DataType) -> bool:
    """Is it what texts are as codes?"""
    return bool(pa.types.is_dictionary(kind)) and kind == coded_type(kind.value_type)


def coded_field(field: pa.Field, paths: Collection[Path], *around: str) -> pa.Field:
    """A field with codes for texts, and keys of maps, on ``paths``, of structs that are ``around``
    it or within.
    """
    path = (*around, field.name)
    if path in paths:
        return field.with_type(coded_form(field.type))
    if not any(one[: len(path)] == path for one in paths):
        return field
    return field.with_type(pa.struct([coded_field(one, paths, *path) for one in field.type]))


def coded_leaf(schema: Schema, path: Path) -> Leaf | None:
    """The leaf of the texts, or of the keys of maps, at ``path``."""
    return next((leaf for leaf in schema.leaves if leaf.path[: len(path)] == path), None)


def may_be_coded(file: OpenedFile, groups: Iterable[int], leaf: int) -> bool:
    """Are a leaf's chunks in ``groups`` all codes, as far as the footer and reads before tell?"""
    return all(
        (group, leaf) not in file.not_coded and _may_be(file.chunk(group, leaf)) for group in groups
    )


def _may_be(chunk: ColumnMetaData) -> bool:
    """Not every writer counts the pages of each encoding."""
    if told_encodings(chunk):
        return has_codes_only(chunk)
    return chunk.start < chunk.data_page_offset and not DICTIONARY_ENCODINGS.isdisjoint(
        chunk.encodings
    )


def are_few(file: OpenedFile, groups: Iterable[int], leaf: int) -> bool:
    """Are the dictionaries of a leaf's chunks small beside their values, by the footer?"""
    return all(_is_small(file.chunk(group, leaf)) for group in groups)


def _is_small(chunk: ColumnMetaData) -> bool:
    stored, count = chunk.data_page_offset - chunk.start, chunk.num_values
    is_small = 0 < stored <= _MOST_BYTES and chunk.total_uncompressed_size <= _BYTES_A_VALUE * count
    return is_small and count >= _LEAST_VALUES


def check_codes(
    file: OpenedFile,
    group: int,
    leaf: int,
    dictionary: memoryview | None,
    pages: Iterable[memoryview],
) -> None:
    """Raise ``NotCodedError`` unless pages of a chunk hold codes only.

    ``dictionary`` is the page that lies before its others, ``pages`` those that are read.
    """
    is_told = has_codes_only(file.chunk(group, leaf))
    if _num_entries(dictionary) is None or not (is_told or all(map(_are_codes, pages))):
        file.not_coded.add((group, leaf))
        raise NotCodedError


def _are_codes(pages: memoryview) -> bool:
    """Are all pages that lie here, one after the other, of a dictionary's codes?"""
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
    """Raise ``NotCodedError`` where pyarrow left out what a dictionary has twice, ``FormatError``
    for codes of nothing that is in it.

    ``values`` are all rows of ``groups``; the codes are those of the leaf at ``path``, whose chunk
    has place ``at`` among each group's.
    """
    stops = np.cumsum([group.num_rows for group in groups])
    row = 0
    for chunk in filter(len, values.chunks):
        coded = _coded_at(chunk, path[1:])
        group = groups[int(np.searchsorted(stops, row, side="right"))]
        if len(coded.dictionary) != _num_entries(group.chunks[at].dictionary):
            raise NotCodedError
        codes = pc.min_max(coded.indices)
        if codes["max"].is_valid and not (
            0 <= codes["min"].as_py() <= codes["max"].as_py() < len(coded.dictionary)
        ):
            raise FormatError("index not in dictionary bounds")
        row += len(chunk)


def _coded_at(values: pa.Array, path: Path) -> pa.DictionaryArray:
    """The codes at a path below a column: of maps, those of their keys. Where nothing but the keys
    was read of maps, they are lists of structs of one field.
    """
    for name in path:
        if pa.types.is_map(values.type):
            return values.keys
        if pa.types.is_list(values.type):
            return values.values.field(0)
        values = values.field(name)
    return values


def _num_entries(dictionary: memoryview | None) -> int | None:
    """How many values a dictionary page has, as its header says; None where there is no header."""
    if dictionary is None:
        return None
    try:
        told = read_page_header(dictionary)[0].dictionary_page_header
    except FormatError:  # decoding it will say what is wrong
        return None
    return None if told is None else told.num_values


def by_code(values: pa.ChunkedArray, holds: Holds) -> pa.ChunkedArray:
    """What ``holds`` says of each of ``values``, which are coded; it is asked once of each text."""
    return pa.chunked_array([_by_code(chunk, holds) for chunk in values.chunks], pa.bool_())


def _by_code(chunk: pa.DictionaryArray, holds: Holds) -> pa.Array:
    texts, codes = chunk.dictionary, chunk.indices
    nulls = pa.nulls(1 if codes.null_count else 0, texts.type)
    try:
        flags = holds(pa.chunked_array([texts, nulls])).combine_chunks()
    except (PredicateError, pa.ArrowException):  # perhaps of a text that no row has
        texts, codes = _used(texts, codes)
        flags = holds(pa.chunked_array([texts, nulls])).combine_chunks()
    if codes.null_count:
        if flags[-1].is_valid:
            codes = codes.fill_null(len(texts))
        else:
            flags = flags.slice(0, len(texts))
    places = [] if flags.null_count else pc.indices_nonzero(flags)
    if len(places) == 1:  # which is quicker than looking up each
        return pc.equal(codes, places[0].cast(codes.type))
    return flags.take(codes)


def _used(texts: pa.Array, codes: pa.Array) -> tuple[pa.Array, pa.Array]:
    """The texts that there are codes of, and the codes of these."""
    found = codes.dictionary_encode()
    return texts.take(found.dictionary), found.indices


def with_texts(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """``table`` in the types of ``schema``, which has texts for codes."""
    columns = [
        column if column.type == field.type else texts_of(column, field.type)
        for column, field in zip(table.columns, schema, strict=True)
    ]
    return pa.Table.from_arrays(columns, schema=schema)


def texts_of(values: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    """``values`` cast to ``kind``, which has texts for codes."""
    try:
        return values.cast(kind)
    except pa.ArrowInvalid:
        starts = ((chunk, at) for chunk in values.chunks for at in range(0, len(chunk), _PART))
        parts = [chunk.slice(at, _PART).cast(kind) for chunk, at in starts]
        return pa.chunked_array(parts, kind)
