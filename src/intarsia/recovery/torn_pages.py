"""Reads pages of a file that may be torn: counts rows by levels, and checks values by decoding."""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from intarsia.decode.page_data import check_size, decompress, page_levels
from intarsia.decode.splice import ChunkBytes, RowGroupBytes, leaf_batches
from intarsia.decode.synthetic_footer import SchemaTemplates
from intarsia.errors import FormatError, UnsupportedError
from intarsia.file.chunk_reader import run_bytes
from intarsia.io.source import Source
from intarsia.memory import AllocationBudget
from intarsia.parquet.levels import bit_packed_bytes
from intarsia.parquet.metadata import (
    ColumnMetaData,
    CompressionCodec,
    Encoding,
    PageHeader,
    PageType,
    Type,
)
from intarsia.parquet.page_header import ReadAhead, read_page_header
from intarsia.parquet.schema import Leaf, Schema
from intarsia.recovery.byte_scan import Checksum, Pages

_CODECS = frozenset(CompressionCodec)
_WIDTHS = {
    Type.BOOLEAN: 1,
    Type.INT32: 32,
    Type.INT64: 64,
    Type.INT96: 96,
    Type.FLOAT: 32,
    Type.DOUBLE: 64,
}
"""Bits of a value in PLAIN encoding."""
_READ_AHEAD_BYTES = 64 * 1024
"""Bytes that are read at once of pages shorter than that."""
_MAX_STRINGS = 64
"""Strings of a page whose lengths are added up one by one. The rest is not."""
_BATCH_ROWS = 16 * 1024
"""Rows that are decoded at a time. Values are only counted, so small batches save memory."""


@dataclass(frozen=True, slots=True)
class PageRows:
    """The number of rows that begin in a page, and whether its first value begins one."""

    count: int
    begins_a_row: bool


class TornPages:
    """The pages of ``source`` by number."""

    def __init__(
        self, source: Source, pages: Pages, schema: Schema, templates: SchemaTemplates
    ) -> None:
        self.source, self.pages, self.schema = source, pages, schema
        self._templates = templates
        self._ahead = ReadAhead(source, source.size, _READ_AHEAD_BYTES)
        self._rows: dict[tuple[int, int, int], PageRows] = {}
        self._wrong: list[int] = np.flatnonzero(pages.checksum == Checksum.WRONG).tolist()
        """Numbers of pages that do not match their checksums."""

    def read(self, page: int) -> tuple[PageHeader, memoryview]:
        """Returns a page's header and its body as stored."""
        header, size = read_page_header(data := self._bytes_of(page))
        return header, data[size:]

    def _bytes_of(self, page: int) -> memoryview:
        at = int(self.pages.offset[page])
        length = int(self.pages.stop[page]) - at
        if self.pages.is_dictionary[page]:  # read again along with pages far behind it
            return self.source.read([(at, length)])[0]
        return self._ahead.read(at, length)

    def rows(self, page: int, leaf: Leaf, codec: int) -> PageRows:
        """Returns the rows of a data page. Raises ``FormatError`` if its levels are damaged."""
        values, claim = int(self.pages.values[page]), int(self.pages.rows[page])
        if not leaf.max_repetition_level:
            if claim not in (-1, values):
                raise FormatError(f"a page of {values:,} values claims {claim:,} rows")
            return PageRows(values, True)
        known = self._rows.get((page, leaf.index, codec))
        if known is None:
            header, body = self.read(page)
            levels = page_levels(header, body, leaf, codec)
            # Readers count rows by levels; some writers count values as rows in V2 headers.
            known = PageRows(levels.num_rows(), levels.begins_a_row)
            self._rows[page, leaf.index, codec] = known
        return known

    def data_pages(self, first: int, stop: int) -> list[int]:
        """Returns the numbers of the data pages among ``[first, stop)``."""
        return [int(page) for page in first + np.flatnonzero(self.pages.is_data[first:stop])]

    def damage(self, first: int, stop: int) -> str | None:
        """Returns a message about the first of ``[first, stop)`` with a wrong checksum, or None."""
        at = bisect.bisect_left(self._wrong, first)
        if at == len(self._wrong) or self._wrong[at] >= stop:
            return None
        at = int(self.pages.offset[self._wrong[at]])
        return f"the page at offset {at:,} does not match its checksum"

    def unchecked(self, first: int, stop: int) -> int:
        """Returns the number of pages among ``[first, stop)`` without a checksum."""
        return int(np.count_nonzero(self.pages.checksum[first:stop] == Checksum.NONE))

    def decode(
        self,
        leaf: Leaf,
        metadata: ColumnMetaData,
        numbers: Sequence[int],
        *,
        to_last_byte: bool = False,
    ) -> int:
        """Decodes these pages and returns the number of values stored in them.

        A dictionary that they need comes first in ``numbers``. Raises ``FormatError`` if they
        cannot be decoded, or hold another number of values than their levels say. With
        ``to_last_byte``, PLAIN values have to end where their page ends. Raises
        ``UnsupportedError`` if pyarrow does not support them.
        """
        dictionary: list[memoryview] = []
        parts: list[memoryview] = []
        size = rows = values = present = decoded = 0
        for number in numbers:
            header, size_of_header = read_page_header(part := self._bytes_of(number))
            body = part[size_of_header:]
            check_size(header, metadata.codec)
            AllocationBudget().take(
                2 * (body.nbytes + header.uncompressed_page_size), f"page {number:,}"
            )
            is_plain = to_last_byte and self.pages.encoding[number] == Encoding.PLAIN
            if header.type not in (PageType.DATA_PAGE, PageType.DATA_PAGE_V2):
                entries = header.dictionary_page_header
                if to_last_byte and entries is not None:
                    _check_plain(leaf, metadata.codec, header, body, entries.num_values)
                (parts or dictionary).append(part)
                continue
            levels = page_levels(header, body, leaf, metadata.codec)
            if is_plain:
                num_present = levels.num_present(leaf.max_definition_level)
                _check_plain(leaf, metadata.codec, header, body, num_present)
            if not levels.num_values:  # pyarrow takes such a page for the end of the chunk
                continue
            if parts and size + part.nbytes > run_bytes() and levels.begins_a_row:
                decoded += self._num_decoded(leaf, metadata, [*dictionary, *parts], rows, values)
                parts, size, rows, values = [], 0, 0, 0
            rows += levels.num_rows()
            values += levels.num_values
            present += levels.num_present(leaf.max_definition_level)
            size += part.nbytes
            parts.append(part)
        decoded += self._num_decoded(leaf, metadata, [*dictionary, *parts], rows, values)
        if decoded != present:
            raise FormatError(f"{decoded:,} values where levels say {present:,}")
        return present

    def _num_decoded(
        self,
        leaf: Leaf,
        metadata: ColumnMetaData,
        parts: Sequence[memoryview],
        rows: int,
        values: int,
    ) -> int:
        """Returns how many values pyarrow decodes from pages. Raises the errors of ``decode``."""
        group = RowGroupBytes(rows, [ChunkBytes(metadata, None, parts, values)])
        template = self._templates.physical(self.schema, leaf)
        batches = leaf_batches(template, group, _BATCH_ROWS)
        return sum(len(batch) - batch.null_count for batch in batches)

    def is_decodable(self, leaf: Leaf, metadata: ColumnMetaData, numbers: Sequence[int]) -> bool:
        """True if pyarrow can decode these pages, to their last byte."""
        try:
            self.decode(leaf, metadata, numbers, to_last_byte=True)
        except FormatError:
            return False
        return True

    def chunk_problem(self, leaf: Leaf, metadata: ColumnMetaData, first: int, stop: int) -> str:
        """Returns why a chunk is lost, or "". Checksums do not cover page headers."""
        damage = self.damage(first, stop)
        if damage:
            return damage
        if metadata.codec not in _CODECS:
            return f"compression codec {metadata.codec} is not known"
        try:
            self.decode(leaf, metadata, range(first, stop))
        except UnsupportedError:
            return ""
        except FormatError as error:
            return str(error)
        return ""


def _check_plain(
    leaf: Leaf, codec: int, header: PageHeader, body: memoryview, num_present: int
) -> None:
    """Raises ``FormatError`` unless PLAIN values take exactly the page's bytes.

    pyarrow accepts extra bytes, so it would decode a page of strings as a page of numbers. Pages of
    more than ``_MAX_STRINGS`` strings may have extra bytes.
    """
    kind = leaf.element.type
    width = (leaf.element.type_length or 0) * 8
    if kind != Type.FIXED_LEN_BYTE_ARRAY:
        width = next((bits for known, bits in _WIDTHS.items() if known == kind), 0)
    if kind == Type.BYTE_ARRAY and num_present <= _MAX_STRINGS:
        levels, values = _level_bytes(leaf, codec, header, body, with_values=True)
        used = 0
        for _ in range(num_present):
            used += 4 + int.from_bytes(values[used : used + 4], "little")
    elif width:
        levels, _ = _level_bytes(leaf, codec, header, body)
        used = -(-num_present * width // 8)
    else:
        return
    if used != header.uncompressed_page_size - levels:
        raise FormatError(f"{num_present:,} values take {used:,} bytes, which the page has not")


def _level_bytes(
    leaf: Leaf, codec: int, header: PageHeader, body: memoryview, with_values: bool = False
) -> tuple[int, memoryview]:
    """Returns the bytes that levels take in a page, and ``with_values`` the bytes behind them."""
    v1, v2, size = (
        header.data_page_header,
        header.data_page_header_v2,
        header.uncompressed_page_size,
    )
    if v2 is not None:
        levels = v2.repetition_levels_byte_length + v2.definition_levels_byte_length
        if not with_values:
            return levels, body[:0]
        codec = CompressionCodec.UNCOMPRESSED if v2.is_compressed is False else codec
        return levels, decompress(codec, body[levels:], size - levels)
    highest = leaf.max_repetition_level, leaf.max_definition_level
    if not with_values and (v1 is None or not any(highest)):
        return 0, body[:0]
    data, at = decompress(codec, body, size), 0
    if v1 is not None:
        encodings = v1.repetition_level_encoding, v1.definition_level_encoding
        for encoding, level in zip(encodings, highest, strict=True):
            if level and encoding == Encoding.BIT_PACKED:
                at += bit_packed_bytes(level, v1.num_values)
            elif level:
                at += 4 + int.from_bytes(data[at : at + 4], "little")
    return at, data[at:]
