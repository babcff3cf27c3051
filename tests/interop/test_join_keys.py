"""The join keys of one table filter the scan of the other, and no row of the answer is lost."""

from __future__ import annotations

import datetime
import itertools
from decimal import Decimal

import duckdb
import numpy as np
import pandas
import polars
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import intarsia as ia
from intarsia.engines.duckdb import join_keys
from intarsia.sql.query.scans import scans_of

ROWS = 2_000
MOMENT = datetime.datetime(2026, 1, 1)


def logs_of(numbers: list[int | None]) -> pa.Table:
    """Columns of many types that hold one distinct value for each of ``numbers``."""
    return pa.table(
        {
            "row": range(len(numbers)),
            "n": pa.array(numbers, pa.int64()),
            "small": pa.array(numbers, pa.int16()),
            "u": pa.array(numbers, pa.uint64()),
            "s": [None if n is None else f"k{n}" for n in numbers],
            "d": pa.array(
                [None if n is None else Decimal(n) for n in numbers], pa.decimal128(9, 2)
            ),
            "day": pa.array(numbers, pa.int32()).cast(pa.date32()),
            "ts": [None if n is None else MOMENT + datetime.timedelta(hours=n) for n in numbers],
            "x": pa.array(numbers, pa.float64()),
            "bytes": [None if n is None else str(n).encode() for n in numbers],
        }
    )


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> ia.Dataset:
    """Every number occurs twice: once in order, once in random order."""
    numbers = np.arange(ROWS) // 2
    shuffled = np.random.default_rng(1).permutation(numbers)
    table = logs_of([int(n) for pair in zip(numbers, shuffled, strict=True) for n in pair])
    path = tmp_path_factory.mktemp("logs") / "logs.parquet"
    ia.write_table(table, path, max_rows_per_page=100, write_batch_size=100)
    return ia.dataset(path)


def filters(query: str, **tables: ia.Dataset | pa.Table) -> dict[str, str | None]:
    """The filter of the first scan of each data set."""
    scans = scans_of(query, {name: table.schema for name, table in tables.items()}).scans
    joined = join_keys.Joined(tables, {scan.name: scan for scan in scans})
    actual = {}
    for scan in scans:
        if isinstance(tables[scan.table], ia.Dataset):
            expected = joined.filter_of(scan)
            actual.setdefault(scan.table, None if expected is None else str(expected))
    return actual


SEEN = pa.table({"k": [7, 7, 1999, None], "kind": ["a", "b", "c", "d"]})
TAKING = {
    "join": "SELECT * FROM logs JOIN seen ON n = k",
    "join turned round": "SELECT * FROM seen JOIN logs ON k = n",
    "using": "SELECT * FROM logs JOIN (SELECT k AS n FROM seen) o USING (n)",
    "where": "SELECT * FROM logs, seen WHERE logs.n = seen.k",
    "left join": "SELECT * FROM seen LEFT JOIN logs ON k = n",
    "right join": "SELECT * FROM logs RIGHT JOIN seen ON k = n",
    "semi join": "SELECT * FROM logs SEMI JOIN seen ON k = n",
    "anti join": "SELECT * FROM seen ANTI JOIN logs ON k = n",
    "in": "SELECT * FROM logs WHERE n IN (SELECT k FROM seen)",
    "in, and more": "SELECT * FROM logs WHERE row > 3 AND n IN (SELECT k FROM seen)",
    "subquery": "SELECT * FROM (SELECT n AS m, s FROM logs) l JOIN seen ON m = k",
    "grouped": "SELECT * FROM (SELECT n, count(*) FROM logs GROUP BY n) l JOIN seen ON n = k",
    "with": "WITH l AS (SELECT n FROM logs), o AS (FROM seen) SELECT * FROM l JOIN o ON n = k",
    "union": "SELECT * FROM (FROM logs UNION ALL FROM logs) l JOIN seen ON n = k",
    "keys of a union": "SELECT * FROM logs WHERE n IN (SELECT k FROM seen UNION FROM (SELECT k "
    "FROM seen))",
    "shorter numbers": "SELECT * FROM logs JOIN seen ON small = k",
    "by way of another": "SELECT * FROM logs a, logs, seen WHERE a.row = logs.n AND a.row = k",
}
LEAVING = {
    "using behind a comma": "SELECT * FROM logs, (SELECT k AS n FROM seen) b JOIN "
    "(SELECT 7 AS n) c USING (n)",
    "a star that merges": "SELECT * FROM logs JOIN (SELECT 1 AS a, 1 AS b, k FROM seen UNION ALL "
    "SELECT * FROM seen JOIN (SELECT k, 7 AS z FROM seen) o USING (k)) u ON n = u.k",
    "a column in parentheses": "SELECT * FROM (SELECT (row), n AS row FROM logs) u "
    "JOIN seen ON u.row = k",
    "a name of another scope": "SELECT row FROM logs JOIN seen ON n = k, (WITH seen AS "
    "(SELECT 3 AS k) SELECT count(*) FROM seen) x",
    "a name that is taken later": "WITH x AS (SELECT k FROM seen), seen AS (SELECT 3 AS k) "
    "SELECT row FROM logs JOIN x ON n = x.k",
    "left join": "SELECT * FROM logs LEFT JOIN seen ON k = n",
    "right join": "SELECT * FROM seen RIGHT JOIN logs ON k = n",
    "full join": "SELECT * FROM logs FULL JOIN seen ON k = n",
    "anti join": "SELECT * FROM logs ANTI JOIN seen ON k = n",
    "not in": "SELECT * FROM logs WHERE n NOT IN (SELECT k FROM seen)",
    "or": "SELECT * FROM logs WHERE row = 3 OR n IN (SELECT k FROM seen)",
    "a join's or": "SELECT * FROM logs JOIN seen ON n = k OR row = 3",
    "computed": "SELECT * FROM logs JOIN seen ON n = k + 1",
    "aggregated": "SELECT * FROM logs JOIN (SELECT sum(k) AS k FROM seen) o ON n = k",
    "limited": "SELECT * FROM (FROM logs ORDER BY row LIMIT 15) l JOIN seen ON n = k",
    "unlike": "SELECT * FROM logs JOIN seen ON x = k",
    "merged": "SELECT * FROM (SELECT k AS n FROM seen) a FULL JOIN (SELECT k AS n FROM seen) b "
    "USING (n) LEFT JOIN logs USING (n)",
}


@pytest.mark.parametrize("query", TAKING.values(), ids=TAKING)
def test_keys_reach_the_scan(logs, query):
    actual = filters(query, logs=logs, seen=SEEN)["logs"]
    assert actual is not None
    assert "is_in" in actual


@pytest.mark.parametrize("query", LEAVING.values(), ids=LEAVING)
def test_keys_do_not_filter_the_preserved_side_of_an_outer_join(logs, query):
    actual = filters(query, logs=logs, seen=SEEN)["logs"]
    assert actual is None


@pytest.mark.parametrize("query", [*TAKING.values(), *LEAVING.values()])
def test_a_join_gives_duckdbs_answer(logs, query):
    with duckdb.connect() as connection:
        connection.register("logs", logs.to_table())
        connection.register("seen", SEEN)
        expected = connection.sql(query).to_arrow_table()
    actual = ia.sql(query, logs=logs, seen=SEEN)
    assert sorted(map(str, actual.to_pylist())) == sorted(map(str, expected.to_pylist()))


@pytest.mark.parametrize("column", ["n", "small", "u", "s", "d", "day", "ts", "bytes"])
def test_keys_are_of_many_types(logs, column):
    few = logs.take([77, 99, 3_000]).select([column]).rename_columns(["key"])
    query = f"SELECT row FROM logs JOIN few ON {column} = key ORDER BY row"
    expected = logs.to_table(["row", column]).filter(pa.compute.field(column).isin(few["key"]))
    for table in (few, few.cast(pa.schema([("key", _larger(few.schema.field(0).type))]))):
        assert "is_in" in (filters(query, logs=logs, few=table)["logs"] or "")
        assert ia.sql(query, logs=logs, few=table)["row"].to_pylist() == expected["row"].to_pylist()


def _larger(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_integer(kind):
        return pa.int64()
    return {pa.string(): pa.large_string()}.get(kind, kind)


def test_keys_come_from_frames(logs):
    query = "SELECT row FROM logs JOIN few ON s = key ORDER BY row"
    expected = ia.sql("SELECT row FROM logs WHERE s IN ('k5', 'k70') ORDER BY row", logs=logs)
    for few in (
        polars.DataFrame({"key": ["k5", "k70"]}),
        pandas.DataFrame({"key": ["k5", "k70"]}),
        pa.table({"key": pa.array(["k5", "k70"], pa.string_view())}),
    ):
        assert "is_in" in (filters(query, logs=logs, few=pa.table(few))["logs"] or "")
        assert ia.sql(query, logs=logs, few=few).equals(expected)


def test_keys_that_the_column_cannot_hold_are_left_out(logs):
    wide = pa.table({"k": [2**40, 5, -(2**40)]})
    assert ia.sql("SELECT s FROM logs JOIN wide ON small = k", logs=logs, wide=wide)[
        "s"
    ].unique().to_pylist() == ["k5"]
    beyond = pa.table({"k": pa.array([2**63, 5], pa.uint64())})
    assert ia.sql("SELECT s FROM logs JOIN beyond ON n = k", logs=logs, beyond=beyond)[
        "s"
    ].unique().to_pylist() == ["k5"]


def test_conditions_on_the_other_side_leave_fewer_keys(logs):
    query = "SELECT * FROM logs JOIN seen ON n = k WHERE kind = 'c'"
    assert "1999" in filters(query, logs=logs, seen=SEEN)["logs"]
    assert "7" not in filters(query, logs=logs, seen=SEEN)["logs"]


def test_keys_of_the_smaller_side_reach_the_other(logs, tmp_path):
    users = pa.table({"id": range(500), "name": [f"name {n}" for n in range(500)]})
    ia.write_table(users, tmp_path / "users.parquet", max_rows_per_page=50, write_batch_size=50)
    query = "SELECT row, name FROM logs JOIN users ON n = id WHERE name LIKE 'name 77%'"
    tables = {"logs": logs, "users": ia.dataset(tmp_path / "users.parquet")}
    actual = filters(query, **tables)
    assert "is_in" in actual["logs"]
    assert "is_in" not in actual["users"]
    assert set(ia.sql(query, **tables)["name"].to_pylist()) == {"name 77"}
    actual = filters(f"{query} AND row = 5", **tables)
    assert "is_in" not in actual["logs"]


def test_errors_while_reading_keys_are_left_to_the_query(logs, tmp_path):
    path = tmp_path / "seen.parquet"
    ia.write_table(SEEN, path)
    seen = ia.dataset(path)
    query = "SELECT row FROM logs JOIN seen ON n = k"
    assert ia.sql(query, logs=logs, seen=seen).num_rows > 0
    path.unlink()
    with pytest.raises(ia.PathError, match=r"seen\.parquet: there is no such file"):
        ia.sql(query, logs=logs, seen=seen)
    unread = seen.with_options(reader="pages")
    assert ia.sql(f"{query} LIMIT 0", logs=logs, seen=unread).num_rows == 0


def test_queries_that_grow_exponentially_are_planned_quickly(logs):
    parts = [f"c{n} AS (SELECT k FROM c{n - 1} UNION SELECT k FROM c{n - 1})" for n in range(1, 40)]
    query = (
        f"WITH c0 AS (SELECT k FROM seen), {', '.join(parts)} SELECT * FROM logs JOIN c39 ON n = k"
    )
    assert "is_in" in filters(query, logs=logs, seen=SEEN)["logs"]


def test_conditions_that_grow_exponentially_are_planned_quickly(logs):
    """Each step has two conditions on the step before, so conditions on the first grow
    exponentially.
    """
    each = "SELECT * FROM c{0} WHERE n > {1} UNION ALL SELECT * FROM c{0} WHERE n < {1}"
    parts = [f"c{n} AS ({each.format(n - 1, n)})" for n in range(1, 40)]
    query = f"WITH c0 AS (SELECT n FROM logs), {', '.join(parts)} SELECT * FROM c39"
    assert len(filters(query, logs=logs)["logs"]) < 50_000
    few = filters(query.replace("c39", "c2"), logs=logs)["logs"]
    assert few == "(((n > 1) and ((n > 2) or (n < 2))) or ((n < 1) and ((n > 2) or (n < 2))))"


def test_long_lists_do_not_count_as_exponential_growth(logs):
    one, other = (", ".join(map(str, range(start, start + 600))) for start in (0, 900))
    query = f"""
        WITH a AS (SELECT n FROM logs),
        b AS (SELECT * FROM a WHERE n > 3 UNION ALL SELECT * FROM a WHERE n < 3)
        SELECT * FROM b WHERE n IN ({one}) UNION ALL SELECT * FROM b WHERE n IN ({other})
    """
    actual = filters(query, logs=logs)["logs"]
    assert actual.count("is_in") == 4
    assert "n > 3" in actual


def test_an_unused_common_table_expression_is_ignored(logs):
    query = "WITH c AS (SELECT n FROM logs) SELECT count(*) FROM logs WHERE row < 3"
    assert ia.sql(query, logs=logs).to_pydict() == {"count_star()": [3]}


def test_too_many_keys_are_not_looked_up(logs, monkeypatch):
    query = "SELECT * FROM logs JOIN seen ON n = k"
    monkeypatch.setattr(join_keys, "_MAX_KEYS", 1)
    assert filters(query, logs=logs, seen=SEEN) == {"logs": None}
    monkeypatch.undo()
    monkeypatch.setattr(join_keys, "_MAX_ROWS", 3)
    assert filters(query, logs=logs, seen=SEEN) == {"logs": None}
    monkeypatch.undo()
    monkeypatch.setattr(join_keys, "_MAX_KEY_BYTES", 8)
    assert filters(query, logs=logs, seen=SEEN) == {"logs": None}


def test_each_of_many_scans_is_planned_once(logs, monkeypatch):
    planned, count = [], join_keys.count_candidates
    monkeypatch.setattr(
        join_keys, "count_candidates", lambda *args: planned.append(args) or count(*args)
    )
    joins = "".join(f" JOIN logs l{at} ON l{at}.n = l0.n" for at in range(1, 6))
    assert "is_in" in filters(f"SELECT * FROM logs l0{joins} WHERE l5.row < 3", logs=logs)["logs"]
    assert len(planned) == 6


def test_a_join_with_few_keys_reads_only_their_pages(logs):
    ((plan),) = [logs.plan(None, pa.compute.field("row").isin([14, 15]))]
    few = pa.table({"k": [14, 15]})
    scans = scans_of(
        "SELECT * FROM logs JOIN few ON row = k", {"logs": logs.schema, "few": few.schema}
    ).scans
    joined = join_keys.Joined({"logs": logs, "few": few}, {scan.name: scan for scan in scans})
    left = logs.plan(None, joined.filter_of(scans[0]))
    assert left.figures.rows == plan.figures.rows
    assert left.figures.rows.selected == 100


# --- any join ------------------------------------------------------------------------------------

NUMBERS = st.lists(st.none() | st.integers(0, 6), max_size=12)
COLUMNS = ["n", "small", "u", "s", "d", "day", "ts", "x", "bytes"]
JOINS = ["JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "SEMI JOIN", "ANTI JOIN"]
SIDES = [
    "{t}",
    "(SELECT * FROM {t} WHERE row > 1)",
    "(SELECT DISTINCT * FROM {t})",
    "(SELECT * FROM {t} UNION ALL SELECT * FROM {t})",
    "(SELECT * FROM {t} EXCEPT SELECT * FROM {t} WHERE row = 2)",
    "(SELECT any_value(row) AS row, {c} FROM {t} GROUP BY {c})",
    "(SELECT a.* FROM {t} a LEFT JOIN b ON a.{c} = b.{c})",
    "(SELECT b.* FROM {t} a RIGHT JOIN b ON a.{c} = b.{c})",
    "(SELECT b.* FROM {t} a FULL JOIN b ON a.{c} = b.{c})",
]
SHAPES = [
    "SELECT * FROM {left} l {join} {right} r ON l.{c} = r.{c}",
    "SELECT * FROM {left} l {join} {right} r ON l.{c} = r.{c} AND l.row > 2",
    "SELECT {c} FROM {left} l {join} {right} r USING ({c})",
    "SELECT * FROM {left} l {join} {right} r ON r.{c} = l.{c} WHERE l.{c} IS NOT NULL",
    "SELECT * FROM {left} l WHERE l.{c} IN (SELECT {c} FROM {right} r)",
    "SELECT * FROM {left} l WHERE l.{c} NOT IN (SELECT {c} FROM {right} r WHERE {c} IS NOT NULL)",
    "SELECT * FROM {left} l, {right} r WHERE l.{c} = r.{c} AND (r.row = 2 OR l.row < 5)",
    "SELECT {c} FROM a {join} {left} l USING ({c}) {other} {right} r USING ({c})",
    "SELECT * FROM a {other} {left} l ON a.{c} = l.{c} {join} {right} r ON r.{c} = l.{c}",
    "SELECT * FROM a {other} {left} l ON a.{c} = l.{c} {join} {right} r ON r.{c} = a.{c}",
    "WITH r AS (FROM {right}) SELECT l.* FROM {left} l {join} r ON l.{c} = r.{c} "
    "WHERE l.{c} IN (SELECT {c} FROM r)",
    "SELECT l.{c}, count(*) FROM {left} l {join} {right} r ON l.{c} = r.{c} GROUP BY l.{c}",
]


@settings(
    max_examples=400, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    shape=st.sampled_from(SHAPES),
    sides=st.tuples(st.sampled_from(SIDES), st.sampled_from(SIDES)),
    names=st.sampled_from([*itertools.permutations("abm", 2), ("a", "a")]),
    joins=st.tuples(st.sampled_from(JOINS), st.sampled_from(JOINS)),
    column=st.sampled_from(COLUMNS),
    numbers=st.tuples(NUMBERS, NUMBERS, NUMBERS),
)
def test_any_join_gives_duckdbs_answer(
    shape, sides, names, joins, column, numbers, tmp_path, monkeypatch
):
    """Joins two data sets, ``a`` and ``b``, and a table in memory."""
    memory = dict(zip("abm", map(logs_of, numbers), strict=True))
    tables = {"m": memory["m"]}
    for name in "ab":
        ia.write_table(memory[name], tmp_path / f"{name}.parquet", max_rows_per_page=2)
        tables[name] = ia.dataset(tmp_path / f"{name}.parquet")
    left, right = (side.format(t=name, c=column) for side, name in zip(sides, names, strict=True))
    query = shape.format(left=left, right=right, join=joins[0], other=joins[1], c=column)
    with duckdb.connect() as connection:
        for name, table in memory.items():
            connection.register(name, table)
        try:
            expected = connection.sql(query).to_arrow_table()
        except duckdb.Error as error:
            with pytest.raises(type(error)):
                ia.sql(query, **tables)
            return
    actual = ia.sql(query, **tables)
    assert sorted(map(str, actual.to_pylist())) == sorted(map(str, expected.to_pylist()))
