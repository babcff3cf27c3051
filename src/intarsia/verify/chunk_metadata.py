"""Compares all metadata of a chunk with its decoded values."""

from __future__ import annotations

from collections.abc import Iterator

from intarsia.errors import FormatError
from intarsia.indexing.parquet_index_build import bloom_hashes
from intarsia.parquet.bloom_filter import count_missing
from intarsia.parquet.metadata import Type
from intarsia.verify.finding import Finding, error, finding_of, warning
from intarsia.verify.page_index import check_column_index, check_offset_index
from intarsia.verify.pages import ChunkFacts
from intarsia.verify.statistics import (
    check_page_statistics,
    check_size_statistics,
    check_statistics,
)
from intarsia.verify.utf8 import check_strings


def check_claims(facts: ChunkFacts) -> Iterator[Finding]:
    """Yields the findings of all checks of one chunk's metadata."""
    chunk = facts.chunk
    column = chunk.file.column_chunk(chunk.row_group, chunk.leaf.index)
    for check in (
        check_statistics(facts),
        check_page_statistics(facts),
        check_size_statistics(facts),
        check_offset_index(facts, column),
        check_column_index(facts, column),
        check_strings(facts),
        _bloom_filter(facts),
    ):
        try:
            yield from check
        except FormatError as problem:
            yield finding_of(problem, chunk.where)


def _bloom_filter(facts: ChunkFacts) -> Iterator[Finding]:
    metadata = facts.chunk.metadata
    if metadata.bloom_filter_offset is None or facts.values is None:
        return
    if metadata.type == Type.BOOLEAN:
        return  # useless, though some writers make one
    where = facts.chunk.where
    place = (metadata.bloom_filter_offset, metadata.bloom_filter_length)
    missing = count = 0
    for part in facts.values:
        values = part.drop_null()
        try:
            hashes = bloom_hashes(values)[: len(values)]
        except TypeError:
            message = "bloom filter: not checked: values of this type are not hashed here"
            yield warning(where, message)
            return
        count += len(hashes)
        missing += count_missing(facts.chunk.file.source, *place, hashes)
    if missing:
        yield error(where, f"bloom filter: {missing:,} of {count:,} values are not in it")
