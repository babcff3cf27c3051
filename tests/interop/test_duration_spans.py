"""Durations compared with INTERVALs in ``ia.sql``: DuckDB's answers, and fewer rows read."""

from __future__ import annotations

import datetime as dt
import itertools

import duckdb
import numpy as np
import pyarrow as pa
import pytest

import intarsia as ia
from intarsia.engines.duckdb import sql as duckdb_sql

ROWS, PAGE_ROWS = 400, 10
TICKS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
SPANS = [
    "INTERVAL 1 MONTH",
    "INTERVAL 30 DAY",
    "INTERVAL 720 HOUR",
    "INTERVAL '29 days 24 hours'",
    "INTERVAL '1 month -1 day'",
    "INTERVAL '-1 month'",
    "INTERVAL 1 YEAR",
    "INTERVAL 360 DAY",
    "INTERVAL '00:00:05'",
    "INTERVAL 5 MILLISECOND",
    "-INTERVAL 2 DAY",
    "INTERVAL 1 WEEK - INTERVAL 1 SECOND",
    "'1 month'",
    "'30 days 00:00:01'",
    "'2 days'::INTERVAL",
    "INTERVAL '1 day ago'",
    "to_days(3)",
]
COMPARISONS = ["=", "<>", "<", "<=", ">", ">=", "IS DISTINCT FROM", "IS NOT DISTINCT FROM"]
OTHERS = [
    "{0} BETWEEN INTERVAL 29 DAY AND INTERVAL 1 MONTH",
    "{0} IN (INTERVAL 1 MONTH, INTERVAL 2 DAY, NULL)",
    "{0} NOT IN (INTERVAL 1 MONTH)",
    "NOT {0} < INTERVAL 300 DAY",
    "{0} + INTERVAL 1 DAY = INTERVAL 1 MONTH",
    "INTERVAL 1 MONTH = {0}",
    "at + INTERVAL 1 MONTH = TIMESTAMP '2024-03-29'",
    "at + (INTERVAL 1 MONTH + INTERVAL 1 DAY) < TIMESTAMP '2024-03-01'",
    "at > TIMESTAMP '2024-05-31' - INTERVAL 1 MONTH",
    "at - TIMESTAMP '2024-01-01' < INTERVAL 1 MONTH",
    "st.{0} = INTERVAL 1 MONTH",
    "list_contains(l_{0}, INTERVAL 1 MONTH)",
    "[INTERVAL 1 MONTH] && l_{0}",
]
PUSHED = {
    *(f"d_{unit} = {span}" for unit in ("s", "ms", "us") for span in SPANS[:11]),
    *(f"d_{unit} < {span}" for unit in ("s", "ms", "us") for span in ("'-1 month'", SPANS[5])),
    "st.d_us = INTERVAL 1 MONTH",
    "list_contains(l_d_us, INTERVAL 1 MONTH)",
    "d_ms IN (INTERVAL 1 MONTH, INTERVAL 2 DAY)",
    "d_s BETWEEN INTERVAL 29 DAY AND INTERVAL 1 MONTH",
}


@pytest.fixture(scope="module")
def table():
    days = np.arange(ROWS) - 40
    columns = {"n": pa.array(range(ROWS))}
    for unit, ticks in TICKS.items():
        kind = pa.duration(unit)
        counts = [None if n % 50 == 7 else int(n) * 86_400 * ticks for n in days]
        columns[f"d_{unit}"] = pa.array(counts, kind)
        columns[f"l_d_{unit}"] = pa.array([[count] for count in counts], pa.list_(kind))
    columns["d_odd"] = pa.array(range(-200, ROWS - 200), pa.duration("ns"))
    columns["at"] = pa.array([dt.datetime(2024, 1, 1) + dt.timedelta(int(n)) for n in days])
    fields = {name: columns[name].type for name in columns if name.startswith("d_")}
    structs = [{name: columns[name][n].value for name in fields} for n in range(ROWS)]
    columns["st"] = pa.array(structs, pa.struct(fields.items()))
    return pa.table(columns)


@pytest.fixture(scope="module")
def data(table, tmp_path_factory):
    path = tmp_path_factory.mktemp("spans") / "t.parquet"
    layout = {"max_rows_per_page": PAGE_ROWS, "write_batch_size": PAGE_ROWS}
    ia.write_table(table, path, row_group_size=ROWS // 2, **layout)
    return ia.dataset(path)


@pytest.fixture(scope="module")
def memory(table):
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.register("t", table)
        yield connection


def rows(memory, data, condition, parameters=()):
    """The rows that DuckDB and ``ia.sql`` find, or both as errors."""
    query = f"SELECT n FROM t WHERE {condition} ORDER BY n"
    try:
        expected = [n for (n,) in memory.execute(query, parameters).fetchall()]
    except duckdb.Error as error:
        with pytest.raises(type(error)):
            ia.sql(query, parameters, t=data)
        return None, None
    return ia.sql(query, parameters, t=data)["n"].to_pylist(), expected


@pytest.mark.parametrize("unit", [*TICKS, "odd"])
def test_spans_compare_as_in_duckdb(unit, data, memory):
    name = f"d_{unit}"
    comparisons = [f"{name} {how} {span}" for how, span in itertools.product(COMPARISONS, SPANS)]
    others = [other.format(name) for other in OTHERS if unit != "odd" or "l_{0}" not in other]
    for condition in [*comparisons, *others]:
        actual, expected = rows(memory, data, condition)
        assert actual == expected, condition


@pytest.mark.parametrize("condition", sorted(PUSHED))
def test_spans_reach_the_scan(condition, data, memory, monkeypatch):
    filters = []
    register = duckdb_sql._register

    def registered(connection, query, *others, **options):
        filters.extend(scan.filter for scan in query.scans)
        return register(connection, query, *others, **options)

    monkeypatch.setattr(duckdb_sql, "_register", registered)
    actual, expected = rows(memory, data, condition)
    assert actual == expected
    (filter_,) = filters
    assert data.to_table(["n"], filter_)["n"].to_pylist() == expected
    if "list" not in condition:  # of which only an index can exclude rows
        assert data.plan(["n"], filter_).figures.rows.selected < ROWS


def test_nanoseconds_are_left_to_duckdb_which_truncates_them(data, memory):
    actual, expected = rows(memory, data, "d_odd = INTERVAL 0 SECOND")
    assert actual == expected
    assert len(expected) > 1
    assert data.count_rows("d_odd = INTERVAL 0 SECOND") == 1


@pytest.mark.parametrize("value", [dt.timedelta(30), dt.timedelta(-2), dt.timedelta(0, 1, 1)])
def test_a_timedelta_is_a_parameter(value, data, memory):
    for condition in ("d_us = ?", "d_ms >= ?", "d_odd < ?"):
        actual, expected = rows(memory, data, condition, [value])
        assert actual == expected
