"""FLOAT16 columns, which pyarrow cannot compare, are filtered like FLOAT columns."""

from __future__ import annotations

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyarrow.compute import field

import intarsia as ia

ROWS = 1_000
ODD = [float("nan"), float("inf"), float("-inf"), 0.0, -0.0, 65504.0, 6e-8, 0.1]


def half(number):
    return np.float16(ODD[number % 100 % 8] if number % 100 < 16 else number / 4)


def as_half(values):
    return pa.array(values, pa.float16())


HALVES = [None if i % 10 == 5 else half(i) for i in range(ROWS)]
TABLE = pa.table(
    {
        "i": range(ROWS),
        "h": as_half(HALVES),
        "s": pa.StructArray.from_arrays([as_half(HALVES)], ["h"]),
        "l": pa.array([[one, np.float16(2)] for one in HALVES], pa.list_(pa.float16())),
    }
)
WIDE = pa.table(
    {
        "i": range(ROWS),
        "h": TABLE["h"].cast(pa.float32()),
        "s": pa.StructArray.from_arrays([as_half(HALVES).cast(pa.float32())], ["h"]),
    }
)
NUMBERS = [19.25, 19, 0.0, -0.0, 0.1, 0.0999755859375, 1e5, 65519.0, 65504, -1e9, 1e-9]
NUMBERS += [float("inf"), float("nan"), np.float16(7.25), pa.scalar(np.float16(7.25))]
COMPARISONS = {
    "=": lambda column, one: column == one,
    "!=": lambda column, one: column != one,
    "<": lambda column, one: column < one,
    ">=": lambda column, one: column >= one,
    "not >": lambda column, one: ~(column > one),
    "turned": lambda column, one: pc.scalar(one) > column,
    "in": lambda column, one: column.isin(pa.array([one, 3.5], pa.float32())),
    "not in": lambda column, one: ~column.isin(pa.array([one, None], pa.float32())),
}


@pytest.fixture(scope="module", params=["bounds", "no bounds", "indexes", "no Arrow schema"])
def ds(request, tmp_path_factory):
    path = tmp_path_factory.mktemp("half") / "a.parquet"
    options = {"row_group_size": 200, "max_rows_per_page": 20, "write_batch_size": 20}
    options["write_statistics"] = request.param != "no bounds"
    options["store_schema"] = request.param != "no Arrow schema"
    pq.write_table(TABLE, path, **options)
    if request.param == "indexes":
        ia.add_indexes(path, ["minmax(h, granule_rows=20)", "s.h:minmax", "page_index"])
    return ia.dataset(path)


def rows(table):
    return table["i"].to_pylist()


def as_float32(one):
    value = one.as_py() if isinstance(one, pa.Scalar) else one
    return float(value) if isinstance(value, np.floating) else value


@pytest.mark.parametrize("comparison", COMPARISONS)
@pytest.mark.parametrize("one", NUMBERS, ids=repr)
def test_comparisons_are_those_of_float32(comparison, one, ds):
    compare, plain = COMPARISONS[comparison], as_float32(one)
    one = plain if "in" in comparison.split() else one
    expected = rows(WIDE.filter(compare(field("h"), plain)))
    for column in (field("h"), field("s", "h")):
        condition = compare(column, one)
        actual = ds.to_table(filter=condition)
        assert rows(actual) == expected
        assert actual.schema.equals(TABLE.schema)
        assert ds.count_rows(filter=condition) == len(expected)


@pytest.mark.parametrize(
    "condition",
    [
        pc.is_nan(field("h")),
        field("h").is_null(),
        field("h").is_null(nan_is_null=True),
        field("h").is_valid(),
        field("h") + 1 == 20.25,
        pc.abs(field("h")) > 200,
        field("h") > field("i") * 0.2,
        pc.coalesce(field("h"), 7.0) == 7.0,
        pc.is_finite(field("h")) & (field("h") > 240),
    ],
    ids=str,
)
def test_functions_are_those_of_float32(condition, ds):
    assert rows(ds.to_table(filter=condition)) == rows(WIDE.filter(condition))


@pytest.mark.parametrize(
    "condition",
    [
        "h = 19.25",
        "h > 240 AND h < 1000",
        "h IN (19.25, 7)",
        "h BETWEEN 5 AND 6",
        "isnan(h)",
        "h IS NULL",
        "h < 100000.5",
        "h = 100000.5",
        "h <> 1e9",
        "s.h = 19.25",
        "h > 1e39",
    ],
)
def test_sql_conditions_are_those_of_float32(condition, ds):
    wide = WIDE
    expected = duckdb.sql(f"SELECT i FROM wide WHERE {condition}").fetchnumpy()["i"].tolist()
    if condition.startswith("h >"):  # NaN is the greatest value in DuckDB
        expected = [i for i in expected if not np.isnan(HALVES[i])]
    assert rows(ds.to_table(filter=condition)) == expected
    assert ia.sql(f"SELECT i FROM t WHERE {condition}", t=ds).num_rows >= len(expected)
    assert wide.num_rows


def test_lists_of_half_floats_are_searched(ds):
    assert rows(ds.to_table(filter=ia.list_contains("l", 19.25))) == [77]
    assert len(rows(ds.to_table(filter=ia.list_contains("l", 2)))) == ROWS


def test_the_type_remains_half_float(ds):
    actual = ds.to_table({"h": field("h"), "more": field("h") + 1}, filter=field("i") == 77)
    assert actual.schema.types == [pa.float16(), pa.float32()]
    assert ds.scanner(filter=field("h") == 19.25).to_table().equals(TABLE.slice(77, 1))
    least = [i for i in range(ROWS) if HALVES[i] == float("-inf")]
    # pyarrow does not preserve the order of equal values
    assert sorted(rows(ds.sort_by("h").to_table())[: len(least)]) == least


def test_polars_compares_them(tmp_path):
    pq.write_table(TABLE.select(["i", "h"]), tmp_path / "a.parquet", row_group_size=200)
    frame = ia.polars.scan(tmp_path / "a.parquet")
    assert frame.collect_schema()["h"] == pl.Float16
    for condition in (pl.col("h") == 19.25, pl.col("h") > 240.0, pl.col("h").is_nan()):
        expected = frame.collect().filter(condition)["i"].to_list()
        assert frame.filter(condition).collect()["i"].to_list() == expected
