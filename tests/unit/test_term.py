import time

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import intarsia as ia
from intarsia.expr.comparison_operators import Op
from intarsia.expr.tree import read_expression
from intarsia.index.literal_encoding import exact_values
from intarsia.parquet.column_order import order_of
from intarsia.parquet.metadata import Empty, LogicalType, SchemaElement, Type
from intarsia.pruning import term as term_module
from intarsia.pruning.predicates import Comparison
from intarsia.pruning.term import columns_named, field_term, parse_term, term_of

X, S = pc.field("x"), pc.field("s")
TABLE = pa.table(
    {
        "x": [1, -2, None],
        "y": [0.5, 1.5, None],
        "s": ["Ab", "É", None],
        "odd.name": [7, 8, 9],
        "select": [1, 2, 3],
        "a": [{"b": 1}, {"b": None}, None],
        "ts": pa.array([0, 10**15, None], pa.timestamp("us")),
        "far": pa.array([0, 10**15, None], pa.timestamp("us", "Europe/Berlin")),
        "m": pa.array([[("k", "v"), ("it's", "{}")], [], None], pa.map_(pa.string(), pa.string())),
        "l": [[1], [], None],
    }
)
TERMS = {
    "lower": (pc.utf8_lower(S), "lower(s)"),
    "upper of lower": (pc.utf8_upper(pc.utf8_lower(S)), "upper(lower(s))"),
    "length": (pc.utf8_length(S), "length(s)"),
    "abs": (pc.abs(X), "abs(x)"),
    "sum": (X + pc.field("y"), "(x + y)"),
    "numbers": (X * 2 - 0.5, "((x * 2) - 0.5)"),
    "negative": (X + -1, "(x + -1)"),
    "large": (X * 1e300, "(x * 1e+300)"),
    "cast": (X.cast(pa.float64()), "CAST(x AS DOUBLE)"),
    "date": (pc.field("ts").cast(pa.date32(), safe=True), "CAST(ts AS DATE)"),
    "dots": (pc.field("odd.name") + 1, '("odd.name" + 1)'),
    "reserved": (pc.field("select") + 1, '("select" + 1)'),
    "nested": (pc.field("a", "b") + 1, "(a.b + 1)"),
    "negated": (pc.negate_checked(X), "(-x)"),
    "floor": (pc.floor(pc.field("y")), "floor(y)"),
    "ceil": (pc.ceil(pc.field("y") * 2), "ceil((y * 2))"),
    "hour": (pc.hour(pc.field("ts")), "hour(ts)"),
    "week": (pc.iso_week(pc.field("ts")), "week(ts)"),
    "minute in UTC": (
        pc.minute(pc.field("far").cast(pa.timestamp("us", "UTC"))),
        "minute(CAST(far AS TIMESTAMPTZ))",
    ),
    "day of the year": (pc.day_of_year(pc.field("ts")), "dayofyear(ts)"),
    "from Sunday on": (pc.day_of_week(pc.field("ts"), week_start=7), "dayofweek(ts)"),
    "from Monday on": (pc.day_of_week(pc.field("ts"), count_from_zero=False), "isodow(ts)"),
    "of a map": (pc.map_lookup(pc.field("m"), "k", "first"), "m['k']"),
    "quotes": (pc.map_lookup(pc.field("m"), "it's", "first"), "m['it''s']"),
    "braces": (pc.map_lookup(pc.field("m"), "{}{0}", "first"), "m['{}{0}']"),
    "in lower case": (
        pc.utf8_lower(pc.map_lookup(pc.field("m"), "k", "first")),
        "lower(m['k'])",
    ),
    "coalesce": (pc.coalesce(X, pc.field("odd.name"), 0), 'coalesce(x, "odd.name", 0)'),
    "coalesce of texts": (pc.coalesce(S, "it's"), "coalesce(s, 'it''s')"),
    "field of a struct": (pc.struct_field(pc.field("a"), "b") + 1, "(a.b + 1)"),
}


@pytest.mark.parametrize(("expression", "sql"), TERMS.values(), ids=TERMS)
def test_the_text_of_a_term_is_parsed_as_the_same_term(expression, sql):
    term = term_of(read_expression(expression))
    assert term.sql == sql
    assert parse_term(sql, TABLE.schema) == term
    assert not term.path


@pytest.mark.parametrize(
    "expression",
    [e for n, (e, _) in TERMS.items() if n != "date"],
    ids=[n for n in TERMS if n != "date"],
)
def test_the_expression_of_a_term_has_the_values_of_its_source(expression):
    term = term_of(read_expression(expression))
    actual = [
        TABLE.filter(pc.coalesce(e > pc.scalar(0), True) if "s" not in str(e) else e.is_valid())
        for e in (expression, term.expression)
    ]
    assert actual[0].equals(actual[1])
    assert str(term.expression) == str(read_back(term).expression)


def read_back(term):
    return parse_term(term.sql, TABLE.schema)


@pytest.mark.parametrize(
    "expression",
    [
        X / 2,
        pc.add(X, 1),
        pc.utf8_swapcase(S),
        pc.scalar(1) + 1,
        X.cast(pa.int64(), safe=False),
        X.cast(pa.int8()),
        X + pc.scalar(pa.scalar(1, pa.int8())),
        X + float("inf"),
        pc.coalesce(X, pc.scalar(pa.scalar(None, pa.int64()))),
        pc.multiply(X, 2),
        pc.round(pc.field("y")),
        pc.day_of_week(pc.field("ts")),
        pc.map_lookup(pc.field("m"), "k", "last"),
        pc.map_lookup(pc.field("m"), b"k", "first"),
        pc.year(pc.field("ts")),
        pc.field(0) + 1,
        X == 1,
    ],
    ids=str,
)
def test_other_expressions_are_no_terms(expression):
    assert term_of(read_expression(expression)) is None


@pytest.mark.parametrize(
    "text", ["", "1", "x = 1", "x) IS NULL OR (x", "nowhere + 1", "random()", "x IS NULL) OR (x"]
)
def test_text_that_is_no_term_is_refused(text):
    with pytest.raises(ia.PredicateError):
        parse_term(text, TABLE.schema)


def test_a_field_is_a_term_by_its_path():
    assert term_of(read_expression(pc.field("a", "b"))) == field_term("a", "b")
    assert field_term("a.b") != field_term("a", "b")
    assert (str(field_term("a", "b")), field_term("a", "b").meaning) == ("a.b", "")
    assert term_of(read_expression(X + pc.field("a", "b"))).fields == {("x",), ("a", "b")}


def test_the_meaning_of_case_changes_with_pyarrows_tables(monkeypatch):
    def meaning(expression):
        return term_of(read_expression(expression)).meaning

    assert meaning(pc.utf8_lower(S)) == meaning(pc.utf8_upper(S)) != meaning(X + 1)
    before = meaning(pc.utf8_lower(S))
    term_module._case_tables.cache_clear()
    lower = pc.utf8_lower
    change = lambda texts: pc.replace_substring(lower(texts), "\u1c8a", "!")  # noqa: E731
    monkeypatch.setattr(pc, "utf8_lower", change)
    assert meaning(X + 1) == meaning(X + 2)
    changed = meaning(pc.utf8_upper(S))
    term_module._case_tables.cache_clear()
    assert changed != before


def test_keys_of_many_values_take_milliseconds():
    count = 100_000
    text = SchemaElement(name="s", type=Type.BYTE_ARRAY, logicalType=LogicalType(STRING=Empty()))
    number = SchemaElement(name="x", type=Type.INT64)
    for element, values in (
        (text, pa.array([f"key {i}" for i in range(count)])),
        (number, pa.array(range(count))),
    ):
        test = Comparison(field_term("x"), Op.IN, values)
        start = time.process_time()
        assert len(exact_values(test, order_of(element))) == count
        assert time.process_time() - start < 0.5


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("lower(mail)", {"mail"}),
        ("attrs['k']", {"attrs"}),
        ('s.x + "A b"', {"s", "A b"}),
        ("coalesce(s.x.y, 7)", {"s"}),
        ("((", set()),
        ("'", set()),
        ("", set()),
        ("lower(" * 3000, set()),
    ],
)
def test_columns_in_the_text_of_a_term(text, names):
    assert columns_named(text) == names
