"""Subqueries that give one value are answered first; the scan is planned with that value."""

from __future__ import annotations

import datetime
from decimal import Decimal

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import intarsia as ia
from intarsia.engines.duckdb import sql as duckdb_sql
from intarsia.engines.duckdb.scalar_subqueries import constant_of
from intarsia.sql.query.scalar_subqueries import scalar_subqueries

AB = pa.schema({"a": pa.int64(), "B": pa.struct({"c": pa.int64()})})
TABLES = {"t": AB, "U": AB}
FOUND = {
    "SELECT * FROM t WHERE a = (SELECT max(a) FROM t)": ["SELECT max(a) FROM t"],
    "FROM t WHERE a = ( select max(a) - 1 from U where b > 3 )": [
        " select max(a) - 1 from U where b > 3 "
    ],
    "SELECT * FROM t WHERE a > (FROM t SELECT avg(a)) * 2": ["FROM t SELECT avg(a)"],
    "SELECT * FROM t JOIN u ON true WHERE t.a > 3 AND (SELECT min(a) FROM u) < t.a": [
        "SELECT min(a) FROM u"
    ],
    "SELECT * FROM t WHERE a BETWEEN (SELECT min(a) FROM u) AND ((SELECT max(a) FROM u))": [
        "SELECT min(a) FROM u",
        "SELECT max(a) FROM u",
    ],
    "SELECT * FROM t WHERE a = (SELECT a FROM t ORDER BY b DESC LIMIT 1)": [
        "SELECT a FROM t ORDER BY b DESC LIMIT 1"
    ],
    "SELECT * FROM (SELECT * FROM t WHERE a = (SELECT max(a) FROM t)) WHERE b = 3": [
        "SELECT max(a) FROM t"
    ],
    "SELECT * FROM t WHERE a = (SELECT max(a) FROM t WHERE b = (SELECT min(b) FROM u))": [
        "SELECT min(b) FROM u"
    ],
    "SELECT * FROM t WHERE a IN (SELECT a FROM u WHERE a = (SELECT max(a) FROM t))": [
        "SELECT max(a) FROM t"
    ],
    "FROM t WHERE a < (SELECT min(a) FROM t) UNION (FROM t WHERE a > (SELECT max(a) FROM t))": [
        "SELECT min(a) FROM t",
        "SELECT max(a) FROM t",
    ],
    "SELECT * FROM t AS x WHERE a = (SELECT max(y.a) FROM t AS y WHERE b.c = y.b.c)": [
        "SELECT max(y.a) FROM t AS y WHERE b.c = y.b.c"
    ],
    "SELECT ')', '(SELECT' FROM t WHERE a = (SELECT max(')') FROM t)": ["SELECT max(')') FROM t"],
}
NOT_FOUND = """
SELECT * FROM t WHERE a = 3
SELECT * FROM t WHERE a IN (SELECT max(a) FROM t)
SELECT * FROM t WHERE a = (SELECT max(a), min(a) FROM t)
SELECT * FROM t WHERE a = (SELECT max(a) FROM t TABLESAMPLE 5)
SELECT * FROM t WHERE a = (SELECT a FROM t FETCH FIRST 1 ROWS ONLY)
SELECT * FROM t WHERE a = (SELECT a FROM t LIMIT 1 OFFSET 1)
SELECT * FROM t WHERE a = (SELECT max(COLUMNS(*)) FROM t)
SELECT * FROM t WHERE a = (SELECT 7 FROM t)
SELECT * FROM t WHERE a = (SELECT max(a COLLATE NOCASE) FROM t)
SELECT * FROM t WHERE EXISTS (SELECT max(a) FROM t)
SELECT * FROM t WHERE a = (SELECT a FROM t)
SELECT * FROM t WHERE a = (SELECT a FROM t LIMIT 2)
SELECT * FROM t WHERE a = (SELECT max(a) FROM t GROUP BY b)
SELECT * FROM t WHERE a = (SELECT max(a) FROM t HAVING max(a) > 3)
SELECT * FROM t WHERE a = (SELECT max(a) + b FROM t)
SELECT * FROM t WHERE a = (SELECT max(a) OVER () FROM t)
SELECT * FROM t WHERE a = (SELECT max(a) FROM t, u)
SELECT * FROM t WHERE a = (SELECT max(a) FROM other)
SELECT * FROM t WHERE a = (SELECT max(a) FROM t WHERE b = ?)
SELECT * FROM t WHERE a = (SELECT max(a) FROM t WHERE b = $1)
SELECT * FROM t WHERE a = ANY(SELECT max(a) FROM t)
SELECT * FROM t AS x WHERE a = (SELECT max(y.a) FROM t AS y WHERE y.a < x.a)
SELECT *, 1 AS d FROM t WHERE a = (SELECT max(a) FROM t WHERE a < d)
SELECT (SELECT count(*) FROM t WHERE a > (SELECT avg(a) FROM u)) FROM t
SELECT count(*) FILTER (WHERE a > (SELECT max(a) FROM u)) FROM t
SELECT (SELECT max(a) FROM u) FROM t WHERE a IN (SELECT a FROM u WHERE a > (SELECT max(a) FROM u))
SELECT (SELECT max(a) FROM t) FROM t
SELECT (SELECT max(a) FROM t) FROM t WHERE a = (SELECT max(a) FROM t)
SELECT * FROM (SELECT max(a) FROM t) WHERE a = (SELECT max(a) FROM t)
WITH u AS (SELECT 1 AS a) SELECT * FROM t WHERE a = (SELECT max(a) FROM u)
CREATE TABLE x AS SELECT * FROM t WHERE a = (SELECT max(a) FROM t)
SELECT * FROM t WHERE a = (SELECT max(a) FROM
""".strip().splitlines()


@pytest.mark.parametrize(("query", "texts"), FOUND.items(), ids=FOUND)
def test_scalar_subqueries_are_answered_first(query, texts):
    actual = scalar_subqueries(query, TABLES, "duckdb")
    assert [subquery.text for subquery in actual] == texts
    assert [query[one.start : one.stop] for one in actual] == [f"({text})" for text in texts]


@pytest.mark.parametrize("query", NOT_FOUND)
def test_ambiguous_subqueries_are_left_to_duckdb(query):
    assert scalar_subqueries(query, TABLES, "duckdb") == []


VALUES = {
    "BOOLEAN": True,
    "TINYINT": -3,
    "BIGINT": 2**62,
    "UBIGINT": 2**64 - 1,
    "FLOAT": 0.10000000149011612,
    "DOUBLE": 0.1 + 0.2,
    "VARCHAR": "it's é",
    "DATE": datetime.date(2024, 2, 29),
    "TIMESTAMP": datetime.datetime(2024, 2, 29, 1, 2, 3, 456789),
    "TIMESTAMP WITH TIME ZONE": datetime.datetime(2024, 2, 29, 1, 2, 3, 4, datetime.UTC),
    "DECIMAL(12,3)": Decimal("-123456789.125"),
}


@pytest.mark.parametrize(("kind", "value"), VALUES.items(), ids=VALUES)
def test_a_constant_has_the_type_and_value_of_the_subquery(kind, value):
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        given = connection.sql(f"SELECT CAST($1 AS {kind}) AS v", params=[value]).to_arrow_table()
        constant = constant_of(given["v"][0], kind)
        query = f"SELECT {constant} = v AND typeof({constant}) = typeof(v) FROM given"
        assert connection.sql(query).fetchall() == [(True,)]


def test_values_without_a_literal_are_left_to_duckdb():
    assert constant_of(pa.scalar(None, pa.int64()), "BIGINT") is None
    assert constant_of(pa.scalar("a\0b"), "VARCHAR") is None
    assert constant_of(pa.scalar([1]), "INTEGER[]") is None
    assert constant_of(pa.scalar(1, pa.timestamp("ns")), "TIMESTAMP_NS") is None
    assert constant_of(pa.scalar(Decimal(1), pa.decimal128(38, 0)), "HUGEINT") is None
    assert constant_of(pa.scalar("1"), "JSON") is None
    assert constant_of(pa.scalar(50_000_000, pa.int32()).cast(pa.date32()), "DATE") is None
    assert constant_of(pa.scalar(-2_000_000, pa.int32()).cast(pa.date32()), "DATE") is None
    assert constant_of(pa.scalar(2**63 - 1, pa.timestamp("us")), "TIMESTAMP") is None


ROWS = 100_000


@pytest.fixture(scope="module")
def logs():
    random = np.random.default_rng(6)
    numbers = np.arange(ROWS)
    return pa.table(
        {
            "ts": pa.array(numbers * 1_000_000, pa.timestamp("us")),
            "tz": pa.array(numbers * 1_000_000, pa.timestamp("us", "UTC")),
            "n": pa.array(random.permutation(ROWS), mask=numbers % 10 == 0),
            "f": random.random(ROWS).astype(np.float32),
            "d": random.random(ROWS),
            "day": pa.array(numbers // 1000, pa.int32()).cast(pa.date32()),
            "dec": pa.array(numbers).cast(pa.decimal128(20, 0)).cast(pa.decimal128(20, 2)),
            "s": [f"{n:05}" for n in random.permutation(ROWS)],
        }
    )


@pytest.fixture(scope="module")
def path(logs, tmp_path_factory):
    path = tmp_path_factory.mktemp("scalars") / "a.parquet"
    ia.write_table(logs, path, max_rows_per_page=1000, row_group_size=25_000)
    return path


QUERIES = """
SELECT ts FROM t WHERE n > (SELECT min(n) + 9 FROM t) AND n < (SELECT min(n) + 19 FROM t) AND d > 0
SELECT ts FROM t WHERE n <= (SELECT count(*) FROM t WHERE n < 5)
SELECT * FROM t WHERE ts = (SELECT max(ts) FROM t)
SELECT * FROM t WHERE ts > (SELECT max(ts) - INTERVAL 10 SECONDS FROM t) AND n > 5
SELECT ts FROM t WHERE tz >= (SELECT max(tz) FROM t) - INTERVAL 7 SECOND
SELECT ts FROM t WHERE day = (SELECT max(day) FROM t)
SELECT ts FROM t WHERE n = (SELECT min(n) FROM t WHERE n > 500)
SELECT ts FROM t WHERE n > (SELECT 2 * avg(n) - 10 FROM t)
SELECT ts FROM t WHERE n <= (SELECT count(*) FROM t WHERE n < 9)
SELECT ts FROM t WHERE f = (SELECT max(f) FROM t)
SELECT ts FROM t WHERE f > (SELECT max(f) FROM t) * 0.9999
SELECT ts FROM t WHERE d = (SELECT min(d) FROM t)
SELECT ts FROM t WHERE d < (SELECT 1.01 * min(d) FROM t)
SELECT ts FROM t WHERE dec = (SELECT max(dec) FROM t)
SELECT ts FROM t WHERE dec < (SELECT sum(n) / 1000000000 FROM t)
SELECT ts FROM t WHERE s = (SELECT min(s) FROM t)
SELECT ts FROM t WHERE s IN (SELECT min(s) FROM t) OR s = (SELECT max(s) FROM t)
SELECT ts FROM t WHERE n = (SELECT max(n) FROM t WHERE false)
SELECT ts FROM t WHERE n < 3 AND n IS DISTINCT FROM (SELECT max(n) FROM t WHERE false)
SELECT ts FROM t WHERE n BETWEEN (SELECT min(n) + 2 FROM t) AND (SELECT min(n) + 4 FROM t)
SELECT ts FROM t WHERE NOT n < (SELECT max(n) - 3 FROM t)
SELECT ts FROM t WHERE n = (SELECT n FROM t ORDER BY ts DESC LIMIT 1)
SELECT ts FROM t WHERE n = (SELECT n FROM t WHERE n = -1 LIMIT 1)
SELECT ts FROM t AS u WHERE u.n = (SELECT max(n) FROM t WHERE t.n < 77) AND u.d > 0
SELECT ts FROM t AS u WHERE u.n = (SELECT max(t.n) FROM t WHERE t.n < u.n) AND u.n < 5
SELECT count(*) AS c, sum(n) AS s FROM t WHERE ts > (SELECT max(ts) - INTERVAL 9 SECOND FROM t)
SELECT t.ts FROM t JOIN few USING (n) WHERE t.n > (SELECT min(n) FROM few)
SELECT ts FROM t WHERE n + 1 = (SELECT max(n) FROM few)
SELECT ts FROM t WHERE n >= (SELECT max(n)::VARCHAR::JSON::INT FROM few) AND n < 905
""".strip().splitlines()
FEW = pa.table({"n": [3, 70, 900]})


@pytest.mark.parametrize("query", QUERIES)
@pytest.mark.usefixtures("at_once")
def test_answers_are_duckdbs(query, logs, path):
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.register("t", logs)
        connection.register("few", FEW)
        expected = connection.sql(query).to_arrow_table()
    actual = ia.sql(query, t=path, few=FEW)
    assert actual.schema.names == expected.schema.names
    assert sorted(map(repr, actual.to_pylist())) == sorted(map(repr, expected.to_pylist()))


PAGES = {
    "SELECT * FROM t WHERE ts = (SELECT max(ts) FROM t)": 30,
    "SELECT * FROM t WHERE ts > (SELECT max(ts) - INTERVAL 10 SECONDS FROM t)": 30,
    "SELECT * FROM t WHERE day >= (SELECT max(day) FROM t) - 1": 60,
    "SELECT s FROM t WHERE n = (SELECT n FROM t ORDER BY ts DESC LIMIT 1)": 130,
}


@pytest.mark.parametrize(("query", "most"), PAGES.items(), ids=PAGES)
def test_few_pages_are_read(query, most, path):
    data = ia.dataset(path, reader="pages")
    assert ia.sql(query, t=data).num_rows > 0
    assert 0 < data.scan_source.cache.get(data.files[0]).pages_read <= most


def test_a_subquery_is_answered_once(path, monkeypatch):
    queries, rewritten = [], duckdb_sql.rewrite_query

    def watched(query, *others):
        queries.append(query)
        return rewritten(query, *others)

    monkeypatch.setattr(duckdb_sql, "rewrite_query", watched)
    actual = ia.sql("SELECT ts FROM t WHERE n = (SELECT max(n) FROM t)", t=path)
    assert actual.num_rows == 1
    assert queries == [
        "SELECT ts FROM t WHERE n = (SELECT max(n) FROM t)",
        "SELECT max(n) FROM t",
        "SELECT ts FROM t WHERE n = (CAST('99999' AS BIGINT))",
    ]


def test_a_subquery_that_fails_is_left_to_the_query(path):
    query = "SELECT ts FROM t WHERE n = (SELECT max(n::TINYINT) FROM t)"
    with pytest.raises(duckdb.ConversionException, match=r"WHERE n = \(SELECT max\(n::TINYINT\)"):
        ia.sql(query, t=path)
    query = "SELECT ts FROM t WHERE n <= (SELECT max(n) FROM t) AND n::TINYINT = 3"
    with pytest.raises(duckdb.ConversionException, match=r"FROM \S+ AS t\) AND n::TINYINT"):
        ia.sql(query, t=path)
    with pytest.raises(duckdb.BinderException, match="nope"):
        ia.sql("SELECT ts FROM t WHERE n = (SELECT max(nope) FROM t)", t=path)


def test_dates_beyond_python_are_left_to_duckdb(tmp_path):
    days = pa.array([50_000_000, -2_000_000, 0, 2**31 - 1], pa.int32()).cast(pa.date32())
    moments = pa.array([4 * 10**18, -(10**17), 0, 2**63 - 1], pa.timestamp("us"))
    table = pa.table({"d": days, "ts": moments, "s": ["é🦆", "b", "c", "d"]})
    ia.write_table(table, tmp_path / "a.parquet")
    for column in ("d", "ts"):
        for way, greater in (("max", ">="), ("min", "<=")):
            query = f"SELECT s FROM t WHERE {column} {greater} (SELECT {way}({column}) FROM t)"
            assert ia.sql(query, t=tmp_path)["s"].to_pylist() == ["d" if way == "max" else "b"]
    with pytest.raises(duckdb.Error):
        ia.sql("SELECT s FROM t WHERE s >= (SELECT max(s)::BIT FROM t)", t=tmp_path)


def test_column_names_do_not_change(path):
    query = "SELECT count(*) FILTER (WHERE n > (SELECT max(n) FROM few)) FROM t WHERE n < 9"
    with duckdb.connect() as connection:
        connection.register("t", ia.dataset(path).to_table())
        connection.register("few", FEW)
        expected = connection.sql(query).columns
    assert ia.sql(query, t=path, few=FEW).column_names == expected


def test_a_query_has_one_current_time(path):
    query = """SELECT count(*) AS c FROM t
        WHERE now() = (SELECT max(now()) FROM t WHERE n < 3) AND n < 9"""
    assert ia.sql(query, t=path).to_pydict() == {
        "c": [pc.sum(pc.less(ia.dataset(path).to_table(["n"])["n"], 9)).as_py()]
    }
