"""For any predicate, ``ia.polars.scan`` gives Polars' own answer or error."""

from __future__ import annotations

import datetime as dt
import logging
from decimal import Decimal

import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

import intarsia as ia
from intarsia.engines.polars import predicate as predicate_module
from intarsia.engines.polars.predicate import arrow_predicate

c = pl.col
ONE_STRUCT = pl.struct(pl.lit(1).alias("a"), pl.lit(2).alias("B c"))
LISTS = {
    "lists with NULL": c("l").is_in([[1, 2], [None]]),
    "lists and NULL": c("l").is_in([[1, 2], None]),
    "lists, NULLs equal": c("l").is_in([[3, None], None], nulls_equal=True),
    "empty lists": c("l").is_in([[]]),
    "lists of lists": c("l").is_in([[[1]]]),
    "nothing": c("l").is_in([]),
    "list equal": c("l") == pl.lit([1, 2]),
    "list of NULL equal": c("l") == pl.lit([None]),
    "list missing": c("l").eq_missing(pl.lit([1, 2])),
    "array": c("la").is_in([[1, 2]]),
    "in list of NULLs": c("l").list.contains(pl.lit(None, pl.Int64)),
    "in list of text": c("l").list.contains("x"),
    "in list of lists": pl.lit([1, 2]).is_in(c("l")),
    "element": c("l").list.get(0, null_on_oob=True) == 2,
    "elements": c("l").list.eval(pl.element() > 1).list.any(),
    "list length": c("l").list.len() > 1,
    "list length sum": c("ld").list.sum() > 1.0,
}
STRUCTS = {
    "struct equal": c("st") == ONE_STRUCT,
    "struct in": c("st").is_in([{"a": 1, "B c": -1}, None]),
    "struct in other": c("st").is_in([{"z": 1}]),
    "struct field": c("st").struct.field("B c") == -1,
    "struct field missing": c("st").struct.field("nope") == 1,
    "struct fields": c("st").struct.unnest() > 1,
    "field in": c("st").struct.field("a").is_in([1, None]),
}
CONSTANTS = {
    "mixed": c("i").is_in(pl.lit(["1", "a"])),
    "mixed numbers": c("i").is_in(pl.lit([1.0, 2.5])),
    "huge": c("i").is_in([2**100, 1]),
    "larger than all": c("i") == 2**120,
    "series": c("i").is_in(pl.Series([1, 2])),
    "series of NULL": c("i").is_in(pl.Series([None, None])),
    "series of NULL numbers": c("i").is_in(pl.Series([None], dtype=pl.Int64)),
    "series of text": c("s").is_in(pl.Series(["axb", None])),
    "imploded": c("i").is_in(pl.Series([1, 2]).implode()),
    "several lists": c("i").is_in(pl.Series([[n] for n in range(8)])),
    "series as long": c("i") == pl.Series(range(8)),
    "series of one": c("i") == pl.Series([2]),
    "none": c("i") == pl.lit(None),
    "typed none": c("i") > pl.lit(None, pl.Int64),
    "nothing at all": pl.lit(None, pl.Boolean),
    "object": c("i") == pl.lit(pl.Series([object()], dtype=pl.Object)),
    "empty": c("dec").is_in(pl.Series([], dtype=pl.Decimal(9, 2))),
    "text beside numbers": c("i") == "2",
    "number beside text": c("s") == 2,
    "bytes beside text": c("s") == b"axb",
    "decimal of many digits": c("dec") == Decimal("1." + "1" * 37),
    "decimals of many digits": c("dec").is_in([Decimal("1.10"), Decimal("1e30")]),
    "enum": c("di") == pl.lit("x", pl.Enum(["x", "y"])),
    "category": c("di").is_in(pl.Series(["x"], dtype=pl.Categorical)),
    "moment": c("date").is_in([dt.date(2020, 1, 2), None]),
    "moments of a zone": c("paris").is_in([dt.datetime(2020, 1, 1, tzinfo=dt.UTC)]),
    "far moment": c("ts_ns") < dt.datetime(9999, 1, 1),
    "time": c("time").is_in([dt.time(12), None]),
    "nothing known": c("nothing").is_in([1, None]),
    "128 bits": c("i") < pl.lit(2**90, pl.Int128),
}
FUNCTIONS = {
    "window": c("i").sum().over("b") > 3,
    "rank": c("i").rank() > 2,
    "rolling": c("i").rolling_mean(2) > 1,
    "shifted": c("i").shift(1) == 2,
    "first of its kind": c("b").is_first_distinct(),
    "running": c("i8").cum_sum() > 3,
    "greatest": c("i") == c("i").max(),
    "counted": pl.len() > 3,
    "quantile": c("d") > c("d").quantile(0.5),
    "chosen": pl.when(c("i") > 1).then(c("b")).otherwise(c("d") > 1),
    "chosen number": pl.when(c("b")).then(c("i")).otherwise(c("i8")) > 1,
    "chosen of three": pl.when(c("b")).then(True).when(c("i") > 1).then(False),
    "chosen NULL": ~pl.when(c("i").is_null()).then(None).otherwise(c("i") > 2),
    "coalesce": pl.coalesce("i", "i8") == 100,
    "filled": c("i").fill_null(1) == 1,
    "python": c("i").map_elements(lambda value: {}.get(value, value) > 1, return_dtype=pl.Boolean),
    "python that fails": c("i").map_elements(lambda value: 1 // 0, return_dtype=pl.Boolean),
    "python batch": c("i").map_batches(lambda s: s > 1, return_dtype=pl.Boolean),
    "any": pl.any_horizontal(c("i") == 1, c("i8") == 100, c("l").is_in([[None]])),
    "all": pl.all_horizontal(c("i") > 1, c("s").is_not_null()),
    "several columns": pl.all_horizontal(pl.col("i", "i8") > 1),
    "pattern of columns": pl.all_horizontal(pl.col("^i.*$") > 1),
    "exclude": pl.any_horizontal(pl.col(pl.Int64).exclude("i") > 3),
    "alias": (c("i") > 2).alias("x"),
    "aliases": ~((c("i").alias("y") > 2).alias("x")),
    "reversed": c("i").reverse() > 1,
    "sorted": c("i").sort() > 1,
    "random": c("i").is_in(c("i8").implode()),
    "replaced": c("s").replace_strict({"axb": True}, default=False),
    "no condition": c("i") + 1,
    "no column": c("nope") == 1,
    "power": c("i8") ** 2 > 5,
    "divided": 1 / c("i") > 0.2,
    "floor of nothing": c("i") // 0 == 1,
    "wrapped": c("i").cast(pl.Int8, wrap_numerical=True) > 1,
    "fails": c("i").cast(pl.Int8) > 1,
    "physical": c("date").to_physical() > 18_263,
    "moment as a number": c("ts").cast(pl.Int64) > 0,
    "close": c("i").is_close(2.0),
}
TEXTS = {
    "invalid pattern": c("s").str.contains("("),
    "invalid pattern, NULL": c("s").str.contains("(", strict=False),
    "look ahead": c("s").str.contains("a(?=x)"),
    "pattern of a column": c("s").str.contains(c("ls"), literal=True),
    "NULL pattern": c("s").str.contains(pl.lit(None, pl.String)),
    "NULL prefix": c("s").str.starts_with(pl.lit(None, pl.String)),
    "any of": c("s").str.contains_any(["a", "b"]),
    "found at": c("s").str.find("x") == 1,
    "length": c("s").str.len_chars() > 2,
    "slice": c("s").str.slice(0, 1) == "a",
    "number in it": c("s").str.to_integer(strict=False) == 1,
    "bytes": c("bin").bin.starts_with(b"x"),
    "date in it": c("s").str.to_date("%Y", strict=False).is_null(),
    "NUL": c("s") == "a\0b",
    "surrogates": c("s") > "\U0010ffff",
    "strange category": c("di").cat.starts_with("x"),
}
ODD = {**LISTS, **STRUCTS, **CONSTANTS, **FUNCTIONS, **TEXTS}
NULL_LISTS = [None, [], [None], [1, None], [1, 2], [[1]], [[None]], {"a": 1}, {"a": None}, {}]
VALUES = [*NULL_LISTS, 1, 2.5, "x", b"x", True, 2**70, Decimal("1.5"), dt.date(2020, 1, 1)]
VALUES += [dt.timedelta(1), dt.time(1), dt.datetime(2020, 1, 2), float("nan"), -0.0, float("inf")]
FAILURES = (pl.exceptions.PolarsError, ArithmeticError, TypeError, ValueError)


@pytest.fixture(scope="module")
def data(tmp_path_factory, awkward):
    path = tmp_path_factory.mktemp("odd") / "t.parquet"
    ia.write_table(awkward, path, max_rows_per_page=2, write_batch_size=2, row_group_size=8)
    return ia.dataset(path)


@pytest.fixture(scope="module")
def frame(awkward):
    return pl.DataFrame(pl.from_arrow(awkward))


def answer(source, predicate):
    """The rows, or the error."""
    try:
        return source.lazy().filter(predicate).collect()
    except FAILURES as error:
        return error


def assert_is_polars_answer(data, frame, predicate):
    actual, expected = (answer(source, predicate) for source in (ia.polars.scan(data), frame))
    if isinstance(expected, pl.DataFrame):
        assert isinstance(actual, pl.DataFrame), repr(actual)
        assert_frame_equal(actual, expected)
    else:
        assert isinstance(actual, FAILURES)  # the plan decides which one


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("predicate", ODD.values(), ids=ODD)
def test_an_unusual_predicate_gives_polars_answer(predicate, data, frame):
    assert_is_polars_answer(data, frame, predicate)


def _comparisons(name, value, values):
    column = c(name)
    yield from (lambda: column == value, lambda: column < value, lambda: column.ne_missing(value))
    yield lambda: column.is_in(values)
    yield lambda: ~column.is_in(values)
    yield lambda: column.is_between(value, values[0])
    yield lambda: column.list.contains(value)
    yield lambda: column.str.contains(value)
    yield lambda: column.cast(pl.Float64) >= value


@pytest.mark.filterwarnings("ignore")
@settings(max_examples=60, deadline=None)
@given(st.data())
def test_any_column_beside_any_constants_gives_polars_answer(data, frame, given_data):
    name = given_data.draw(st.sampled_from(frame.columns))
    value, *values = given_data.draw(st.lists(st.sampled_from(VALUES), min_size=2, max_size=4))
    for make in _comparisons(name, value, values):
        try:
            predicate = make()
        except FAILURES:
            continue  # Polars does not have such an expression
        assert_is_polars_answer(data, frame, predicate)


@pytest.mark.parametrize("error", [RuntimeError, MemoryError, pl.exceptions.PanicException])
def test_only_an_invalid_condition_is_left_to_polars(error, data, frame, monkeypatch, caplog):
    def fail(*_, **__):
        raise error("a mistake")

    monkeypatch.setattr(predicate_module._Converter, "_search", fail)
    predicate = (c("i") > 1) & c("s").str.starts_with("a")
    with caplog.at_level(logging.DEBUG, "intarsia"):
        assert arrow_predicate(predicate, data.schema).equals(pa.compute.field("i") > 1)
        assert_is_polars_answer(data, frame, predicate)
    assert "a mistake" in caplog.text


def test_an_interruption_is_not_taken_for_a_failing_predicate(data, monkeypatch):
    def fail(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(predicate_module._Converter, "exact", fail)
    with pytest.raises(KeyboardInterrupt):
        arrow_predicate(c("i") > 1, data.schema)


@pytest.mark.parametrize("rows", [3, 4, 8, None])
def test_a_constant_with_a_value_for_each_row_is_compared_row_by_row(rows, tmp_path):
    table = pa.table({"a": range(8), "b": range(8)})
    ia.write_table(table, tmp_path / "a.parquet", row_group_size=2)
    scanned, frame = ia.polars.scan(tmp_path), pl.DataFrame(pl.from_arrow(table))
    predicate = (c("a") > 1) & (c("b") == pl.Series([0, 9, 2, 3, 4, 9, 9, 7][: rows or 8]))
    for source in (scanned, frame.lazy()):
        source = source if rows is None else source.head(rows)
        expected = frame.head(rows or 8).filter(predicate)
        assert_frame_equal(source.filter(predicate).collect(), expected)
