"""The condition for the first rows by a column keeps all of them, in DuckDB's order."""

from __future__ import annotations

import datetime as dt
import math
import tempfile
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any
from unittest import mock

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
from hypothesis import given
from hypothesis import strategies as st

import intarsia as ia
from intarsia.dataset import top_k
from intarsia.dataset.top_k import first_rows
from intarsia.sql.query.limit_pushdown import First

FLOATS = [-math.inf, -1.5, -0.0, 0.0, 2.5, math.inf, math.nan]
MOMENTS = st.datetimes(dt.datetime(1700, 1, 1), dt.datetime(2200, 1, 1))
TYPES: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.int8(): st.integers(-128, 127),
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.uint64(): st.integers(0, 2**64 - 1),
    pa.float32(): st.sampled_from(FLOATS),
    pa.float64(): st.sampled_from(FLOATS),
    pa.string(): st.text("aÄ\0z", max_size=3) | st.just("long" * 30),
    pa.large_string(): st.text("ab", max_size=3),
    pa.decimal128(9, 2): st.integers(-99, 99).map(lambda n: Decimal(n) / 100),
    pa.decimal128(30, 2): st.integers(-(10**20), 10**20).map(Decimal),
    pa.date32(): st.dates(),
    pa.timestamp("s"): MOMENTS.map(lambda m: m.replace(microsecond=0)),
    pa.timestamp("us"): MOMENTS,
    pa.timestamp("ns"): MOMENTS,
    pa.timestamp("us", "Europe/Paris"): MOMENTS,
    pa.timestamp("ns", "UTC"): MOMENTS,
    pa.bool_(): st.booleans(),
    pa.binary(): st.binary(max_size=2),
}


@st.composite
def tables(draw: Callable[..., Any]) -> pa.Table:
    kind = draw(st.sampled_from(list(TYPES)))
    values = draw(st.lists(TYPES[kind] | st.none(), min_size=1, max_size=30))
    values = [value for value in values for _ in range(draw(st.integers(1, 2)))]
    keep = draw(st.lists(st.booleans(), min_size=len(values), max_size=len(values)))
    return pa.table({"v": pa.array(values, kind), "keep": keep, "row": range(len(values))})


def duckdbs(query: str, table: pa.Table) -> str:
    """DuckDB's answer over the table in memory, as text because NaN does not equal itself."""
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.register("t", table)
        return str(connection.sql(query).to_arrow_table().to_pylist())


@given(
    tables(),
    st.integers(1, 8),
    st.booleans(),
    st.booleans(),
    st.sampled_from([None, "keep", "row > 3"]),
    st.lists(st.integers(1, 40), min_size=1, max_size=3),
    st.integers(1, 4),
)
def test_first_rows_are_kept(table, count, descending, nulls_first, where, sizes, step):
    order = f"v {'DESC' if descending else 'ASC'} NULLS {'FIRST' if nulls_first else 'LAST'}"
    query = (
        f"SELECT * FROM t {f'WHERE {where}' if where else ''} ORDER BY {order}, row LIMIT {count}"
    )
    with (
        tempfile.TemporaryDirectory() as folder,
        mock.patch.multiple(top_k, _MIN_ROWS=0, _FIRST_READ_ROWS=step, _MIN_ROWS_PER_READ=1),
    ):
        start = 0
        for number, size in enumerate([*sizes, len(table)]):
            part = table.slice(start, size)
            start += size
            path = Path(folder, f"{number}.parquet")
            ia.write_table(part, path, max_rows_per_page=2, write_batch_size=1, row_group_size=5)
        data = ia.dataset(folder)
        assert str(ia.sql(query, t=data).to_pylist()) == duckdbs(query, table)
        expected = None if where is None else pc.field("keep")
        if where != "row > 3":
            condition = first_rows(data, First("v", count, descending, nulls_first), expected)
            kept = table if expected is None else table.filter(expected)
            values = kept["v"].drop_null()
            if pa.types.is_floating(values.type):
                values = values.filter(pc.invert(pc.is_nan(values)))
            is_ordered = top_k._has_order(values.type)
            assert (condition is not None) == (is_ordered and len(values) >= count)


@given(tables(), st.sampled_from(["", "WHERE keep", "WHERE row < 5"]))
def test_least_and_greatest_values(table, where):
    query = f"SELECT min(v), max(v), max(row) AS row FROM t {where}"
    with (
        tempfile.TemporaryDirectory() as folder,
        mock.patch.multiple(top_k, _MIN_ROWS=0, _FIRST_READ_ROWS=1, _MIN_ROWS_PER_READ=1),
    ):
        path = Path(folder, "a.parquet")
        ia.write_table(table, path, max_rows_per_page=2, write_batch_size=1, row_group_size=5)
        actual = str(ia.sql(query, t=path).to_pylist())
        # DuckDB gives either of the two zeros.
        assert actual.replace("-0.0", "0.0") == duckdbs(query, table).replace("-0.0", "0.0")
