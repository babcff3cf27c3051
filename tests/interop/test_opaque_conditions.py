"""Conditions that only DuckDB can compute: both readers give its answers."""

from __future__ import annotations

import duckdb
import numpy as np
import pyarrow as pa
import pytest

import intarsia as ia

ROWS, PAGE = 160_000, 1000
FEW = pa.table({"n": [3, 70, 901]})


@pytest.fixture(scope="module")
def logs():
    random = np.random.default_rng(5)
    return pa.table(
        {
            "n": random.permutation(ROWS),
            "ts": pa.array(np.arange(ROWS) * 1_000_000, pa.timestamp("us")),
            "level": random.choice(["low", "high", None], ROWS).tolist(),
            "x": pa.array(random.random(ROWS), mask=random.random(ROWS) < 0.1),
            "name": [f"{n:x}" for n in random.integers(0, 2**60, ROWS)],
            "msg": [f"message {n:x}" * 3 for n in random.integers(0, 2**60, ROWS)],
            "day": np.arange(ROWS) * 4 // ROWS,
        }
    )


@pytest.fixture(scope="module")
def lake(logs, tmp_path_factory):
    """Four folders of a file each, of two row groups; rows in order."""
    folder = tmp_path_factory.mktemp("look")
    for day in range(4):
        at = folder / f"day={day}" / "a.parquet"
        at.parent.mkdir()
        part = logs.slice(day * ROWS // 4, ROWS // 4).drop_columns("day")
        ia.write_table(part, at, max_rows_per_page=PAGE, row_group_size=25_000)
    return folder


QUERIES = """
SELECT * FROM t WHERE n % 50000 = 7
SELECT * FROM t WHERE n % 50000 = 7 AND day % 2 = 1
SELECT * FROM t WHERE n % 5000 = 7 AND level = 'low' ORDER BY n DESC LIMIT 3
SELECT msg, name FROM t WHERE n // 2 = 4000 OR n * 2 = 6000 -- either
SELECT * FROM t AS "O" WHERE "O".n + 1 BETWEEN 3 AND 9
SELECT * FROM t AS "a ""b" WHERE "a ""b".n + 1 BETWEEN 3 AND 9;
SELECT (SELECT 1 WHERE true) AS o, name FROM t WHERE n % 50000 = 7 LIMIT 1000000
SELECT name FROM t WHERE n % 50000 = 7 AND ts < now() AND md5(name) <> ''
SELECT * FROM t WHERE epoch(ts) < 5 OR isodow(ts) = 9
SELECT * FROM t WHERE x > (SELECT max(x) * 0.9999 FROM t)
SELECT * FROM t WHERE n IN (SELECT n + 1 FROM t WHERE n < 5) AND n + 1 > 0
SELECT * FROM t WHERE n + 0 = (SELECT min(n) FROM t AS u WHERE u.n > t.n AND u.n < 5 AND t.n < 9)
SELECT day, count(*) AS c, max(msg) AS m FROM t WHERE n % 4000 = 0 GROUP BY day ORDER BY day
SELECT level, max(msg || name) AS m FROM t WHERE n % 4000 = 0 GROUP BY level HAVING level <> 'low'
SELECT DISTINCT level, left(msg, 4) AS m FROM t WHERE n % 4000 = 0
SELECT *, row_number() OVER (ORDER BY n) AS r FROM t WHERE n % 4000 = 0 QUALIFY r < 3
SELECT *, sum(n) OVER w AS s FROM t WHERE n % 9000 = 0 WINDOW w AS (ORDER BY n)
SELECT * FROM t WHERE CASE WHEN n = 5 THEN true WHEN n = 77 THEN NULL ELSE false END
SELECT * FROM t WHERE levenshtein(level, 'lo') = 1 AND n % 3000 = 1
SELECT * FROM t WHERE ts::TIME = TIME '00:00:07'
SELECT name FROM t WHERE EXISTS (SELECT 1 FROM few WHERE few.n = t.n AND few.n % 2 = 1)
SELECT name FROM t WHERE n IN (SELECT n + 1 FROM few) OR n = (SELECT count(*) FROM few)
SELECT unnest([n, n]) AS u, name FROM t WHERE n % 40000 = 1
SELECT * FROM t WHERE n % 1000000 = 999999
SELECT (SELECT count(*) FROM t AS u WHERE u.n < t.n) AS c, msg FROM t WHERE n % 90000 = 5
SELECT msg FROM t WHERE n % 20000 = 5 UNION ALL SELECT name FROM t WHERE n % 20000 = 6
""".strip().splitlines()


def rows_of(table):
    return sorted(map(repr, table.to_pylist()))


@pytest.mark.parametrize("reader", ["auto", "pages"])
@pytest.mark.parametrize("query", QUERIES)
@pytest.mark.usefixtures("at_once")
def test_answers_are_duckdbs(query, reader, logs, lake):
    with duckdb.connect() as connection:
        connection.register("t", logs)
        connection.register("few", FEW)
        expected = connection.sql(query).to_arrow_table()
    actual = ia.sql(query, t=ia.dataset(lake, reader=reader), few=FEW)
    assert actual.schema.names == expected.schema.names
    assert rows_of(actual) == rows_of(expected)


@pytest.mark.parametrize(
    ("query", "parameters"),
    [
        ("SELECT ?, name FROM t WHERE n % ? = ?", ["a", 50_000, 7]),
        ("SELECT $2, name FROM t WHERE n % $1 = $3", [50_000, "a", 7]),
        ("SELECT $b, name FROM t WHERE n % $a = $C", {"a": 50_000, "b": "a", "C": 7}),
    ],
)
@pytest.mark.usefixtures("at_once")
def test_parameters_of_the_where_are_given(query, parameters, lake):
    assert ia.sql(query, parameters, t=lake).num_rows == 4


def test_a_failing_condition_raises_duckdbs_error(lake):
    with pytest.raises(duckdb.ConversionException, match=r"INT8(.|\n)*WHERE n::TINYINT = 3"):
        ia.sql("SELECT * FROM t WHERE n::TINYINT = 3", t=lake)
    query = "SELECT name FROM t WHERE n::TINYINT = 3 AND n < 100"
    assert ia.sql(query, t=lake).num_rows == 1


@pytest.mark.usefixtures("at_once")
def test_a_random_condition_is_evaluated_once(lake):
    ids = pa.table({"n": range(ROWS)})
    for _ in range(3):
        query = "SELECT count(DISTINCT n) AS c, max(msg) AS m FROM t WHERE n IN (FROM ids {})"
        for some in ("USING SAMPLE 5 ROWS", "SELECT any_value(n) GROUP BY n % 5"):
            (answer,) = ia.sql(query.format(some), t=lake, ids=ids).to_pylist()
            assert answer["c"] == 5
    query = "SELECT count(*) AS c, count(msg) AS m FROM t WHERE random() < 0.01"
    (answer,) = ia.sql(query, t=lake).to_pylist()
    assert 1_000 < answer["c"] == answer["m"] < 2_200
