"""Scalar subqueries: their values are computed first, so that the query is planned with them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pyarrow as pa

from intarsia.sql.query.scalar_subqueries import scalar_subqueries

_EXACT_TYPES = {
    *("BOOLEAN", "TINYINT", "SMALLINT", "INTEGER", "BIGINT"),
    *("UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT", "FLOAT", "DOUBLE"),
    *("VARCHAR", "DATE", "TIMESTAMP", "TIMESTAMP WITH TIME ZONE"),
}
"""DuckDB's types whose values Arrow's scalars keep exactly. Decimals do so as well."""


def with_values(
    query: str, tables: Mapping[str, pa.Schema], answer: Callable[[str], tuple[pa.Table, str]]
) -> str:
    """Returns ``query`` with constants in place of scalar subqueries that can be run first.

    Each reads one of ``tables``; ``answer`` gives its rows and DuckDB's type. A subquery stays if
    its value is NULL, or if DuckDB has no constant for it.
    """
    for subquery in reversed(scalar_subqueries(query, tables, "duckdb")):
        rows, kind = answer(subquery.text)
        constant = constant_of(rows.column(0)[0], kind) if rows.num_rows == 1 else None
        if constant is not None:
            query = f"{query[: subquery.start]}({constant}){query[subquery.stop :]}"
    return query


def constant_of(value: pa.Scalar, kind: str) -> str | None:
    """Returns SQL for ``value`` of DuckDB's type ``kind``. Returns None if it may not be exact."""
    if not value.is_valid or not (kind in _EXACT_TYPES or kind.startswith("DECIMAL(")):
        return None
    is_float = pa.types.is_floating(value.type)
    text = repr(value.as_py()) if is_float else value.cast(pa.string()).as_py()
    if "\0" in text or (pa.types.is_temporal(value.type) and not text[:1].isdigit()):
        return None  # a date outside of Arrow's calendar
    quoted = text.replace("'", "''")
    return f"CAST('{quoted}' AS {kind})"
