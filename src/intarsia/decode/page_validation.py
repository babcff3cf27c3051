"""Checks pages for damage, using the page itself and its chunk's metadata in the footer.

The body has a checksum if the writer made one. The header has none: it is compared with the footer,
with the length of the body and, in a V2 page, with the levels.
"""

from __future__ import annotations

from dataclasses import dataclass

from intarsia.decode.page_data import check_size, decompress, page_levels
from intarsia.decode.page_size_limit import over_limit
from intarsia.errors import FormatError
from intarsia.parquet.levels import hybrid_bytes
from intarsia.parquet.metadata import (
    DICTIONARY_ENCODINGS,
    ColumnMetaData,
    CompressionCodec,
    DataPageHeaderV2,
    Encoding,
    PageHeader,
    PageType,
)
from intarsia.parquet.page_header import checksum_problem, num_values, read_page_header
from intarsia.parquet.schema import Leaf
from intarsia.parquet.value_display import numbered

_DICTIONARY_PAGE_ENCODINGS = {Encoding.PLAIN, Encoding.PLAIN_DICTIONARY}
_VALUE_ENCODINGS = set(Encoding) - {Encoding.ALP}
"""Encodings of values that pyarrow can decode."""
_LEVEL_ENCODINGS = {Encoding.RLE, Encoding.BIT_PACKED}
_DATA_PAGE_TYPES = (PageType.DATA_PAGE, PageType.DATA_PAGE_V2)


@dataclass(frozen=True, slots=True)
class CheckedPage:
    """The result of a check. Without a header, the start of the next page is unknown."""

    header: PageHeader | None
    size: int
    """Bytes of header and body, according to the header. 0 without a header."""
    problem: str | None

    @property
    def num_values(self) -> int | None:
        """Values of a data page, NULLs included. None for a page of another type."""
        return None if self.header is None else num_values(self.header)


def check_page(
    data: memoryview, leaf: Leaf, chunk: ColumnMetaData, limit: int | None = None
) -> CheckedPage:
    """Checks the page at the start of ``data``, which may take ``limit`` bytes at most."""
    try:
        header, length = read_page_header(data)
    except FormatError as error:
        return CheckedPage(None, 0, f"its header cannot be read: {error.message}")
    size = length + header.compressed_page_size
    if size > data.nbytes:
        claim = f"its header claims {size:,} bytes, {data.nbytes:,} are left"
        return CheckedPage(None, 0, claim)
    body = data[length:size]
    try:
        problem = (
            checksum_problem(header, body)
            or over_limit(header, leaf, limit)
            or _header_problem(header, body, leaf, chunk)
        )
    except FormatError as error:
        problem = error.message
    return CheckedPage(header, size, problem)


def _header_problem(
    header: PageHeader, body: memoryview, leaf: Leaf, chunk: ColumnMetaData
) -> str | None:
    """Returns what is wrong with a header, or None. May raise ``FormatError`` instead."""
    check_size(header, chunk.codec)
    if header.type == PageType.DICTIONARY_PAGE:
        dictionary = header.dictionary_page_header
        if dictionary is None or dictionary.num_values < 0:
            return "a dictionary page without its header"
        if dictionary.encoding not in _DICTIONARY_PAGE_ENCODINGS:
            return f"a dictionary in encoding {dictionary.encoding}"
        return _size_problem(header, chunk.codec)
    if header.type not in _DATA_PAGE_TYPES:
        return None  # pages of unknown types are skipped
    count = num_values(header)
    if count is None or count < 0:
        return "a data page without a number of values"
    data = header.data_page_header or header.data_page_header_v2
    assert data is not None
    if data.encoding not in _VALUE_ENCODINGS:
        return f"values in encoding {numbered(Encoding, data.encoding)}, which is not supported"
    if data.encoding not in data_encodings(chunk):
        return f"values in encoding {data.encoding}, which the footer does not list"
    if header.data_page_header_v2 is not None and header.type == PageType.DATA_PAGE_V2:
        return _problem_v2(header, header.data_page_header_v2, body, leaf, chunk)
    return _problem_v1(header, leaf, chunk)


def data_encodings(chunk: ColumnMetaData) -> set[int]:
    """Returns the encodings that values in the chunk's pages may have, according to the footer."""
    encodings = data_page_encodings(chunk)
    if encodings:
        return encodings | DICTIONARY_ENCODINGS if encodings & DICTIONARY_ENCODINGS else encodings
    if not chunk.encodings:  # written by older versions of DuckDB, and by fastparquet
        return {int(encoding) for encoding in Encoding}
    # Parquet.Net does not list dictionary encodings. Without a dictionary page, decoding fails.
    return set(chunk.encodings) | DICTIONARY_ENCODINGS


def data_page_encodings(chunk: ColumnMetaData) -> set[int]:
    """Returns the encodings of data pages in the chunk's ``encoding_stats``. Empty without any."""
    return {
        s.encoding
        for s in chunk.encoding_stats or ()
        if s.page_type in _DATA_PAGE_TYPES and s.count > 0
    }


def has_dictionary_pages_only(chunk: ColumnMetaData) -> bool:
    """True if ``encoding_stats`` says that all data pages are dictionary-encoded."""
    encodings = data_page_encodings(chunk)
    return bool(encodings) and encodings <= DICTIONARY_ENCODINGS


def level_encodings(chunk: ColumnMetaData) -> set[int]:
    """Returns the encodings that levels may have. Default: RLE, which not all writers list."""
    encodings = set(chunk.encodings) & _LEVEL_ENCODINGS
    return encodings or {Encoding.RLE}


def _problem_v1(header: PageHeader, leaf: Leaf, chunk: ColumnMetaData) -> str | None:
    v1 = header.data_page_header
    assert v1 is not None
    for encoding, highest in (
        (v1.definition_level_encoding, leaf.max_definition_level),
        (v1.repetition_level_encoding, leaf.max_repetition_level),
    ):
        if highest and encoding not in level_encodings(chunk):
            return f"levels in encoding {encoding}, which the footer does not list"
    return _size_problem(header, chunk.codec)


def _problem_v2(
    header: PageHeader,
    v2: DataPageHeaderV2,
    body: memoryview,
    leaf: Leaf,
    chunk: ColumnMetaData,
) -> str | None:
    levels = page_levels(header, body, leaf, chunk.codec)
    first, second = v2.repetition_levels_byte_length, v2.definition_levels_byte_length
    for data, highest in (
        (body[:first], leaf.max_repetition_level),
        (body[first : first + second], leaf.max_definition_level),
    ):
        used_bytes = hybrid_bytes(data, highest, v2.num_values) if highest else 0
        if used_bytes < data.nbytes:
            return f"levels take {used_bytes:,} bytes, the header says {data.nbytes:,}"
    rows, present = levels.num_rows(), levels.num_present(leaf.max_definition_level)
    # Some writers store the number of values as the number of rows.
    if v2.num_rows not in (rows, v2.num_values) or v2.num_values - present != v2.num_nulls:
        nulls = v2.num_values - present
        return (
            f"levels have {rows:,} rows and {nulls:,} NULLs, "
            f"the header says {v2.num_rows:,} and {v2.num_nulls:,}"
        )
    if not levels.begins_a_row:
        return "it begins within a row"
    stored = CompressionCodec.UNCOMPRESSED if v2.is_compressed is False else chunk.codec
    return _size_problem(header, stored)


def _size_problem(header: PageHeader, codec: int) -> str | None:
    stored, uncompressed = header.compressed_page_size, header.uncompressed_page_size
    if codec == CompressionCodec.UNCOMPRESSED and stored != uncompressed:
        return f"uncompressed_page_size is {uncompressed:,} of {stored:,} bytes, uncompressed"
    return None


def undoes(codec: int, header: PageHeader, body: memoryview) -> bool:
    """True if decompressing the body with ``codec`` gives as many bytes as the header says."""
    size, v2 = header.uncompressed_page_size, header.data_page_header_v2
    levels = 0
    if v2 is not None:
        levels = v2.repetition_levels_byte_length + v2.definition_levels_byte_length
        if v2.is_compressed is False:
            codec = CompressionCodec.UNCOMPRESSED
    if not 0 <= levels <= min(body.nbytes, size):
        return False
    try:
        check_size(header, codec)
        decompress(codec, body[levels:], size - levels)
    except FormatError:
        return False
    return True
