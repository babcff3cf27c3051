"""``Elements``: fingerprints of the elements of lists, and of the keys of maps."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from intarsia.expr.functions import compares, representable_constants
from intarsia.index.base import Inverted, Positions, Reads, Subject, fingerprints, hashable
from intarsia.index.key_formula import Every, FingerprintArray, Formula, Keys
from intarsia.pruning.predicates import How, Predicate, SearchPredicate
from intarsia.row_ranges import distinct

_MAX_REQUIRED_KEYS = 64
"""Most values of a "contains all" search that are looked up. More values add little."""


@dataclass(frozen=True)
class Elements(Inverted):
    """An index of list elements, for lists that contain a value, any of some, or all of some.

    For a map, its keys are indexed. A key of the index is the high 32 bits of XXH64 (seed 0) over
    the PLAIN encoding of an element. Booleans are hashed as 32-bit integers, −0.0 as +0.0. Decimals
    are hashed as 16 little-endian bytes, or 32 for more than 38 digits. NULL and NaN are not
    indexed, because no search matches them.

    Parameters
    ----------
    on : str or pyarrow.compute.Expression
        Path of a column of lists or maps, at the top level or within structs. A column within
        lists, a list of lists, and elements that pyarrow cannot compare are refused.
    granule_rows : int, default 8192
        Most rows per granule, 1 to 2**31 - 1. A column's longer pages are divided.

    Raises
    ------
    IndexSpecError
        If ``granule_rows`` is out of range, or the Expression cannot be indexed.

    Examples
    --------
    >>> table = pa.table({"tags": [["a", "b"], ["c"]]})
    >>> reports = ia.write_table(table, "tags.parquet", indexes=[ia.Elements("tags")])
    >>> ia.dataset("tags.parquet").to_table(filter="list_contains(tags, 'c')").num_rows
    1
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
        return fingerprints(hashable(values)), np.arange(len(values), dtype=np.int64)

    def keys_for(self, predicate: Predicate, of: Subject) -> Formula | None:
        assert isinstance(predicate, SearchPredicate)
        if not compares(of.type, predicate.values.type):
            return None
        values, all_fit = representable_constants(predicate.values, of.type)
        keys = distinct(fingerprints(hashable(values)))
        if predicate.how is not How.LIST_ALL:
            return Keys(keys)
        if not all_fit:
            return Keys(keys[:0])
        required = [Keys(keys[i : i + 1]) for i in range(min(len(keys), _MAX_REQUIRED_KEYS))]
        return Every(tuple(required)) if required else None
