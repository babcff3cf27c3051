"""``Dataset.take``: rows by their numbers, in any order."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from intarsia.dataset.record_batches import as_table
from intarsia.dataset.request_builder import Columns
from intarsia.dataset.row_numbers import parts_at
from intarsia.dataset.scan_source import ScanSource
from intarsia.expr.evaluate import unused
from intarsia.expr.filterable_types import taken
from intarsia.row_ranges import Int64Array, RowRanges
from intarsia.scan.request import ROW_NUMBER
from intarsia.scan.scan import Part

_ROW_COLUMN = "__intarsia_place"
"""Name of the column of row numbers, unless the scan has a column of this name."""


class ScanRows(Protocol):
    """Scans rows of a data set by page. Returns their schema and the tables."""

    def __call__(
        self,
        columns: Columns,
        *,
        rows: RowRanges | None = None,
        parts: Iterable[Part] | None = None,
        limit: int | None = None,
    ) -> tuple[pa.Schema, Iterable[pa.Table]]: ...


def take_rows(
    source: ScanSource, scan_rows: ScanRows, numbers: Int64Array, columns: Columns
) -> pa.Table:
    """Returns the rows ``numbers`` of all files, in that order.

    Row numbers count from 0 at the first row of the first file. Rows of damaged pages are left out
    if the source skips them.

    Raises ``IndexError`` for a number past the last row, and ``FileReplaced``.
    """
    distinct, places = np.unique(numbers, return_inverse=True)
    rows = RowRanges.from_rows(distinct)
    if source.options.skips_corrupt:
        return _take_readable_rows(source, scan_rows, numbers, rows, columns)
    return taken(as_table(*scan_rows(columns, rows=rows)), pa.array(places))


def _take_readable_rows(
    source: ScanSource,
    scan_rows: ScanRows,
    numbers: Int64Array,
    rows: RowRanges,
    columns: Columns,
) -> pa.Table:
    """Returns the rows ``numbers`` that can be read. Each row comes with its number, by file."""
    numbered: Columns
    if isinstance(columns, dict):
        numbered = columns | {unused(_ROW_COLUMN, columns): pc.field(ROW_NUMBER)}
    else:
        numbered = [*(source.schema.names if columns is None else columns), ROW_NUMBER]
    tables, numbers_read = [], []
    for start, part in parts_at(source.cache, source.files, rows):
        table = as_table(*scan_rows(numbered, parts=[part]))
        last = table.num_columns - 1
        numbers_read.append(table.column(last).to_numpy() + start)
        tables.append(table.remove_column(last))
    if not tables:
        return as_table(*scan_rows(columns, limit=0))
    readable = np.concatenate(numbers_read)
    places = np.searchsorted(readable, numbers[np.isin(numbers, readable)])
    return taken(pa.concat_tables(tables), pa.array(places))
