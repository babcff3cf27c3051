"""Texts that are read as codes of a dictionary: which may be, and conditions asked of each once.

pyarrow gives a chunk's codes as they are in the file beside its dictionary without repetitions, so
the codes of a dictionary that repeats a text would mean others.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

import pyarrow as pa
import pyarrow.compute as pc

from intarsia.decode.page_body import check_size, decompress
from intarsia.decode.page_check import has_codes_only, told_encodings
from intarsia.errors import FormatError, UnsupportedError
from intarsia.format.metadata import DICTIONARY_ENCODINGS, ColumnMetaData, PageType
from intarsia.format.page_header import read_page_header
from intarsia.read.opened import OpenedFile

_CODED = {kind: pa.dictionary(pa.int32(), kind) for kind in (pa.string(), pa.large_string())}
_LEAST_VALUES = 16 * 1024
"""Of a chunk: the texts of fewer are soon decoded."""
_MOST_BYTES = 256 * 1024
"""Of a dictionary as it is stored: the texts of a longer one may be many."""
_LENGTH, _PART = 4, 4096


Path = tuple[str, ...]


class NotCodedError(Exception):
    """The texts of a chunk cannot be read as codes."""


def coded_type(kind: pa.DataType) -> pa.DataType | None:
    """What texts of a type are as codes; None for whatever is no text."""
    return next((coded for text, coded in _CODED.items() if text == kind), None)


def is_coded(kind: pa.DataType) -> bool:
    """Is it what texts are as codes?"""
    return bool(pa.types.is_dictionary(kind)) and kind == coded_type(kind.value_type)


def coded_field(field: pa.Field, paths: Collection[Path], *around: str) -> pa.Field:
    """A field with codes for texts on ``paths``, of structs that are ``around`` it or within."""
    path = (*around, field.name)
    if path in paths:
        return field.with_type(coded_type(field.type))
    if not any(one[: len(path)] == path for one in paths):
        return field
    return field.with_type(pa.struct([coded_field(one, paths, *path) for one in field.type]))


def may_be_coded(file: OpenedFile, groups: Iterable[int], leaf: int) -> bool:
    """Are a leaf's chunks in ``groups`` all codes, as far as the footer and reads before tell?"""
    known = file.are_codes_distinct
    return all(
        known.get((group, leaf), True) and _may_be(file.chunk(group, leaf)) for group in groups
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
    size, most = chunk.data_page_offset - chunk.start, min(_MOST_BYTES, chunk.num_values)
    return 0 < size <= most and chunk.num_values >= _LEAST_VALUES


def check_codes(
    file: OpenedFile,
    group: int,
    leaf: int,
    dictionary: memoryview | None,
    pages: Iterable[memoryview],
) -> None:
    """Raise ``NotCodedError`` unless all of a chunk's codes are of texts that differ.

    ``dictionary`` is the page that lies before its others, ``pages`` those that are read.
    """
    known, chunk = file.are_codes_distinct, file.chunk(group, leaf)
    if (group, leaf) not in known:
        known[group, leaf] = _are_distinct(dictionary, chunk.codec)
    if known[group, leaf] and not has_codes_only(chunk):
        known[group, leaf] = all(map(_are_codes, pages))
    if not known[group, leaf]:
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


def _are_distinct(page: memoryview | None, codec: int) -> bool:
    """Are the texts of a dictionary page all different?"""
    if page is None:
        return False
    try:
        header, length = read_page_header(page)
        check_size(header, codec)
        body = page[length : length + header.compressed_page_size]
        told = header.dictionary_page_header
        if header.type != PageType.DICTIONARY_PAGE or told is None:
            return False
        texts = bytes(decompress(codec, body, header.uncompressed_page_size))
    except (FormatError, UnsupportedError):  # decoding it will say what is wrong
        return False
    found, at, count = set(), 0, 0
    while at < len(texts):
        stop = at + _LENGTH + int.from_bytes(texts[at : at + _LENGTH], "little")
        found.add(texts[at + _LENGTH : stop])
        at, count = stop, count + 1
    return at == len(texts) and count == told.num_values == len(found)


Told = Callable[[pa.ChunkedArray], pa.ChunkedArray]
"""Says TRUE, FALSE or NULL of each text, and of NULL."""


def by_code(values: pa.ChunkedArray, holds: Told) -> pa.ChunkedArray:
    """What ``holds`` says of each of ``values``, which are coded; it is asked once of each text."""
    return pa.chunked_array([_by_code(chunk, holds) for chunk in values.chunks], pa.bool_())


def _by_code(chunk: pa.DictionaryArray, holds: Told) -> pa.Array:
    texts, codes = chunk.dictionary, chunk.indices
    nulls = pa.nulls(1 if codes.null_count else 0, texts.type)
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


def decoded(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """``table`` in the types of ``schema``, which has texts for codes."""
    columns = [
        column if column.type == field.type else texts_of(column, field.type)
        for column, field in zip(table.columns, schema, strict=True)
    ]
    return pa.Table.from_arrays(columns, schema=schema)


def texts_of(values: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    """``values`` cast to ``kind``, which has texts for codes: more than one array can hold, too."""
    try:
        return values.cast(kind)
    except pa.ArrowInvalid:
        starts = ((chunk, at) for chunk in values.chunks for at in range(0, len(chunk), _PART))
        parts = [chunk.slice(at, _PART).cast(kind) for chunk, at in starts]
        return pa.chunked_array(parts, kind)
