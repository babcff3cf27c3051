"""Lists of distinct values that other writers left in a file: believed as far as they can be."""

from __future__ import annotations

from typing import TYPE_CHECKING

from intarsia.errors import FormatError
from intarsia.index.directory import FOOTER_KEY, IndexEntry
from intarsia.index.kinds.distinct_idx1 import KEY, DistinctIDX1, Found, contradiction, found_in
from intarsia.io.source import ByteRange

if TYPE_CHECKING:  # it is what these are found in
    from intarsia.file.open_file import OpenedFile

_TRAILER_BYTES = 8


def stray_list(file: OpenedFile) -> Found | None:
    """The list that the footer points at and the directory does not know; None where there is none.

    Raises ``FormatError`` where the footer points at none, or at what is something else, because a
    tool that rewrote the file kept its key/values.
    """
    metadata, entries = file.metadata, file.sections.entries
    if metadata.key_value(KEY) is None or any(e.kind == DistinctIDX1.kind for e in entries):
        return None
    if metadata.key_value(FOOTER_KEY) is not None and file.directory is None:
        raise FormatError("the file was rewritten since")
    end = file.source.size - _TRAILER_BYTES - len(file.footer)
    return found_in(metadata, file.source, end, _taken(file))


def entry_of(found: Found, column: str) -> IndexEntry:
    """A list as the directory would say that it is of ``column``."""
    offset, length = found.place
    kind = DistinctIDX1
    return IndexEntry(kind.kind, kind.kind_version, column, {}, offset, length, length, 0)


def doubt(file: OpenedFile, found: Found, column: str) -> str | None:
    """Why the list cannot be all of a column's values, as far as statistics tell."""
    leaf = file.schema.leaf(column)
    if leaf is None:
        return None
    groups = range(len(file.metadata.row_groups))
    return contradiction(found.values, [file.chunk(g, leaf.index).statistics for g in groups])


def _taken(file: OpenedFile) -> list[ByteRange]:
    """Where chunks, their page indexes and bloom filters, and sections are."""
    places: list[tuple[int | None, int | None]] = []
    for group in range(len(file.metadata.row_groups)):
        for leaf in file.schema.leaves:
            column = file.column_chunk(group, leaf.index)
            places.append((column.offset_index_offset, column.offset_index_length))
            places.append((column.column_index_offset, column.column_index_length))
            chunk = column.meta_data
            if chunk is not None and not column.file_path:
                places.append((chunk.start, chunk.total_compressed_size))
                places.append((chunk.bloom_filter_offset, chunk.bloom_filter_length or 1))
    places += [(entry.offset, entry.length) for entry in file.sections.entries]
    return [(offset, size) for offset, size in places if offset is not None and size]
