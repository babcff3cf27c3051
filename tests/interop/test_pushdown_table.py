"""``docs/reference/pushdown.md`` is up to date, and its statements on semantics are true."""

from __future__ import annotations

import datetime
import re
from decimal import Decimal
from pathlib import Path

import datafusion
import duckdb
import polars as pl
import pushdown as benchmark
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import intarsia as ia

CHECKOUT = Path(__file__).parents[2]
c = pl.col
NAN = float("nan")


def cells(table):
    """Predicate and engine → pushed down or not, rows, bytes."""
    actual = {}
    for part in table.strip().split("\n\n"):
        actual |= cells_of(part)
    return actual


def cells_of(table):
    header, _, *lines = (line.strip("| ").split(" | ") for line in table.strip().splitlines())
    actual = {}
    for line in lines:
        for engine, cell in zip(header[1:], line[1:], strict=True):
            reached, rows, size = re.fullmatch(
                r"(yes|no): ([\d,]+) rows, ([\d,]+) B", cell
            ).groups()
            actual[line[0], engine] = reached, rows, int(size.replace(",", ""))
    return actual


def test_the_table_is_up_to_date(tmp_path):
    text = (CHECKOUT / "docs/reference/pushdown.md").read_text()
    written = cells(text.split(benchmark.BEGIN)[1].split(benchmark.END)[0])
    benchmark.write(tmp_path / "t.parquet")
    actual = cells(benchmark.table(tmp_path / "t.parquet"))
    assert {key: cell[:2] for key, cell in actual.items()} == {
        key: cell[:2] for key, cell in written.items()
    }
    for key, (_, _, size) in actual.items():
        assert size == pytest.approx(written[key][2], rel=0.2), key


def test_engines_agree_on_the_answers_in_the_table(tmp_path):
    benchmark.write(tmp_path / "t.parquet")
    for predicate in (*benchmark.PREDICATES, *benchmark.SHAPES):
        answers = {
            engine: benchmark.read(tmp_path / "t.parquet", engine, predicate).answer
            for engine in benchmark.ENGINES
        }
        assert len(set(answers.values())) == 1, (predicate.label, answers)


@pytest.fixture
def opened(tmp_path):
    def opened(**columns):
        ia.write_table(pa.table(columns), tmp_path / "t.parquet")
        return ia.dataset(tmp_path / "t.parquet")

    return opened


def by_sql(data, condition):
    return ia.sql(f"SELECT row FROM t WHERE {condition}", t=data)["row"].to_pylist()


def by_polars(data, predicate):
    return ia.polars.scan(data).filter(predicate).collect()["row"].to_list()


def by_pyarrow(data, condition):
    plan = data.explain(["row"], condition, analyze=True)
    return plan.read.rows.selected


def test_nan(opened):
    data = opened(row=[0, 1, 2], x=[NAN, 6.0, 1.0])
    assert data.to_table(filter=pc.field("x") > 5)["row"].to_pylist() == [1]
    assert by_sql(data, "x > 5") == by_polars(data, c("x") > 5) == [0, 1]
    assert by_sql(data, "x = 'nan'") == by_polars(data, c("x") == NAN) == [0]
    lazy = pl.scan_pyarrow_dataset(data).filter(c("x") > 5)
    assert lazy.collect()["row"].to_list() == [1]
    context = datafusion.SessionContext()
    context.register_dataset("t", data)
    assert context.sql("SELECT row FROM t WHERE x > 5").to_pydict() == {"row": [1]}
    with duckdb.connect() as connection:
        connection.register("t", data)
        assert connection.sql("SELECT row FROM t WHERE x > 5").fetchall() == [(0,), (1,)]


def test_negative_zero(opened):
    data = opened(row=[0, 1], x=[-0.0, 0.0])
    assert data.to_table(filter=pc.field("x").isin([0.0]))["row"].to_pylist() == [1]
    assert data.count_rows(filter="x IN (0)") == data.count_rows(filter="x * 1 IN (0, 7)") == 2
    assert by_sql(data, "x IN (0)") == by_polars(data, c("x").is_in([0.0])) == [0, 1]


def test_nan_in_lists(opened):
    data = opened(row=[0, 1], l=pa.array([[NAN], [1.0]]))
    assert data.to_table(filter=ia.list_contains("l", NAN)).num_rows == 0
    actual = by_sql(data, "list_contains(l, 'nan'::DOUBLE)")
    assert actual == by_polars(data, c("l").list.contains(NAN)) == [0]


def test_nulls_in_lists(opened):
    data = opened(row=[0, 1, 2], l=pa.array([[1, None], [2], None]))
    expected = ia.list_contains("l", 2)
    assert data.to_table(filter=~expected)["row"].to_pylist() == [0]
    assert by_sql(data, "NOT list_contains(l, 2)") == [0]
    assert by_polars(data, ~c("l").list.contains(2)) == [0]
    assert by_pyarrow(data, "2 = ANY(l)") == 1
    assert by_sql(data, "2 = ANY(l)") == [1]
    assert by_sql(data, "NOT (2 = ANY(l))") == [2]
    with pytest.raises(ia.PredicateError, match="not under NOT"):
        data.explain(filter="NOT (2 = ANY(l))")


NOON = datetime.datetime(2020, 1, 2, 12, tzinfo=datetime.UTC)


def test_text_without_a_zone_is_utc(opened):
    data = opened(row=[0], moment=pa.array([NOON], pa.timestamp("us", "Europe/Paris")))
    assert by_pyarrow(data, "moment = '2020-01-02 12:00:00'") == 1
    assert by_sql(data, "moment = '2020-01-02 12:00:00'") == [0]
    assert by_sql(data, "moment = '2020-01-02 13:00:00+01'") == [0]


def test_zones_of_answers(opened):
    kind = pa.timestamp("us", "Europe/Paris")
    data = opened(row=[0], moment=pa.array([NOON], kind))
    assert data.to_table(filter=pc.field("row") == 0).schema.field("moment").type == kind
    answer = ia.sql("SELECT moment FROM t WHERE t.row = 0", t=data)
    assert answer.schema.field("moment").type == pa.timestamp("us", "UTC")
    assert answer["moment"].to_pylist() == [NOON]
    assert ia.polars.scan(data).collect_schema()["moment"] == pl.Datetime("us", "Europe/Paris")


def test_decimals(opened):
    data = opened(row=[0, 1], m=pa.array([Decimal("1.10"), Decimal("1.11")], pa.decimal128(9, 2)))
    assert by_pyarrow(data, "m < 1.105") == 1
    assert by_sql(data, "m < 1.105") == by_polars(data, c("m") < Decimal("1.105")) == [0]


def test_decimals_and_text(opened):
    data = opened(row=[0, 1], m=pa.array([Decimal("1.10"), Decimal("1.11")], pa.decimal128(9, 2)))
    with pytest.raises(ia.PredicateError):
        data.explain(filter="m = '1.105'")
    assert by_sql(data, "m = '1.105'") == [1]


def test_a_date_is_its_midnight(opened):
    data = opened(row=[0, 1], day=[datetime.date(2020, 1, 2), datetime.date(2020, 1, 3)])
    noon = NOON.replace(tzinfo=None)
    condition = "day < TIMESTAMP '2020-01-02 12:00:00'"
    assert by_pyarrow(data, condition) == 1
    assert by_sql(data, condition) == by_polars(data, c("day") < noon) == [0]


def test_strings_of_finer_times_compare_as_documented(opened):
    moments = pa.array([datetime.datetime(2023, 12, 31), datetime.datetime(2024, 1, 1)])
    data = opened(row=[0, 1], ms=moments.cast(pa.timestamp("ms")))
    condition = "ms = '2023-12-31 23:59:59.999999'"
    assert by_pyarrow(data, condition) == 0
    assert by_sql(data, condition) == [1]


def test_date_parts_of_unusual_timestamps_are_as_documented(opened):
    day = 86_400 * 10**9
    data = opened(
        row=[0, 1, 2],
        ns=pa.array([day - 1, 0, day], pa.timestamp("ns")),
        us=pa.array([2**63 - 1, 1_704_067_200_000_000, None], pa.timestamp("us")),
        tz=pa.array([-(10**17), 1_704_067_200_000_000, None], pa.timestamp("us", "UTC")),
    )
    first = datetime.date(1970, 1, 1)
    assert by_pyarrow(data, "ns::DATE = '1970-01-01'") == 2
    assert by_sql(data, "ns::DATE = '1970-01-01'") == [1]
    assert by_polars(data, c("ns").dt.date() == first) == [0, 1]
    assert by_pyarrow(data, "year(us) > 2023") == 2
    assert by_sql(data, "year(us) > 2023") == [1]
    assert by_pyarrow(data, "year(tz) > 1000") == 1  # the first row's year is −1199,
    assert by_sql(data, "year(tz) > 1000") == [0, 1]  # which is 1200 BC
    assert by_sql(data, "year(tz) = 1200") == [0]
    assert by_sql(data, "tz::DATE >= '1000-01-01'") == [1]
    zoned = pa.array([-1, 0, 86_400 * 10**9], pa.timestamp("ns", "UTC"))
    data = opened(row=[0, 1, 2], tz=zoned)
    assert by_sql(data, "year(tz) > 1969") == [1, 2]
    assert by_sql(data, "year(tz) = 1969 OR tz::DATE = '1970-01-02'") == [0, 2]


def test_in_with_null(opened):
    data = opened(row=[0, 1, 2], i=[1, 2, None])
    assert by_pyarrow(data, "i IN (1, NULL)") == 1
    assert by_sql(data, "i IN (1, NULL)") == by_polars(data, c("i").is_in([1, None])) == [0]
    assert by_pyarrow(data, "i NOT IN (1, NULL)") == 0
    assert by_sql(data, "i NOT IN (1, NULL)") == []


def test_not_in_of_null(opened):
    data = opened(row=[0, 1, 2], i=[1, 2, None])
    assert by_pyarrow(data, "i NOT IN (1)") == 1
    assert by_sql(data, "i NOT IN (1)") == by_polars(data, ~c("i").is_in([1])) == [1]
    assert data.to_table(filter=~pc.field("i").isin([1]))["row"].to_pylist() == [1, 2]
    assert data.to_table(filter=[("i", "not in", [1])])["row"].to_pylist() == [1, 2]


@pytest.mark.parametrize("kind", [pa.float64(), pa.float32(), pa.decimal128(9, 2)])
def test_casts_to_integers_round(opened, kind):
    numbers = [0.5, 1.5, 2.5, -0.5, 2.6, None, 3.0, -2.5]
    values = pa.array(
        [None if n is None else Decimal(str(n)) for n in numbers], pa.decimal128(9, 2)
    )
    data = opened(row=range(8), x=values.cast(kind))
    for condition in ("x::INTEGER = 3", "x::BIGINT <= 0", "CAST(x AS INTEGER) IN (2, -3)"):
        actual = data.to_table(filter=condition)["row"].to_pylist()
        assert actual == by_sql(data, condition)
        assert actual


def test_casts_of_constants(opened):
    data = opened(row=[0, 1], i=[1, 2])
    assert by_pyarrow(data, "i > 1.5") == by_pyarrow(data, "i = '2'") == 1
    assert (
        by_sql(data, "i > 1.5") == by_sql(data, "i = '2'") == by_polars(data, c("i") > 1.5) == [1]
    )
    with pytest.raises(pl.exceptions.PolarsError):
        by_polars(data, c("i") == "2")
