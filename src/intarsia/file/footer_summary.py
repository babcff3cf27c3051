"""What a file's footer says of its columns, summed up."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from intarsia.errors import FormatError, Where
from intarsia.file.open_file import OpenedFile
from intarsia.parquet.bloom_filter import filter_bytes
from intarsia.parquet.enum_names import codec_name, value_encodings
from intarsia.parquet.metadata import ColumnChunk, ColumnMetaData
from intarsia.parquet.schema import Leaf


@dataclass(slots=True)
class ColumnSummary:
    """One leaf's chunks of all row groups. Sizes are in bytes."""

    leaf: Leaf
    chunks: int = 0
    codecs: set[str] = field(default_factory=set)
    encodings: dict[str, None] = field(default_factory=dict)
    null_counts: list[int] = field(default_factory=list)
    compressed: int = 0
    uncompressed: int = 0
    page_indexes: list[int] = field(default_factory=list)
    """Lengths, one a chunk that has them."""
    column_indexes: int = 0
    """How many of these have bounds, not just places."""
    bloom_filters: list[int] = field(default_factory=list)
    problems: list[FormatError] = field(default_factory=list)


def summary_of(file: OpenedFile, leaf: Leaf) -> ColumnSummary:
    """What the footer says of a column."""
    found = ColumnSummary(leaf)
    for group, chunk in chunks_of(file, leaf):
        found.chunks += 1
        if isinstance(chunk, FormatError):
            found.problems.append(chunk)
            continue
        if chunk.offset_index_offset is not None:
            lengths = (chunk.offset_index_length, chunk.column_index_length)
            found.page_indexes.append(sum(length or 0 for length in lengths))
            found.column_indexes += chunk.column_index_offset is not None
        if chunk.meta_data is None:
            found.codecs.add("encrypted" if chunk.crypto_metadata else "unknown")
        else:
            _add(found, file, chunk.meta_data, Where(file.name, group, leaf.name))
    return found


def _add(found: ColumnSummary, file: OpenedFile, chunk: ColumnMetaData, where: Where) -> None:
    found.codecs.add(codec_name(chunk.codec))
    found.encodings.update(dict.fromkeys(value_encodings(chunk)))
    found.compressed += chunk.total_compressed_size
    found.uncompressed += chunk.total_uncompressed_size
    nulls = null_count(found.leaf, chunk)
    if nulls is not None:
        found.null_counts.append(nulls)
    if chunk.bloom_filter_offset is not None:
        try:
            found.bloom_filters.append(bloom_bytes(file, chunk) or 0)
        except FormatError as error:
            found.problems.append(error.at(where))


def chunks_of(file: OpenedFile, leaf: Leaf) -> Iterator[tuple[int, ColumnChunk | FormatError]]:
    """A column's chunk in each row group, or why it cannot be decoded."""
    for number, group in enumerate(file.metadata.row_groups):
        try:
            yield number, group.columns[leaf.index]
        except FormatError as error:
            yield number, error.at(Where(file.name, number, leaf.name))


def null_count(leaf: Leaf, chunk: ColumnMetaData) -> int | None:
    """The NULLs of a chunk; None where the footer does not say."""
    if not leaf.max_definition_level:
        return 0
    return chunk.statistics.null_count if chunk.statistics else None


def bloom_bytes(file: OpenedFile, chunk: ColumnMetaData) -> int | None:
    """Length of a chunk's bloom filter, None where it has none.

    Older writers left the length out of the footer: then it is read from the filter itself.
    """
    if chunk.bloom_filter_offset is None:
        return None
    if chunk.bloom_filter_length is not None:
        return chunk.bloom_filter_length
    return filter_bytes(file.source, chunk.bloom_filter_offset)


def largest(summaries: Iterable[ColumnSummary], most: int) -> list[ColumnSummary]:
    """So many of the columns, those that take most, in the order of the file."""
    found = heapq.nlargest(most, summaries, key=lambda s: (s.compressed, -s.leaf.index))
    return sorted(found, key=lambda summary: summary.leaf.index)


def problems_of(summaries: Iterable[ColumnSummary]) -> list[FormatError]:
    """All that could not be decoded."""
    return [problem for summary in summaries for problem in summary.problems]
