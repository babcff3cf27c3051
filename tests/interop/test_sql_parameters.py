"""Parameters ``?``, ``$1`` and ``$name``: DuckDB's answers, with pages skipped."""

from __future__ import annotations

import datetime
import itertools
from decimal import Decimal

import duckdb
import polars
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import intarsia as ia
from intarsia.sql.query.scans import scans_of

UTC = datetime.UTC
MOMENT = datetime.datetime(2026, 1, 1)
DOUBLES = [0.0, -0.0, 0.1, float("nan"), None, 2.0, -1.5, 300.0]
TABLE = pa.table(
    {
        "row": range(8),
        "i": pa.array([0, 1, 2, None, 2, -1, 300, 5], pa.int64()),
        "i8": pa.array([0, 1, 2, None, 2, -1, 100, 5], pa.int8()),
        "u": pa.array([0, 1, 2, None, 2, 2**63, 300, 5], pa.uint64()),
        "f": pa.array(DOUBLES, pa.float32()),
        "d": pa.array(DOUBLES, pa.float64()),
        "dec": pa.array([None if x is None or x != x else Decimal(str(x)) for x in DOUBLES]),
        "b": [True, False, None, True, False, None, True, False],
        "s": ["0", "1", "2", None, "x", "", "a%", "été"],
        "day": pa.array([0, 1, 2, None, 2, -1, 300, 20454], pa.int32()).cast(pa.date32()),
        "ts": [None, *(MOMENT + datetime.timedelta(hours=n) for n in range(7))],
        "tz": pa.array(
            [None, *(MOMENT + datetime.timedelta(hours=n) for n in range(7))],
            pa.timestamp("ms", "UTC"),
        ),
    }
)
COLUMNS = [name for name in TABLE.column_names if name != "row"]
SCALARS = [
    *(None, True, False, 0, 1, 2, -1, 300, 2**63, 2**70, 0.0, -0.0, 0.1, 0.5, 2.0, -1.5),
    *(float("nan"), float("inf"), Decimal("0.1"), Decimal("-1.50"), Decimal("2"), Decimal("NaN")),
    *("", "0", "2", "x", "a%", "é", "2026-01-01", "2026-01-01 02:00:00+01:00", "1e0", b"x"),
    *(MOMENT, MOMENT.replace(tzinfo=UTC), MOMENT.date(), datetime.date(1, 1, 1)),
    MOMENT.replace(hour=2, tzinfo=datetime.timezone(datetime.timedelta(hours=1))),
    *(MOMENT.replace(microsecond=1), datetime.time(1), datetime.timedelta(1)),
]
CONDITIONS = [
    *(f"{{c}} {op} ?" for op in ("=", "<>", "<", "<=", ">", ">=", "IS DISTINCT FROM")),
    *("? < {c}", "NOT ({c} = ?)", "{c} IN (1, ?)", "{c} NOT IN (?)", "({c}) = (?)"),
    *("{c} LIKE ?", "starts_with({c}, ?)", "lower({c}) = ?", "coalesce({c} = ?, TRUE)"),
    *("{c} BETWEEN 1 AND ?", "{c} = ?::DOUBLE", "{c} > ?::DATE", "{c} = -?", "{c} IS ?"),
    *("{c} IN ?", "{c} NOT IN ?", "NOT ({c} IN ?)", "{c} = ANY(?)", "{c} = CAST(? AS VARCHAR)"),
]
QUERIES = [
    "SELECT row FROM t WHERE {}",
    "SELECT row FROM t WHERE NOT ({})",
    "SELECT row FROM t WHERE row < 3 OR {}",
    "SELECT * FROM (SELECT {c}, count(*) FROM t GROUP BY {c}) WHERE {}",
]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> ia.Dataset:
    path = tmp_path_factory.mktemp("data") / "t.parquet"
    ia.write_table(TABLE, path, max_rows_per_page=2, write_batch_size=2)
    return ia.dataset(path)


def answer_of(query: str, parameters: object) -> list[str] | None:
    """DuckDB's answer over the table in memory; None if it raises an error."""
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.register("t", TABLE)
        try:
            return sorted(map(repr, connection.sql(query, params=parameters).fetchall()))
        except duckdb.Error:
            return None


def rows_of(table: pa.Table) -> list[str]:
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.register("answer", table)
        return sorted(map(repr, connection.sql("FROM answer").fetchall()))


def filter_of(query: str, parameters: object) -> pc.Expression | None:
    (scan,) = scans_of(query, {"t": TABLE.schema}, parameters=parameters).scans
    return scan.filter


values = st.sampled_from(SCALARS)


@settings(max_examples=500, deadline=None)
@given(
    query=st.sampled_from(QUERIES),
    condition=st.sampled_from(CONDITIONS),
    column=st.sampled_from(COLUMNS),
    value=values | st.lists(values, max_size=3) | st.tuples(values),
)
@example(QUERIES[0], "{c} > ?", "f", 0.1)
@example(QUERIES[1], "{c} IN ?", "i", [1, None])
@example(QUERIES[0], "{c} <> ?", "dec", Decimal("2." + "0" * 30 + "1"))
@example(QUERIES[3], "{c} = ?", "i", 2)
def test_any_value_gives_duckdbs_answer(data, query, condition, column, value):
    sql = query.format(condition, c=column).format(c=column)
    expected = answer_of(sql, [value])
    if expected is not None:
        assert rows_of(ia.sql(sql, [value], t=data)) == expected


@pytest.mark.parametrize(
    ("condition", "value"),
    [
        ("i = ?", 2),
        ("i = $1", -1),
        ("? <= u", 2**63),
        ("d > ?", 0.1),
        ("dec = ?", Decimal("-1.50")),
        ("b = ?", True),
        ("s = ?", "x"),
        ("s LIKE ?", "a%"),
        ("starts_with(s, ?)", "é"),
        ("day = ?", MOMENT.date()),
        ("ts < ?", MOMENT),
        ("tz < ?", MOMENT.replace(tzinfo=UTC)),
        ("i IN ?", [1, 2]),
        ("s IN (?)", "x"),
    ],
)
def test_values_reach_the_scan(condition, value):
    assert filter_of(f"SELECT * FROM t WHERE {condition}", [value]) is not None
    assert filter_of(f"SELECT * FROM t WHERE {condition}", []) is None


def test_values_come_in_the_order_of_the_text(data):
    query = "FROM t SELECT row + ? AS sum, '?' AS mark WHERE i = ? AND s <> ? -- ?"
    assert ia.sql(query, [10, 2, "x"], t=data).to_pydict() == {"sum": [12], "mark": ["?"]}
    assert str(filter_of(query, [10, 2, "x"])) == '((i == 2) and (s != "x"))'


def test_parameter_names_are_case_insensitive(data):
    query = "SELECT row FROM t WHERE i = $Low OR i = $high ORDER BY row"
    actual = ia.sql(query, {"low": 1, "HIGH": 300}, t=data)
    assert actual.to_pydict() == {"row": [1, 6]}
    assert "300" in str(filter_of(query, {"low": 1, "HIGH": 300}))


@pytest.mark.parametrize(
    ("condition", "values"),
    [("i IN (?,?)", [1, 2]), ("i BETWEEN?AND?", [1, 2]), ("s LIKE?OR?<i", ["a%", 1])],
)
def test_parameters_may_be_adjacent_to_other_tokens(condition, values, tmp_path):
    table = pa.table({"i": [1, 2, 3, 4], "s": ["a", "b", "ab", None]})
    ia.write_table(table, tmp_path / "a.parquet")
    actual = ia.sql(f"SELECT i FROM t WHERE {condition}", values, t=tmp_path)
    expected = duckdb.sql(f'SELECT i FROM "table" WHERE {condition}', params=values)
    assert actual.to_pylist() == expected.to_arrow_table().to_pylist()
    assert filter_of_table(condition, values, table) is not None


def filter_of_table(condition: str, values: object, table: pa.Table) -> pc.Expression | None:
    query = f"SELECT i FROM t WHERE {condition}"
    (scan,) = scans_of(query, {"t": table.schema}, parameters=values).scans
    return scan.filter


def test_string_values_are_not_parsed_as_sql(data):
    assert ia.sql("SELECT row FROM t WHERE s = ?", ["x' OR TRUE --"], t=data).num_rows == 0


def test_an_explained_query_has_values_too(data):
    actual = ia.sql("EXPLAIN SELECT row FROM t WHERE i = ?", [2], t=data)
    assert actual.num_rows > 0


@pytest.mark.parametrize(
    ("query", "parameters"),
    [
        ("SELECT ?", []),
        ("SELECT * FROM t WHERE i = ?", [1, 2]),
        ("SELECT * FROM t WHERE i = ? AND row = $x", {"x": 1}),
        ("SELECT * FROM t WHERE i = $x", {"y": 1}),
        ("SELECT * FROM t WHERE i = ?", [object()]),
    ],
)
def test_invalid_parameters_raise_duckdbs_error(data, query, parameters):
    with pytest.raises(duckdb.Error):
        ia.sql(query, parameters, t=data)


def test_tables_may_have_any_name(data):
    actual = ia.sql("SELECT count(*) AS n FROM query, parameters", query=data, parameters=data)
    assert actual.to_pydict() == {"n": [64]}


def test_lazy_frames_and_pyarrows_data_sets_are_tables(data, tmp_path):
    users = {"k": [2, 2, 3], "name": ["a", "b", "c"]}
    pq.write_table(pa.table(users), tmp_path / "users.parquet")
    lazy = polars.LazyFrame(users)
    arrows = pads.dataset(tmp_path / "users.parquet")
    sides = [("k", lazy), ("k", arrows), ("i", data)]
    for (mine, one), (theirs, other) in itertools.permutations(sides, 2):
        query = f"SELECT count(*) AS n FROM one JOIN other ON one.{mine} = other.{theirs}"
        expected = 4 if "i" in (mine, theirs) else 5
        assert ia.sql(query, one=one, other=other).to_pydict() == {"n": [expected]}
    with pytest.raises(TypeError, match="int is no data set, path, lazy frame"):
        ia.sql("SELECT 1", one=1)
