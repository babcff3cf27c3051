"""Constant expressions are evaluated to the values that DuckDB computes."""

from __future__ import annotations

import contextlib
import datetime as dt
from decimal import Decimal

import duckdb
import pyarrow as pa
import pytest
import sqlglot
from hypothesis import example, given, settings
from hypothesis import strategies as st
from sqlglot import exp

import intarsia as ia
from intarsia.errors import PredicateError
from intarsia.sql.constant_folding import fold_constants
from intarsia.sql.literals import is_constant

NOW = dt.datetime(2026, 3, 31, 13, 14, 15, 161718, tzinfo=dt.UTC)
UNITS = ["microsecond", "millisecond", "second", "minute", "hour", "day", "week", "month"]
UNITS += ["quarter", "year"]
SHORT = ["us", "ms", "s", "sec", "min", "h", "hr", "d", "mon", "y"]


@pytest.fixture(scope="module")
def engine():
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.register("t", TABLE)
        yield connection


def worked_out(text: str) -> str | None:
    """The constant that SQL is evaluated to, as SQL; None if it is not evaluated."""
    tree = sqlglot.parse_one(f"x = {text}", dialect="duckdb", into=exp.Condition)
    actual = fold_constants(tree, lambda: NOW).expression
    is_one = is_constant(actual) and len(list(actual.find_all(exp.Cast))) <= 1
    return actual.sql("duckdb") if is_one and actual != tree.expression else None


def joined(operators: list[str], one: st.SearchStrategy, other: st.SearchStrategy):
    return st.tuples(one, st.sampled_from(operators), other).map("({0[0]} {0[1]} {0[2]})".format)


def called(functions: list[str], of: st.SearchStrategy):
    return st.tuples(st.sampled_from(functions), of).map(lambda pair: pair[0].format(pair[1]))


BIG = [2**31 - 1, 2**31, 2**62, 2**63 - 1, 2**63]
INTEGERS = st.one_of(st.integers(0, 30), st.integers(0, 10**10), st.sampled_from(BIG)).map(str)
DECIMALS = st.decimals(0, 10**7, places=3).map("{:f}".format) | st.sampled_from(
    ["0.1", ".5", "2.", "0.000000000001", "123456789.0123456", "1234567890.123456"]
)
DOUBLES = st.floats(0, 1e6).map("{:e}".format) | st.sampled_from(["1e300", "3e-300", "1e0"])
NUMBERS = st.recursive(
    st.one_of(INTEGERS, DECIMALS, DOUBLES),
    lambda some: (
        joined(["+", "-", "*", "/"], some, some)
        | joined(["//", "%"], INTEGERS, INTEGERS)
        | called(["-({})", "CAST({} AS DOUBLE)", "CAST({} AS BIGINT)"], some)
    ),
    max_leaves=5,
)
SPANS = st.recursive(
    st.one_of(
        st.tuples(st.integers(-40, 40), st.sampled_from(UNITS)).map(
            "INTERVAL '{0[0]} {0[1]}'".format
        ),
        st.tuples(st.integers(0, 40), st.sampled_from(UNITS)).map("INTERVAL {0[0]} {0[1]}s".format),
        st.tuples(st.integers(0, 9), st.sampled_from(UNITS)).map("INTERVAL ({0[0]}) {0[1]}".format),
        st.lists(
            st.tuples(st.integers(-9, 9), st.sampled_from(UNITS + SHORT)), min_size=2, max_size=3
        ).map(
            lambda parts: "INTERVAL '" + " ".join(f"{count} {unit}" for count, unit in parts) + "'"
        ),
    ),
    lambda some: (
        joined(["+", "-"], some, some)
        | joined(["*"], some, st.integers(-3, 3).map("({})".format))
        | called(["(-{})", "(2 * {})"], some)
    ),
    max_leaves=3,
)
DAYS = st.dates(dt.date(1, 1, 1)).map("DATE '{}'".format)
MOMENTS = st.datetimes(dt.datetime(1, 1, 1)).map("TIMESTAMP '{}'".format)
ZONED = st.tuples(
    st.datetimes(dt.datetime(1, 1, 2), dt.datetime(9999, 12, 30)), st.integers(-12, 12)
).map("TIMESTAMPTZ '{0[0]}{0[1]:+03d}:30'".format)
TIMES = st.recursive(
    st.one_of(DAYS, MOMENTS, ZONED, st.just("make_date(2024, 2, 29)"), st.just("to_timestamp(-1)")),
    lambda some: (
        joined(["+", "-"], some, SPANS)
        | joined(["+", "-"], some, st.integers(0, 1000).map(str))
        | called(["({})", "CAST({} AS DATE)", "CAST({} AS TIMESTAMPTZ)"], some)
        | called(["CAST({} AS TIMESTAMP)", "({} AT TIME ZONE 'UTC')"], some)
        | st.tuples(st.sampled_from(UNITS), some).map("date_trunc('{0[0]}', {0[1]})".format)
        | st.tuples(some, SPANS).map("date_add({0[0]}, {0[1]})".format)
    ),
    max_leaves=4,
)
TEXTS = st.recursive(
    st.text("aZ%é' ", max_size=3).map(lambda text: "'" + text.replace("'", "''") + "'"),
    lambda some: joined(["||"], some, some) | called(["lower({})", "upper({})"], some),
    max_leaves=4,
)


@settings(max_examples=500)
@given(st.one_of(NUMBERS, TIMES, TEXTS, joined(["-"], DAYS, DAYS)))
@example("2147483647 + 1")
@example("0.1 + 0.2")
@example("-7 // 2")
@example("-7 % 3")
@example("DATE '2024-01-31' + INTERVAL '1 month -1 day'")
@example("TIMESTAMP '2024-05-31 00:00:00' - INTERVAL 3 months")
@example("((make_date(2024, 2, 29) AT TIME ZONE 'UTC') - INTERVAL '1 microsecond 1 year')")
def test_constants_equal_duckdbs(engine, text):
    actual = worked_out(text)
    if actual is not None:
        assert engine.execute(f"SELECT {text} = {actual}").fetchall() == [(True,)], actual


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("2 + 3 * 4", "14"),
        ("(2 - 5) // 2", "-1"),
        ("-(3)", "-3"),
        ("7 / 2", "CAST('3.5' AS DOUBLE)"),
        ("CAST('12' AS BIGINT) + CAST(-2 AS INTEGER)", "10"),
        ("CAST(-128 AS TINYINT)", "-128"),
        ("CAST('255' AS UTINYINT)", "255"),
        ("CAST('1.5' AS DECIMAL(5, 2))", "1.50"),
        ("CAST('-1.5' AS DECIMAL(4, 1))", "-1.5"),
        ("CAST(2 AS DECIMAL(10))", "2"),
        ("CAST(1.5 AS DECIMAL)", "1.500"),
        ("CAST(0.5 AS DOUBLE)", "CAST('0.5' AS DOUBLE)"),
        ("'a'::VARCHAR", "'a'"),
        ("0.1 + 0.2", "0.3"),
        ("DATE '2024-01-05' - DATE '2024-01-01'", "4"),
        ("today() - 7", "CAST('2026-03-24' AS DATE)"),
        ("CAST(now() AS DATE)", "CAST('2026-03-31' AS DATE)"),
        ("now()", "CAST('2026-03-31 13:14:15.161718+00:00' AS TIMESTAMPTZ)"),
        (
            "current_timestamp - INTERVAL 1 HOUR",
            "CAST('2026-03-31 12:14:15.161718+00:00' AS TIMESTAMPTZ)",
        ),
        (
            "localtimestamp + INTERVAL '1 day 2 h'",
            "CAST('2026-04-01 15:14:15.161718' AS TIMESTAMP)",
        ),
        ("current_date - INTERVAL '1' MONTH", "CAST('2026-02-28 00:00:00' AS TIMESTAMP)"),
        ("date_trunc('quarter', now())", "CAST('2026-01-01 00:00:00+00:00' AS TIMESTAMPTZ)"),
        ("date_trunc('week', DATE '2024-01-07')", "CAST('2024-01-01 00:00:00' AS TIMESTAMP)"),
        ("now() AT TIME ZONE 'UTC'", "CAST('2026-03-31 13:14:15.161718' AS TIMESTAMP)"),
        ("to_timestamp(1700000000)", "CAST('2023-11-14 22:13:20+00:00' AS TIMESTAMPTZ)"),
        ("epoch_ms(1700000000123)", "CAST('2023-11-14 22:13:20.123000' AS TIMESTAMP)"),
        ("'2024-01-01 12:00'::TIMESTAMP::DATE", "CAST('2024-01-01' AS DATE)"),
        ("'%' || lower('ABC') || '%'", "'%abc%'"),
    ],
)
def test_these_constants_are_evaluated(text, wanted):
    assert worked_out(text) == wanted


@pytest.mark.parametrize(
    "text",
    [
        *("y + 1", "2147483647 + 1", "9223372036854775807 + 1", "1 / 0", "1 // 0", "1 % 0"),
        *("1e300 * 1e300", "12345678.12345678 * 12345678.12345678", "1 || 'a'", "lower('É')"),
        *("CAST(128 AS TINYINT)", "CAST(70000 AS SMALLINT)", "CAST(-1 AS UTINYINT)"),
        *("100::TINYINT + 100::TINYINT", "CAST(1.4 AS DECIMAL(10))", "CAST(0.0005 AS DECIMAL)"),
        *("CAST(12.5 AS DECIMAL(2, 1))", "CAST('a' AS DECIMAL(4, 1))"),
        *("now() - INTERVAL '1 year 1 hour'", "TIMESTAMPTZ '2024-01-31' + INTERVAL '1 month 1 us'"),
        *("now() - 1", "INTERVAL 1.5 HOUR + DATE '2024-01-01'", "DATE '9999-12-31' + 1"),
        *("DATE '2024-01-01' + INTERVAL '1 fortnight'", "date_trunc('decade', DATE '2024-01-01')"),
        *("now() AT TIME ZONE 'Europe/Lisbon'", "random()", "current_date('Asia/Tokyo')"),
        "TIMESTAMP '2024-01-01 00:00:00.123456789' + INTERVAL 1 DAY",
        *("DATE '2024-01-01' + INTERVAL 12000 YEARS", "now(1)"),
        *("CAST(TIMESTAMP '2024-01-01 00:00:00.4' AS TIMESTAMP(0))", "make_date(19733)"),
        *("make_date(2024, 1)", "DATE '2024-01-01' + INTERVAL (9007199254740993) MICROSECONDS"),
        "DATE '2024-01-01' + INTERVAL '9007199254740993' MICROSECONDS",
    ],
)
def test_uncertain_constants_are_not_evaluated(text):
    assert worked_out(text) is None


def test_an_unknown_current_time_is_not_evaluated():
    tree = sqlglot.parse_one("x = now()", dialect="duckdb", into=exp.Condition)
    assert fold_constants(tree, None) == tree


def test_the_current_time_is_read_once():
    asked = []

    def now() -> dt.datetime:
        asked.append(NOW)
        return NOW

    tree = sqlglot.parse_one("x > now() - INTERVAL 1 DAY AND x < now() AND y = current_date")
    assert not fold_constants(tree, now).find(exp.Anonymous, exp.CurrentDate)
    assert len(asked) == 1


START = dt.datetime(2024, 2, 28, 12)
HOURS = [START + dt.timedelta(hours=7 * n) for n in range(24)]
TABLE = pa.table(
    {
        "row": range(24),
        "i": pa.array([*range(-5, 18), None]),
        "i8": pa.array([*range(-5, 18), None], pa.int8()),
        "u": pa.array([*range(23), None], pa.uint64()),
        "d": pa.array([*(n / 4 for n in range(-5, 18)), None]),
        "f": pa.array([*(n / 4 for n in range(-5, 18)), None], pa.float32()),
        "dec": pa.array([Decimal(n) / 4 for n in range(24)], pa.decimal128(9, 2)),
        "s": pa.array(["", "a", "AZ", "a%", "é", None] * 4),
        "day": pa.array([*(hour.date() for hour in HOURS[1:]), None]),
        "ts": pa.array([*HOURS[1:], None], pa.timestamp("us")),
        "ms": pa.array([*HOURS[1:], None], pa.timestamp("ms")),
        "tz": pa.array([*HOURS[1:], None], pa.timestamp("us", "UTC")),
        "paris": pa.array([*HOURS[1:], None], pa.timestamp("us", "Europe/Paris")),
    }
)
NEAR = st.recursive(
    st.sampled_from(
        [
            *("DATE '2024-02-29'", "TIMESTAMP '2024-03-01 05:00:00'", "make_date(2024, 3, 1)"),
            *("TIMESTAMPTZ '2024-03-02 01:30:00+01:30'", "to_timestamp(1709200000)"),
        ]
    ),
    lambda some: (
        joined(["+", "-"], some, SPANS | st.integers(0, 2).map(str))
        | called(["CAST({} AS DATE)", "CAST({} AS TIMESTAMPTZ)", "date_trunc('day', {})"], some)
    ),
    max_leaves=3,
)
SMALL = st.recursive(
    st.sampled_from(["0", "1", "2", "7", "0.5", "1.25", "1e0", "'2'"]),
    lambda some: joined(["+", "-", "*", "/"], some, some) | joined(["//", "%"], some, some),
    max_leaves=4,
)
NAMES = {"number": ["i", "i8", "u", "d", "f", "dec"], "time": ["day", "ts", "ms", "tz", "paris"]}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    path = tmp_path_factory.mktemp("constants") / "t.parquet"
    ia.write_table(TABLE, path, max_rows_per_page=2, write_batch_size=2)
    return ia.dataset(path)


def checked_rows(engine, data, where):
    """The rows that DuckDB and ``ia.sql`` find; None if both raise the same error."""
    query = f"SELECT row FROM t WHERE {where} ORDER BY row"
    try:
        expected = [row for (row,) in engine.execute(query).fetchall()]
    except duckdb.Error as error:
        with pytest.raises(type(error)):
            ia.sql(query, t=data)
        return None
    assert ia.sql(query, t=data)["row"].to_pylist() == expected
    return expected


@settings(max_examples=200, deadline=None)
@given(
    st.one_of(
        st.tuples(st.sampled_from(NAMES["number"]), SMALL),
        st.tuples(st.sampled_from(NAMES["time"]), NEAR),
        st.tuples(st.sampled_from(["s", "lower(s)"]), TEXTS),
    ),
    st.sampled_from(
        [
            *("{0} = {1}", "{0} < {1}", "{1} <= {0}", "{0} <> {1}", "{0} NOT IN ({1})"),
            "NOT ({0} BETWEEN {1} AND {1})",
        ]
    ),
)
def test_columns_compare_with_constants_as_in_duckdb(engine, data, pair, comparison):
    where = comparison.format(*pair)
    expected = checked_rows(engine, data, where)
    if expected is None:
        return
    with contextlib.suppress(PredicateError):
        assert data.to_table(["row"], filter=where)["row"].to_pylist() == expected


@pytest.mark.parametrize(
    "where",
    [
        "ts < TIMESTAMP '2024-03-01' + INTERVAL '1 day 02:03:04'",
        "ts > TIMESTAMP '2024-03-02' + INTERVAL '1 day ago'",
        "ts < TIMESTAMP '2024-02-28' + INTERVAL '02:03:04 1 day'",
        "ts < TIMESTAMP '2024-02-28' + INTERVAL '1,000 days'",
        "ts < TIMESTAMP '2024-02-28' + INTERVAL '- 1 day'",
        "ts < TIMESTAMP '2024-02-28' + INTERVAL '.5 days'",
        "ts < TIMESTAMP '2024-02-28' + INTERVAL 'P1D'",
        "ts <= (TIMESTAMP '2024-02-29 04:59:59.9999')::TIMESTAMP(3)",
        "ts = CAST('2024-02-29 05:00:00.4' AS TIMESTAMP(0))",
        "day = make_date(19782)",
        "day > make_date(2024, 1)",
        "tz >= DATE '2024-02-29 10:00'",
        "paris IN (DATE '2024-03-01 10:00')",
        "tz < CAST('2024-03-01 10:00' AS DATE)",
        "ts = TIMESTAMP '2024-03-01' - INTERVAL (9007199254740993) MICROSECONDS "
        "+ INTERVAL (9007199254740992) MICROSECONDS",
        "i = CAST(7.5 AS INT)",
        "i < CAST(3000000000 AS INT)",
        "i < CAST(1e10 AS INT)",
    ],
)
def test_constants_that_sqlglot_misreads_are_left_to_duckdb_or_refused(engine, data, where):
    """sqlglot drops parts of INTERVALs; casts round, and truncate the time."""
    checked_rows(engine, data, where)
    with pytest.raises(PredicateError):
        data.to_table(["row"], filter=where)


def test_one_unusual_interval_leaves_the_others_to_duckdb(engine, data):
    odd, plain = "ts > DATE '2024-03-01' + INTERVAL '1 day ago'", "day < DATE '2024-03-04'"
    query = f"SELECT row FROM t WHERE {odd} AND {plain} - INTERVAL 1 DAY AND i > 2 ORDER BY row"
    expected = [row for (row,) in engine.execute(query).fetchall()]
    assert 0 < len(expected) < 20
    assert ia.sql(query, t=data)["row"].to_pylist() == expected
