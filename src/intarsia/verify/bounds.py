"""Compares stated bounds of a chunk with its decoded values."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from intarsia.errors import Where
from intarsia.parquet.levels import histogram
from intarsia.row_ranges import Int64Array
from intarsia.verify.finding import Finding, error, warning
from intarsia.verify.pages import ChunkFacts

_MAX_SHOWN_BYTES = 40
"""A message shows at most this many bytes of a value."""


def is_declared(facts: ChunkFacts) -> bool:
    """True if the file says how ``min_value`` and ``max_value`` compare."""
    return facts.chunk.file.column_bounds.is_order_declared(facts.chunk.leaf.index)


def is_signed(facts: ChunkFacts) -> bool:
    """True if values are signed numbers: only then readers use deprecated ``min`` and ``max``."""
    return facts.order.stored is not None and facts.order.stored.kind != "u"


def compare(facts: ChunkFacts, one: bytes, other: bytes) -> int | None:
    """Returns -1, 0 or 1, or None if one is NaN or no value of the column's type."""
    keys, usable = facts.order.keys([one, other])
    if not usable.all():
        return None
    return int(keys[0] > keys[1]) - int(keys[0] < keys[1])


def check_bound(
    facts: ChunkFacts, where: Where, name: str, claim: bytes | None, value: bytes, *, lower: bool
) -> Iterator[Finding]:
    """Yields a finding if ``claim`` does not bound ``value``, or is no value of the type."""
    if claim is None:
        return
    compared = compare(facts, claim, value)
    if compared is None:
        is_nan = facts.order.has_nan and len(claim) == len(value)
        fault = "NaN" if is_nan else "no value of the column's type"
        yield warning(where, f"{name} {_shown(claim)} is {fault}")
    elif compared > 0 if lower else compared < 0:
        above = "above" if lower else "below"
        yield error(where, f"{name} {_shown(claim)} is {above} a value, {_shown(value)}")


def _shown(value: bytes) -> str:
    return repr(value) if len(value) <= _MAX_SHOWN_BYTES else f"{value[:_MAX_SHOWN_BYTES]!r}…"


def histograms(facts: ChunkFacts) -> tuple[Int64Array, Int64Array]:
    """Returns the histograms of repetition and of definition levels, page after page."""
    leaf = facts.chunk.leaf
    empty = np.empty(0, dtype=np.int64)
    repetition = [
        histogram(page.repetition, leaf.max_repetition_level, page.num_values)
        for page in facts.levels
    ]
    definition = [
        histogram(page.definition, leaf.max_definition_level, page.num_values)
        for page in facts.levels
    ]
    return np.concatenate([empty, *repetition]), np.concatenate([empty, *definition])
