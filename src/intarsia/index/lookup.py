"""``Lookup``: fingerprints of exact values, for = and IN on columns of many distinct values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from intarsia.errors import IndexSpecError
from intarsia.format.hashing import hash_values
from intarsia.format.order import ValueOrder
from intarsia.index.encodings import exact_values, unfit_for_hashing
from intarsia.index.kind import KeyArray
from intarsia.predicate.leaves import Test

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
        return unfit_for_hashing(order)

    def keys_of_values(self, values: pa.Array) -> KeyArray:
        return (hash_values(values) >> np.uint64(32)).astype(np.uint32)

    def keys_for(self, test: Test, order: ValueOrder) -> KeyArray | None:
        values = exact_values(test, order)
        if values is None:
            return None
        return np.unique(self.keys_of_values(values))
