"""Notes the reads of DuckDB's own reader, by its profile of a query."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from intarsia.engines.duckdb.scan_dataset import WatchedDataset
from intarsia.plan.file_account import EngineReads

if TYPE_CHECKING:
    import duckdb

_READER = "READ_PARQUET"
"""Name of the operator of DuckDB's own reader."""


@contextlib.contextmanager
def profiled_scans(
    connection: duckdb.DuckDBPyConnection, tables: Sequence[WatchedDataset]
) -> Iterator[None]:
    """Runs a query, and then notes in profiled ``tables`` what DuckDB's own reader read of them.

    DuckDB counts the bytes of each scan, and the requests of a query. The requests count for the
    tables whose files it read.
    """
    profiled = [table for table in tables if table.scan_source.cache.engine_files]
    if not profiled:
        yield
        return
    connection.execute("SET enable_profiling = 'no_output'")
    try:
        yield
        profile = json.loads(connection.get_profiling_information(format="json"))
    finally:
        connection.execute("RESET enable_profiling")
    scans = list(_scans(profile))
    for table in profiled:
        files = table.scan_source.cache.engine_files
        own = [one for one in scans if files.intersection(one.files)]
        requests = profile["io"]["total_read_operations"] if own else 0
        num_bytes, num_rows = sum(one.num_bytes for one in own), sum(one.num_rows for one in own)
        table.engine_reads = EngineReads(requests, num_bytes, num_rows)


class _Scan(NamedTuple):
    files: list[str]
    num_bytes: int
    num_rows: int


def _scans(operator: dict[str, Any]) -> Iterator[_Scan]:
    """Yields all scans of files in a query's profile."""
    if operator.get("name") == _READER:
        names = str(operator.get("extra_info", {}).get("Filename(s)", ""))
        num_rows = int(operator.get("intermediate_rows", 0))
        yield _Scan(names.split(", "), int(operator.get("bytes_scanned", 0)), num_rows)
    for below in (*operator.get("operator", ()), *operator.get("children", ())):
        yield from _scans(below)
