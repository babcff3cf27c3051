"""``Distinct``: the values themselves, for any test on columns of few distinct values."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from intarsia.expr.comparison_operators import Op
from intarsia.expr.type_cache import kept
from intarsia.index.base import Inverted, Positions, Subject
from intarsia.index.key_formula import Formula, KeysWhere
from intarsia.index.value_predicates import TEXT_SEARCHES, can_judge
from intarsia.pruning.predicates import Predicate


@dataclass(frozen=True)
class Distinct(Inverted):
    """An index of distinct values: which granules hold which, NULL and NaN among them.

    It answers every comparison, ``IN``, ``IS NULL``, ``is_nan``, prefixes, ``LIKE`` and regular
    expressions, negated or not, and lists the values without reading data. Values are kept as they
    are: a column of more than a million distinct ones is refused. Otherwise as ``Lookup``.
    """

    kind = "distinct"
    serves = frozenset({*Op, *TEXT_SEARCHES})
    negations = True
    exact = True
    nulls = True
    nans = True

    def unfit(self, of: Subject) -> str | None:
        return unfit_for_comparing(of) or unfit_for_pyarrow(_listed, of.type)

    def keys_of_values(self, values: pa.Array) -> tuple[pa.Array, Positions]:
        if pa.types.is_floating(values.type):
            nan, zero = pa.scalar(math.nan, values.type), pa.scalar(0, values.type)
            values = pc.if_else(pc.is_nan(values), nan, pc.add(values, zero))  # one of each
        return values, np.arange(len(values), dtype=np.int64)

    def keys_for(self, predicate: Predicate, of: Subject) -> Formula | None:
        return KeysWhere(predicate) if can_judge(predicate, of) else None


def _listed(values: pa.Array) -> None:
    """What building an index does to values: they are made keys, told apart and sorted."""
    keys, _ = Distinct("value").keys_of_values(values)
    found = keys.dictionary_encode(null_encoding="encode").dictionary
    pc.index_in(found, value_set=found)
    pc.array_sort_indices(found)


@kept
def unfit_for_pyarrow(build: Callable[[pa.Array], object], kind: pa.DataType) -> str | None:
    """Why pyarrow cannot ``build`` something of values of a type; None where it can."""
    try:
        build(pa.nulls(1, kind))
    except pa.ArrowNotImplementedError as error:
        return f"pyarrow cannot do it: {error}"
    return None


def unfit_for_comparing(of: Subject) -> str | None:
    """Why values of this type cannot be compared with literals; None where they can."""
    if not of.order.is_defined or pa.types.is_nested(of.type) or pa.types.is_null(of.type):
        return "its type has no order"
    if isinstance(of.type, pa.BaseExtensionType):
        return "its type is an extension of Arrow's"
    return None
