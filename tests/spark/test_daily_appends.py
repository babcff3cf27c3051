"""A lake to which Spark, DuckDB and Polars append in turn, with ``maintain`` each day.

``INTARSIA_DAYS=30`` runs a month.
"""

import os

import duckdb
import polars
import pyarrow as pa
import pytest

import intarsia as ia

pytestmark = pytest.mark.spark

DAYS = int(os.environ.get("INTARSIA_DAYS", "6"))
ROWS = 2_000
APPENDS = 3
"""Appends a day, each of which makes a small file or more."""


def rows_of(number):
    """Returns the rows of an append: keys, numbers and a text."""
    numbers = range(number * ROWS, (number + 1) * ROWS)
    return pa.table(
        {
            "k": [f"k{n * 7919 % 1_000_003}" for n in numbers],
            "n": pa.array(numbers, pa.int64()),
            "msg": [f"order {n % 97} of user {n % 13}" for n in numbers],
        }
    )


def append(spark, number, day, lake):
    """Appends by Spark's own writer, DuckDB or Polars in turn."""
    rows, folder = rows_of(number), lake / f"day={day:02}"
    folder.mkdir(exist_ok=True)
    match number % 3:
        case 0:
            frame = spark.createDataFrame(rows.to_pandas()).coalesce(2)
            frame.write.mode("append").parquet(str(folder))
        case 1:
            duckdb.sql(f"COPY (FROM rows) TO '{folder}/{number}.parquet' (FORMAT parquet)")
        case 2:
            polars.from_arrow(rows).write_parquet(folder / f"{number}.parquet")


def size_of(lake):
    """Returns the bytes of all data files."""
    return sum(path.stat().st_size for path in lake.rglob("*.parquet"))


def test_maintain_alone_keeps_a_lake_of_daily_appends_indexed_and_small(spark, tmp_path):
    lake = tmp_path / "lake"
    lake.mkdir()
    append(spark, 1, 0, lake)
    layout = {"target_file_size": "10 MB", "rows_per_page": 512, "compression": "zstd"}
    options = {"indexes": ["k:lookup", "msg:ngram"], "max_rows_per_page": 512}
    ia.rewrite(lake, indexes=options["indexes"], keep=True, **layout)
    written, days, appended = [rows_of(1)], [0] * ROWS, 1
    for day in range(DAYS):
        for _ in range(APPENDS):
            appended += 1
            append(spark, appended, day, lake)
            written.append(rows_of(appended))
            days += [day] * ROWS
        report = ia.maintain(lake)
        assert report.failed == ()
        state = ia.status(lake)
        assert {one.name: one.share for one in state.indexes} == {
            "k:lookup": 1.0,
            "msg:ngram": 1.0,
            "page_index": 1.0,
        }
        assert state.files == day + 1
        assert state.page_rows <= 512  # on average
        assert state.unfinished_commits == 0
        again = ia.maintain(lake)
        assert (again.changed, again.rewritten) == ((), 0)
    everything = pa.concat_tables(written)
    data = ia.dataset(lake)
    columns = ["k", "n", "msg"]
    assert data.to_table(columns).cast(everything.schema).sort_by("n").equals(everything)
    keys, texts = everything["k"].to_pylist(), everything["msg"].to_pylist()
    for position in range(0, len(keys), 997):
        matching = data.to_table(["n"], filter=f"k = '{keys[position]}'")
        assert matching["n"].to_pylist() == [everything["n"][position].as_py()]
    for text in ("order 5 of user 7", "user 12", "absent"):
        expected = sum(text in own for own in texts)
        assert data.count_rows(f"msg LIKE '%{text}%'") == expected
    at_once = everything.append_column("day", pa.array(days))
    ia.write_dataset(at_once, tmp_path / "at_once", partition_by=["day"], **options)
    assert size_of(lake) < 1.2 * size_of(tmp_path / "at_once")
    names = {path.name for path in lake.rglob("_*")} - {"_intarsia", "_SUCCESS"}
    assert names == set()
