"""Texts, which are UTF-8: readers refuse other bytes, or go wrong by them.

Logical types STRING, ENUM and JSON of the specification, and their converted types.
"""

from __future__ import annotations

import itertools
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
    starts = np.append(0, np.cumsum(facts.present)).tolist()
    pages = [facts.values.slice(at, stop - at) for at, stop in itertools.pairwise(starts)]
    odd = [number for number, values in enumerate(pages) if not _are_utf8(values)]
    count = sum(_num_odd(pages[number]) for number in odd)
    yield error(facts.page(odd[0]), f"{count:,} of {starts[-1]:,} texts are no UTF-8")


def _is_text(leaf: Leaf) -> bool:
    logical = leaf.element.logicalType
    if logical is None:
        return leaf.element.converted_type in _CONVERTED
    return any(one is not None for one in (logical.STRING, logical.ENUM, logical.JSON))


def _num_odd(values: pa.Array) -> int:
    count = 0
    for value in values.to_pylist():
        try:
            value.decode()
        except UnicodeDecodeError:
            count += 1
    return count


def _are_utf8(values: pa.Array) -> bool:
    try:
        values.cast(pa.large_string())
    except pa.ArrowInvalid:
        return False
    return True
