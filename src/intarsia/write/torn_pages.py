"""Pages of a file that may be torn, looked into: rows by levels, values by decoding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from intarsia.decode.page_body import check_size, page_levels
from intarsia.decode.splice import (
    ChunkBytes,
    RowGroupBytes,
    SchemaTemplates,
    decode_root,
    leaf_values,
)
from intarsia.errors import FormatError, UnsupportedError
from intarsia.format.metadata import ColumnMetaData, Encoding, PageHeader, PageType
from intarsia.format.page_header import read_page_header
from intarsia.format.schema import Leaf, Schema
from intarsia.source import Source
from intarsia.write.tiles import Checksum, Pages


@dataclass(frozen=True, slots=True)
class PageRows:
    """Rows that begin in a page, and whether its first value begins one."""

    count: int
    begins_a_row: bool


class TornPages:
    """The pages of ``source``, by their numbers."""

    def __init__(
        self, source: Source, pages: Pages, schema: Schema, templates: SchemaTemplates
    ) -> None:
        self.source, self.pages, self.schema = source, pages, schema
        self._templates = templates
        self._rows: dict[tuple[int, int, int], PageRows] = {}

    def read(self, page: int) -> tuple[PageHeader, memoryview]:
        """A page's header and its body as stored."""
        at, length = int(self.pages.offset[page]), int(self.pages.header_size[page])
        data = self.source.read([(at, length + int(self.pages.stored[page]))])[0]
        header, size = read_page_header(data)
        return header, data[size:]

    def rows(self, page: int, leaf: Leaf, codec: int) -> PageRows:
        """The rows of a data page of ``leaf``. Raises ``FormatError`` where levels are damaged."""
        values, said = int(self.pages.values[page]), int(self.pages.rows[page])
        if not leaf.max_repetition_level:
            if said not in (-1, values):
                raise FormatError(f"a page of {values:,} values claims {said:,} rows")
            return PageRows(values, True)
        known = self._rows.get((page, leaf.index, codec))
        if known is None:
            header, body = self.read(page)
            levels = page_levels(header, body, leaf, codec)
            # Levels are what readers go by; some writers count values as rows in V2 headers.
            known = PageRows(levels.num_rows(), levels.begins_a_row)
            self._rows[page, leaf.index, codec] = known
        return known

    def data_pages(self, first: int, stop: int) -> list[int]:
        """Numbers of the data pages of pages ``[first, stop)``."""
        return [int(page) for page in first + np.flatnonzero(self.pages.is_data[first:stop])]

    def damage(self, first: int, stop: int) -> str | None:
        """What a checksum of pages ``[first, stop)`` says against them."""
        wrong = np.flatnonzero(self.pages.checksum[first:stop] == Checksum.WRONG)
        if not len(wrong):
            return None
        at = int(self.pages.offset[first + int(wrong[0])])
        return f"the page at offset {at:,} does not match its checksum"

    def unchecked(self, first: int, stop: int) -> int:
        """How many of pages ``[first, stop)`` have no checksum."""
        return int(np.count_nonzero(self.pages.checksum[first:stop] == Checksum.NONE))

    def decode(self, leaf: Leaf, metadata: ColumnMetaData, numbers: Sequence[int]) -> int:
        """Decode these pages, a dictionary first where they need it; gives how many values are
        stored in them.

        Raises ``FormatError`` where they cannot be decoded or hold other numbers of values than
        their levels say, ``UnsupportedError`` where pyarrow is not up to it.
        """
        parts, rows, values, present = [], 0, 0, 0
        for number in numbers:
            header, body = self.read(number)
            check_size(header, metadata.codec)
            parts.append(self.source.read([self._place(number)])[0])
            if header.type in (PageType.DATA_PAGE, PageType.DATA_PAGE_V2):
                levels = page_levels(header, body, leaf, metadata.codec)
                rows += levels.num_rows()
                values += levels.num_values
                present += levels.num_present(leaf.max_definition_level)
        chunk = ChunkBytes(metadata, None, parts, values)
        template = self._templates.physical(self.schema, leaf)
        found = leaf_values(decode_root(template, [RowGroupBytes(rows, [chunk])]))
        if len(found) != present:
            raise FormatError(f"{len(found):,} values where levels say {present:,}")
        return present

    def is_decodable(self, leaf: Leaf, metadata: ColumnMetaData, numbers: Sequence[int]) -> bool:
        """Can these pages be decoded? Also where pyarrow is not up to it, the answer is no."""
        try:
            self.decode(leaf, metadata, numbers)
        except FormatError:
            return False
        return True

    def chunk_problem(self, leaf: Leaf, metadata: ColumnMetaData, first: int, stop: int) -> str:
        """Why a chunk of pages ``[first, stop)`` cannot be kept; nothing where it can.

        One whose pages all have right checksums is not decoded.
        """
        damage = self.damage(first, stop)
        if damage or not self.unchecked(first, stop):
            return damage or ""
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
    """Are values of this encoding entries of a dictionary?"""
    return encoding in (Encoding.RLE_DICTIONARY, Encoding.PLAIN_DICTIONARY)
