"""``ia.polars.scan`` answers as Polars does over a DataFrame, and tells the scan what is asked."""

from __future__ import annotations

import datetime
import sys
from decimal import Decimal
from zoneinfo import ZoneInfo

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

import intarsia as ia
from intarsia.engines.polars_predicate import arrow_predicate

c = pl.col
NAN = float("nan")
DAY = datetime.date(2020, 1, 2)
MOMENT = datetime.datetime(2020, 1, 2, 12, 0, 0, 2)

PUSHED = {
    "equal": c("i") == 2,
    "mirrored": c("i") > 2,
    "unequal": c("i") != 2,
    "equal_or_both_missing": c("i").eq_missing(2),
    "between": c("i").is_between(1, 3, closed="left"),
    "in": c("i").is_in([1, 2]),
    "in_with_null": c("i").is_in([1, None]),
    "in_with_null_equal": c("i").is_in([1, None], nulls_equal=True),
    "float_above": c("d") > 5.0,
    "float_below": c("d") < 5.0,
    "not_float_above": ~(c("d") > 5.0),
    "not_float_below": ~(c("d") < 5.0),
    "float_zero": c("d") == 0.0,
    "float_in": c("d").is_in([0.0, 7.0]),
    "is_nan": c("d").is_nan(),
    "is_not_nan": c("d").is_not_nan(),
    "narrow_float": c("f") > 1.5,
    "decimal": c("dec") > Decimal("1.10"),
    "decimal_in": c("dec").is_in([Decimal("1.10"), Decimal("9.99")]),
    "text": c("s") == "axb",
    "text_above": c("s") > "a",
    "large_text": c("ls") == "x",
    "category": c("di") == "x",
    "prefix": c("s").str.starts_with("a"),
    "not_prefix": ~c("s").str.starts_with("a"),
    "suffix": c("s").str.ends_with("b"),
    "contains": c("s").str.contains("_b", literal=True),
    "contains_words": c("s").str.contains("xb"),
    "binary": c("bin") == b"\xff",
    "flag": c("b"),
    "not_flag": ~c("b"),
    "missing": c("b").is_null(),
    "there": c("l").is_not_null(),
    "date": c("date") == DAY,
    "time": c("time") > datetime.time(12, 0, 0, 3),
    "moment": c("ts") >= MOMENT,
    "moment_in_utc": c("tz") >= MOMENT.replace(tzinfo=datetime.UTC),
    "moment_in_paris": c("paris") >= MOMENT.replace(tzinfo=ZoneInfo("Europe/Paris")),
    "nanoseconds": c("ts_ns") == MOMENT,
    "struct": c("st").struct.field("a") == 2,
    "and": (c("i") > 1) & (c("s") == "axb"),
    "or": (c("i") > 1) | c("s").is_null(),
    "half": (c("i") > 1) & c("l").list.contains(2),
}
KEPT = {
    "nan": c("d") == NAN,
    "in_with_nan": c("d").is_in([NAN]),
    "cast": c("i") > 1.5,
    "cast_date": c("ts").dt.date() == DAY,
    "regex": c("s").str.contains("a.b"),
    "lower": c("s").str.to_lowercase() == "axb",
    "list": c("l").list.contains(2),
    "columns": c("i") == c("i8"),
    "sum": c("i8") + 1 > 2,
    "category_order": c("di") > "x",
    "xor": (c("i") > 1) ^ c("b"),
    "half_or": (c("i") > 1) | c("l").list.contains(2),
    "not_half": ~((c("i") > 1) & c("l").list.contains(2)),
    "not_in": ~c("i").is_in([1, 2]),
}


@pytest.fixture(scope="module")
def data(tmp_path_factory, awkward):
    path = tmp_path_factory.mktemp("polars") / "t.parquet"
    ia.write_table(awkward, path, max_rows_per_page=2, write_batch_size=2, row_group_size=4)
    return ia.dataset(path)


@pytest.fixture(scope="module")
def frame(awkward):
    return pl.DataFrame(pl.from_arrow(awkward))


@pytest.fixture
def asked(data, monkeypatch):
    """The columns, filter and rows of every scan."""
    found = []
    real = ia.Dataset.to_batches

    def spy(self, columns=None, filter=None, **options):  # noqa: A002
        rows = real(self, columns, filter, **options)
        for batch in rows:
            found.append((columns, filter, batch.num_rows))
            yield batch

    monkeypatch.setattr(ia.Dataset, "to_batches", spy)
    return found


def test_membership_in_nothing(data):
    assert ia.polars.scan(data).filter(c("i").is_in([])).collect().is_empty()


@pytest.mark.parametrize("predicate", [*PUSHED.values(), *KEPT.values()], ids=[*PUSHED, *KEPT])
def test_a_predicate_gives_polars_answer(data, frame, predicate):
    found = ia.polars.scan(data).filter(predicate).collect()
    assert_frame_equal(found, frame.filter(predicate))


@pytest.mark.parametrize("predicate", PUSHED.values(), ids=PUSHED)
def test_a_predicate_reaches_the_scan(data, frame, asked, predicate):
    ia.polars.scan(data).filter(predicate).collect()
    expected = frame.filter(predicate).height
    assert all(filter_ is not None for _, filter_, _ in asked)
    assert sum(rows for _, _, rows in asked) >= expected
    assert asked or not expected
    assert sum(rows for _, _, rows in asked) < frame.height


@pytest.mark.parametrize("predicate", KEPT.values(), ids=KEPT)
def test_a_predicate_that_may_mean_something_else_stays(data, predicate):
    assert arrow_predicate(predicate, data.schema) is None


def test_columns_and_counts(data, frame, asked):
    lazy = ia.polars.scan(data)
    assert_frame_equal(
        lazy.filter(c("i") > 1).select("s").collect(), frame.filter(c("i") > 1)["s"].to_frame()
    )
    assert set(asked[0][0]) <= {"i", "s"}
    assert lazy.select(pl.len()).collect().item() == frame.height
    assert lazy.filter(c("i") > 1).select(pl.len()).collect().item() == 4


def test_a_row_limit_ends_reading(data, frame, asked):
    assert_frame_equal(ia.polars.scan(data).head(3).collect(), frame.head(3))
    assert sum(rows for _, _, rows in asked) < frame.height
    assert_frame_equal(
        ia.polars.scan(data).head(3).filter(c("i") > 2).collect(), frame.head(3).filter(c("i") > 2)
    )
    assert ia.polars.scan(data).head(0).collect().is_empty()


def test_without_polars_the_extra_is_named(data, monkeypatch):
    monkeypatch.setitem(sys.modules, "polars", None)
    with pytest.raises(ia.MissingDependencyError, match=r"intarsia\[polars\]"):
        ia.polars.scan(data)


def test_a_path_is_opened(data, frame):
    assert_frame_equal(ia.polars.scan(data.files[0]).collect(), frame)


LEAVES = st.sampled_from([*PUSHED.values(), *KEPT.values()])
TREES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        inner.map(lambda e: ~e),
        st.tuples(inner, inner).map(lambda pair: pair[0] & pair[1]),
        st.tuples(inner, inner).map(lambda pair: pair[0] | pair[1]),
    ),
    max_leaves=5,
)


@settings(max_examples=100, deadline=None)
@given(TREES)
def test_any_predicate_gives_polars_answer(data, frame, predicate):
    assert_frame_equal(ia.polars.scan(data).filter(predicate).collect(), frame.filter(predicate))
