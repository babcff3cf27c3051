"""``explain_sql``: what the scans of a SQL query read."""

from __future__ import annotations

import functools
import time
from collections.abc import Mapping

import pyarrow as pa
import pyarrow.dataset as pads

from intarsia.dataset.dataset import Dataset
from intarsia.dataset.explain import explain_scan
from intarsia.duckdb_session import require_duckdb, session
from intarsia.engines.duckdb.scan_dataset import WatchedDataset
from intarsia.engines.duckdb.sql import begin, opened_table, rewrite_query, run_query
from intarsia.engines.duckdb.variables import TableLike, with_variables
from intarsia.engines.sql_explanation import QueryExplanation
from intarsia.errors import public
from intarsia.plan.explanation import Explanation
from intarsia.sql.query.parameters import Parameters


@public
def explain_sql(
    query: str, parameters: Parameters = (), /, *, analyze: bool = False, **tables: TableLike
) -> QueryExplanation:
    """Returns what the scans of a SQL query read, and which reader reads each table.

    Parameters
    ----------
    query : str
        The statement, in DuckDB's SQL.
    parameters : sequence or mapping
        The values of ``?``, of ``$1`` or, by name, of ``$name``.
    analyze : bool, default False
        Runs the query as ``intarsia.sql`` does, and adds what it read. DuckDB reports what its own
        reader read. Without it, conditions that come from joins and subqueries are not shown.
    **tables : path, data set, table or frame
        The tables of the query, by name. Others are variables, as in ``intarsia.sql``.

    Returns
    -------
    QueryExplanation
        An ``Explanation`` for each table that is a data set.

    Raises
    ------
    MissingDependencyError
        Without DuckDB 2.
    PathError
        If there is no file.
    duckdb.Error
        If the query is wrong.

    Examples
    --------
    >>> query = "SELECT msg FROM logs WHERE trace_id = 'absent'"
    >>> ia.explain_sql(query, logs="logs.parquet").verdict
    'logs: reads no rows; row-group statistics decided'
    """
    require_duckdb()
    named = with_variables(query, tables)
    opened = {name: opened_table(table) for name, table in named.items()}
    if not analyze:
        return QueryExplanation(_planned(query, parameters, opened))
    profiled = {
        name: table.profiled() if isinstance(table, WatchedDataset) else table
        for name, table in opened.items()
    }
    start = time.perf_counter()
    run_query(query, parameters, profiled)
    seconds = time.perf_counter() - start
    explained = {
        name: table.explain_profiled(seconds, table.engine_reads)
        for name, table in profiled.items()
        if isinstance(table, WatchedDataset)
    }
    return QueryExplanation(explained, seconds)


def _planned(
    query: str, parameters: Parameters, tables: Mapping[str, pads.Dataset | pa.Table]
) -> dict[str, Explanation]:
    """Returns the explanations of the query's scans, by table. A table may be scanned twice."""
    with session(shared=False) as connection:
        now = functools.cache(functools.partial(begin, connection))
        scans = rewrite_query(query, parameters, tables, now).scans
    explained: dict[str, Explanation] = {}
    for scan in scans:
        table = tables[scan.table]
        if isinstance(table, Dataset):
            name = scan.table if scan.table not in explained else f"{scan.table} ({len(explained)})"
            limit = None if scan.need is None else scan.need.limit
            explained[name] = explain_scan(table.scan_source, scan.columns, scan.filter, limit)
    for name, table in tables.items():
        if isinstance(table, Dataset) and name not in explained:
            explained[name] = explain_scan(table.scan_source, table.schema.names, None, None)
    return explained
