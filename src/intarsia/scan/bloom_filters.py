"""Bloom filters of a file's chunks: which might hold one of a few values."""

from __future__ import annotations

from collections.abc import Sequence

from intarsia.errors import FormatError, Where
from intarsia.file.open_file import OpenedFile
from intarsia.parquet.bloom_filter import filters_might_contain
from intarsia.row_ranges import UInt64Array


def has_bloom_filters(file: OpenedFile, leaf: int, groups: Sequence[int]) -> bool:
    """Has the chunk of any of these row groups a bloom filter?"""
    return any(file.chunk(group, leaf).bloom_filter_offset is not None for group in groups)


def might_contain(
    file: OpenedFile, leaf: int, groups: Sequence[int], hashes: UInt64Array
) -> list[bool] | None:
    """For each row group: might its chunk hold a value of one of ``hashes``?

    None where none of the chunks has a bloom filter, or one is damaged; or where damage is
    looked for: filters have no checksum.
    """
    if file.options.looks_for_damage:
        return None
    chunks = [file.chunk(group, leaf) for group in groups]
    places = [
        (chunk.bloom_filter_offset, chunk.bloom_filter_length)
        for chunk in chunks
        if chunk.bloom_filter_offset is not None
    ]
    if not places:
        return None
    try:
        found = iter(filters_might_contain(file.source, places, hashes))
    except FormatError as error:
        where = Where(column=file.schema.leaves[leaf].name)
        file.warn(f"bloom filters are ignored: {error.at(where)}")
        return None
    return [chunk.bloom_filter_offset is None or next(found) for chunk in chunks]
