"""Values that subqueries of a condition give, looked up before it is planned by them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pyarrow as pa

from intarsia.sql.query.scalar_subqueries import scalar_subqueries

_TYPES = {
    *("BOOLEAN", "TINYINT", "SMALLINT", "INTEGER", "BIGINT"),
    *("UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT", "FLOAT", "DOUBLE"),
    *("VARCHAR", "DATE", "TIMESTAMP", "TIMESTAMP WITH TIME ZONE"),
}
"""Of DuckDB's, and decimals, that Arrow's scalars say all of."""


def with_values(
    query: str, tables: Mapping[str, pa.Schema], answer: Callable[[str], tuple[pa.Table, str]]
) -> str:
    """``query`` with constants for those subqueries of one value that can be answered first.

    Each is of one of ``tables``, and ``answer`` gives its rows and DuckDB's type. NULL is left, as
    is what DuckDB has no constant for.
    """
    for subquery in reversed(scalar_subqueries(query, tables, "duckdb")):
        found, kind = answer(subquery.text)
        constant = constant_of(found.column(0)[0], kind) if found.num_rows == 1 else None
        if constant is not None:
            query = f"{query[: subquery.start]}({constant}){query[subquery.stop :]}"
    return query


def constant_of(value: pa.Scalar, kind: str) -> str | None:
    """``value`` as DuckDB reads it, of its type ``kind``; None where that may not be the same."""
    if not value.is_valid or not (kind in _TYPES or kind.startswith("DECIMAL(")):
        return None
    is_float = pa.types.is_floating(value.type)
    text = repr(value.as_py()) if is_float else value.cast(pa.string()).as_py()
    if "\0" in text or (pa.types.is_temporal(value.type) and not text[:1].isdigit()):
        return None  # one that is beyond Arrow's calendar, or before its first year
    quoted = text.replace("'", "''")
    return f"CAST('{quoted}' AS {kind})"
