"""``LIMIT 10 OFFSET 1000000``: rows that a query passes over are counted, and not read."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
import pyarrow.dataset as pads

from intarsia.dataset.row_numbers import parts_at
from intarsia.engines.duckdb.scan_dataset import WatchedDataset
from intarsia.row_ranges import RowRanges
from intarsia.sql.query.limit_pushdown import UNTOLD, Need
from intarsia.sql.query.scans import Query

_LEAST = 64 * 1024
"""Fewer rows are read as soon as they are counted."""
_MOST_FILES = 100
"""More are not opened beforehand."""


def from_offset(
    query: Query, tables: Mapping[str, pads.Dataset | pa.Table]
) -> tuple[Query, Mapping[str, pads.Dataset | pa.Table]]:
    """A query that passes over many rows of a data set, and asks nothing of them, as one that
    begins behind them; any other as it is.
    """
    for scan in query.scans:
        table, need = tables[scan.table], scan.need
        if need is None or need.offset < _LEAST or scan.filter is not None:
            continue
        if need.limit is None or need.limit > UNTOLD:
            continue
        if not isinstance(table, WatchedDataset) or not _are_all_rows(table):
            continue
        begun = query.without_offset()
        if begun is not None:
            return begun, {**tables, scan.table: _behind(table, need)}
    return query, tables


def _are_all_rows(table: WatchedDataset) -> bool:
    source = table.scan_source
    is_whole = source.filter is None and not source.options.looks_for_damage
    return is_whole and len(source.files) <= _MOST_FILES


def _behind(table: WatchedDataset, need: Need) -> WatchedDataset:
    """The rows that a query needs, less those that it passes over."""
    assert need.limit is not None
    cache, files = table.scan_source.cache, table.scan_source.files
    rows = RowRanges.of((need.offset, need.limit))
    try:
        parts = list(parts_at(cache, files, rows))
    except IndexError:  # there are fewer, of files that were all opened to tell
        num_rows = sum(cache.as_opened(file.path).num_rows for file in files)
        parts = list(parts_at(cache, files, rows.clip(0, num_rows)))
    return table.at([part for _, part in parts])
