"""Names and lists that DuckDB reads in its own way, in ``ia.sql``."""

from __future__ import annotations

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import intarsia as ia
from intarsia.sql.query.scans import scans_of

ROWS = 70_000


@pytest.fixture(scope="module")
def paths(tmp_path_factory):
    """Files: ``t`` has a column É, ``o`` has é, ``k`` has the Kelvin sign, which may equal k."""
    folder = tmp_path_factory.mktemp("names")
    tables = {
        "t": pa.table({"É": range(ROWS), "x": range(ROWS, 0, -1)}),
        "o": pa.table({"é": [1, 2], "m": [1, 2], "K": [0, 1]}),
        "k": pa.table({"\u212a": [1, 7]}),
        "s": pa.table({"u": [{"É": 1, "w": 2}, {"É": 3, "w": 4}]}),
    }
    for name, table in tables.items():
        ia.write_table(table, folder / f"{name}.parquet")
    return {name: folder / f"{name}.parquet" for name in tables}, tables


@pytest.mark.parametrize(
    "query",
    [
        'SELECT x AS "é" FROM t ORDER BY "É" LIMIT 2',
        'SELECT m FROM o WHERE EXISTS (SELECT 1 FROM t WHERE "é" = 1 AND "É" = 5)',
        'SELECT m FROM o WHERE EXISTS (SELECT 1 FROM t WHERE "é" = m AND x < 3 AND "é" = 2)',
        "SELECT m FROM o WHERE EXISTS (SELECT 1 FROM k AS kk WHERE k = 1) ORDER BY m",
        'SELECT "É" FROM t WHERE "É" = 77',
        'SELECT max("É") FROM t',
        'SELECT u."É" FROM s ORDER BY ALL',
        'SELECT u."É", x.w FROM (SELECT u AS x, u FROM s) ORDER BY ALL',
    ],
)
def test_non_ascii_names_are_case_sensitive_as_in_duckdb(query, paths):
    files, tables = paths
    con = duckdb.connect()
    for name, table in tables.items():
        con.register(name, table)
    assert ia.sql(query, **files).to_pylist() == con.sql(query).to_arrow_table().to_pylist()


def test_tables_whose_names_differ_in_non_ascii_case(paths):
    files, _ = paths
    actual = ia.sql('SELECT count(*) AS n FROM "É"', É=files["o"], é=files["t"])
    assert actual.to_pylist() == [{"n": 2}]
    with pytest.raises(ia.PredicateError, match="not told apart by case"):
        ia.sql("SELECT 1", a=files["o"], A=files["t"])


@pytest.mark.parametrize(
    "condition",
    [
        "i IN [1, NULL]",
        "i NOT IN [1, NULL]",
        "i NOT IN [NULL]",
        "(i IN [1, NULL]) IS FALSE",
        "s NOT IN ['a', NULL] OR i = 1",
        "NOT (i IN [NULL, 1] AND s = 'a')",
        "i NOT IN (1, NULL)",
        "i IN (1, NULL) AND s = 'a'",
        "i NOT IN [1, 2]",
    ],
)
def test_lists_with_null(condition, tmp_path):
    table = pa.table({"i": [1, 2, 3, None], "s": ["a", "b", None, "c"]})
    ia.write_table(table, tmp_path / "a.parquet")
    con = duckdb.connect()
    con.register("t", table)
    for query in (
        f"SELECT i, s FROM t WHERE {condition}",
        f"SELECT count(*) AS n FROM t WHERE {condition}",
        f"SELECT i FROM (SELECT * FROM t) WHERE {condition}",
        f"SELECT i, s FROM t GROUP BY ALL HAVING {condition} ORDER BY ALL",
    ):
        expected = con.sql(query).to_arrow_table().to_pylist()
        assert ia.sql(query, t=tmp_path / "a.parquet").to_pylist() == expected
    ds = ia.dataset(tmp_path / "a.parquet")
    if "[" in condition and "NULL" in condition.partition("IS")[0]:
        with pytest.raises(ia.PredicateError, match="NULL in IN"):
            ds.count_rows(filter=condition)
    else:
        expected = con.sql(f"SELECT i, s FROM t WHERE {condition}").to_arrow_table()
        assert ds.to_table(filter=condition).to_pylist() == expected.to_pylist()


@pytest.mark.parametrize(
    "name", ["__filename", "__fragment_index", "__batch_index", "__last_in_fragment"]
)
def test_columns_named_like_pyarrows_pseudo_columns(name, tmp_path):
    path = tmp_path / "a.parquet"
    table = pa.table({name: [1, 2, 3], "z": [4, 5, 6]})
    ia.write_table(table, path)
    for condition, total in (("TRUE", 6), (f"{name} > 1", 5)):
        actual = ia.sql(f"SELECT sum({name})::INT AS s FROM t WHERE {condition}", t=path)
        assert actual.to_pylist() == [{"s": total}]
    ds = ia.dataset(path)
    assert ds.to_table().equals(table)
    assert ds.to_table([name], filter=pc.field(name) > 1).to_pydict() == {name: [2, 3]}
    assert ds.take([1]).equals(table.slice(1, 1))
    assert (ds.count_rows(), ds.head(2).num_rows) == (3, 2)
    assert ia.polars.scan(path).collect().to_arrow().to_pydict() == table.to_pydict()


def test_pseudo_columns_are_given_where_there_is_no_such_column(tmp_path):
    ia.write_table(pa.table({"z": [4, 5]}), tmp_path / "a.parquet")
    actual = ia.dataset(tmp_path / "a.parquet").to_table(["z", "__fragment_index", "__filename"])
    assert actual["__fragment_index"].to_pylist() == [0, 0]
    assert actual["__filename"].to_pylist() == [str(tmp_path / "a.parquet")] * 2


def test_syntax_errors_are_duckdbs(tmp_path):
    path = tmp_path / "a.parquet"
    ia.write_table(pa.table({"?": [1, 2], "zz": [1, 2]}), path)
    with pytest.raises(duckdb.ParserException):
        ia.sql("SELECT zz FROM t WHERE t.? IN (SELECT zz FROM t WHERE zz < 2)", t=path)


def test_other_values_after_in_are_not_taken_for_lists(tmp_path):
    table = pa.table({"i": [1, 2], "tags": [["a"], ["b", None]]})
    ia.write_table(table, tmp_path / "a.parquet")
    ds = ia.dataset(tmp_path / "a.parquet")
    assert ds.count_rows(filter="list_has_any(tags, ['a', NULL])") == 1
    for condition in ("i IN [[1][1], NULL]", "i IN [1, NULL] OR i = 2"):
        with pytest.raises(ia.PredicateError, match="NULL in IN"):
            ds.count_rows(filter=condition)


def test_spark_names_are_case_insensitive():
    schemas = {"Ä": pa.schema({"a": pa.int64()}), "ä": pa.schema({"b": pa.int64()})}
    with pytest.raises(ia.PredicateError, match="not told apart by case"):
        scans_of("SELECT * FROM `Ä`", schemas, dialect="spark")
    assert scans_of('SELECT * FROM "Ä"', schemas).others == ("Ä", "ä")
