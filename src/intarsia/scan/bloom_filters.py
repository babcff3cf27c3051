"""Probes the bloom filters of a file's chunks."""

from __future__ import annotations

from collections.abc import Sequence

from intarsia.errors import FormatError, Where
from intarsia.file.open_file import OpenedFile
from intarsia.parquet.bloom_filter import filters_might_contain
from intarsia.row_ranges import UInt64Array


def has_bloom_filters(file: OpenedFile, leaf: int, groups: Sequence[int]) -> bool:
    """True if the leaf's chunk in any of these row groups has a bloom filter."""
    return any(file.chunk(group, leaf).bloom_filter_offset is not None for group in groups)


def might_contain(
    file: OpenedFile, leaf: int, groups: Sequence[int], hashes: UInt64Array
) -> list[bool] | None:
    """Returns for each row group whether its chunk might hold a value with one of ``hashes``.

    Returns None if no chunk has a bloom filter or one is damaged. Also returns None if the file is
    checked for damage, because bloom filters have no checksum.
    """
    if file.options.looks_for_damage:
        return None
    chunks = [file.chunk(group, leaf) for group in groups]
    filter_ranges = [
        (chunk.bloom_filter_offset, chunk.bloom_filter_length)
        for chunk in chunks
        if chunk.bloom_filter_offset is not None
    ]
    if not filter_ranges:
        return None
    try:
        might_hold = iter(filters_might_contain(file.source, filter_ranges, hashes))
    except FormatError as error:
        where = Where(column=file.schema.leaves[leaf].name)
        file.warn(f"bloom filters are ignored: {error.at(where)}")
        return None
    return [chunk.bloom_filter_offset is None or next(might_hold) for chunk in chunks]
