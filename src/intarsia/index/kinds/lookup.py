"""``Lookup``: fingerprints of values, for ``=`` and ``IN`` on columns of many distinct values."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from intarsia.expr.comparison_operators import Op
from intarsia.index.base import Inverted, Positions, Reads, Subject, fingerprints
from intarsia.index.key_formula import FingerprintArray, Formula, Keys
from intarsia.index.literal_encoding import exact_values, unfit_for_hashing
from intarsia.pruning.predicates import Comparison, Predicate


@dataclass(frozen=True)
class Lookup(Inverted):
    """An index of exact values, for ``=`` and ``IN``.

    A key is the high 32 bits of XXH64 (seed 0) over the value's PLAIN encoding. Parquet's bloom
    filters use the same hash. −0.0 is hashed as +0.0. NULL and NaN are not indexed.

    Parameters
    ----------
    on : str or pyarrow.compute.Expression
        A column path, or a function of columns as SQL text or Expression.
    granule_rows : int, default 8192
        Most rows per granule, 1 to 2**31 - 1. A column's longer pages are divided.

    Raises
    ------
    IndexSpecError
        If ``granule_rows`` is out of range, or the Expression cannot be indexed.

    Examples
    --------
    >>> ia.Lookup("trace_id")
    Lookup(on='trace_id', granule_rows=8192)
    >>> report, = ia.add_indexes("logs.parquet", [ia.Lookup("lower(msg)", granule_rows=1000)])
    >>> report.added
    ('lower(msg):lookup',)
    """

    kind = "lookup"
    reads = Reads.PHYSICAL
    serves = frozenset({Op.EQ, Op.IN})

    def unfit(self, of: Subject) -> str | None:
        return unfit_for_hashing(of.order)

    def keys_of_values(self, values: pa.Array) -> tuple[FingerprintArray, Positions]:
        return fingerprints(values), np.arange(len(values), dtype=np.int64)

    def keys_for(self, predicate: Predicate, of: Subject) -> Formula | None:
        assert isinstance(predicate, Comparison)
        values = exact_values(predicate, of.order)
        return None if values is None else Keys(fingerprints(values))
