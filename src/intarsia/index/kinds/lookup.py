"""``Lookup``: fingerprints of exact values, for = and IN on columns of many distinct values."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from intarsia.expr.comparison_operators import Op
from intarsia.index.base import Inverted, Positions, Reads, Subject, fingerprints
from intarsia.index.key_formula import FingerprintArray, Formula, Keys
from intarsia.index.literal_encoding import exact_values, unfit_for_hashing
from intarsia.pruning.predicates import Predicate, Test


@dataclass(frozen=True)
class Lookup(Inverted):
    """A lookup index: finds the granules that hold a value, for ``=`` and ``IN``.

    A key is the high 32 bits of XXH64 (seed 0) over the value's PLAIN encoding, as in the
    specification's bloom filters; −0.0 counts as +0.0; NULL and NaN are not indexed.

    ``on`` is a column path, or a function of columns as SQL text or as an Expression;
    ``granule_rows`` the most rows of a granule (1 to 2**31 - 1). Raises ``IndexSpecError`` for a
    value outside.
    """

    kind = "lookup"
    reads = Reads.PHYSICAL
    serves = frozenset({Op.EQ, Op.IN})

    def unfit(self, of: Subject) -> str | None:
        return unfit_for_hashing(of.order)

    def keys_of_values(self, values: pa.Array) -> tuple[FingerprintArray, Positions]:
        return fingerprints(values), np.arange(len(values), dtype=np.int64)

    def keys_for(self, predicate: Predicate, of: Subject) -> Formula | None:
        assert isinstance(predicate, Test)
        values = exact_values(predicate, of.order)
        return None if values is None else Keys(fingerprints(values))
