"""``Lookup``: fingerprints of exact values, for = and IN on columns of many distinct values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from intarsia.errors import IndexSpecError
from intarsia.format.hashing import hash_values, xxh64
from intarsia.format.order import Domain, ValueOrder
from intarsia.index.kind import KeyArray
from intarsia.predicate.pruning import Op, Test

GRANULE_ROWS = 8192


@dataclass(frozen=True, slots=True)
class Lookup:
    """A lookup index on a column: finds the granules that hold a value, for ``=`` and ``IN``.

    A key is the high 32 bits of XXH64 (seed 0) over the value's PLAIN encoding, as in the
    specification's bloom filters; −0.0 counts as +0.0; NULL and NaN are not indexed.

    ``on`` is a column path, ``granule_rows`` the most rows of a granule (1 to 2**31 - 1). Raises
    ``IndexSpecError`` for a value outside.
    """

    kind: ClassVar[str] = "lookup"
    kind_version: ClassVar[int] = 1

    on: str
    granule_rows: int = GRANULE_ROWS

    def __post_init__(self) -> None:
        if not isinstance(self.on, str) or not self.on:
            raise IndexSpecError("a lookup index needs the name of a column")
        if not isinstance(self.granule_rows, int) or not 0 < self.granule_rows < 2**31:
            raise IndexSpecError(f"granule_rows must be 1 to 2**31 - 1, not {self.granule_rows!r}")

    @property
    def params(self) -> Mapping[str, Any]:
        return {"granule_rows": self.granule_rows}

    def unfit(self, order: ValueOrder) -> str | None:
        if order.domain is Domain.UNDEFINED:
            return "its type has no defined equality in Parquet"
        if order.has_nan and order.width == 2:
            return "half floats have two encodings of zero, and NaN, among their bytes"
        if order.domain is Domain.BOOLEAN:
            return "booleans have two values only"
        if order.domain is Domain.DECIMAL and order.width is None:
            return "decimals of varying width have several encodings of one value"
        return None

    def keys_of_values(self, values: pa.Array) -> KeyArray:
        return (hash_values(values) >> np.uint64(32)).astype(np.uint32)

    def keys_for(self, test: Test, order: ValueOrder) -> KeyArray | None:
        if test.op not in (Op.EQ, Op.IN) or test.nulls or (test.nans and order.has_nan):
            return None
        keys = []
        for value in test.values:
            bracket = order.bracket(value)
            if bracket is None:
                return None
            low, high = bracket
            if low != high:
                # Between two neighbours of the column's type. Membership, which casts its set, and
                # comparison as narrower floats may yet find it equal to one of them.
                return None
            encoded = _encoded(order, low)
            if encoded is not None:
                keys.append(xxh64(encoded) >> 32)
        return np.unique(np.array(keys, dtype=np.uint32))


def _encoded(order: ValueOrder, key: Any) -> bytes | None:
    """PLAIN encoding of a key; None where the column's type does not hold such a value."""
    try:
        if order.has_nan:
            key = key + order.key.type(0)
        return order.plain(key)
    except OverflowError:
        return None
