"""Functions within Expressions: their values for each row, and the arguments they refuse."""

from __future__ import annotations

import datetime
import math
import pickle
from dataclasses import replace
from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import intarsia as ia
from intarsia.expr.evaluate import compute_columns, evaluate
from intarsia.expr.functions import FUNCTIONS, LIST_CONTAINS
from intarsia.expr.tree import Call, FieldRef, read_expression
from intarsia.pruning.builder import complement_of, pruning_of
from intarsia.pruning.predicates import How, SearchPredicate
from intarsia.pruning.term import field_term

L = pc.field("l")
NAN = float("nan")


def values_of(expression, lists):
    return compute_columns({"v": expression}, pa.table({"l": lists}))["v"].to_pylist()


def test_a_call_is_an_ordinary_expression():
    expression = ~ia.list_contains("l", 2) & (pc.field("a") > 1)
    assert str(expression) == "(invert(ia.list_contains(l, 2)) and (a > 1))"
    assert pickle.loads(pickle.dumps(expression)).equals(expression)
    node = read_expression(ia.list_contains(pc.field("s", "l"), 2))
    assert isinstance(node, Call)
    assert node.function == LIST_CONTAINS
    assert node.arguments[0] == FieldRef(("s", "l"))
    match = SearchPredicate(field_term("s", "l"), How.LIST_ANY, values=pa.array([2]))
    assert pruning_of(node) == match
    assert complement_of(node) == replace(match, negated=True, nulls=True)


LISTS = [[1, 2], [], None, [None], [2], [3, None], [2, 2]]


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        (ia.list_contains("l", 2), [True, False, None, False, True, False, True]),
        (ia.list_contains("l", 2.0), [True, False, None, False, True, False, True]),
        (ia.list_contains("l", Decimal("2.00")), [True, False, None, False, True, False, True]),
        (ia.list_contains("l", 2.5), [False, False, None, False, False, False, False]),
        (ia.list_contains("l", 1e300), [False, False, None, False, False, False, False]),
        (ia.list_contains("l", None), [None, False, None, None, None, None, None]),
        (ia.list_contains_any("l", [1, 3, None]), [True, False, None, False, False, True, False]),
        (ia.list_contains_any("l", []), [False, False, None, False, False, False, False]),
        (ia.list_contains_any("l", [None]), [False, False, None, False, False, False, False]),
        (ia.list_contains_any("l", range(3, 99)), [False, False, None, False, False, True, False]),
        (ia.list_contains_all("l", [2, 1, 2]), [True, False, None, False, False, False, False]),
        (ia.list_contains_all("l", []), [True, True, None, True, True, True, True]),
        (ia.list_contains_all("l", [None, 2]), [True, False, None, False, True, False, True]),
        (ia.list_contains_all("l", [2, 2.5]), [False, False, None, False, False, False, False]),
        (ia.list_contains_all("l", range(99)), [False, False, None, False, False, False, False]),
        (ia.list_contains_any("l", pa.array([7])), [False] * 2 + [None] + [False] * 4),
        (ia.list_contains_any("l", pa.scalar(None, pa.list_(pa.int64()))), [None] * 7),
    ],
)
def test_values(expression, expected):
    for kind in (pa.list_(pa.int64()), pa.large_list(pa.int8())):
        assert values_of(expression, pa.array(LISTS, kind)) == expected


def test_nan_is_in_no_list_and_zeros_are_equal():
    lists = pa.array([[NAN], [0.0], [-0.0], [1.5]])
    assert values_of(ia.list_contains(L, NAN), lists) == [False] * 4
    assert values_of(ia.list_contains(L, 0), lists) == [False, True, True, False]
    assert values_of(ia.list_contains(L, -0.0), lists) == [False, True, True, False]
    many = ia.list_contains_any(L, [-0.0, NAN, 7.0, 8.0, 9.0, 10.0])
    assert values_of(many, lists) == [False, True, True, False]


def test_narrow_floats_are_compared_as_stored():
    lists = pa.array([[0.1], [0.5]], pa.list_(pa.float32()))
    assert values_of(ia.list_contains(L, 0.1), lists) == [False, False]
    assert values_of(ia.list_contains(L, pa.scalar(0.1, pa.float32())), lists) == [True, False]


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (pa.string(), "é"),
        (pa.large_string(), "é"),
        (pa.binary(), b"\xff"),
        (pa.bool_(), True),
        (pa.decimal128(9, 2), Decimal("1.10")),
        (pa.date32(), datetime.date(2020, 1, 2)),
        (pa.time64("us"), datetime.time(12)),
        (pa.timestamp("ns", "UTC"), datetime.datetime(2020, 1, 2, tzinfo=datetime.UTC)),
        (pa.duration("s"), datetime.timedelta(seconds=3)),
        (pa.dictionary(pa.int8(), pa.string()), "é"),
    ],
    ids=str,
)
def test_elements_of_many_types(kind, value):
    lists = pa.array([[value], [None], [], None], pa.list_(kind))
    assert values_of(ia.list_contains("l", value), lists) == [True, False, False, None]


def test_lists_of_one_size_and_maps():
    lists = pa.array([[1, 2], None, [3, 4], [None, 1]], pa.list_(pa.int64(), 2))
    assert values_of(ia.list_contains("l", 1), lists) == [True, None, False, True]
    assert values_of(ia.list_contains("l", 4), lists[2:]) == [True, False]
    maps = pa.array([[("a", 1)], [], None, [("b", 2), ("a", 3)]], pa.map_("string", "int64"))
    assert values_of(ia.map_contains("l", "a"), maps) == [True, False, None, True]
    assert values_of(ia.map_contains("l", "b"), maps[1:]) == [False, None, True]


def test_elements_under_a_null_list_are_ignored():
    lists = pa.ListArray.from_arrays(
        pa.array([0, 1, 2], pa.int32()), pa.array([7, 7]), mask=pa.array([True, False])
    )
    assert values_of(ia.list_contains("l", 7), lists) == [None, True]


@pytest.mark.parametrize(
    ("expression", "what"),
    [
        (ia.list_contains("i", 2), "int64 is not a list type"),
        (ia.list_contains("l", "x"), "does not compare"),
        (ia.list_contains_any("l", ["x"]), "does not compare"),
        (ia.list_contains("m", "a"), "is not a list type"),
        (ia.list_contains("n", 2), "does not compare"),
        (ia.map_contains("l", 2), "is not a map type"),
        (ia.map_contains("m", 2), "does not compare"),
        (pc.Expression._call(LIST_CONTAINS, [L, pc.field("i")]), "takes a constant"),
        (pc.Expression._call(LIST_CONTAINS, [L]), "takes 2 arguments"),
        (pc.Expression._call("nonesuch", [L]), "nonesuch"),
        (ia.list_contains("l", 2) & pc.Expression._call("nonesuch", [L]), "nonesuch"),
        (ia.list_contains(pc.field("l") + 1, 2), "cannot evaluate"),
    ],
)
def test_wrong_types_are_refused(expression, what, tmp_path):
    table = pa.table(
        {
            "l": [[1]],
            "i": [1],
            "n": [[[1]]],
            "m": pa.array([[("a", 1)]], pa.map_("string", "int64")),
        }
    )
    with pytest.raises(ia.PredicateError, match=what):
        evaluate(expression, table)
    ia.write_table(table, tmp_path / "t.parquet")
    with pytest.raises(ia.PredicateError, match=what):
        ia.dataset(tmp_path).to_table(filter=expression)


def test_several_values_are_not_a_string():
    with pytest.raises(TypeError, match="not a string or bytes"):
        ia.list_contains_any("l", "ab")


def test_calls_within_other_conditions_are_evaluated():
    inner = ia.list_contains(pc.field("s", "l"), 2)
    both = (inner | ~ia.list_contains(L, 3)) & pc.field("s", "l").is_valid()
    lists = [[2, 3], [3], [1], None]
    table = pa.table({"l": lists, "s": [None if one is None else {"l": one} for one in lists]})
    assert evaluate(both, table)["l"].to_pylist() == [[2, 3], [1]]


def test_column_names_do_not_collide_with_functions():
    table = pa.table({"__intarsia_call_0": [False], "l": [[2]]})
    expected = ia.list_contains("l", 2) & ~pc.field("__intarsia_call_0")
    assert evaluate(expected, table).equals(table)


def test_the_list_may_be_computed():
    table = pa.table({"l": [[1], [2]], "m": [[2], [1]], "b": [True, False]})
    chosen = pc.if_else(pc.field("b"), pc.field("l"), pc.field("m"))
    assert evaluate(ia.list_contains(chosen, 1), table).num_rows == 2
    of_call = pc.if_else(ia.list_contains("l", 1), pc.field("m"), pc.field("l"))
    assert evaluate(ia.list_contains(of_call, 2), table).num_rows == 2


NUMBERS = st.one_of(st.none(), st.integers(-3, 3))


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.one_of(st.none(), st.lists(NUMBERS, max_size=4)), max_size=12),
    st.lists(NUMBERS, max_size=8),
    st.integers(0, 5),
    st.sampled_from([pa.int8(), pa.float64(), pa.string()]),
)
def test_any_lists_and_values(lists, sought, start, kind):
    as_kind = (lambda v: str(v)) if kind == pa.string() else (lambda v: v)
    lists = [None if x is None else [None if v is None else as_kind(v) for v in x] for x in lists]
    sought = [None if v is None else as_kind(v) for v in sought]
    known = {v for v in sought if v is not None}
    column = pa.array(lists, pa.list_(kind))[start:]
    lists = lists[start:]

    def check(expression, test):
        expected = [None if x is None else test(set(x)) for x in lists]
        assert values_of(expression, column) == expected
        half = len(column) // 2
        assert values_of(expression, pa.chunked_array([column[:half], column[half:]])) == expected

    of_kind = pa.array(sought, kind)
    check(ia.list_contains_any("l", of_kind), lambda x: bool(x & known))
    check(ia.list_contains_all("l", of_kind), lambda x: known <= x)
    for value in known:
        check(ia.list_contains("l", pa.scalar(value, kind)), lambda x, v=value: v in x)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    lists = [[n, n % 7] if n % 5 else None for n in range(1000)]
    table = pa.table(
        {
            "row": range(1000),
            "l": pa.array(lists, pa.list_(pa.int64())),
            "s": [{"l": x, "x": n} for n, x in enumerate(lists)],
            "text": [f"t{n}" for n in range(1000)],
        }
    )
    path = tmp_path_factory.mktemp("functions") / "t.parquet"
    ia.write_table(table, path, max_rows_per_page=100, write_batch_size=100, row_group_size=500)
    return ia.dataset(path)


def test_filters_of_data_sets(data):
    expected = [n for n in range(1000) if n % 5 and (n == 3 or n % 7 == 3)]
    condition = ia.list_contains("l", 3)
    assert data.to_table(filter=condition)["row"].to_pylist() == expected
    assert data.count_rows(filter=condition) == len(expected)
    assert data.head(2, ["row"], condition)["row"].to_pylist() == expected[:2]
    assert data.take([1], ["row"], condition)["row"].to_pylist() == expected[1:2]
    assert data.filter(condition).to_table(["row"])["row"].to_pylist() == expected
    assert pickle.loads(pickle.dumps(data.filter(condition))).count_rows() == len(expected)
    nested = ia.list_contains(pc.field("s", "l"), 3)
    assert data.to_table(filter=nested)["row"].to_pylist() == expected
    batches = data.to_batches(["row"], ia.list_contains("l", 3) & (pc.field("row") < 10))
    assert [row for batch in batches for row in batch["row"].to_pylist()] == [3]
    (fragment,) = data.get_fragments(condition)
    assert fragment.to_table(filter=condition)["row"].to_pylist() == expected
    others = [n for n in range(1000) if n % 5 and n not in expected]
    assert data.to_table(["row"], ~condition)["row"].to_pylist() == others
    read = ia.ParquetFile(data.files[0]).read(["row"], filter=condition)
    assert read["row"].to_pylist() == expected


def test_filtered_data_sets_are_joined_and_sorted(data):
    schema = pa.schema([("row", pa.int64()), ("l", pa.list_(pa.int64()))])
    expected = data.replace_schema(schema).filter(ia.list_contains("l", 3))
    rows = expected.to_table()["row"].to_pylist()
    assert expected.sort_by([("row", "descending")]).to_table()["row"].to_pylist() == rows[::-1]
    other = data.replace_schema(pa.schema([("row", pa.int64())]))
    flat = ds.dataset(pa.table({"row": [3, 4]}))
    assert flat.join(other, "row", join_type="inner").count_rows() == 2
    asof = other.sort_by("row").join_asof(flat, "row", [], tolerance=0)
    assert asof.count_rows() == 1000
    few = other.filter(pc.field("row") < 4)
    assert few.join(flat, "row", join_type="inner").to_table()["row"].to_pylist() == [3]


def test_joins_and_sorting_of_a_filtered_data_set_keep_nan(tmp_path):
    table = pa.table({"x": [1.0, math.nan, 1.0, None], "row": range(4)})
    pq.write_table(table, tmp_path / "t.parquet")
    data = ia.dataset(tmp_path)
    flat = ds.dataset(pa.table({"row": range(4), "y": range(4)}))
    for condition in (pc.field("x") != 1, ~(pc.field("x") == 1), pc.field("x").isin([math.nan])):
        actual = data.filter(condition)
        expected = table.filter(condition)["row"].to_pylist()
        assert 1 in expected
        assert actual.sort_by("row").to_table()["row"].to_pylist() == expected
        joined = actual.join(flat, "row", join_type="inner").to_table()
        assert sorted(joined["row"].to_pylist()) == expected
        asof = actual.sort_by("row").join_asof(flat, "row", [], tolerance=0)
        assert asof.to_table()["row"].to_pylist() == expected


def test_computed_columns(data):
    columns = {"has": ia.list_contains("l", 3), "row": pc.field("row")}
    actual = data.to_table(columns)
    assert actual["has"].to_pylist() == [
        None if n % 5 == 0 else n == 3 or n % 7 == 3 for n in range(1000)
    ]
    assert data.to_table(columns, pc.field("row") == 3)["has"].to_pylist() == [True]


def test_pyarrows_pseudo_columns_are_refused_in_calls(data):
    with pytest.raises(ia.PredicateError, match="__fragment_index"):
        data.to_table(["__fragment_index"], ia.list_contains("l", 3))


def test_explain_shows_the_call(data):
    expected = ia.list_contains("l", 3) & (pc.field("row") < 150)
    actual = data.explain(["row"], expected, analyze=True)
    assert "ia.list_contains(l, 3)" in str(actual)
    assert actual.read.rows.selected == sum(n % 5 > 0 and n % 7 == 3 for n in range(150))
    assert actual.read.pages.selected < actual.read.pages.total / 2


def test_stages_evaluate_them(tmp_path):
    count = 70_000
    table = pa.table(
        {"row": range(count), "l": [[n % 3] for n in range(count)], "x": ["x"] * count}
    )
    ia.write_table(table, tmp_path / "t.parquet")
    data = ia.dataset(tmp_path)
    expected = ia.list_contains("l", 1) & (pc.field("row") < count - 1) & (pc.field("x") == "x")
    assert data.count_rows(filter=expected) == sum(n % 3 == 1 for n in range(count - 1))
    assert math.isclose(len(data.to_table(filter=expected)), count / 3, rel_tol=0.01)


def test_constants_that_are_views_or_from_dictionaries():
    lists = pa.array([["a", "b"], ["c"], None])
    for kind in (pa.string_view(), pa.large_string(), pa.dictionary(pa.int8(), pa.string())):
        values = pa.array(["a", "x", None], kind)
        assert values_of(ia.list_contains("l", values[0]), lists) == [True, False, None]
        assert values_of(ia.list_contains_any("l", values), lists) == [True, False, None]


def test_lists_that_are_views():
    cells = [["a", None], [], None, ["b", "a"]]
    for kind in (pa.list_view(pa.string()), pa.large_list_view(pa.string_view())):
        lists = pa.array([["z"], *cells], kind)[1:]
        actual = FUNCTIONS[LIST_CONTAINS].values(lists, pa.scalar("a"))
        assert actual.to_pylist() == [True, False, None, True]


def test_integers_are_found_among_decimals():
    lists = pa.array([[Decimal("1.00")], [Decimal("1.50")]], pa.list_(pa.decimal128(10, 2)))
    assert values_of(ia.list_contains("l", 1), lists) == [True, False]
    assert values_of(ia.list_contains("l", 10**15), lists) == [False, False]
