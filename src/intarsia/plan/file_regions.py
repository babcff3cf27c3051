"""Where everything is in a file: its chunks, their pages, and what lies between them.

A picture of a query's reads is drawn on it; plans and scans do without.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from intarsia.parquet.page_index import OffsetIndex
from intarsia.row_ranges import Int64Array


class Part(Enum):
    """What bytes of a file are."""

    CHUNK = "column chunks"
    PAGE_INDEX = "page indexes"
    BLOOM_FILTER = "bloom filters"
    SECTION = "embedded indexes"
    DIRECTORY = "directory of indexes"
    OLD_FOOTER = "old footer"
    FOOTER = "footer"
    OTHER = "other bytes"
    """What the footer does not tell of: footers of checkpoints, indexes replaced, gaps."""


@dataclass(frozen=True, slots=True)
class Band:
    """Bytes of one sort: a chunk and its indexes have its row group, and a name where they can."""

    part: Part
    offset: int
    length: int
    row_group: int | None = None
    name: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class ChunkMap:
    """The pages of one chunk; ``index`` is None where no offset index tells them apart.

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
    """A file of ``size`` bytes. ``row_group_starts`` end with the number of rows.

    ``chunks`` are those of the leaves that were asked for, in the file's order; ``bands`` all of
    the file, ascending and disjoint.
    """

    size: int
    row_group_starts: Int64Array
    chunks: tuple[ChunkMap, ...]
    bands: tuple[Band, ...]

    @property
    def num_rows(self) -> int:
        return int(self.row_group_starts[-1])
