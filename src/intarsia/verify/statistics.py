"""Compares the statistics of chunks and pages with decoded values."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from intarsia.errors import Where
from intarsia.parquet.metadata import Statistics, Type
from intarsia.verify.bounds import check_bound, compare, histograms, is_declared, is_signed
from intarsia.verify.finding import Finding, error, warning
from intarsia.verify.pages import ChunkFacts


def check_statistics(facts: ChunkFacts) -> Iterator[Finding]:
    """Checks the chunk's statistics."""
    stats = facts.chunk.metadata.statistics
    if stats is not None:
        yield from _of_statistics(facts, stats, facts.chunk.where, slice(None), "statistics")


def check_page_statistics(facts: ChunkFacts) -> Iterator[Finding]:
    """Checks the statistics in page headers."""
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
        # Writers differ in whether an empty list counts as a NULL, and so do readers.
        grade = warning if facts.chunk.leaf.max_repetition_level else error
        yield grade(where, f"{name}: null_count is {stats.null_count:,}, there are {nulls:,}")
    if facts.bounds is None:
        return
    nans = facts.bounds.nan_counts
    if stats.nan_count is not None and nans is not None:
        actual = int(nans[pages].sum())
        if stats.nan_count != actual:
            yield error(where, f"{name}: nan_count is {stats.nan_count:,}, there are {actual:,}")
    low, high = _extremes(facts, pages)
    if low is None or high is None:
        return
    if is_declared(facts):
        yield from check_bound(facts, where, f"{name}: min_value", stats.min_value, low, lower=True)
        yield from check_bound(
            facts, where, f"{name}: max_value", stats.max_value, high, lower=False
        )
        for side, exact, claim, value in (
            ("min", stats.is_min_value_exact, stats.min_value, low),
            ("max", stats.is_max_value_exact, stats.max_value, high),
        ):
            if exact and claim is not None and compare(facts, claim, value) not in (0, None):
                yield error(where, f"{name}: {side}_value is said to be exact and is not")
    for side, claim, value, lower in (
        ("min", stats.min, low, True),
        ("max", stats.max, high, False),
    ):
        # Careful readers ignore these unless the order is that of signed numbers.
        for finding in check_bound(
            facts, where, f"{name}: deprecated {side}", claim, value, lower=lower
        ):
            yield finding if is_signed(facts) else warning(finding.where, finding.message)


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


def check_size_statistics(facts: ChunkFacts) -> Iterator[Finding]:
    """Checks the chunk's size statistics."""
    sizes = facts.chunk.metadata.size_statistics
    if sizes is None:
        return
    where, leaf = facts.chunk.where, facts.chunk.leaf
    repetition, definition = histograms(facts)
    for name, claim, actual, highest in (
        ("repetition", sizes.repetition_level_histogram, repetition, leaf.max_repetition_level),
        ("definition", sizes.definition_level_histogram, definition, leaf.max_definition_level),
    ):
        if claim and claim != actual.reshape(-1, highest + 1).sum(axis=0).tolist():
            yield warning(where, f"size statistics: {name}_level_histogram is wrong")
    length = sizes.unencoded_byte_array_data_bytes
    if length is not None and facts.values is not None and leaf.element.type == Type.BYTE_ARRAY:
        actual_length = sum(map(_byte_length, facts.values))
        if length != actual_length:
            message = f"unencoded_byte_array_data_bytes is {length:,}, there are {actual_length:,}"
            yield warning(where, f"size statistics: {message}")


def _byte_length(values: pa.Array) -> int:
    return int(pc.sum(pc.cast(pc.binary_length(values), "int64")).as_py() or 0)
