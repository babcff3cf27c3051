"""Whether a page is as it was written, as far as it and its chunk's footer entry can tell.

The body has a checksum, where the writer made one. The header has none: what it says is compared
with the footer, with the body's length and, in a V2 page, with the levels.
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

_OF_DICTIONARIES = {Encoding.PLAIN, Encoding.PLAIN_DICTIONARY}
_KNOWN_ENCODINGS = set(Encoding) - {Encoding.ALP}
"""Of values, those that pyarrow decodes."""
_LEVELS = {Encoding.RLE, Encoding.BIT_PACKED}
_DATA = (PageType.DATA_PAGE, PageType.DATA_PAGE_V2)


@dataclass(frozen=True, slots=True)
class CheckedPage:
    """A page as it was found. Without a header it cannot be told where the next page begins."""

    header: PageHeader | None
    size: int
    """Header and body in bytes, as the header says; 0 where there is none."""
    problem: str | None

    @property
    def num_values(self) -> int | None:
        """Values in a data page, NULLs included; None for a page of another type."""
        return None if self.header is None else num_values(self.header)


def check_page(
    data: memoryview, leaf: Leaf, chunk: ColumnMetaData, limit: int | None = None
) -> CheckedPage:
    """The page at the start of ``data``, which may go on behind it.

    One that holds more than ``limit`` bytes has a problem.
    """
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
    """What the header says that cannot be so. Raises ``FormatError`` likewise."""
    check_size(header, chunk.codec)
    if header.type == PageType.DICTIONARY_PAGE:
        dictionary = header.dictionary_page_header
        if dictionary is None or dictionary.num_values < 0:
            return "a dictionary page without its header"
        if dictionary.encoding not in _OF_DICTIONARIES:
            return f"a dictionary in encoding {dictionary.encoding}"
        return _size_problem(header, chunk.codec)
    if header.type not in _DATA:
        return None  # pages of types nobody knows yet are skipped
    count = num_values(header)
    if count is None or count < 0:
        return "a data page without a number of values"
    data = header.data_page_header or header.data_page_header_v2
    assert data is not None
    if data.encoding not in _KNOWN_ENCODINGS:
        return f"values in encoding {numbered(Encoding, data.encoding)}, which is not known here"
    if data.encoding not in data_encodings(chunk):
        return f"values in encoding {data.encoding}, which is none of the footer's"
    if header.data_page_header_v2 is not None and header.type == PageType.DATA_PAGE_V2:
        return _problem_v2(header, header.data_page_header_v2, body, leaf, chunk)
    return _problem_v1(header, leaf, chunk)


def data_encodings(chunk: ColumnMetaData) -> set[int]:
    """The encodings that values of the chunk's pages are in, by the footer."""
    told = told_encodings(chunk)
    if told:
        return told | DICTIONARY_ENCODINGS if told & DICTIONARY_ENCODINGS else told
    if not chunk.encodings:  # as in files of older DuckDBs, and of fastparquet
        return {int(encoding) for encoding in Encoding}
    # Parquet.Net does not name dictionaries'; without a dictionary none decodes.
    return set(chunk.encodings) | DICTIONARY_ENCODINGS


def told_encodings(chunk: ColumnMetaData) -> set[int]:
    """Those that the chunk's statistics of encodings name for data pages; none without any."""
    return {s.encoding for s in chunk.encoding_stats or () if s.page_type in _DATA and s.count > 0}


def has_codes_only(chunk: ColumnMetaData) -> bool:
    """Are all data pages said to be of a dictionary's codes?"""
    told = told_encodings(chunk)
    return bool(told) and told <= DICTIONARY_ENCODINGS


def level_encodings(chunk: ColumnMetaData) -> set[int]:
    """The encodings that levels may be in. Not every writer's footer tells that of today: RLE."""
    told = set(chunk.encodings) & _LEVELS
    return told or {Encoding.RLE}


def _problem_v1(header: PageHeader, leaf: Leaf, chunk: ColumnMetaData) -> str | None:
    v1 = header.data_page_header
    assert v1 is not None
    for encoding, highest in (
        (v1.definition_level_encoding, leaf.max_definition_level),
        (v1.repetition_level_encoding, leaf.max_repetition_level),
    ):
        if highest and encoding not in level_encodings(chunk):
            return f"levels in encoding {encoding}, which is none of the footer's"
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
        taken = hybrid_bytes(data, highest, v2.num_values) if highest else 0
        if taken < data.nbytes:
            return f"levels take {taken:,} bytes, the header says {data.nbytes:,}"
    rows, present = levels.num_rows(), levels.num_present(leaf.max_definition_level)
    # Some writers give the number of values for that of rows.
    if v2.num_rows not in (rows, v2.num_values) or v2.num_values - present != v2.num_nulls:
        nulls = v2.num_values - present
        return (
            f"levels tell {rows:,} rows and {nulls:,} NULLs, "
            f"the header {v2.num_rows:,} and {v2.num_nulls:,}"
        )
    if not levels.begins_a_row:
        return "it begins within a row"
    stored = CompressionCodec.UNCOMPRESSED if v2.is_compressed is False else chunk.codec
    return _size_problem(header, stored)


def _size_problem(header: PageHeader, codec: int) -> str | None:
    stored, whole = header.compressed_page_size, header.uncompressed_page_size
    if codec == CompressionCodec.UNCOMPRESSED and stored != whole:
        return f"uncompressed_page_size is {whole:,} of {stored:,} bytes, uncompressed"
    return None


def undoes(codec: int, header: PageHeader, body: memoryview) -> bool:
    """Does ``codec`` give as many bytes of a page's body as its header says?"""
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
