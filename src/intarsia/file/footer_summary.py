"""A summary of each column by the file's footer: sizes, codecs, encodings, indexes."""

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
    """Bytes of each chunk's page indexes, for the chunks that have some."""
    column_indexes: int = 0
    """Number of these chunks that have a ColumnIndex, and not just an OffsetIndex."""
    bloom_filters: list[int] = field(default_factory=list)
    problems: list[FormatError] = field(default_factory=list)


def summary_of(file: OpenedFile, leaf: Leaf) -> ColumnSummary:
    """Returns the summary of a column."""
    summary = ColumnSummary(leaf)
    for group, chunk in chunks_of(file, leaf):
        summary.chunks += 1
        if isinstance(chunk, FormatError):
            summary.problems.append(chunk)
            continue
        if chunk.offset_index_offset is not None:
            lengths = (chunk.offset_index_length, chunk.column_index_length)
            summary.page_indexes.append(sum(length or 0 for length in lengths))
            summary.column_indexes += chunk.column_index_offset is not None
        if chunk.meta_data is None:
            summary.codecs.add("encrypted" if chunk.crypto_metadata else "unknown")
        else:
            _add(summary, file, chunk.meta_data, Where(file.name, group, leaf.name))
    return summary


def _add(summary: ColumnSummary, file: OpenedFile, chunk: ColumnMetaData, where: Where) -> None:
    summary.codecs.add(codec_name(chunk.codec))
    summary.encodings.update(dict.fromkeys(value_encodings(chunk)))
    summary.compressed += chunk.total_compressed_size
    summary.uncompressed += chunk.total_uncompressed_size
    nulls = null_count(summary.leaf, chunk)
    if nulls is not None:
        summary.null_counts.append(nulls)
    if chunk.bloom_filter_offset is not None:
        try:
            summary.bloom_filters.append(bloom_bytes(file, chunk) or 0)
        except FormatError as error:
            summary.problems.append(error.at(where))


def chunks_of(file: OpenedFile, leaf: Leaf) -> Iterator[tuple[int, ColumnChunk | FormatError]]:
    """Yields each row group's number and the column's chunk, or why it cannot be decoded."""
    for number, group in enumerate(file.metadata.row_groups):
        try:
            yield number, group.columns[leaf.index]
        except FormatError as error:
            yield number, error.at(Where(file.name, number, leaf.name))


def null_count(leaf: Leaf, chunk: ColumnMetaData) -> int | None:
    """Returns the number of NULLs in a chunk, or None if the footer does not say."""
    if not leaf.max_definition_level:
        return 0
    return chunk.statistics.null_count if chunk.statistics else None


def bloom_bytes(file: OpenedFile, chunk: ColumnMetaData) -> int | None:
    """Returns a bloom filter's bytes, which older footers lack and the filter has, or None."""
    if chunk.bloom_filter_offset is None:
        return None
    if chunk.bloom_filter_length is not None:
        return chunk.bloom_filter_length
    return filter_bytes(file.source, chunk.bloom_filter_offset)


def largest(summaries: Iterable[ColumnSummary], most: int) -> list[ColumnSummary]:
    """Returns the ``most`` largest columns by stored size, in the order of the file."""
    columns = heapq.nlargest(most, summaries, key=lambda s: (s.compressed, -s.leaf.index))
    return sorted(columns, key=lambda summary: summary.leaf.index)


def problems_of(summaries: Iterable[ColumnSummary]) -> list[FormatError]:
    """Returns the errors of all columns."""
    return [problem for summary in summaries for problem in summary.problems]
