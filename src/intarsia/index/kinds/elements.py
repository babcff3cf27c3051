"""``Elements``: fingerprints of what lists hold, and of the keys of maps."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from intarsia.expr.functions import compares, held_constants
from intarsia.index.base import Inverted, Positions, Reads, Subject, fingerprints
from intarsia.index.key_formula import Every, FingerprintArray, Formula, Keys
from intarsia.pruning.predicates import How, Match, Predicate

_MOST_NEEDED = 64
"""Of more values that a list has to hold, the first say where it might."""
_DECIMAL_DIGITS = 38


@dataclass(frozen=True)
class Elements(Inverted):
    """An index of elements: which granules have lists that hold a value, any of some, or all.

    Of a map, it is the keys that are indexed. A key is the high 32 bits of XXH64 (seed 0) over an
    element as PLAIN encoding has it, booleans as 32-bit integers, decimals as 16 little-endian
    bytes (32 where they have more than 38 digits); −0.0 counts as +0.0; NULL and NaN, which no list
    is ever found to hold, are not indexed.

    ``on`` is the path of a column of lists or maps, itself or within structs; what is within lists,
    or a list of lists, is refused, as are elements that pyarrow does not compare. Otherwise as
    ``Lookup``.
    """

    kind = "elements"
    reads = Reads.ELEMENTS
    serves = frozenset({How.LIST_ANY, How.LIST_ALL, How.MAP_ANY})

    def unfit(self, of: Subject) -> str | None:
        if pa.types.is_nested(of.type):
            return f"its elements, of type {of.type}, are nested"
        if pa.types.is_null(of.type) or not compares(of.type, of.type):
            return f"its elements, of type {of.type}, equal nothing"
        return None

    def keys_of_values(self, values: pa.Array) -> tuple[FingerprintArray, Positions]:
        return fingerprints(_hashable(values)), np.arange(len(values), dtype=np.int64)

    def keys_for(self, predicate: Predicate, of: Subject) -> Formula | None:
        assert isinstance(predicate, Match)
        if not compares(of.type, predicate.values.type):
            return None
        values, all_held = held_constants(predicate.values, of.type)
        keys = np.unique(fingerprints(_hashable(values)))
        if predicate.how is not How.LIST_ALL:
            return Keys(keys)
        if not all_held:
            return Keys(keys[:0])
        needed = [Keys(keys[i : i + 1]) for i in range(min(len(keys), _MOST_NEEDED))]
        return Every(tuple(needed)) if needed else None


def _hashable(values: pa.Array) -> pa.Array:
    """Values as fixed numbers of bytes, or as texts: equal ones have the same bytes."""
    kind = values.type
    if pa.types.is_boolean(kind):
        return values.cast(pa.int32())
    if pa.types.is_decimal(kind):
        if kind.precision > _DECIMAL_DIGITS:
            return values.view(pa.binary(32))
        return values.cast(pa.decimal128(_DECIMAL_DIGITS, kind.scale)).view(pa.binary(16))
    if pa.types.is_date64(kind):
        return values.cast(pa.date32()).view(pa.int32())
    if pa.types.is_integer(kind):
        return values if kind.bit_width >= 32 else values.cast(pa.int32())
    if pa.types.is_temporal(kind):
        return values.view(pa.int32() if kind.bit_width == 32 else pa.int64())
    return values
