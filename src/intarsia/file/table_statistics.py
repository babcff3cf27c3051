"""``TableStatistics``: what the log of a table says about the values in its files.

::

    file       min.ts      max.ts       ts > '2024-06-01'
    a.parquet  2024-01-01  2024-03-31   no row can match: the file is not opened
    b.parquet  2024-04-01  2024-06-30   rows might match
    c.parquet  unknown     unknown      rows might match
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
import pyarrow as pa

from intarsia.expr.casts import is_text
from intarsia.index.indexed_type import order_of_type
from intarsia.parquet.statistics import BoolArray, Bounds
from intarsia.parquet.value_order import Domain, Keys, ValueOrder
from intarsia.process_state import cached_property
from intarsia.pruning.bounds_comparison import rows_might_match, types_agree_at
from intarsia.pruning.partition_pruning import Constants
from intarsia.pruning.predicates import Comparison, Predicate, Pruning, rows_left
from intarsia.row_ranges import Int64Array, RowRanges

F = TypeVar("F", bound=tuple[str, Constants])
Path = tuple[str, ...]
BoundsOf = Callable[[Path, pa.DataType], Bounds | None]
_MAX_EXACT_BYTES = 15
"""Writers shorten bounds of longer strings, to 16 or 32 characters."""
_END = b"\xff"
"""Greater than each byte of UTF-8."""


@dataclass(frozen=True, eq=False)
class TableStatistics:
    """Bounds of the columns in the files of a table.

    Attributes
    ----------
    paths : sequence of str
        The ``n`` files.
    schema : pyarrow.Schema
        The columns of the table.
    bounds_of : callable
        Returns the bounds of a column, given by its path and its type: one place for each file.
        Returns None if the log has none.
    """

    paths: Sequence[str]
    schema: pa.Schema
    bounds_of: BoundsOf
    _cached: dict[Path, Bounds | None] = field(default_factory=dict, init=False, repr=False)

    @cached_property
    def _numbers(self) -> dict[str, int]:
        return {path: number for number, path in enumerate(self.paths)}

    def files_left(self, files: Iterable[F], pruning: Pruning, schema: pa.Schema) -> list[F]:
        """Returns the ``files``, paths with constants, that might match. No file is opened.

        ``schema`` has the types in which the filter is evaluated.
        """
        candidates = list(files)
        constants = {name for _, values in candidates for name in values}
        every = RowRanges.all(len(self.paths))

        def by_bounds(test: Predicate) -> RowRanges:
            path = test.term.path
            if not isinstance(test, Comparison) or not path or path[0] in constants:
                return every
            bounds = self._bounds(path, schema)
            return every if bounds is None else RowRanges.from_mask(rows_might_match(test, bounds))

        might_match = set(rows_left(pruning, every, by_bounds).rows().tolist())
        return [file for file in candidates if self._numbers[file[0]] in might_match]

    def _bounds(self, path: Path, schema: pa.Schema) -> Bounds | None:
        """Returns the bounds of a column that compare as its values do in ``schema``."""
        if path[0] not in self.schema.names or path[0] not in schema.names:
            return None
        own, seen = self.schema.field(path[0]).type, schema.field(path[0]).type
        if not types_agree_at(own, seen, path[1:]):
            return None
        if path not in self._cached:
            kind = _type_at(own, path[1:])
            self._cached[path] = None if kind is None else self.bounds_of(path, kind)
        return self._cached[path]


def _type_at(kind: pa.DataType, path: Path) -> pa.DataType | None:
    """Returns the type at ``path`` through structs, or None if there is none."""
    for name in path:
        if not pa.types.is_struct(kind) or len(kind.get_all_field_indices(name)) != 1:
            return None
        kind = kind.field(name).type
    return kind


def comparable_order(kind: pa.DataType) -> ValueOrder | None:
    """Returns the order of a column by its type. None if bounds of a log do not tell it exactly.

    Logs shorten bounds of bytes, and bytes have no greatest character.
    """
    order = order_of_type(kind)
    return (
        order if order.is_defined and (order.domain is not Domain.BYTES or is_text(kind)) else None
    )


def bounds_of_files(
    order: ValueOrder,
    low: Keys,
    high: Keys,
    usable: BoolArray,
    null_counts: Int64Array,
    nan_counts: Int64Array,
    num_rows: Int64Array,
) -> Bounds:
    """Returns the bounds of ``n`` files. All arrays have shape ``(n,)``.

    ``low`` and ``high`` are keys of ``order`` where ``usable`` is true. Counts may be ``UNKNOWN``.
    Upper bounds of long strings are raised, since some writers cut them off.
    """
    if order.domain is Domain.BYTES:
        longer = np.empty(len(high), dtype=object)
        longer[:] = [key + _END if len(key) > _MAX_EXACT_BYTES else key for key in high.tolist()]
        high = longer
    bounded = usable & np.asarray(low <= high, dtype=np.bool_)
    all_null = ~usable & (null_counts == num_rows) & (num_rows >= 0)
    return Bounds(order, low, high, bounded, all_null, null_counts, nan_counts)
