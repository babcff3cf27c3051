"""Compares page indexes with pages and decoded values."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from intarsia.parquet.metadata import BoundaryOrder, ColumnChunk
from intarsia.parquet.page_index import (
    ColumnIndex,
    OffsetIndex,
    read_column_index,
    read_offset_index,
)
from intarsia.parquet.page_statistics import boundary_order, is_in_order
from intarsia.row_ranges import Int64Array
from intarsia.verify.bounds import check_bound, histograms, is_declared
from intarsia.verify.finding import Finding, error, warning
from intarsia.verify.pages import ChunkFacts


def _stored_index(facts: ChunkFacts, offset: int | None, length: int | None) -> memoryview | None:
    if offset is None or not length:
        return None
    return facts.chunk.file.source.read([(offset, length)])[0]


def check_offset_index(facts: ChunkFacts, column: ColumnChunk) -> Iterator[Finding]:
    """Checks the chunk's OffsetIndex, if it has one."""
    data = _stored_index(facts, column.offset_index_offset, column.offset_index_length)
    if data is None:
        return
    index: OffsetIndex = read_offset_index(data)
    where = facts.chunk.where
    if len(index) != len(facts.pages):
        yield error(where, f"offset index: {len(index)} entries for {len(facts.pages)} pages")
        return
    first_rows = (np.cumsum(facts.rows) - facts.rows).tolist()
    for number, page in enumerate(facts.pages):
        for name, claim, actual in (
            ("offset", int(index.offset[number]), page.offset),
            ("compressed_page_size", int(index.compressed_page_size[number]), page.size),
            ("first_row_index", int(index.first_row_index[number]), first_rows[number]),
        ):
            if claim != actual:
                yield error(facts.page(number), f"offset index: {name} is {claim}, not {actual}")
        if not facts.levels[number].begins_a_row:
            message = "the page begins within a row, though the chunk has an offset index"
            yield error(facts.page(number), message)


def check_column_index(facts: ChunkFacts, column: ColumnChunk) -> Iterator[Finding]:
    """Checks the chunk's ColumnIndex, if it has one."""
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
    if facts.bounds is None or not is_declared(facts):
        return
    for number in np.flatnonzero(~index.null_pages).tolist():
        low, high = facts.bounds.min_values[number], facts.bounds.max_values[number]
        if low is None or high is None:
            continue
        place, name = facts.page(number), "column index:"
        least, most = index.min_values[number], index.max_values[number]
        yield from check_bound(facts, place, f"{name} min", least, low, lower=True)
        yield from check_bound(facts, place, f"{name} max", most, high, lower=False)
    yield from _index_order(facts, index)


def _index_counts(facts: ChunkFacts, index: ColumnIndex) -> Iterator[Finding]:
    lists: list[tuple[str, Sequence[Any] | None, Sequence[Any] | None]] = [
        ("null_pages", index.null_pages.tolist(), (facts.present == 0).tolist()),
        ("null_counts", _list(index.null_counts), facts.null_counts.tolist()),
    ]
    if facts.bounds is not None:
        lists.append(("nan_counts", _list(index.nan_counts), _list(facts.bounds.nan_counts)))
    for name, claims, actual in lists:
        if claims is None or actual is None:
            continue
        # As in statistics, writers differ in whether an empty list counts as a NULL.
        is_ambiguous = name == "null_counts" and facts.chunk.leaf.max_repetition_level
        grade = warning if is_ambiguous else error
        for number, (claim, truth) in enumerate(zip(claims, actual, strict=True)):
            if claim != truth:
                message = f"column index: {name} is {claim}, not {truth}"
                yield grade(facts.page(number), message)


def _list(values: Int64Array | None) -> list[int] | None:
    return None if values is None else [int(value) for value in values]


def _index_histograms(facts: ChunkFacts, index: ColumnIndex) -> Iterator[Finding]:
    repetition, definition = histograms(facts)
    for name, claim, actual in (
        ("repetition", index.repetition_level_histograms, repetition),
        ("definition", index.definition_level_histograms, definition),
    ):
        if claim is not None and len(claim) and not np.array_equal(claim, actual):
            yield warning(facts.chunk.where, f"column index: {name}_level_histograms are wrong")


def _index_order(facts: ChunkFacts, index: ColumnIndex) -> Iterator[Finding]:
    if index.boundary_order == BoundaryOrder.UNORDERED:
        return
    bounded = np.flatnonzero(~index.null_pages).tolist()
    lows = [index.min_values[i] for i in bounded]
    highs = [index.max_values[i] for i in bounded]
    usable = facts.order.keys([*lows, *highs])[1]
    if usable.all() and not is_in_order(facts.order, lows, highs, index.boundary_order):
        actual = int(boundary_order(facts.order, lows, highs))
        claim = f"boundary_order is {index.boundary_order}, bounds say {actual}"
        yield error(facts.chunk.where, f"column index: {claim}")
