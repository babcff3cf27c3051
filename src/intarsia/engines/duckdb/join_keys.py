"""Conditions that joins put on a data set's rows: a row must have a key of the other side.

The other side is a table in memory, or a data set with fewer matching rows.
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
from intarsia.dataset.scan_plan import count_candidates
from intarsia.errors import PredicateError
from intarsia.expr.evaluate import evaluate
from intarsia.expr.filterable_types import filterable_schema, filterable_type
from intarsia.file.open_file import READ_ERRORS
from intarsia.sql.query.scans import Keys, Scan

_MAX_KEYS = 10_000
"""With more keys, most pages have one, and looking them up takes longer than it saves."""
_MAX_KEY_BYTES = 8 << 20
"""Bytes of all keys. Above this, comparing strings takes longer than reading them."""
_MAX_ROWS = 1_000_000
"""Rows of the other side that are searched for keys."""
_MAX_FILES = 100
"""Files of a data set that are planned to learn which side has fewer matching rows."""


class Joined:
    """The conditions that the joins of a query put on its scans."""

    def __init__(
        self, tables: Mapping[str, pads.Dataset | pa.Table], scans: Mapping[str, Scan]
    ) -> None:
        """Takes the query's tables and its scans, each by name."""
        self._tables = tables
        self._scans = scans
        # Columns that many joins equate come up once for each pair.
        self._rows_left = functools.cache(self._count_rows_left)
        self._values = functools.cache(self._find_values)

    def filter_of(self, scan: Scan) -> pc.Expression | None:
        """Returns a scan's filter with its join keys: TRUE for every row that the query needs."""
        is_ours = isinstance(self._tables[scan.table], Dataset)
        conditions = [] if scan.filter is None else [scan.filter]
        for keys in scan.keys if is_ours else ():
            try:
                condition = self._condition(scan, keys)
            except READ_ERRORS:
                continue  # the query reports it, or does not read the data
            if condition is not None:
                conditions.append(condition)
        return functools.reduce(operator.and_, conditions) if conditions else None

    def _condition(self, scan: Scan, keys: Keys) -> pc.Expression | None:
        """Returns the condition that a row has one of the keys.

        None if finding them might not pay.
        """
        kind = filterable_type(self._tables[scan.table].schema.field(keys.column).type)
        arrays = []
        for name, column in keys.origins:
            if not self._has_fewer(self._scans[name], scan):
                return None
            values = self._values(name, column)
            if values is None:
                return None
            arrays.append(_as_type(values, kind))
        return pc.field(keys.column).isin(pa.chunked_array(arrays).combine_chunks())

    def _has_fewer(self, one: Scan, other: Scan) -> bool:
        """True if the first is in memory, or has fewer matching rows by a quick estimate."""
        if isinstance(self._tables[one.table], pa.Table):
            return True
        left = self._rows_left(one.name)
        if left is None or left > _MAX_ROWS:
            return False
        more = self._rows_left(other.name)
        return other.filter is None if more is None else left < more

    def _count_rows_left(self, name: str) -> int | None:
        """Returns how many rows may match, by footers and indexes.

        Returns None if there are too many files, or if pyarrow scans the table by itself.
        """
        scan = self._scans[name]
        data = self._tables[scan.table]
        if not isinstance(data, Dataset) or len(data.files) > _MAX_FILES:
            return None
        return count_candidates(data.scan_source, scan.filter)

    def _find_values(self, name: str, column: str) -> pa.Array | None:
        """Returns the keys of a scan's rows. Returns None if there are too many."""
        scan = self._scans[name]
        values = _distinct(self._tables[scan.table], column, scan.filter)
        is_worth_it = (
            values is not None and len(values) <= _MAX_KEYS and values.nbytes <= _MAX_KEY_BYTES
        )
        return values if is_worth_it else None


def _distinct(
    table: pads.Dataset | pa.Table, column: str, filter_: pc.Expression | None
) -> pa.Array | None:
    """Returns a column's distinct values in rows where ``filter_`` is TRUE, without NULL.

    The result may have other values too. Returns None if a table has too many rows.
    """
    if isinstance(table, Dataset):
        table = table.to_table([column], filter_)
    elif table.num_rows > _MAX_ROWS:
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
    """Casts ``values`` to ``kind``, without integers that do not fit."""
    if values.type == kind or not pa.types.is_integer(kind):
        return values.cast(kind)
    limits = np.iinfo(kind.to_pandas_dtype())
    return pa.array([n for n in values.to_pylist() if limits.min <= n <= limits.max], kind)
