"""Values that subqueries of a condition give, looked up before it is planned by them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pyarrow as pa

from intarsia.predicate.scalars import scalar_subqueries

_TYPES = {
    pa.bool_(): "BOOLEAN",
    pa.int8(): "TINYINT",
    pa.int16(): "SMALLINT",
    pa.int32(): "INTEGER",
    pa.int64(): "BIGINT",
    pa.uint8(): "UTINYINT",
    pa.uint16(): "USMALLINT",
    pa.uint32(): "UINTEGER",
    pa.uint64(): "UBIGINT",
    pa.float32(): "FLOAT",
    pa.float64(): "DOUBLE",
    pa.string(): "VARCHAR",
    pa.date32(): "DATE",
    pa.timestamp("us"): "TIMESTAMP",
    pa.timestamp("us", "UTC"): "TIMESTAMP WITH TIME ZONE",
}
_MOST_DIGITS = 37
"""Of decimals: DuckDB gives HUGEINT, another type, as one of 38."""


def with_values(
    query: str, tables: Mapping[str, pa.Schema], answer: Callable[[str], pa.Table]
) -> str:
    """``query`` with constants for those subqueries of one value that can be answered first.

    Each is of one of ``tables``, and as ``answer`` gives it. NULL is left, as is what DuckDB has no
    constant for.
    """
    for subquery in reversed(scalar_subqueries(query, tables, "duckdb")):
        found = answer(subquery.text)
        constant = _constant(found.column(0)[0]) if found.num_rows == 1 else None
        if constant is not None:
            query = f"{query[: subquery.start]}({constant}){query[subquery.stop :]}"
    return query


def _constant(value: pa.Scalar) -> str | None:
    """``value`` as DuckDB reads it, of the same type."""
    kind = value.type
    name = _TYPES.get(kind)
    if pa.types.is_decimal128(kind) and kind.precision <= _MOST_DIGITS:
        name = f"DECIMAL({kind.precision}, {kind.scale})"
    if name is None or not value.is_valid:
        return None
    is_float = pa.types.is_floating(kind)
    text = repr(value.as_py()) if is_float else value.cast(pa.string()).as_py()
    quoted = text.replace("'", "''")
    return None if "\0" in text else f"CAST('{quoted}' AS {name})"
