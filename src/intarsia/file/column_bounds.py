"""The bounds of a file's columns that its statistics and page indexes state."""

from __future__ import annotations

from collections.abc import Sequence

from intarsia.file.column_chunks import ColumnChunks
from intarsia.file.file_footer import FileFooter
from intarsia.file.writer_quirks import miscounts_nulls
from intarsia.parquet.metadata import ColumnMetaData
from intarsia.parquet.page_index import ColumnIndex
from intarsia.parquet.statistics import (
    Bounds,
    chunk_bounds,
    order_is_declared,
    page_bounds,
    with_level_counts,
)


class ColumnBounds:
    """Decodes the bounds of one file's columns, corrected for known faults of its writer."""

    def __init__(self, footer: FileFooter, chunks: ColumnChunks) -> None:
        self._footer, self._chunks = footer, chunks
        self._by_leaf: dict[int, Bounds] = {}

    def of_row_groups(self, leaf: int) -> Bounds:
        """Returns the bounds of a column in each row group, by the chunks' statistics."""
        if leaf not in self._by_leaf:
            self._by_leaf[leaf] = self.of(leaf, self._chunks.of_leaf(leaf))
        return self._by_leaf[leaf]

    def of(self, leaf: int, statistics: Sequence[ColumnMetaData] | ColumnIndex) -> Bounds:
        """Returns the bounds that the statistics of chunks, or a ColumnIndex, state of a column."""
        order, is_declared = self._footer.columns.order(leaf), self.is_order_declared(leaf)
        if isinstance(statistics, ColumnIndex):
            bounds = page_bounds(order, statistics, declared=is_declared)
        else:
            bounds = chunk_bounds(order, statistics, declared=is_declared)
        if not miscounts_nulls(self._footer, leaf):
            return bounds
        max_definition_level = self._footer.schema.leaves[leaf].max_definition_level
        return with_level_counts(bounds, statistics, max_definition_level)

    def is_order_declared(self, leaf: int) -> bool:
        """True if the footer says how this column's bounds compare."""
        return order_is_declared(self._footer.columns.column_order(leaf))
