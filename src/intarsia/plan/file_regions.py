"""The positions of all parts of a file: chunks, their pages, and the bytes between them.

Reports draw a query's reads on it. Plans and scans do not use it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from intarsia.parquet.page_index import OffsetIndex
from intarsia.row_ranges import Int64Array


class Part(Enum):
    """A kind of bytes in a file."""

    CHUNK = "column chunks"
    PAGE_INDEX = "page indexes"
    BLOOM_FILTER = "bloom filters"
    SECTION = "embedded indexes"
    DIRECTORY = "directory of indexes"
    OLD_FOOTER = "old footer"
    FOOTER = "footer"
    OTHER = "other bytes"
    """Bytes that the footer does not mention: footers of checkpoints, replaced indexes, gaps."""


@dataclass(frozen=True, slots=True)
class Band:
    """Consecutive bytes of one kind, from ``offset``.

    ``row_group`` is set for chunks and their indexes. ``name`` is empty if there is none.
    """

    part: Part
    offset: int
    length: int
    row_group: int | None = None
    name: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class ChunkMap:
    """The pages of one chunk. ``index`` is None if there is no offset index.

    ``first_row`` counts from the start of the file; ``length`` is in bytes.
    """

    row_group: int
    leaf: int
    column: str
    first_row: int
    num_rows: int
    length: int
    index: OffsetIndex | None


@dataclass(frozen=True, slots=True, eq=False)
class FileMap:
    """The map of a file of ``size`` bytes. The last of ``row_group_starts`` is the row count.

    ``chunks`` are the chunks of the requested leaves, in the file's order. ``bands`` cover the
    whole file, ascending and disjoint.
    """

    size: int
    row_group_starts: Int64Array
    chunks: tuple[ChunkMap, ...]
    bands: tuple[Band, ...]

    @property
    def num_rows(self) -> int:
        return int(self.row_group_starts[-1])
