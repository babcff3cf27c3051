"""Texts, which are UTF-8: readers refuse other bytes, or go wrong by them.

Logical types STRING, ENUM and JSON of the specification, and their converted types.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from intarsia.format.metadata import ConvertedType
from intarsia.format.schema import Leaf
from intarsia.verify.findings import Finding, error
from intarsia.verify.pages import ChunkFacts

_CONVERTED = (ConvertedType.UTF8, ConvertedType.ENUM, ConvertedType.JSON)


def check_texts(facts: ChunkFacts) -> Iterator[Finding]:
    """Are all texts of a chunk UTF-8? Names the first page where one is not."""
    if facts.values is None or not _is_text(facts.chunk.leaf) or _are_utf8(facts.values):
        return
    found = np.array([not _are_utf8(facts.values.slice(at, 1)) for at in range(len(facts.values))])
    stops = np.cumsum(facts.present)
    page = int(np.searchsorted(stops, np.argmax(found), side="right"))
    yield error(facts.page(page), f"{found.sum():,} of {len(found):,} texts are no UTF-8")


def _is_text(leaf: Leaf) -> bool:
    logical = leaf.element.logicalType
    if logical is None:
        return leaf.element.converted_type in _CONVERTED
    return any(one is not None for one in (logical.STRING, logical.ENUM, logical.JSON))


def _are_utf8(values: pa.Array) -> bool:
    try:
        values.cast(pa.large_string())
    except pa.ArrowInvalid:
        return False
    return True
