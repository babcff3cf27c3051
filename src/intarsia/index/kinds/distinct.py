"""``Distinct``: exact values, for any comparison on columns of few distinct values."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from intarsia.expr.comparison_operators import Op
from intarsia.expr.type_cache import cached_by_type
from intarsia.index.base import Inverted, Positions, Subject
from intarsia.index.key_formula import Formula, KeysWhere
from intarsia.index.value_predicates import TEXT_SEARCHES, can_judge
from intarsia.pruning.predicates import Predicate


@dataclass(frozen=True)
class Distinct(Inverted):
    """An index of distinct values: the granules of each value, NULL and NaN included.

    It serves every comparison, ``IN``, ``IS NULL``, ``is_nan``, prefixes, ``LIKE`` and regular
    expressions, negated or not. It also lists the values without reading data. A column with more
    than a million distinct values is refused, because the values themselves are stored.

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
    >>> report, = ia.add_indexes("logs.parquet", [ia.Distinct("status")])
    >>> report.added
    ('status:distinct',)
    """

    kind = "distinct"
    serves = frozenset({*Op, *TEXT_SEARCHES})
    negations = True
    exact = True
    nulls = True
    nans = True

    def unfit(self, of: Subject) -> str | None:
        return unfit_for_comparing(of) or unfit_for_pyarrow(_try_keys, of.type)

    def keys_of_values(self, values: pa.Array) -> tuple[pa.Array, Positions]:
        if pa.types.is_floating(values.type):
            nan, zero = pa.scalar(math.nan, values.type), pa.scalar(0, values.type)
            values = pc.if_else(pc.is_nan(values), nan, pc.add(values, zero))  # one NaN, one zero
        return values, np.arange(len(values), dtype=np.int64)

    def keys_for(self, predicate: Predicate, of: Subject) -> Formula | None:
        return KeysWhere(predicate) if can_judge(predicate, of) else None


def _try_keys(values: pa.Array) -> None:
    """Does what building the index does to values: computes keys, deduplicates and sorts them."""
    keys, _ = Distinct("value").keys_of_values(values)
    dictionary = keys.dictionary_encode(null_encoding="encode").dictionary
    pc.index_in(dictionary, value_set=dictionary)
    pc.array_sort_indices(dictionary)


@cached_by_type
def unfit_for_pyarrow(build: Callable[[pa.Array], object], kind: pa.DataType) -> str | None:
    """Returns why pyarrow cannot ``build`` an index on values of a type, or None if it can."""
    try:
        build(pa.nulls(1, kind))
    except pa.ArrowNotImplementedError as error:
        return f"pyarrow cannot do it: {error}"
    return None


def unfit_for_comparing(of: Subject) -> str | None:
    """Returns why values of this type cannot be compared with literals, or None if they can."""
    if not of.order.is_defined or pa.types.is_nested(of.type) or pa.types.is_null(of.type):
        return "its type has no order"
    if isinstance(of.type, pa.BaseExtensionType):
        return "its type is an extension of Arrow's"
    return None
