"""What joins leave of a data set's rows: those that hold a key of the other side.

The other side is a table in memory, or a data set that has fewer rows left. Keys that every row
seems to hold are not looked for.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from intarsia.data.dataset import Dataset
from intarsia.data.sampled import spread_rows
from intarsia.errors import IntarsiaError, PredicateError
from intarsia.predicate.evaluation import evaluate
from intarsia.predicate.query import Keys, Scan
from intarsia.predicate.views import schema_without_views, without_views

_MOST_KEYS = 100_000
_MOST_ROWS = 1_000_000
"""Of the other side, to find keys in."""
_MOST_FILES = 100
"""Of a data set that is planned, to tell which side has fewer rows left."""
_SAMPLE = 8
"""Rows that are asked whether they hold a key. All do in 2 of 5 cases where 9 of 10 rows do, and
hardly ever where half of the rows do."""


@dataclass(frozen=True, slots=True)
class Joined:
    """The tables of a query by name, and its scans by name."""

    tables: Mapping[str, Dataset | pa.Table]
    scans: Mapping[str, Scan]

    def filter_of(self, scan: Scan) -> pc.Expression | None:
        """A scan's filter and what its keys leave: TRUE for every row that the query needs."""
        data = self.tables[scan.table]
        found = [] if scan.filter is None else [scan.filter]
        for keys in scan.keys if isinstance(data, Dataset) else ():
            try:
                condition = self._condition(data, scan, keys)
                may_pay = condition is not None and _may_pay(data, keys.column, condition)
            except (IntarsiaError, OSError, pa.ArrowException):
                continue  # the query comes upon it as well, or has no need to
            if may_pay:
                found.append(condition)
        return functools.reduce(operator.and_, found) if found else None

    def _condition(self, data: Dataset, scan: Scan, keys: Keys) -> pc.Expression | None:
        """Does a row hold one of the keys? None where finding them might not pay."""
        kind = without_views(data.schema.field(keys.column).type)
        found = []
        for name, column in keys.origins:
            other = self.scans[name]
            table = self.tables[other.table]
            if isinstance(table, Dataset) and not _has_fewer(table, other, data, scan):
                return None
            values = _distinct(table, column, other.filter)
            if values is None or len(values) > _MOST_KEYS:
                return None
            found.append(_as_type(values, kind))
        return pc.field(keys.column).isin(pa.chunked_array(found).combine_chunks())


def _has_fewer(one: Dataset, its: Scan, other: Dataset, others: Scan) -> bool:
    """Has the first of two data sets fewer rows left, as far as can be told soon?"""
    left = _rows_left(one, its.filter)
    if left is None or left > _MOST_ROWS:
        return False
    more = _rows_left(other, others.filter)
    return others.filter is None if more is None else left < more


def _rows_left(data: Dataset, filter_: pc.Expression | None) -> int | None:
    """Rows that might match, by footers and indexes; None where many files would have to tell."""
    return None if len(data.files) > _MOST_FILES else data.plan([], filter_).figures.rows.selected


def _distinct(
    table: Dataset | pa.Table, column: str, filter_: pc.Expression | None
) -> pa.Array | None:
    """A column's values where ``filter_`` is true, if not elsewhere, less NULL.

    None of more rows than are worth it.
    """
    if isinstance(table, Dataset):
        table = table.to_table([column], filter_)
    elif table.num_rows > _MOST_ROWS:
        return None
    elif filter_ is not None:
        table = _filtered(table, filter_)
    values = table.column(column)
    return values.cast(without_views(values.type)).unique().drop_null()


def _filtered(table: pa.Table, filter_: pc.Expression) -> pa.Table:
    try:
        return evaluate(filter_, table.cast(schema_without_views(table.schema)))
    except (PredicateError, pa.ArrowException):
        return table


def _as_type(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """Those of ``values``, whole numbers or else of a type like it, that ``kind`` can hold."""
    if values.type == kind or not pa.types.is_integer(kind):
        return values.cast(kind)
    limits = np.iinfo(kind.to_pandas_dtype())
    return pa.array([n for n in values.to_pylist() if limits.min <= n <= limits.max], kind)


def _may_pay(data: Dataset, column: str, condition: pc.Expression) -> bool:
    """Is there one among some rows for which ``condition`` does not hold?"""
    sample = spread_rows(data, column, _SAMPLE)
    return not sample.num_rows or evaluate(condition, sample).num_rows < sample.num_rows
