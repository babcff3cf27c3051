"""``ia.polars.scan`` answers as Polars does over a DataFrame, and passes conditions to the scan."""

from __future__ import annotations

import datetime
import sys
from decimal import Decimal
from zoneinfo import ZoneInfo

import polars as pl
import polars.selectors as cs
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

import intarsia as ia
from intarsia.engines.polars.predicate import arrow_predicate
from intarsia.engines.polars.regex import means_the_same
from intarsia.engines.polars.strings import upper_case_equals

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
    "flag_in": c("b").is_in([False]),
    "any_flag": c("b").is_in([False, True]),
    "missing": c("b").is_null(),
    "there": c("l").is_not_null(),
    "date": c("date") == DAY,
    "time": c("time") > datetime.time(12, 0, 0, 3),
    "moment": c("ts") >= MOMENT,
    "moment_in_utc": c("tz") >= MOMENT.replace(tzinfo=datetime.UTC),
    "moment_in_paris": c("paris") >= MOMENT.replace(tzinfo=ZoneInfo("Europe/Paris")),
    "nanoseconds": c("ts_ns") == MOMENT,
    "struct": c("st").struct.field("a") == 2,
    "list": c("l").list.contains(2),
    "not_list": ~c("l").list.contains(2),
    "in_list": pl.lit(2).is_in(c("l")),
    "list_of_floats": c("ld").list.contains(0.0),
    "list_of_narrow_floats": c("lf").list.contains(pl.lit(0.1, pl.Float32)),
    "list_of_texts": c("lt").list.contains("é"),
    "list_of_dates": c("ldate").list.contains(DAY),
    "list_of_decimals": c("ldec").list.contains(Decimal("1.10")),
    "list_in_struct": c("stl").struct.field("l").list.contains(2),
    "array": c("la").arr.contains(2),
    "not_array": ~c("la").arr.contains(2),
    "in_array": pl.lit(2).is_in(c("la")),
    "list_or": c("l").list.contains(2) | (c("i") == 3),
    "lower": c("s").str.to_lowercase() == "axb",
    "lower_i": c("s").str.to_lowercase() == "i",
    "not_lower": c("s").str.to_lowercase() != "axb",
    "lower_prefix": c("s").str.to_lowercase().str.starts_with("a"),
    "lower_contains": c("s").str.to_lowercase().str.contains("i"),
    "upper": c("s").str.to_uppercase() == "AXB",
    "regex": c("s").str.contains("a.b"),
    "regex_class": c("s").str.contains("^[^0-9]+$"),
    "regex_either": c("s").str.contains("^(a|1)(x|0)?"),
    "date_of": c("ts").dt.date() == DAY,
    "year": c("ts").dt.year() > 2019,
    "hour": c("ts").dt.hour() < 13,
    "not_weekday": ~(c("date").dt.weekday() == 3),
    "not_year": ~(c("date").dt.year() == 2019),
    "month_begun": c("ts").dt.truncate("1mo") < DAY,
    "wider": c("i8").cast(pl.Int64) > 99,
    "much_wider": c("i8").cast(pl.Int64) < 300,
    "wider_mirrored": c("i8").cast(pl.Int32, strict=False) == 2,
    "wider_in": c("i8").cast(pl.Int16).is_in([1, 100]),
    "as_float": c("i8").cast(pl.Float64) > 1.5,
    "wider_float": c("f").cast(pl.Float64) > 1.5,
    "wider_float_in": c("f").cast(pl.Float64).is_in([0.0, 1.5]),
    "wider_text": c("s").cast(pl.String) == "axb",
    "and": (c("i") > 1) & (c("s") == "axb"),
    "or": (c("i") > 1) | c("s").is_null(),
    "half": (c("i") > 1) & (c("i8") + 1 > 2),
    "fraction": c("i") > 1.5,
    "rounded": c("i").cast(pl.Float64) == 2.0,
    "rounded_twice": c("i").cast(pl.Float64).cast(pl.Float32) > 5.0,
    "decimal_of": c("i").cast(pl.Decimal(38, 2)) == Decimal("2.00"),
    "decimal_finer": c("dec") > Decimal("2.505"),
    "decimal_float": c("dec") == 2.5,
    "decimal_between": c("dec").is_between(Decimal("1.105"), Decimal(3)),
    "date_before_moment": c("date") < MOMENT,
    "field_as_float": c("st").struct.field("a") == 2.0,
    "not_equal_or_missing": ~c("s").ne_missing("axb"),
    "not_in": ~c("i").is_in([1, 2]),
    "out_of_range": c("i8") > 300,
    "never": pl.lit(False),
    "chosen": pl.when(c("i") > 2).then(c("s") == "A\nB").otherwise(c("i8") == 2),
    "half_odd": (c("i") > 1) & c("l").is_in([[1, None]]),
}
KEPT = {
    "nan": c("d") == NAN,
    "in_with_nan": c("d").is_in([NAN]),
    "cast_date": c("ts").cast(pl.Date) == DAY,
    "zoned_date": c("tz").dt.date() == DAY,
    "week": c("ts").dt.week() == 1,
    "truncated_twice": c("ts").dt.truncate("2d") == DAY,
    "regex_of_words": c("s").str.contains(r"\w"),
    "regex_ignoring_case": c("s").str.contains("(?i)axb"),
    "lower_regex": c("s").str.to_lowercase().str.contains("a."),
    "lower_above": c("s").str.to_lowercase() > "a",
    "lower_beyond_ascii": c("s").str.to_lowercase() == "éſi̇ß",
    "upper_of_several": c("s").str.to_uppercase() == "SS",
    "upper_prefix": c("s").str.to_uppercase().str.starts_with("A"),
    "not_lower_i": ~c("s").str.to_lowercase().str.ends_with("i"),
    "list_nan": c("ld").list.contains(NAN),
    "list_null": c("l").list.contains(None),
    "list_column": c("l").list.contains(c("i")),
    "narrower": c("i").cast(pl.Int8, strict=False) == 1,
    "as_text": c("i").cast(pl.String) == "2",
    "columns": c("i") == c("i8"),
    "sum": c("i8") + 1 > 2,
    "category_order": c("di") > "x",
    "xor": (c("i") > 1) ^ c("b"),
    "half_or": (c("i") > 1) | (c("i8") + 1 > 2),
    "not_half": ~((c("i") > 1) & (c("i8") + 1 > 2)),
}


@pytest.fixture(scope="module")
def data(tmp_path_factory, awkward):
    path = tmp_path_factory.mktemp("polars") / "t.parquet"
    ia.write_table(awkward, path, max_rows_per_page=2, write_batch_size=2, row_group_size=4)
    return ia.dataset(path, reader="pages")


@pytest.fixture(scope="module")
def frame(awkward):
    return pl.DataFrame(pl.from_arrow(awkward))


@pytest.fixture
def requests(data, monkeypatch):
    """The columns, filter and rows of every scan."""
    actual = []
    real = ia.Dataset.to_batches

    def spy(self, columns=None, filter=None, **options):  # noqa: A002
        rows = real(self, columns, filter, **options)
        for batch in rows:
            actual.append((columns, filter, batch.num_rows))
            yield batch

    monkeypatch.setattr(ia.Dataset, "to_batches", spy)
    return actual


def test_membership_in_an_empty_list(data):
    assert ia.polars.scan(data).filter(c("i").is_in([])).collect().is_empty()


@pytest.mark.parametrize("reader", ["auto", "engine", "pages"])
@pytest.mark.parametrize("predicate", [*PUSHED.values(), *KEPT.values()], ids=[*PUSHED, *KEPT])
def test_a_predicate_gives_polars_answer(data, frame, predicate, reader):
    actual = ia.polars.scan(data.with_options(reader=reader)).filter(predicate).collect()
    assert_frame_equal(actual, frame.filter(predicate))


@pytest.mark.parametrize("predicate", PUSHED.values(), ids=PUSHED)
def test_a_predicate_reaches_the_scan(data, frame, requests, predicate):
    ia.polars.scan(data).filter(predicate).collect()
    expected = frame.filter(predicate).height
    assert all(filter_ is not None for _, filter_, _ in requests)
    assert sum(rows for _, _, rows in requests) >= expected
    assert requests or not expected
    assert sum(rows for _, _, rows in requests) < frame.height


@pytest.mark.parametrize("predicate", KEPT.values(), ids=KEPT)
def test_a_predicate_with_another_meaning_is_not_pushed_down(data, predicate):
    assert arrow_predicate(predicate, data.schema) is None


def test_columns_and_counts(data, frame, requests):
    lazy = ia.polars.scan(data)
    assert_frame_equal(
        lazy.filter(c("i") > 1).select("s").collect(), frame.filter(c("i") > 1)["s"].to_frame()
    )
    assert set(requests[0][0]) <= {"i", "s"}
    assert lazy.select(pl.len()).collect().item() == frame.height
    assert lazy.filter(c("i") > 1).select(pl.len()).collect().item() == 4


def test_a_row_limit_ends_reading(data, frame, requests):
    assert_frame_equal(ia.polars.scan(data).head(3).collect(), frame.head(3))
    assert sum(rows for _, _, rows in requests) < frame.height
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


def test_a_path_is_opened_with_the_options_of_data_sets(data, tmp_path):
    pq.write_table(pa.table({"a": [1]}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"b": ["x"]}), tmp_path / "b.parquet")
    actual = ia.polars.scan(tmp_path, union_by_name=True).filter(c("b") == "x").collect()
    assert actual.rows() == [(None, "x")]
    with pytest.raises(TypeError, match="takes no options: union_by_name"):
        ia.polars.scan(data, union_by_name=True)


def characters():
    return [chr(code) for code in range(1, 0x110000) if not 0xD800 <= code < 0xE000]


def test_polars_and_pyarrow_differ_about_one_character_that_is_ascii_in_lower_case():
    texts = pl.Series(characters())
    ours = pc.utf8_lower(pa.array(characters())).to_pylist()
    theirs = texts.str.to_lowercase().to_list()
    differing = [(a, b) for a, b in zip(ours, theirs, strict=True) if a != b]
    assert [pair for pair in differing if any(c.isascii() for c in "".join(pair))] == [("i", "i̇")]


def test_characters_with_several_ascii_letters_in_upper_case_are_excluded():
    ours = pc.utf8_upper(pa.array(characters())).to_pylist()
    theirs = pl.Series(characters()).str.to_uppercase().to_list()
    differing = [(a, b) for a, b in zip(ours, theirs, strict=True) if a != b]
    assert not any(a.isascii() for a, _ in differing)
    field = pc.field("s")
    assert all(upper_case_equals(field, b) is None for _, b in differing if b.isascii())


@pytest.mark.parametrize("text", ["i", "ii", "k", "s", "a", "xi"])
def test_case_insensitive_search_finds_strings_of_all_characters(text):
    table = pa.table({"s": characters() + [f"x{one}" for one in characters()]})
    frame = pl.DataFrame({"s": pl.Series(table["s"].to_pylist())})
    for expr in (c("s").str.to_lowercase() == text, c("s").str.to_uppercase() == text.upper()):
        for predicate in (expr, ~expr):
            actual = table.filter(arrow_predicate(predicate, table.schema))["s"].to_pylist()
            assert actual == frame.filter(predicate)["s"].to_list()


CHARACTERS = ["a", "b", "é", "Z", "7", "_", " ", "-", "#", "&", "~", "."]
CLASSES = ["[ab]", "[^a]", "[a-c7]", "[^0-9_]"]
ESCAPES = [r"\.", r"\*", r"\\", r"\[", r"\|", r"\-"]
ATOMS = st.sampled_from([*CHARACTERS, *CLASSES, *ESCAPES, "^", "$"])
REPEATED = st.tuples(ATOMS, st.sampled_from(["", "", "", "*", "+", "?", "{2}", "{0,2}"])).map(
    lambda parts: parts[0] if parts[0] in "^$" else "".join(parts)
)
PATTERNS = st.recursive(
    st.lists(REPEATED, min_size=1, max_size=4).map("".join),
    lambda inner: st.one_of(
        st.tuples(inner, inner).map("|".join),
        st.tuples(inner, st.sampled_from(["", "*", "?", "+"])).map(lambda p: f"({p[0]}){p[1]}"),
        st.tuples(inner, inner).map(lambda p: f"(?:{p[0]}){p[1]}"),
    ),
    max_leaves=4,
)
TEXTS = st.lists(st.text("abcéZ7_ -#&~.*\\[|^$\n\r\U0001f600", max_size=6), min_size=1, max_size=30)


@settings(max_examples=500, deadline=None)
@given(PATTERNS, TEXTS)
@example("b-a", ["b-a", "a"])
def test_regular_expressions_match_the_same_strings(pattern, texts):
    assert means_the_same(pattern)
    expected = pl.Series(texts).str.contains(pattern).to_list()
    assert pc.match_substring_regex(pa.array(texts), pattern).to_pylist() == expected


OTHERS = """
a**
a+?
a{,2}
a{2,1}
a{1001}
(a
a)
()
a|
|a
(?i)a
(?P<x>a)
\\d
\\w
\\bx
\\pL
\\x41
\\<
[z-a]
[]
[a&&b]
[[:alpha:]]
[é]
[\\d]
[a-]
(a){2}
^*
{2}
*a
a{2}{3}
""".strip().splitlines()


@pytest.mark.parametrize("pattern", ["", *OTHERS, "a" * 201, "(" * 3000, "a\n"])
def test_other_regular_expressions_are_not_pushed_down(pattern):
    assert not means_the_same(pattern)


@pytest.mark.parametrize(
    "predicate",
    [c("t") >= 5, c("t") == 1_000_000, ~(c("t") == 7), c("t") < datetime.time(0, 0, 0, 5_000)],
    ids=str,
)
def test_numbers_compared_with_times_have_polars_units(predicate, tmp_path):
    table = pa.table({"t": pa.array([0, 1, 7, None], pa.time32("ms")), "n": range(4)})
    pq.write_table(table, tmp_path / "a.parquet")
    scanned = ia.polars.scan(tmp_path / "a.parquet").filter(predicate).collect()
    assert_frame_equal(scanned, pl.from_arrow(table).filter(predicate))


@pytest.mark.parametrize(
    "predicate", [c("l").list.contains(10**20), c("i").cast(pl.Int128) == 1], ids=str
)
def test_constants_that_arrow_lacks_are_left_to_polars(predicate, tmp_path):
    pq.write_table(pa.table({"i": [1, 2], "l": [[1], [2, 3]]}), tmp_path / "a.parquet")
    frame = pl.read_parquet(tmp_path / "a.parquet")
    scanned = ia.polars.scan(tmp_path / "a.parquet").filter(predicate).collect()
    assert_frame_equal(scanned, frame.filter(predicate))


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
    for reader in ("auto", "pages"):
        scan = ia.polars.scan(data.with_options(reader=reader))
        assert_frame_equal(scan.filter(predicate).collect(), frame.filter(predicate))


NO_COLUMNS = {
    "count": lambda frame: frame.with_row_index().select(pl.len()),
    "numbers": lambda frame: frame.with_row_index().select("index"),
    "some": lambda frame: frame.with_row_index().head(3).select(pl.len()),
    "numbers of a range": lambda frame: frame.select(pl.int_range(pl.len())),
    "filtered by number": lambda frame: (
        frame.with_row_index().filter(pl.col("index") > 5).select(pl.len())
    ),
}


@pytest.mark.parametrize("requests", NO_COLUMNS.values(), ids=NO_COLUMNS)
@pytest.mark.parametrize("engine", ["in-memory", "streaming"])
def test_rows_are_counted_without_columns(requests, engine, tmp_path):
    table = pa.table({"a": range(60)})
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=25)
    actual = requests(ia.polars.scan(tmp_path)).collect(engine=engine)
    assert actual.equals(requests(pl.from_arrow(table).lazy()).collect())


def test_columns_have_any_name(tmp_path):
    table = pa.table({"*": [1, 2], "a": [3, 4], "^a$": [5, 6], "": [7, 8]})
    pq.write_table(table, tmp_path / "a.parquet")
    frame = ia.polars.scan(tmp_path)
    assert frame.collect().to_dict(as_series=False) == table.to_pydict()
    actual = frame.filter(pl.col("a") > 3).select(cs.by_name("*", "")).collect()
    assert actual.to_dicts() == [{"*": 2, "": 8}]


def test_one_of_thousands_of_floats(tmp_path):
    pq.write_table(pa.table({"x": [-0.0, 0.5, 7.0]}), tmp_path / "a.parquet")
    members = [float(number) for number in range(20_000)]
    actual = ia.polars.scan(tmp_path).filter(pl.col("x").is_in(members)).collect()
    assert actual["x"].to_list() == [0.0, 7.0]


def test_decimals_of_256_bits_become_polars_decimals(tmp_path):
    quarters = [Decimal(n) / 4 for n in range(100)]
    columns = {
        "e": pa.array(quarters, pa.decimal256(20, 2)),
        "d": pa.array(quarters, pa.decimal256(50, 2)),
        "l": pa.array([[one] for one in quarters], pa.list_(pa.decimal256(20, 2))),
        "r": range(100),
    }
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table(columns), path, max_rows_per_page=10, write_page_index=True)
    scan = ia.polars.scan(path)
    narrow = pl.Decimal(20, 2)
    assert dict(scan.collect_schema()) == {
        "e": narrow,
        "d": pl.Float64,
        "l": pl.List(narrow),
        "r": pl.Int64,
    }
    assert scan.filter(c("e") == quarters[7]).select("r", "l").collect().rows() == [
        (7, [quarters[7]])
    ]
    assert scan.filter(c("d").is_between(2, 2.25)).select("r").collect().rows() == [(8,), (9,)]
    filtered = ia.dataset(path).filter(pc.field("d") == quarters[7])
    with pytest.raises(ia.UnsupportedError, match="filter uses decimals of 256 bits"):
        ia.polars.scan(filtered)
    assert ia.polars.scan(ia.dataset(path).filter("r = 7")).select("d").collect().rows() == [
        (1.75,)
    ]


def test_an_index_on_the_hour_serves_it(tmp_path):
    moments = [datetime.datetime(2020, 1, 2, i // 500) for i in range(10_000)]
    table = pa.table({"ts": pa.array(moments, pa.timestamp("us")), "n": range(10_000)})
    path, index = tmp_path / "t.parquet", "lookup(hour(ts), granule_rows=500)"
    ia.write_table(table, path, max_rows_per_page=500, indexes=[index])
    predicate = pl.col("ts").dt.hour() == 7
    source = ia.dataset(path)
    actual = ia.polars.scan(source).filter(predicate).collect()
    assert actual["n"].to_list() == list(range(3500, 4000))
    pushed = arrow_predicate(predicate, source.schema)
    assert source.explain(filter=pushed).planned.rows.selected == 500
