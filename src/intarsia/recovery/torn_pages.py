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
    DICTIONARY_ENCODINGS,
    ColumnMetaData,
    CompressionCodec,
    Encoding,
    PageHeader,
    PageType,
    Type,
)
from intarsia.parquet.page_header import read_page_header
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
        self._rows: dict[tuple[int, int, int], PageRows] = {}
        self._wrong: list[int] = np.flatnonzero(pages.checksum == Checksum.WRONG).tolist()
        """Numbers of pages that do not match their checksums."""

    def read(self, page: int) -> tuple[PageHeader, memoryview]:
        """Returns a page's header and its body as stored."""
        at, length = int(self.pages.offset[page]), int(self.pages.header_size[page])
        data = self.source.read([(at, length + int(self.pages.stored[page]))])[0]
        header, size = read_page_header(data)
        return header, data[size:]

    def rows(self, page: int, leaf: Leaf, codec: int) -> PageRows:
        """Returns the rows of a data page of ``leaf``.

        Raises ``FormatError`` if its levels are damaged.
        """
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

    def decode(self, leaf: Leaf, metadata: ColumnMetaData, numbers: Sequence[int]) -> int:
        """Decodes these pages and returns the number of values stored in them.

        A dictionary that they need comes first in ``numbers``. Raises ``FormatError`` if they
        cannot be decoded, or hold another number of values than their levels say. Raises
        ``UnsupportedError`` if pyarrow does not support them.
        """
        dictionary: list[memoryview] = []
        parts: list[memoryview] = []
        size = rows = values = present = decoded = 0
        for number in numbers:
            header, body = self.read(number)
            check_size(header, metadata.codec)
            AllocationBudget().take(
                2 * (body.nbytes + header.uncompressed_page_size), f"page {number:,}"
            )
            part = self.source.read([self._place(number)])[0]
            if header.type not in (PageType.DATA_PAGE, PageType.DATA_PAGE_V2):
                (parts or dictionary).append(part)
                continue
            levels = page_levels(header, body, leaf, metadata.codec)
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
            for number in numbers:
                is_plain = self.pages.encoding[number] == Encoding.PLAIN
                if is_plain or self.pages.is_dictionary[number]:
                    _check_plain(leaf, metadata.codec, *self.read(number))
            self.decode(leaf, metadata, numbers)
        except FormatError:
            return False
        return True

    def chunk_problem(self, leaf: Leaf, metadata: ColumnMetaData, first: int, stop: int) -> str:
        """Returns why a chunk of pages ``[first, stop)`` cannot be recovered, or "" if it can.

        Decodes the chunk even if its checksums are right: they do not cover page headers.
        """
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

    def _place(self, page: int) -> tuple[int, int]:
        at = int(self.pages.offset[page])
        return at, int(self.pages.stop[page]) - at


def needs_dictionary(encoding: int) -> bool:
    """True if values of this encoding are indices into a dictionary."""
    return encoding in DICTIONARY_ENCODINGS


def _check_plain(leaf: Leaf, codec: int, header: PageHeader, body: memoryview) -> None:
    """Raises ``FormatError`` unless PLAIN values of fixed width take exactly the page's bytes.

    pyarrow accepts extra bytes, so it would decode a page of strings as a page of numbers.
    """
    kind = leaf.element.type
    width = (leaf.element.type_length or 0) * 8
    if kind != Type.FIXED_LEN_BYTE_ARRAY:
        width = next((bits for known, bits in _WIDTHS.items() if known == kind), 0)
    if not width:
        return
    if header.dictionary_page_header is not None:
        present = header.dictionary_page_header.num_values
    else:
        levels = page_levels(header, body, leaf, codec)
        present = levels.num_present(leaf.max_definition_level)
    bits = header.uncompressed_page_size * 8 - _level_bytes(leaf, codec, header, body) * 8
    if -(-present * width // 8) * 8 != bits:
        raise FormatError(f"{present:,} values of {width} bits in {bits // 8:,} bytes")


def _level_bytes(leaf: Leaf, codec: int, header: PageHeader, body: memoryview) -> int:
    v1, v2 = header.data_page_header, header.data_page_header_v2
    if v2 is not None:
        return v2.repetition_levels_byte_length + v2.definition_levels_byte_length
    highest = leaf.max_repetition_level, leaf.max_definition_level
    if v1 is None or not any(highest):
        return 0
    check_size(header, codec)
    data, at = decompress(codec, body, header.uncompressed_page_size), 0
    encodings = v1.repetition_level_encoding, v1.definition_level_encoding
    for encoding, level in zip(encodings, highest, strict=True):
        if level and encoding == Encoding.BIT_PACKED:
            at += bit_packed_bytes(level, v1.num_values)
        elif level:
            at += 4 + int.from_bytes(data[at : at + 4], "little")
    return at
