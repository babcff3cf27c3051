"""Texts, which are UTF-8: readers refuse other bytes, or go wrong by them.

Logical types STRING, ENUM and JSON of the specification, and their converted types.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from intarsia.parquet.metadata import ConvertedType
from intarsia.parquet.schema import Leaf
from intarsia.verify.finding import Finding, error
from intarsia.verify.pages import ChunkFacts

_CONVERTED = (ConvertedType.UTF8, ConvertedType.ENUM, ConvertedType.JSON)


def check_texts(facts: ChunkFacts) -> Iterator[Finding]:
    """Are all texts of a chunk UTF-8? Names the first page where one is not."""
    if facts.values is None or not _is_text(facts.chunk.leaf):
        return
    stops = np.cumsum(facts.present)
    at = count = 0
    first = None
    for part in facts.values:
        values = part.drop_null()
        if not _are_utf8(values):
            odd = [number for number, value in enumerate(values) if not _is_utf8(value)]
            count += len(odd)
            first = at + odd[0] if first is None else first
        at += len(values)
    if first is not None:
        page = facts.page(int(np.searchsorted(stops, first, side="right")))
        yield error(page, f"{count:,} of {at:,} texts are no UTF-8")


def _is_text(leaf: Leaf) -> bool:
    logical = leaf.element.logicalType
    if logical is None:
        return leaf.element.converted_type in _CONVERTED
    return any(one is not None for one in (logical.STRING, logical.ENUM, logical.JSON))


def _is_utf8(value: pa.Scalar) -> bool:
    try:
        value.as_py().decode()
    except UnicodeDecodeError:
        return False
    return True


def _are_utf8(values: pa.Array) -> bool:
    try:
        values.cast(pa.large_string())
    except pa.ArrowInvalid:
        return False
    return True
