"""What joins leave of a data set's rows: those that hold a key of the other side.

The other side is a table in memory, or a data set that has fewer rows left. Keys that every row
seems to hold are not looked for.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads

from intarsia.dataset.dataset import Dataset
from intarsia.dataset.sampling import spread_rows
from intarsia.errors import PredicateError
from intarsia.expr.evaluate import evaluate
from intarsia.expr.filterable_types import filterable_schema, filterable_type
from intarsia.file.open_file import READ_ERRORS
from intarsia.sql.query.scans import Keys, Scan

_MOST_KEYS = 100_000
_MOST_BYTES = 8 << 20
"""Of keys. Longer texts take longer to tell apart than to read."""
_MOST_ROWS = 1_000_000
"""Of the other side, to find keys in."""
_MOST_FILES = 100
"""Of a data set that is planned, to tell which side has fewer rows left."""
_SAMPLE = 8
"""Rows that are asked whether they hold a key. All do in 2 of 5 cases where 9 of 10 rows do, and
hardly ever where half of the rows do."""


class Joined:
    """What the joins of a query leave of its scans."""

    def __init__(
        self, tables: Mapping[str, pads.Dataset | pa.Table], scans: Mapping[str, Scan]
    ) -> None:
        """Of a query's tables by name, and its scans by name."""
        self._tables = tables
        self._scans = scans
        # Columns that many joins hold equal are asked about in pairs.
        self._rows_left = functools.cache(self._count_rows_left)
        self._values = functools.cache(self._find_values)
        self._sample = functools.cache(self._take_sample)

    def filter_of(self, scan: Scan) -> pc.Expression | None:
        """A scan's filter and what its keys leave: TRUE for every row that the query needs."""
        is_ours = isinstance(self._tables[scan.table], Dataset)
        found = [] if scan.filter is None else [scan.filter]
        for keys in scan.keys if is_ours else ():
            try:
                condition = self._condition(scan, keys)
                may_pay = condition is not None and self._may_pay(scan, keys.column, condition)
            except READ_ERRORS:
                continue  # the query comes upon it as well, or has no need to
            if may_pay:
                found.append(condition)
        return functools.reduce(operator.and_, found) if found else None

    def _condition(self, scan: Scan, keys: Keys) -> pc.Expression | None:
        """Does a row hold one of the keys? None where finding them might not pay."""
        kind = filterable_type(self._tables[scan.table].schema.field(keys.column).type)
        found = []
        for name, column in keys.origins:
            if not self._has_fewer(self._scans[name], scan):
                return None
            values = self._values(name, column)
            if values is None:
                return None
            found.append(_as_type(values, kind))
        return pc.field(keys.column).isin(pa.chunked_array(found).combine_chunks())

    def _has_fewer(self, one: Scan, other: Scan) -> bool:
        """Is the first a table in memory, or has fewer rows left, as far as can be told soon?"""
        if isinstance(self._tables[one.table], pa.Table):
            return True
        left = self._rows_left(one.name)
        if left is None or left > _MOST_ROWS:
            return False
        more = self._rows_left(other.name)
        return other.filter is None if more is None else left < more

    def _count_rows_left(self, name: str) -> int | None:
        """Rows that might match, by footers and indexes; None where many files would have to tell.

        None as well of what pyarrow scans by itself.
        """
        scan = self._scans[name]
        data = self._tables[scan.table]
        if not isinstance(data, Dataset) or len(data.files) > _MOST_FILES:
            return None
        return data.plan([], scan.filter).figures.rows.selected

    def _find_values(self, name: str, column: str) -> pa.Array | None:
        """The keys among a scan's rows; None of more than are worth it."""
        scan = self._scans[name]
        values = _distinct(self._tables[scan.table], column, scan.filter)
        is_worth_it = (
            values is not None and len(values) <= _MOST_KEYS and values.nbytes <= _MOST_BYTES
        )
        return values if is_worth_it else None

    def _may_pay(self, scan: Scan, column: str, condition: pc.Expression) -> bool:
        """Is there one among some rows for which ``condition`` does not hold?"""
        sample = self._sample(scan.table, column)
        return not sample.num_rows or evaluate(condition, sample).num_rows < sample.num_rows

    def _take_sample(self, table: str, column: str) -> pa.Table:
        return spread_rows(self._tables[table].scan_source, column, _SAMPLE)


def _distinct(
    table: pads.Dataset | pa.Table, column: str, filter_: pc.Expression | None
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
    return values.cast(filterable_type(values.type)).unique().drop_null()


def _filtered(table: pa.Table, filter_: pc.Expression) -> pa.Table:
    try:
        return evaluate(filter_, table.cast(filterable_schema(table.schema)))
    except (PredicateError, pa.ArrowException):
        return table


def _as_type(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """Those of ``values``, whole numbers or else of a type like it, that ``kind`` can hold."""
    if values.type == kind or not pa.types.is_integer(kind):
        return values.cast(kind)
    limits = np.iinfo(kind.to_pandas_dtype())
    return pa.array([n for n in values.to_pylist() if limits.min <= n <= limits.max], kind)
