"""``LIMIT 10 OFFSET 1000000``: rows that a query skips are counted, and not read."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
import pyarrow.dataset as pads

from intarsia.dataset.row_numbers import parts_at
from intarsia.engines.duckdb.scan_dataset import WatchedDataset
from intarsia.row_ranges import RowRanges
from intarsia.sql.query.limit_pushdown import UNKNOWN_LIMIT, Need
from intarsia.sql.query.scans import Query

_MIN_OFFSET_ROWS = 64 * 1024
"""Reading fewer rows takes no longer than counting them."""
_MAX_FILES = 100
"""Files that are opened before the query. Opening more costs too much."""


def from_offset(
    query: Query, tables: Mapping[str, pads.Dataset | pa.Table]
) -> tuple[Query, Mapping[str, pads.Dataset | pa.Table]]:
    """Returns the query without its offset, and the tables without the rows that it skips.

    Returns query and tables unchanged unless the query skips many rows of a data set, unfiltered.
    """
    for scan in query.scans:
        table, need = tables[scan.table], scan.need
        if need is None or need.offset < _MIN_OFFSET_ROWS or scan.filter is not None:
            continue
        if need.limit is None or need.limit > UNKNOWN_LIMIT:
            continue
        if not isinstance(table, WatchedDataset) or not _are_all_rows(table):
            continue
        without_offset = query.without_offset()
        if without_offset is not None:
            return without_offset, {**tables, scan.table: _behind(table, need)}
    return query, tables


def _are_all_rows(table: WatchedDataset) -> bool:
    source = table.scan_source
    is_whole = source.filter is None and not source.options.looks_for_damage
    return is_whole and len(source.files) <= _MAX_FILES


def _behind(table: WatchedDataset, need: Need) -> WatchedDataset:
    """Returns the rows that a query needs, without those that it skips."""
    assert need.limit is not None
    cache, files = table.scan_source.cache, table.scan_source.files
    rows = RowRanges.of((need.offset, need.limit))
    try:
        parts = list(parts_at(cache, files, rows))
    except IndexError:  # there are fewer rows; all files are open now
        num_rows = sum(cache.as_opened(file.path).num_rows for file in files)
        parts = list(parts_at(cache, files, rows.clip(0, num_rows)))
    return table.at([part for _, part in parts])
