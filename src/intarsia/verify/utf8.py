"""Checks that strings are UTF-8. Readers refuse other bytes, or return wrong results.

That applies to the logical types STRING, ENUM and JSON, and to their converted types.
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


def check_strings(facts: ChunkFacts) -> Iterator[Finding]:
    """Checks that all strings of a chunk are UTF-8. A finding names the first page with others."""
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
        del part, values  # frees them before the next ones are decoded
    if first is not None:
        page = facts.page(int(np.searchsorted(stops, first, side="right")))
        yield error(page, f"{count:,} of {at:,} strings are not UTF-8")


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
