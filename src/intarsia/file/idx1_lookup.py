"""Finds the list of distinct values that another writer left in a file, and checks it.

The list has no checksum, and tools that rewrite files copy its footer entry. So it is used only if
its place and its values agree with the rest of the footer.
"""

from __future__ import annotations

from collections.abc import Collection

from intarsia.errors import FormatError
from intarsia.file.column_chunks import ColumnChunks
from intarsia.file.file_footer import FileFooter
from intarsia.index.directory import IndexEntry
from intarsia.index.kinds.distinct_idx1 import (
    KEY,
    DistinctIDX1,
    ListedValues,
    contradiction,
    found_in,
)
from intarsia.io.source import ByteRange, Source
from intarsia.parquet.footer_cache import FOOTER_KEY


def find_list(
    footer: FileFooter,
    source: Source,
    chunks: ColumnChunks,
    entries: Collection[IndexEntry],
    *,
    has_directory: bool,
) -> ListedValues | None:
    """Returns the list that the footer points at and that is not among ``entries``, or None.

    Raises ``FormatError`` if the footer entry points at unrelated bytes, or was copied by a tool
    that rewrote the file. The latter is assumed if our own key is there and ``has_directory`` is
    False.
    """
    metadata = footer.metadata
    if metadata.key_value(KEY) is None or any(e.kind == DistinctIDX1.kind for e in entries):
        return None
    if metadata.key_value(FOOTER_KEY) is not None and not has_directory:
        raise FormatError("the file was rewritten since")
    return found_in(metadata, source, footer.offset, _used_ranges(footer, chunks, entries))


def entry_of(foreign: ListedValues, column: str) -> IndexEntry:
    """Returns a directory entry for the list, as an index on ``column``."""
    offset, length = foreign.place
    kind = DistinctIDX1
    return IndexEntry(kind.kind, kind.kind_version, column, {}, offset, length, length, 0)


def problem_of(
    footer: FileFooter, chunks: ColumnChunks, foreign: ListedValues, column: str
) -> str | None:
    """Returns how statistics contradict that the list has all values of ``column``, or None."""
    leaf = footer.schema.leaf(column)
    if leaf is None:
        return None
    groups = range(len(footer.metadata.row_groups))
    return contradiction(foreign.values, [chunks.chunk(g, leaf.index).statistics for g in groups])


def _used_ranges(
    footer: FileFooter, chunks: ColumnChunks, entries: Collection[IndexEntry]
) -> list[ByteRange]:
    """Returns the places of chunks, their page indexes and bloom filters, and of ``entries``."""
    places: list[tuple[int | None, int | None]] = []
    for group in range(len(footer.metadata.row_groups)):
        for leaf in footer.schema.leaves:
            column = chunks.column_chunk(group, leaf.index)
            places.append((column.offset_index_offset, column.offset_index_length))
            places.append((column.column_index_offset, column.column_index_length))
            chunk = column.meta_data
            if chunk is not None and not column.file_path:
                places.append((chunk.start, chunk.total_compressed_size))
                places.append((chunk.bloom_filter_offset, chunk.bloom_filter_length or 1))
    places += [(entry.offset, entry.length) for entry in entries]
    return [(offset, size) for offset, size in places if offset is not None and size]
