"""Comparing a claim with what a chunk's pages hold."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from intarsia.errors import Where
from intarsia.parquet.levels import histogram
from intarsia.row_ranges import Int64Array
from intarsia.verify.finding import Finding, error, warning
from intarsia.verify.pages import ChunkFacts

_SHOWN = 40
"""Bytes of a value that a message shows."""


def is_declared(facts: ChunkFacts) -> bool:
    """Does the file say how ``min_value`` and ``max_value`` compare?"""
    return facts.chunk.file.column_bounds.is_order_declared(facts.chunk.leaf.index)


def is_signed(facts: ChunkFacts) -> bool:
    """Are values signed numbers, whose deprecated ``min`` and ``max`` readers believe?"""
    return facts.order.stored is not None and facts.order.stored.kind != "u"


def compare(facts: ChunkFacts, one: bytes, other: bytes) -> int | None:
    """-1, 0 or 1; None where one of them is no value of the type, or NaN."""
    keys, usable = facts.order.keys([one, other])
    if not usable.all():
        return None
    return int(keys[0] > keys[1]) - int(keys[0] < keys[1])


def check_bound(
    facts: ChunkFacts, where: Where, name: str, claim: bytes | None, value: bytes, *, lower: bool
) -> Iterator[Finding]:
    """A finding where ``claim`` does not bound ``value``, or is no value of the type."""
    if claim is None:
        return
    compared = compare(facts, claim, value)
    if compared is None:
        is_nan = facts.order.has_nan and len(claim) == len(value)
        what = "NaN" if is_nan else "no value of the column's type"
        yield warning(where, f"{name} {_shown(claim)} is {what}")
    elif compared > 0 if lower else compared < 0:
        above = "above" if lower else "below"
        yield error(where, f"{name} {_shown(claim)} is {above} a value, {_shown(value)}")


def _shown(value: bytes) -> str:
    return repr(value) if len(value) <= _SHOWN else f"{value[:_SHOWN]!r}…"


def histograms(facts: ChunkFacts) -> tuple[Int64Array, Int64Array]:
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
