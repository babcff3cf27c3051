"""Variables of the caller as tables of ``ia.sql``, beside ``duckdb.sql``, which finds the same."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.dataset as pads
import pytest

import intarsia as ia

everywhere = pa.table({"k": [1]})
logs = pa.table({"k": [1]})
a_path = "lake"
QUERY = "SELECT k FROM logs"


def keys(table: pa.Table) -> list[int]:
    return table["k"].to_pylist()


def test_local_variables_come_before_global_ones():
    assert keys(ia.sql(QUERY)) == duckdb.sql(QUERY).to_arrow_table()["k"].to_pylist() == [1]
    logs = pa.table({"k": [2]})
    assert keys(ia.sql(QUERY)) == duckdb.sql(QUERY).to_arrow_table()["k"].to_pylist() == [2]
    assert keys(ia.sql(QUERY, logs=pa.table({"k": [3]}))) == [3]
    assert keys(ia.sql(QUERY, LOGS=pa.table({"k": [4]}))) == [4]
    assert logs.num_rows == 1


def test_a_variable_of_another_type_hides_a_global_table():
    logs = "not a table"
    with pytest.raises(duckdb.CatalogException) as caught:
        ia.sql(QUERY)
    assert logs not in str(caught.value)


@pytest.mark.parametrize(
    "table",
    [
        pa.table({"k": [5]}),
        pa.record_batch({"k": [5]}),
        pads.dataset(pa.table({"k": [5]})),
        pl.DataFrame({"k": [5]}),
        pl.LazyFrame({"k": [5]}),
        duckdb.sql("SELECT 5 AS k"),
        pa.RecordBatchReader.from_batches(
            pa.schema({"k": pa.int64()}), [pa.record_batch({"k": [5]})]
        ),
    ],
    ids=lambda table: type(table).__name__,
)
def test_tables_data_sets_and_frames_are_looked_up(table):
    assert keys(ia.sql("FROM table_ AS t WHERE k = 5", table_=table)) == [5]
    if not isinstance(table, pa.RecordBatchReader):  # it can be read once
        assert keys(ia.sql("SELECT k FROM 'table' WHERE k = 5", [])) == [5]


@pytest.mark.parametrize(
    "value",
    ["lake", Path("lake"), 5, None, pa.chunked_array([[5]]), pl.Series("k", [5]), pa.Table, [1]],
    ids=lambda value: f"{type(value).__name__} {value!r:.10}",
)
def test_strings_paths_and_arrays_are_not_looked_up(value):
    with pytest.raises(duckdb.CatalogException) as caught:
        ia.sql("FROM value")
    names = "variables that are tables: everywhere, logs"
    assert caught.value.__notes__[-1] == names


def test_the_error_lists_local_and_global_tables():
    here = pa.table({"k": [1]})
    with pytest.raises(duckdb.CatalogException) as caught:
        ia.sql("SELECT * FROM her")
    note = "tables are given by name: intarsia.sql(query, NAME=PATH)"
    assert caught.value.__notes__ == [note, "variables that are tables: everywhere, here, logs"]
    assert here.num_rows == 1


def test_data_sets_are_read_by_their_pages(tmp_path):
    ia.write_table(pa.table({"k": range(10_000)}), tmp_path / "a.parquet", max_rows_per_page=100)
    lake = ia.dataset(tmp_path)
    assert keys(ia.sql("SELECT k FROM lake WHERE k = ?", [77])) == [77]
    explained = ia.explain_sql("SELECT k FROM lake WHERE k = 77")
    assert set(explained.tables) == {"lake"}
    assert lake.count_rows() == 10_000


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("WITH logs AS (SELECT 7 AS k) SELECT k FROM logs", [7]),
        ("WITH logs AS (SELECT k + 1 AS k FROM logs) SELECT k FROM logs", [2]),
        ("WITH o AS (WITH logs AS (SELECT 7 AS k) FROM logs) SELECT o.k FROM o, logs", [7]),
        ("SELECT k FROM (VALUES (9)) AS logs(k)", [9]),
        ("SELECT k FROM everywhere WHERE k IN (SELECT k FROM logs)", [1]),
        ("SELECT logs.k FROM everywhere AS logs", [1]),
        ("FROM logs UNION ALL FROM everywhere", [1, 1]),
        ("FROM logs JOIN everywhere USING (k)", [1]),
        ("SELECT (SELECT max(k) FROM logs) AS k", [1]),
        ("CREATE TABLE logs AS SELECT 8 AS k; SELECT k FROM logs", [8]),
        ("CREATE TABLE made AS SELECT k FROM logs; SELECT k FROM made", [1]),
        ('SELECT "logs".k FROM "logs"', [1]),
        ("TABLE logs", [1]),
        ("SELECT k FROM (PIVOT logs ON k USING count(*) AS n), everywhere", [1]),
    ],
)
def test_names_that_the_query_defines_come_before_variables(query, expected):
    assert keys(ia.sql(query)) == expected
    assert keys(duckdb.connect().sql(query).to_arrow_table()) == expected


def test_statements_about_tables_find_variables():
    for query in ("DESCRIBE logs", "SUMMARIZE logs", "EXPLAIN SELECT * FROM logs"):
        assert ia.sql(query).num_rows == 1, query
    assert ia.sql("SELECT k FROM logs WHERE k = $k", {"k": 1}).num_rows == 1


def test_a_table_of_a_schema_is_no_variable():
    tables = pa.table({"k": [1]})
    query = "SELECT count(*) AS k FROM information_schema.tables WHERE table_name = 'nowhere'"
    assert keys(ia.sql(query)) == [0]
    assert tables.num_rows == 1


def test_functions_see_their_own_variables_alone():
    own = pa.table({"k": [1]})

    def closure() -> list[int]:
        return [own.num_rows, *keys(ia.sql("FROM own"))]

    def blind() -> pa.Table:
        return ia.sql("FROM own")

    assert closure() == [1, 1]
    for call in (blind, lambda: ia.sql("FROM own")):
        with pytest.raises(duckdb.CatalogException):
            call()
    assert keys((lambda own: ia.sql("FROM own"))(pa.table({"k": [2]}))) == [2]
    assert keys((lambda: ia.sql("FROM everywhere"))()) == [1]


def test_comprehensions_see_the_variables_around_them():
    own = pa.table({"k": [1, 2]})
    query = "SELECT k FROM own WHERE k = ?"
    assert [keys(ia.sql(query, [k])) for k in (1, 2)] == [[1], [2]]
    assert {k: keys(ia.sql(query, [k])) for k in (1, 2)} == {1: [1], 2: [2]}
    assert {ia.sql(query, [k]).num_rows for k in (1, 2)} == {1}
    lazily = (keys(ia.sql(query, [k])) for k in (1, 2))
    assert list(lazily) == [[1], [2]]
    assert [[ia.sql(query, [k]).num_rows for k in (n,)] for n in (1, 3)] == [[1], [0]]
    tables = (pa.table({"k": [n]}) for n in (4, 5))
    assert [keys(ia.sql("FROM own")) for own in tables] == [[4], [5]]
    assert own.num_rows == 2


def consumed(rows) -> list[list[int]]:
    other = pa.table({"k": [99]})
    assert other.num_rows == 1
    return list(rows)


def test_a_generator_does_not_see_the_variables_of_its_consumer():
    with pytest.raises(duckdb.CatalogException):
        consumed(keys(ia.sql("FROM other")) for _ in range(1))


def test_threads_see_the_variables_of_their_function():
    def work(number: int) -> list[int]:
        mine = pa.table({"k": [number]})
        return [*keys(ia.sql("SELECT mine.k FROM mine, everywhere")), mine.num_rows]

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(work, range(40))) == [[number, 1] for number in range(40)]
        with pytest.raises(duckdb.CatalogException) as caught:
            pool.submit(ia.sql, "FROM mine").result()
    assert caught.value.__notes__[-1] == "variables that are tables: none"
    answers = []
    thread = threading.Thread(target=lambda: answers.append(keys(ia.sql("FROM everywhere"))))
    thread.start()
    thread.join()
    assert answers == [[1]]


def test_variables_of_a_class_body_and_of_exec_are_found():
    class Report:
        rows = pa.table({"k": [3]})
        answer = ia.sql("FROM rows")

    assert keys(Report.answer) == [3]
    names = {"ia": ia, "rows": pa.table({"k": [4]})}
    exec("answer = ia.sql('FROM rows')", names)
    assert keys(names["answer"]) == [4]
