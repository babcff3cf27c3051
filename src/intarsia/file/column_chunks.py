"""The footer's entries of column chunks, decoded once and checked, and the bounds they state."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from intarsia.decode.page_size_limit import value_bytes
from intarsia.errors import FormatError, UnsupportedError, Where
from intarsia.file.file_footer import ChunkId, FileFooter
from intarsia.file.writer_quirks import miscounts_nulls
from intarsia.parquet.metadata import (
    ColumnChunk,
    ColumnMetaData,
    CountedChunk,
    Outline,
    OutlinedChunk,
    RowGroup,
)
from intarsia.parquet.page_index import ColumnIndex
from intarsia.parquet.schema import Leaf
from intarsia.parquet.statistics import (
    Bounds,
    chunk_bounds,
    order_is_declared,
    page_bounds,
    with_level_counts,
)
from intarsia.parquet.thrift import Structs
from intarsia.process_state import cached_property

_DICTIONARY_HEADER_BYTES = 100
"""Upper limit of a dictionary page's header, which old writers leave out of the chunk's size."""
_MIN_CHUNKS_FOR_OUTLINES = 256
"""Files with fewer chunks decode each entry in full: a query needs most of the fields anyway."""
_LEAVES_PER_OUTLINE = 3
"""A row group's outlines are decoded together if at least one in this many leaves is needed."""


class ColumnChunks:
    """The chunks of one file, by row group and leaf."""

    def __init__(self, footer: FileFooter) -> None:
        """Raises ``FormatError`` if the footer contradicts itself."""
        self._footer = footer
        self.repaired_chunks: dict[ChunkId, ColumnMetaData] = {}
        """Chunks whose footer entry is wrong, with their repaired metadata."""
        self._column_chunks: dict[ChunkId, ColumnChunk] = {}
        self._chunks: dict[ChunkId, ColumnMetaData] = {}
        self._decoded_bytes: dict[int, int] = {}
        self._outlines: dict[int, Sequence[Outline] | None] = {}
        self._check()

    def column_chunk(self, row_group: int, leaf: int) -> ColumnChunk:
        """Returns the footer's entry of a chunk. Raises ``FormatError`` if it is wrong."""
        known = self._column_chunks.get((row_group, leaf))
        if known is not None:
            return known
        try:
            column = self._with_row_count(
                row_group, leaf, self._footer.metadata.row_groups[row_group].columns[leaf]
            )
        except FormatError as error:
            raise error.at(self._where(row_group, leaf)) from error
        self._column_chunks[row_group, leaf] = column
        return column

    def chunk(self, row_group: int, leaf: int) -> ColumnMetaData:
        """Returns the metadata of one chunk.

        Raises ``FormatError`` as ``column_chunk`` does, or if the data is in another file, and
        ``UnsupportedError`` if the column is encrypted.
        """
        known = self._chunks.get((row_group, leaf))
        if known is None:
            known = self._chunks[row_group, leaf] = self._chunk(row_group, leaf)
        return known

    def of_leaf(self, leaf: int) -> list[ColumnMetaData]:
        """Returns the metadata of a leaf's chunks in all row groups, as ``chunk`` does."""
        known, groups = self._chunks, range(len(self._footer.row_group_starts) - 1)
        return [known.get((group, leaf)) or self.chunk(group, leaf) for group in groups]

    def decoded_bytes(self, leaves: Sequence[int]) -> int:
        """Returns the estimated decoded bytes of ``leaves`` in all row groups."""
        known = self._decoded_bytes
        unknown = [leaf for leaf in dict.fromkeys(leaves) if leaf not in known]
        if unknown:
            groups = range(len(self._footer.row_group_starts) - 1)
            chunks_by_group = [self.outlines(group, unknown) for group in groups]
            for number, leaf in enumerate(unknown):
                column = self._footer.schema.leaves[leaf]
                chunks = (chunks[number] for chunks in chunks_by_group)
                known[leaf] = sum(decoded_bytes(column, chunk) for chunk in chunks)
        return sum([known[leaf] for leaf in leaves])

    def outlines(self, row_group: int, leaves: Sequence[int]) -> Sequence[Outline | ColumnMetaData]:
        """Returns places and sizes of chunks: as ``chunk`` does, and faster for many."""
        count = len(self._footer.schema.leaves)
        are_many = count * len(self._footer.metadata.row_groups) >= _MIN_CHUNKS_FOR_OUTLINES
        if are_many and len(leaves) * _LEAVES_PER_OUTLINE >= count and not self.repaired_chunks:
            if row_group not in self._outlines:
                self._outlines[row_group] = self._outlined(row_group)
            outlines = self._outlines[row_group]
            if outlines is not None:
                return [outlines[leaf] for leaf in leaves]
        known = self._chunks
        return [known.get((row_group, leaf)) or self.chunk(row_group, leaf) for leaf in leaves]

    def _outlined(self, row_group: int) -> Sequence[Outline] | None:
        """Returns all chunks of a row group, or None if one may be wrong or elsewhere."""
        group, leaves = self._footer.metadata.row_groups[row_group], self._footer.schema.leaves
        if not isinstance(group.columns, Structs) or self._forgets_dictionary_headers:
            return None
        try:
            chunks = group.columns.all_as(OutlinedChunk)
        except FormatError:
            return None
        outlines = [
            chunk.meta_data
            for chunk, leaf in zip(chunks, leaves, strict=True)
            if chunk.meta_data is not None
            and not chunk.file_path
            and chunk.crypto_metadata is None
            and (not leaf.is_flat or chunk.meta_data.num_values == group.num_rows)
        ]
        return outlines if len(outlines) == len(chunks) else None

    def mend(self, row_group: int, leaf: int, chunk: ColumnMetaData) -> None:
        """Replaces the metadata of a chunk by repaired metadata."""
        self.repaired_chunks[row_group, leaf] = self._chunks[row_group, leaf] = chunk
        self._decoded_bytes.clear()

    def _chunk(self, row_group: int, leaf: int) -> ColumnMetaData:
        column = self.column_chunk(row_group, leaf)
        if column.meta_data is None:
            raise FormatError("the chunk has no metadata", self._where(row_group, leaf))
        if column.crypto_metadata is not None:
            raise UnsupportedError("the column is encrypted", self._where(row_group, leaf))
        if column.file_path:
            reason = f"the data is in another file, {column.file_path!r}"
            raise FormatError(reason, self._where(row_group, leaf))
        return self._with_dictionary_header(column.meta_data)

    def _with_dictionary_header(self, chunk: ColumnMetaData) -> ColumnMetaData:
        """Adds the dictionary's header, which old parquet-mr left out."""
        if not self._forgets_dictionary_headers:
            return chunk
        size = chunk.total_compressed_size
        bytes_behind = self._footer.source_size - chunk.start - size
        slack = max(min(_DICTIONARY_HEADER_BYTES, bytes_behind), 0)
        return replace(chunk, total_compressed_size=size + slack)

    @cached_property
    def _forgets_dictionary_headers(self) -> bool:
        writer = self._footer.metadata.created_by or ""
        version = re.match(r"parquet-mr(?: version (\d+)\.(\d+)\.(\d+))?", writer)
        if version is None:
            return False
        return version.group(1) is None or tuple(map(int, version.groups())) < (1, 2, 9)

    def _where(self, row_group: int, leaf: int) -> Where:
        return Where(self._footer.name, row_group, self._footer.schema.leaves[leaf].name)

    # --- counts ---------------------------------------------------------------------------------

    def _check(self) -> None:
        groups, leaves = self._footer.metadata.row_groups, self._footer.schema.leaves
        flat = next((leaf.index for leaf in leaves if leaf.is_flat), None)
        if sum([group.num_rows for group in groups]) >= 2**63:
            raise FormatError("more rows than can be counted")
        for i, group in enumerate(groups):
            if len(group.columns) != len(leaves):
                raise FormatError(
                    f"{len(group.columns)} chunks for {len(leaves)} columns", Where(row_group=i)
                )
            if flat is not None and not _has_as_many_values(group, flat):
                self.column_chunk(i, flat)

    def _with_row_count(self, row_group: int, leaf: int, column: ColumnChunk) -> ColumnChunk:
        """Returns the entry if its value count fits the row group: one value a row in flat columns.

        Otherwise raises ``FormatError``. But if damage is skipped, and another flat column
        confirms the row count, returns the entry with the value count corrected.
        """
        rows, data = self._footer.num_rows_in(row_group), column.meta_data
        is_flat = self._footer.schema.leaves[leaf].is_flat
        if not is_flat or data is None or data.num_values == rows:
            return column
        if self._footer.options.skips_corrupt and self._is_row_count_confirmed(row_group):
            return replace(column, meta_data=replace(data, num_values=rows))
        raise FormatError(f"{data.num_values:,} values for {rows:,} rows")

    def _is_row_count_confirmed(self, row_group: int) -> bool:
        """True if a flat column has as many values as its row group has rows."""
        group = self._footer.metadata.row_groups[row_group]
        flat = (leaf.index for leaf in self._footer.schema.leaves if leaf.is_flat)
        chunks = (group.columns[leaf].meta_data for leaf in flat)
        return any(data is not None and data.num_values == group.num_rows for data in chunks)


def _has_as_many_values(group: RowGroup, leaf: int) -> bool:
    """True if a chunk has as many values as its row group has rows."""
    columns = group.columns
    if not isinstance(columns, Structs):
        return False
    data = columns.decoded_as(CountedChunk, leaf).meta_data
    return data is None or data.num_values == group.num_rows


def decoded_bytes(leaf: Leaf, chunk: Outline | ColumnMetaData) -> int:
    """Returns the estimated decoded bytes of a chunk, for strings by size statistics if any."""
    sizes = chunk.size_statistics
    string_bytes = sizes.unencoded_byte_array_data_bytes if sizes else None
    values = chunk.num_values * value_bytes(leaf.element) + (string_bytes or 0)
    return max(chunk.total_uncompressed_size, values)


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
