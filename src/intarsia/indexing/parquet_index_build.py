"""Builds Parquet's own indexes, page indexes and bloom filters, from a file's pages."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np
import pyarrow as pa

from intarsia.errors import FormatError, IndexSpecError
from intarsia.file.chunk_reader import Chunk
from intarsia.file.file_footer import ChunkId
from intarsia.file.index_subjects import not_a_leaf
from intarsia.file.open_file import OpenedFile
from intarsia.file.page_walk import offset_index_of
from intarsia.index.literal_encoding import unfit_for_hashing
from intarsia.index.parquet_indexes import Bloom, PageIndex, Standard
from intarsia.io.source import ByteRange
from intarsia.parquet.bloom_filter import BloomFilter
from intarsia.parquet.levels import PageLevels, histogram
from intarsia.parquet.page_header import PageAt
from intarsia.parquet.page_index import ColumnIndex, encode_column_index, encode_offset_index
from intarsia.parquet.page_statistics import (
    PageSummaries,
    Summarizer,
    boundary_order,
    has_bounds,
    is_text,
    may_shorten,
    shortened_high,
    shortened_low,
)
from intarsia.parquet.schema import Leaf
from intarsia.parquet.value_order import ValueOrder
from intarsia.parquet.xxhash64 import hash_values
from intarsia.row_ranges import Int64Array, distinct
from intarsia.scan.small_chunks import chunks_of

_MOST_DIGITS = 38
"""Digits of the longest decimals that engines read as decimals."""


Data = TypeVar("Data", bytes, ByteRange)
"""New bytes, or their place in the old file."""


@dataclass(frozen=True, slots=True)
class ChunkPart(Generic[Data]):
    """Bytes to be placed in a file, and the fields of the chunk's metadata that point at them."""

    chunk: ChunkId
    data: Data
    name: str
    """``column_index``, ``offset_index`` or ``bloom_filter``: the prefix of metadata fields."""

    @property
    def is_bloom(self) -> bool:
        """True for a bloom filter."""
        return self.name == "bloom_filter"

    def fields(self, offset: int) -> Mapping[str, Any]:
        """Returns the changes to the ``ColumnChunk`` if ``data`` is placed at ``offset``."""
        length = len(self.data) if isinstance(self.data, bytes) else self.data[1]
        place = {f"{self.name}_offset": offset, f"{self.name}_length": length}
        return {"meta_data": place} if self.is_bloom else place


def check_parquet_index(file: OpenedFile, index: Standard) -> list[Leaf]:
    """Returns the columns that ``index`` is on. Raises ``IndexSpecError`` if one cannot have it."""
    names = index.columns if isinstance(index, PageIndex) else [index.on]
    if names is None:
        return list(file.schema.leaves)
    leaves = []
    for name in names:
        leaf = file.schema.leaf(name)
        if leaf is None:
            hint = " (this index takes columns, not functions)" if "(" in name else ""
            raise IndexSpecError(
                f"{file.name}: no index {name}:{index.kind}: {not_a_leaf(name, file.schema)}{hint}"
            )
        if isinstance(index, Bloom):
            reason = unfit_for_hashing(file.order(leaf.index)) or _misread_by_others(leaf)
            if reason:
                raise IndexSpecError(f"{file.name}: no index {name}:{index.kind}: {reason}")
        leaves.append(leaf)
    return leaves


def _misread_by_others(leaf: Leaf) -> str | None:
    """Returns why other readers would lose rows by a bloom filter. Returns None otherwise."""
    logical = leaf.element.logicalType
    stated = None if logical is None else logical.DECIMAL
    digits = leaf.element.precision if stated is None else stated.precision
    if digits is not None and digits > _MOST_DIGITS:
        return (
            f"DuckDB reads decimals of more than {_MOST_DIGITS} digits as doubles and would "
            "probe the filter with these; use a lookup index instead"
        )
    return None


def build_parquet_index(
    file: OpenedFile, index: Standard, groups: range | None = None
) -> Iterator[ChunkPart[bytes]]:
    """Yields what ``index`` adds to some row groups. Raises ``FormatError`` for damage."""
    due = list(_due(file, index, groups_of(file) if groups is None else groups))
    for (id_, has_values), chunk in zip(due, chunks_of(file, due), strict=True):
        if isinstance(chunk, FormatError):
            raise chunk
        if isinstance(index, Bloom):
            yield ChunkPart(id_, _bloom_filter(chunk, index), "bloom_filter")
        else:
            yield from _page_index(chunk, index, bounds=has_values)


def learned(file: OpenedFile, parts: Iterable[ChunkPart[bytes]]) -> Iterator[ChunkPart[bytes]]:
    """Yields ``parts``. From then on, granules are the pages of the offset indexes among them."""
    for part in parts:
        if part.name == "offset_index":
            file.page_indexes.learn(part.chunk, part.data)
        yield part


def _due(file: OpenedFile, index: Standard, groups: range) -> Iterator[tuple[ChunkId, bool]]:
    """Yields the chunks that lack ``index``, each with True if its values must be read."""
    known = file.page_indexes
    indexed_leaves = {leaf.index for leaf in check_parquet_index(file, index)}
    # Readers skip pages only where every column has an offset index.
    leaves = range(len(file.schema.leaves)) if isinstance(index, PageIndex) else indexed_leaves
    for group in groups:
        ids = [(group, leaf) for leaf in leaves if file.num_rows_in(group)]
        if isinstance(index, Bloom):
            yield from ((id_, True) for id_ in ids)
            continue
        for id_ in ids:
            bounds = id_[1] in indexed_leaves and known.columns(*id_) is None
            if bounds or known.offsets(*id_) is None:
                yield id_, bounds


def groups_of(file: OpenedFile) -> range:
    """Returns the range of all row groups of a file."""
    return range(len(file.metadata.row_groups))


# --- page index ---------------------------------------------------------------------------------


def _page_index(chunk: Chunk, index: PageIndex, *, bounds: bool) -> Iterator[ChunkPart[bytes]]:
    id_ = (chunk.row_group, chunk.leaf.index)
    has_offsets = chunk.file.page_indexes.offsets(*id_) is not None
    if bounds:
        chunk.load()
    pages = list(chunk.pages())
    data = [page for page in pages if page.is_data]
    levels = [chunk.levels(page) if bounds else chunk.row_levels(page) for page in data]
    offsets = offset_index_of(chunk, data, levels)
    if offsets is None:
        return  # a page that begins within a row has no first row
    column_index = column_index_of(chunk, pages, levels, index.truncate_length) if bounds else None
    if column_index is not None:
        yield ChunkPart(id_, encode_column_index(column_index), "column_index")
    if not has_offsets:
        yield ChunkPart(id_, encode_offset_index(offsets), "offset_index")


def column_index_of(
    chunk: Chunk, pages: Sequence[PageAt], levels: Sequence[PageLevels], truncate_length: int
) -> ColumnIndex | None:
    """Returns the ColumnIndex of a chunk.

    Returns None if not every reader would understand its bounds. That is the case if the type has
    no order, or if the chunk holds a NaN. Bounds leave NaN out, and readers that order NaN above
    all values would lose rows. It is also the case if a bound is no value of the type, such as a
    decimal of no bytes.
    """
    leaf, order = chunk.leaf, chunk.file.order(chunk.leaf.index)
    if not has_bounds(order):
        return None
    present = present_counts(leaf, levels)
    summarizer = Summarizer(order, present)
    for values in chunk.arrays(pages, levels):
        summarizer.add(values.drop_null())
        del values  # frees them before the next ones are decoded
    summaries = summarizer.summaries
    nan_counts = summaries.nan_counts
    if nan_counts is not None and nan_counts.any():
        return None
    null_pages = present == 0
    lows, highs = _shortened(leaf, order, summaries, truncate_length)
    bounded = np.flatnonzero(~null_pages).tolist()
    least, most = [lows[i] for i in bounded], [highs[i] for i in bounded]
    if not order.keys([*least, *most])[1].all():
        return None
    return ColumnIndex(
        null_pages,
        lows,
        highs,
        boundary_order(order, least, most),
        np.array([page.num_values for page in levels], dtype=np.int64) - present,
        nan_counts,
        _histograms(levels, leaf, repetition=True) if leaf.max_repetition_level else None,
        _histograms(levels, leaf, repetition=False) if leaf.max_definition_level else None,
    )


def present_counts(leaf: Leaf, levels: Sequence[PageLevels]) -> Int64Array:
    """Returns how many values each page stores, without nulls. Shape ``(pages,)``."""
    counts = [page.num_present(leaf.max_definition_level) for page in levels]
    return np.array(counts, dtype=np.int64)


def _shortened(
    leaf: Leaf, order: ValueOrder, summaries: PageSummaries, length: int
) -> tuple[list[bytes], list[bytes]]:
    lows = [value or b"" for value in summaries.min_values]
    highs = [value or b"" for value in summaries.max_values]
    if not may_shorten(leaf.element, order):
        return lows, highs
    text = is_text(leaf.element)
    return (
        [shortened_low(value, length, text=text) for value in lows],
        [shortened_high(value, length, text=text) for value in highs],
    )


def _histograms(levels: Sequence[PageLevels], leaf: Leaf, *, repetition: bool) -> Int64Array:
    highest = leaf.max_repetition_level if repetition else leaf.max_definition_level
    return np.concatenate(
        [
            histogram(page.repetition if repetition else page.definition, highest, page.num_values)
            for page in levels
        ]
    )


# --- bloom filter -------------------------------------------------------------------------------


def _bloom_filter(chunk: Chunk, index: Bloom) -> bytes:
    """Returns the filter of a chunk. Without ``ndv``, it begins large enough for all values."""
    chunk.load()
    pages = list(chunk.pages())
    num_values = sum(page.num_values or 0 for page in pages if page.is_data)
    bloom = BloomFilter.sized(index.ndv or num_values, index.fpp)
    for values in chunk.arrays(pages):
        bloom.add(distinct(bloom_hashes(values.drop_null())))
        del values  # frees them before the next ones are decoded
    return (bloom if index.ndv else bloom.shrunk(index.fpp)).encode()


def bloom_hashes(values: pa.Array) -> np.ndarray[Any, np.dtype[np.uint64]]:
    """Returns hashes of the stored bytes of values, as readers compute them.

    If there is a zero, both zeros are hashed. If there is a NaN, the usual NaN is hashed as well. A
    reader probes one encoding only, and other encodings compare equal to it.
    """
    if not pa.types.is_floating(values.type):
        return hash_values(values)
    numbers = values.to_numpy(zero_copy_only=False)
    also = []
    if (numbers == 0).any():
        also += [0.0, -0.0]
    if np.isnan(numbers).any():
        also.append(np.nan)
    bits = np.dtype(f"i{numbers.itemsize}")
    stored = np.concatenate([numbers, np.array(also, dtype=numbers.dtype)]).view(bits)
    return hash_values(pa.array(stored))
