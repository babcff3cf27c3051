"""Conditions on the day, month or year of timestamps become ranges with the same answer."""

from __future__ import annotations

import datetime as dt

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

import intarsia as ia
from intarsia.errors import PredicateError
from intarsia.expr.date_ranges import has_periods, periods_as_ranges
from intarsia.expr.tree import read_expression, to_expression
from intarsia.sql.where_clause import parse_where

DAYS = ["day", "week", "month", "quarter", "year"]
TIMES = ["microsecond", "millisecond", "second", "minute", "hour"]
NUMBERS = ["year", "quarter", "month", "week", "day", "hour", "minute", "second"]
NUMBERS += ["dayofmonth", "dayofweek", "dow", "isodow", "dayofyear", "doy"]
COMPARISONS = ["=", "<>", "<", "<=", ">", ">="]
EDGES = [
    dt.datetime(1969, 12, 31, 23, 59, 59, 999999),
    dt.datetime(1970, 1, 1),
    dt.datetime(2023, 12, 31, 23, 59, 59, 999999),
    dt.datetime(2024, 1, 1),
    dt.datetime(2024, 1, 1, 0, 0, 0, 1),
    dt.datetime(2024, 2, 29, 12),
    dt.datetime(2024, 3, 31, 23, 59, 59),
    dt.datetime(2024, 4, 1),
]
MOMENTS = st.datetimes(dt.datetime(1700, 1, 1), dt.datetime(2250, 1, 1)) | st.sampled_from(EDGES)
NEAR = st.builds(
    lambda edge, days, micros: edge + dt.timedelta(days=days, microseconds=micros),
    st.sampled_from(EDGES),
    st.integers(-40, 40),
    st.sampled_from([0, 0, 1, -1, 10**6, 3_600_000_000]),
)
SOME = st.lists(st.none() | MOMENTS | NEAR, min_size=1, max_size=40)


def columns(moments: list[dt.datetime | None]) -> pa.Table:
    """The same timestamps in several types, and within a struct."""
    us = pa.array(moments, pa.timestamp("us"))
    actual = {unit: us.cast(pa.timestamp(unit), safe=False) for unit in ("s", "ms", "us", "ns")}
    actual["z"] = us.cast(pa.timestamp("us", "UTC"))
    actual["b"] = us.cast(pa.timestamp("ms", "Europe/Berlin"), safe=False)
    actual["d"] = us.cast(pa.date32())
    mask = pc.is_null(us)
    actual["st"] = pa.StructArray.from_arrays([us], ["a"], mask=mask)
    return pa.table(actual)


@st.composite
def asked(draw) -> tuple[pc.Expression, bool]:
    """A comparison of a part of a field, and whether it must become a range."""
    name = draw(st.sampled_from(["s", "ms", "us", "ns", "z", "b", "d", "st"]))
    field = pc.field("st", "a") if name == "st" else pc.field(name)
    field = field.cast(pa.timestamp("ms", "UTC")) if name == "b" else field
    kind = draw(st.sampled_from(["cast", "year", *DAYS, *([] if name == "d" else TIMES)]))
    moment = draw(NEAR | MOMENTS)
    zone = "UTC" if name in ("z", "b") else None
    constant = pa.scalar(moment, pa.timestamp("us", zone))
    if kind == "cast":
        subject = field.cast(pa.date32())
        constant = pa.scalar(moment, pa.timestamp("us"))
        constant = draw(st.sampled_from([pa.scalar(moment.date()), constant]))
    elif kind == "year":
        subject, constant = pc.year(field), pa.scalar(draw(st.integers(1969, 2025)))
    else:
        subject = pc.floor_temporal(field, unit=kind)
        if draw(st.booleans()):
            start = pc.floor_temporal(constant, unit=kind)
            constant = start if name != "d" else start.cast(pa.date32())
    is_sure = kind in ("cast", "year", *DAYS) and name not in ("ns", "d")
    if draw(st.integers(0, 5)) == 0:
        is_sure = is_sure and name not in ("ms", "s", "b")  # has members of another type
        members = pa.array([constant, constant], constant.type)
        assume(members.type == {"cast": pa.date32(), "year": pa.int64()}.get(kind, members.type))
        actual = subject.isin(members)
    else:
        sides = [subject, pc.scalar(constant)]
        compare = draw(st.sampled_from(["equal", "not_equal", "less", "less_equal"]))
        compare = draw(st.sampled_from([compare, "greater", "greater_equal"]))
        actual = pc.Expression._call(compare, sides[:: draw(st.sampled_from([1, -1]))])
    return actual, is_sure


def values(expression: pc.Expression, table: pa.Table) -> list[bool | None]:
    given = pa.dataset.dataset(table).to_table(columns={"found": expression})
    return given.column("found").to_pylist()


@given(SOME, asked())
def test_ranges_are_true_false_and_null_like_the_original_condition(moments, question):
    expression, is_sure = question
    table = columns(moments)
    node = read_expression(expression)
    tree = periods_as_ranges(node, table.schema)
    plain = to_expression(tree)
    try:
        expected = values(expression, table)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        assume(False)
    assert values(plain, table) == expected
    assert values(~plain, table) == values(~expression, table)
    if is_sure:
        assert not has_periods(tree, table.schema)


def test_parts_of_a_filter_are_replaced_and_others_are_kept():
    table = columns([dt.datetime(2024, 5, 6), None, dt.datetime(2023, 1, 1)])
    day = pc.floor_temporal(pc.field("us"), unit="day") == pa.scalar(dt.datetime(2024, 5, 6))
    other = (pc.hour(pc.field("us")) == 0) & pc.field("st", "a").is_valid()
    actual = ia.contains_words("t", "x") | (other & ~day & (pc.field("s") == pc.field("ms")))
    plain = to_expression(periods_as_ranges(read_expression(actual), table.schema))
    expected = (pc.field("us") >= dt.datetime(2024, 5, 6)) & (
        pc.field("us") < dt.datetime(2024, 5, 7)
    )
    assert plain.equals(
        ia.contains_words("t", "x") | (other & ~expected & (pc.field("s") == pc.field("ms")))
    )


@pytest.mark.parametrize(
    "left",
    [
        pc.year(pc.field("us")) == 0,
        pc.year(pc.field("us")) == 9999,
        pc.year(pc.field("us")) == 2024.5,
        pc.floor_temporal(pc.field("ns"), unit="nanosecond") == dt.datetime(2024, 5, 6),
        pc.year(pc.field("us")) == pc.field("i"),
        pc.year(pc.field("b")) == 2024,
        pc.hour(pc.field("us")) == 3,
        pc.floor_temporal(pc.field("us"), 2, "day") == dt.datetime(2024, 1, 1),
        pc.floor_temporal(pc.field("us"), unit="week", week_starts_monday=False)
        == dt.datetime(2024, 1, 7),
        pc.floor_temporal(pc.field("s"), unit="millisecond") > dt.datetime(2024, 1, 1, 0, 0, 0, 7),
        pc.field("us").cast(pa.date32()) == pa.scalar(None, pa.date32()),
    ],
)
def test_conditions_that_are_no_ranges_do_not_change(left):
    table = columns([dt.datetime(2024, 5, 6)]).append_column("i", pa.array([2024]))
    node = read_expression(left)
    assert periods_as_ranges(node, table.schema) is node


# --- SQL ----------------------------------------------------------------------------------------


@st.composite
def conditions(draw, names=("s", "ms", "us", "z", "b", "d", "st.a")) -> str:
    """A condition in SQL on one of the columns, as DuckDB takes it."""
    name = draw(st.sampled_from(names))
    if draw(st.booleans()):
        unit = draw(st.sampled_from(DAYS if name == "d" else [*DAYS, *TIMES]))
        subject = f"date_trunc('{unit}', {name})"
        if draw(st.integers(0, 3)) == 0:
            subject = f"CAST({name} AS DATE)"
        moment = draw(NEAR | MOMENTS)
        if draw(st.booleans()) or name == "d":
            moment = moment.date()
        kind = "DATE" if type(moment) is dt.date else "TIMESTAMP"
        constant = draw(st.sampled_from([f"{kind} '{moment}'", f"'{moment}'"]))
        assume("CAST" not in subject or kind == "DATE")
        numbers = [constant, f"{kind} '{draw(NEAR).date()}'", constant]
    else:
        part = draw(st.sampled_from(NUMBERS))
        forms = ["extract({} FROM {})", "date_part('{}', {})"]
        forms += [] if part in ("dow", "doy") else ["{}({})"]
        subject = draw(st.sampled_from(forms)).format(part, name)
        numbers = [str(draw(st.integers(0, 60) | st.integers(1969, 2025))) for _ in range(3)]
    form = draw(st.sampled_from(["{} {} {}", "{} {} {}", "NOT ({} {} {})", "{2} {1} {0}"]))
    actual = form.format(subject, draw(st.sampled_from(COMPARISONS)), numbers[0])
    others = [f"{subject} BETWEEN {numbers[0]} AND {numbers[1]}"]
    others += [f"{subject} IN ({', '.join(numbers)})", f"{subject} IS NOT NULL"]
    others += [f"{subject} IS DISTINCT FROM {numbers[0]}"]
    return draw(st.sampled_from([actual, actual, *others, f"NOT ({others[1]})"]))


@pytest.fixture(scope="module")
def engine():
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        yield connection


@given(SOME, conditions())
@example(EDGES, "date_trunc('month', us) = '2024-02-01'")
@example(EDGES, "date_trunc('week', d) <= DATE '2024-01-03'")
@example(EDGES, "year(b) = 2024")
def test_sql_conditions_read_timestamps_as_duckdb_does(
    engine, tmp_path_factory, moments, condition
):
    table = columns(moments).append_column("row", pa.array(range(len(moments))))
    engine.register("t", table)
    asked = f"SELECT row FROM t WHERE {condition} ORDER BY row"
    expected = [row for (row,) in engine.sql(asked).fetchall()]
    path = tmp_path_factory.mktemp("moments") / "a.parquet"
    pq.write_table(table, path, row_group_size=7, data_page_size=1, write_page_index=True)
    actual = ia.dataset(path).to_table(columns=["row"], filter=condition)
    assert actual.column("row").to_pylist() == expected


@given(SOME, conditions(["s", "ms", "us", "ns", "ns", "z", "d", "st.a"]), st.data())
def test_sql_answers_as_duckdb_does(engine, tmp_path_factory, moments, condition, data):
    """DuckDB rounds nanoseconds before it takes the day."""
    table = columns(moments).drop_columns(["b", "ns"])
    count = len(moments)
    finer = data.draw(st.lists(st.integers(-999, 999), min_size=count, max_size=count))
    ns = pc.add(table["us"].cast(pa.timestamp("ns")).cast(pa.int64()), pa.array(finer, pa.int64()))
    table = table.append_column("ns", ns.cast(pa.timestamp("ns")))
    table = table.append_column("row", pa.array(range(count)))
    engine.register("t", table)
    query = f"SELECT row FROM t WHERE {condition} ORDER BY row"
    expected = engine.sql(query).fetchall()
    path = tmp_path_factory.mktemp("moments") / "a.parquet"
    pq.write_table(table, path, row_group_size=7, data_page_size=1, write_page_index=True)
    assert ia.sql(query, t=ia.dataset(path)).column("row").to_pylist() == [r for (r,) in expected]


def test_infinite_timestamps_have_no_year(engine, tmp_path):
    """Infinity is above every timestamp in a comparison, and NULL to ``year``."""
    moments = pa.array([2**63 - 1, -(2**63) + 1, 1_704_067_200_000_000, None], pa.timestamp("us"))
    table = pa.table({"ts": moments, "row": range(4)})
    pq.write_table(table, tmp_path / "a.parquet", write_page_index=True)
    engine.register("t", table)
    for asked in ("= 2024", ">= 2024", "<> 2023", "IS NULL", "< 2024"):
        for form in ("{}", "NOT ({})", "({}) IS NOT TRUE", "({}) IS NULL"):
            query = f"SELECT row FROM t WHERE {form.format(f'year(ts) {asked}')} ORDER BY row"
            expected = [row for (row,) in engine.sql(query).fetchall()]
            actual = ia.sql(query, t=tmp_path / "a.parquet")
            assert actual.column("row").to_pylist() == expected, query


def test_nanoseconds_which_duckdb_rounds_are_answered_as_it_does(engine, tmp_path):
    day = 86_400 * 10**9
    moments = pa.array([day - 1, day - 501, day, -1, None], pa.timestamp("ns"))
    table = pa.table({"ts": moments, "row": range(5)})
    pq.write_table(table, tmp_path / "a.parquet", write_page_index=True)
    engine.register("t", table)
    for condition in (
        "CAST(ts AS DATE) = '1970-01-02'",
        "date_trunc('day', ts) = '1970-01-02'",
        "year(ts) = 1970",
    ):
        query = f"SELECT row FROM t WHERE {condition} ORDER BY row"
        expected = [row for (row,) in engine.sql(query).fetchall()]
        assert ia.sql(query, t=tmp_path / "a.parquet").column("row").to_pylist() == expected


@given(SOME, st.data())
def test_answers_of_polars_equal_those_in_memory(tmp_path_factory, moments, data):
    table = columns(moments).drop_columns(["b", "s", "st"])
    path = tmp_path_factory.mktemp("moments") / "a.parquet"
    pq.write_table(table, path, row_group_size=7, data_page_size=1, write_page_index=True)
    column = pl.col(data.draw(st.sampled_from(["ms", "us", "ns", "d"])))
    is_date = column.meta.output_name() == "d"
    near = data.draw(NEAR)
    every = data.draw(st.sampled_from(["1d", "1w", "1mo", "1q", "1y"]))
    subject, constant = data.draw(
        st.sampled_from([
            (column.dt.year(), near.year),
            (column.dt.truncate(every), near.date() if is_date else near),
            *([] if is_date else [(column.dt.date(), near.date())]),
            (column.dt.month(), near.month),
            (column.dt.day(), near.day),
            (column.dt.quarter(), (near.month + 2) // 3),
            (column.dt.weekday(), near.isoweekday()),
            *([] if is_date else [
                (column.dt.hour(), near.hour),
                (column.dt.minute(), near.minute),
                (column.dt.second(), near.second),
            ]),
        ])
    )  # fmt: skip
    compared = data.draw(
        st.sampled_from([
            subject == constant,
            subject < constant,
            subject >= constant,
            subject != constant,
            subject.is_in([constant]),
            subject.is_between(constant, constant),
            subject.eq_missing(constant),
        ])
    )  # fmt: skip
    predicate = data.draw(st.sampled_from([compared, ~compared]))
    expected = pl.from_arrow(table).filter(predicate)
    assert ia.polars.scan(path).filter(predicate).collect().equals(expected)


# --- what is read -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "condition",
    [
        "ts::DATE = '2024-05-06'",
        "date_trunc('day', ts) = '2024-05-06'",
        "year(ts) = 2024 AND date_trunc('week', ts) < '2024-01-07'",
        "extract(year FROM ts) > 2024 OR date_part('year', ts) = 2022",
    ],
)
def test_pages_are_skipped_and_counted(tmp_path, condition):
    moments = [dt.datetime(2024, 1, 1) + dt.timedelta(hours=n) for n in range(10_000)]
    path = tmp_path / "a.parquet"
    logs = pa.table({"ts": pa.array(moments, pa.timestamp("us")), "n": range(10_000)})
    pq.write_table(logs, path, row_group_size=2500, data_page_size=1000, write_page_index=True)
    [(expected,)] = duckdb.sql(f"SELECT count(*) FROM logs WHERE {condition}").fetchall()
    dataset = ia.dataset(path)
    assert 0 < expected < 2000
    assert dataset.count_rows(filter=condition) == expected
    read = dataset.explain(filter=condition, analyze=True).read
    assert read.rows.selected == expected
    assert read.pages.selected < 0.2 * read.pages.total


def test_an_index_on_the_day_is_still_used(tmp_path):
    path = tmp_path / "a.parquet"
    moments = [dt.datetime(2024, 1, 1) + dt.timedelta(hours=(n * 7919) % 5000) for n in range(5000)]
    pq.write_table(pa.table({"ts": pa.array(moments, pa.timestamp("us"))}), path)
    ia.add_indexes(path, "lookup(CAST(ts AS DATE), granule_rows=64)")
    shown = str(ia.dataset(path).explain(filter="CAST(ts AS DATE) = '2024-05-06'"))
    assert "index CAST(ts AS DATE):lookup" in shown


@pytest.mark.parametrize(
    ("condition", "said"),
    [
        ("year(t) = 2024", "year needs a date or a timestamp, and t is string"),
        (
            "date_trunc('hour', d) = '2024-05-06'",
            "date_trunc of d, date32.day., has no part 'hour'",
        ),
        ("date_trunc('eon', us) = '2024-05-06'", "is not a value this understands"),
        ("date_trunc('day', us + 1) = '2024-05-06'", "needs a date or a timestamp"),
    ],
)
def test_unsupported_date_parts_are_refused_by_name(condition, said):
    table = columns([None]).append_column("t", pa.array(["x"]))
    with pytest.raises(PredicateError, match=said):
        parse_where(condition, table.schema)
