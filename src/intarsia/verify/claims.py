"""What footer, page headers, page indexes and bloom filters claim, against decoded values."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow.compute as pc

from intarsia.errors import FormatError, Where
from intarsia.format.bloom import read_bloom_filter
from intarsia.format.levels import histogram
from intarsia.format.metadata import BoundaryOrder, ColumnChunk, Statistics, Type
from intarsia.format.page_index import (
    ColumnIndex,
    OffsetIndex,
    read_column_index,
    read_offset_index,
)
from intarsia.format.summary import boundary_order
from intarsia.ranges import Int64Array
from intarsia.verify.findings import Finding, error, of_exception, warning
from intarsia.verify.pages import ChunkFacts
from intarsia.write.standard import bloom_hashes

_SHOWN = 40
"""Bytes of a value that a message shows."""


def check_claims(facts: ChunkFacts) -> Iterator[Finding]:
    """All claims about one chunk."""
    chunk = facts.chunk
    column = chunk.file.column_chunk(chunk.row_group, chunk.leaf.index)
    for check in (
        _statistics(facts),
        _page_statistics(facts),
        _size_statistics(facts),
        _offset_index(facts, column),
        _column_index(facts, column),
        _bloom_filter(facts),
    ):
        try:
            yield from check
        except FormatError as problem:
            yield of_exception(problem, chunk.where)


# --- statistics ---------------------------------------------------------------------------------


def _statistics(facts: ChunkFacts) -> Iterator[Finding]:
    stats = facts.chunk.metadata.statistics
    if stats is not None:
        yield from _of_statistics(facts, stats, facts.chunk.where, slice(None), "statistics")


def _page_statistics(facts: ChunkFacts) -> Iterator[Finding]:
    for number, page in enumerate(facts.pages):
        header = page.header.data_page_header or page.header.data_page_header_v2
        if header is not None and header.statistics is not None:
            place = slice(number, number + 1)
            where = facts.page(number)
            yield from _of_statistics(facts, header.statistics, where, place, "page statistics")


def _of_statistics(
    facts: ChunkFacts, stats: Statistics, where: Where, pages: slice, name: str
) -> Iterator[Finding]:
    nulls = int(facts.null_counts[pages].sum())
    if stats.null_count is not None and stats.null_count != nulls:
        # Writers differ in whether an empty list counts, and readers in what they make of it.
        grade = warning if facts.chunk.leaf.max_repetition_level else error
        yield grade(where, f"{name}: null_count is {stats.null_count:,}, there are {nulls:,}")
    if facts.bounds is None:
        return
    nans = facts.bounds.nan_counts
    if stats.nan_count is not None and nans is not None:
        found = int(nans[pages].sum())
        if stats.nan_count != found:
            yield error(where, f"{name}: nan_count is {stats.nan_count:,}, there are {found:,}")
    low, high = _extremes(facts, pages)
    if low is None or high is None:
        return
    if _is_declared(facts):
        yield from _bound(facts, where, f"{name}: min_value", stats.min_value, low, lower=True)
        yield from _bound(facts, where, f"{name}: max_value", stats.max_value, high, lower=False)
        for side, exact, claim, value in (
            ("min", stats.is_min_value_exact, stats.min_value, low),
            ("max", stats.is_max_value_exact, stats.max_value, high),
        ):
            if exact and claim is not None and _compare(facts, claim, value) not in (0, None):
                yield error(where, f"{name}: {side}_value is said to be exact and is not")
    for side, claim, value, lower in (
        ("min", stats.min, low, True),
        ("max", stats.max, high, False),
    ):
        # Readers that know better do not believe these where order is not signed.
        for finding in _bound(
            facts, where, f"{name}: deprecated {side}", claim, value, lower=lower
        ):
            yield finding if _is_signed(facts) else warning(finding.where, finding.message)


def _extremes(facts: ChunkFacts, pages: slice) -> tuple[bytes | None, bytes | None]:
    assert facts.bounds is not None
    lows = [value for value in facts.bounds.min_values[pages] if value is not None]
    highs = [value for value in facts.bounds.max_values[pages] if value is not None]
    if not lows:
        return None, None
    low_keys, high_keys = facts.order.keys(lows)[0], facts.order.keys(highs)[0]
    least = min(range(len(lows)), key=lambda i: low_keys[i])
    most = max(range(len(highs)), key=lambda i: high_keys[i])
    return lows[least], highs[most]


def _is_declared(facts: ChunkFacts) -> bool:
    return facts.chunk.file.order_is_declared(facts.chunk.leaf.index)


def _is_signed(facts: ChunkFacts) -> bool:
    return facts.order.stored is not None and facts.order.stored.kind != "u"


def _compare(facts: ChunkFacts, one: bytes, other: bytes) -> int | None:
    """-1, 0 or 1; None where one of them is no value of the type, or NaN."""
    keys, usable = facts.order.keys([one, other])
    if not usable.all():
        return None
    return int(keys[0] > keys[1]) - int(keys[0] < keys[1])


def _bound(
    facts: ChunkFacts, where: Where, name: str, claim: bytes | None, value: bytes, *, lower: bool
) -> Iterator[Finding]:
    if claim is None:
        return
    compared = _compare(facts, claim, value)
    if compared is None:
        yield warning(where, f"{name} {_shown(claim)} is no value of the column's type")
    elif compared > 0 if lower else compared < 0:
        above = "above" if lower else "below"
        yield error(where, f"{name} {_shown(claim)} is {above} a value, {_shown(value)}")


def _shown(value: bytes) -> str:
    return repr(value) if len(value) <= _SHOWN else f"{value[:_SHOWN]!r}…"


def _size_statistics(facts: ChunkFacts) -> Iterator[Finding]:
    sizes = facts.chunk.metadata.size_statistics
    if sizes is None:
        return
    where, leaf = facts.chunk.where, facts.chunk.leaf
    repetition, definition = _histograms(facts)
    for name, claim, found, highest in (
        ("repetition", sizes.repetition_level_histogram, repetition, leaf.max_repetition_level),
        ("definition", sizes.definition_level_histogram, definition, leaf.max_definition_level),
    ):
        if claim and claim != found.reshape(-1, highest + 1).sum(axis=0).tolist():
            yield warning(where, f"size statistics: {name}_level_histogram is wrong")
    length = sizes.unencoded_byte_array_data_bytes
    if length is not None and facts.values is not None and leaf.element.type == Type.BYTE_ARRAY:
        held = _byte_lengths(facts)
        if length != held:
            message = f"unencoded_byte_array_data_bytes is {length:,}, there are {held:,}"
            yield warning(where, f"size statistics: {message}")


def _byte_lengths(facts: ChunkFacts) -> int:
    return int(pc.sum(pc.cast(pc.binary_length(facts.values), "int64")).as_py() or 0)


def _histograms(facts: ChunkFacts) -> tuple[Int64Array, Int64Array]:
    """Of all pages, one after the other: of repetition, and of definition levels."""
    leaf = facts.chunk.leaf
    nothing = np.empty(0, dtype=np.int64)
    repetition = [
        histogram(page.repetition, leaf.max_repetition_level, page.num_values)
        for page in facts.levels
    ]
    definition = [
        histogram(page.definition, leaf.max_definition_level, page.num_values)
        for page in facts.levels
    ]
    return np.concatenate([nothing, *repetition]), np.concatenate([nothing, *definition])


# --- page index ---------------------------------------------------------------------------------


def _stored_index(facts: ChunkFacts, offset: int | None, length: int | None) -> memoryview | None:
    if offset is None or not length:
        return None
    return facts.chunk.file.source.read([(offset, length)])[0]


def _offset_index(facts: ChunkFacts, column: ColumnChunk) -> Iterator[Finding]:
    data = _stored_index(facts, column.offset_index_offset, column.offset_index_length)
    if data is None:
        return
    index: OffsetIndex = read_offset_index(data)
    where = facts.chunk.where
    if len(index) != len(facts.pages):
        yield error(where, f"offset index: {len(index)} entries for {len(facts.pages)} pages")
        return
    rows = facts.rows
    for number, page in enumerate(facts.pages):
        for name, claim, found in (
            ("offset", int(index.offset[number]), page.offset),
            ("compressed_page_size", int(index.compressed_page_size[number]), page.size),
            ("first_row_index", int(index.first_row_index[number]), int(rows[:number].sum())),
        ):
            if claim != found:
                yield error(facts.page(number), f"offset index: {name} is {claim}, not {found}")
        if not facts.levels[number].begins_a_row:
            message = "the page begins within a row, though the chunk has an offset index"
            yield error(facts.page(number), message)


def _column_index(facts: ChunkFacts, column: ColumnChunk) -> Iterator[Finding]:
    data = _stored_index(facts, column.column_index_offset, column.column_index_length)
    if data is None:
        return
    index: ColumnIndex = read_column_index(data)
    where = facts.chunk.where
    if len(index) != len(facts.pages):
        yield error(where, f"column index: {len(index)} entries for {len(facts.pages)} pages")
        return
    yield from _index_counts(facts, index)
    yield from _index_histograms(facts, index)
    if facts.bounds is None or not _is_declared(facts):
        return
    for number in np.flatnonzero(~index.null_pages).tolist():
        low, high = facts.bounds.min_values[number], facts.bounds.max_values[number]
        if low is None or high is None:
            continue
        place, name = facts.page(number), "column index:"
        least, most = index.min_values[number], index.max_values[number]
        yield from _bound(facts, place, f"{name} min", least, low, lower=True)
        yield from _bound(facts, place, f"{name} max", most, high, lower=False)
    yield from _index_order(facts, index)


def _index_counts(facts: ChunkFacts, index: ColumnIndex) -> Iterator[Finding]:
    lists: list[tuple[str, Sequence[Any] | None, Sequence[Any] | None]] = [
        ("null_pages", index.null_pages.tolist(), (facts.present == 0).tolist()),
        ("null_counts", _list(index.null_counts), facts.null_counts.tolist()),
    ]
    if facts.bounds is not None:
        lists.append(("nan_counts", _list(index.nan_counts), _list(facts.bounds.nan_counts)))
    for name, claims, found in lists:
        if claims is None or found is None:
            continue
        for number, (claim, truth) in enumerate(zip(claims, found, strict=True)):
            if claim != truth:
                message = f"column index: {name} is {claim}, not {truth}"
                yield error(facts.page(number), message)


def _list(values: Int64Array | None) -> list[int] | None:
    return None if values is None else [int(value) for value in values]


def _index_histograms(facts: ChunkFacts, index: ColumnIndex) -> Iterator[Finding]:
    repetition, definition = _histograms(facts)
    for name, claim, found in (
        ("repetition", index.repetition_level_histograms, repetition),
        ("definition", index.definition_level_histograms, definition),
    ):
        if claim is not None and len(claim) and not np.array_equal(claim, found):
            yield warning(facts.chunk.where, f"column index: {name}_level_histograms are wrong")


def _index_order(facts: ChunkFacts, index: ColumnIndex) -> Iterator[Finding]:
    if index.boundary_order == BoundaryOrder.UNORDERED:
        return
    bounded = np.flatnonzero(~index.null_pages).tolist()
    lows = [index.min_values[i] for i in bounded]
    highs = [index.max_values[i] for i in bounded]
    usable = facts.order.keys([*lows, *highs])[1]
    found = boundary_order(facts.order, lows, highs)
    if index.boundary_order == BoundaryOrder.DESCENDING and found == BoundaryOrder.ASCENDING:
        # Equal bounds throughout are both.
        found = boundary_order(facts.order, lows[::-1], highs[::-1])
        found = BoundaryOrder.DESCENDING if found == BoundaryOrder.ASCENDING else found
    if usable.all() and index.boundary_order != found:
        claim = f"boundary_order is {index.boundary_order}, bounds say {int(found)}"
        yield error(facts.chunk.where, f"column index: {claim}")


# --- bloom filter -------------------------------------------------------------------------------


def _bloom_filter(facts: ChunkFacts) -> Iterator[Finding]:
    metadata = facts.chunk.metadata
    if metadata.bloom_filter_offset is None or facts.values is None:
        return
    source = facts.chunk.file.source
    made = read_bloom_filter(source, metadata.bloom_filter_offset, metadata.bloom_filter_length)
    where = facts.chunk.where
    try:
        hashes = bloom_hashes(facts.values)[: len(facts.values)]
    except TypeError:
        yield warning(where, "bloom filter: not checked: values of this type are not hashed here")
        return
    missing = int(np.count_nonzero(~made.might_contain(hashes)))
    if missing:
        yield error(where, f"bloom filter: {missing:,} of {len(hashes):,} values are not in it")
