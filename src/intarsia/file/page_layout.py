"""How finely the pages of a file divide its rows: what a lookup of one row has to read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from intarsia.file.open_file import OpenedFile
from intarsia.parquet.metadata import ColumnMetaData, PageType

LONG_PAGES = 32_768
"""Rows of a page from which indexes help little. An index can only skip whole pages."""
_DATA_PAGES = (PageType.DATA_PAGE, PageType.DATA_PAGE_V2)


@dataclass(frozen=True, slots=True)
class PageLayout:
    """The pages of a file's first row group with rows.

    Attributes
    ----------
    page_rows : int
        The mean rows of a page. Each column counts by its bytes.
    lookup_share : float
        The share of the file's pages that a query reads for one row and all columns.
    """

    page_rows: int
    lookup_share: float

    @property
    def is_coarse(self) -> bool:
        """True if the pages are so long that an index saves little."""
        return self.page_rows >= LONG_PAGES

    def __str__(self) -> str:
        parts = round(1 / self.lookup_share) if self.lookup_share else 1
        share = f"1/{parts:,} of the file" if parts > 1 else "the whole file"
        return (
            f"pages of {self.page_rows:,} rows: a lookup of one row reads {share}; "
            "intarsia.rewrite first writes shorter pages"
        )


def page_layout(file: OpenedFile, *, load: bool = True) -> PageLayout | None:
    """Returns the layout of a file's pages by its footer and page index.

    Returns None for a file without rows, or if neither says how many pages there are. Without
    ``load``, only page indexes that are cached already count.
    """
    group = next((n for n in range(len(file.metadata.row_groups)) if file.num_rows_in(n)), None)
    if group is None:
        return None
    ids = [(group, leaf.index) for leaf in file.schema.leaves]
    chunks = [file.chunk(*id_) for id_ in ids]
    if load and not all(chunk.encoding_stats for chunk in chunks):
        file.page_indexes.load(ids, [])
    group_bytes = page_bytes = 0.0
    for id_, chunk in zip(ids, chunks, strict=True):
        index = file.page_indexes.known_offsets(*id_)
        pages = num_data_pages([chunk]) if index is None else len(index)
        if not pages:
            return None
        group_bytes += chunk.total_compressed_size
        page_bytes += chunk.total_compressed_size / pages
    rows = file.num_rows_in(group) * page_bytes / max(group_bytes, 1)
    return PageLayout(round(rows), rows / file.num_rows)


def num_data_pages(chunks: Sequence[ColumnMetaData]) -> int | None:
    """Returns the number of data pages of chunks; None if the footer does not have it."""
    if not all(chunk.encoding_stats for chunk in chunks):
        return None
    stats = (entry for chunk in chunks for entry in chunk.encoding_stats or ())
    return sum(entry.count for entry in stats if entry.page_type in _DATA_PAGES)
