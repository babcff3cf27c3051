import functools
import math
import operator
import pickle

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from intarsia.expr.comparison_operators import Op
from intarsia.expr.tree import Call, FieldRef, Literal, read_expression
from intarsia.pruning.builder import complement_of, pruning_of
from intarsia.pruning.predicates import (
    And,
    Comparison,
    How,
    Maybe,
    Never,
    Or,
    SearchPredicate,
    predicates_of,
    rows_left,
)
from intarsia.pruning.term import field_term, term_of
from intarsia.row_ranges import RowRanges

X, Y = pc.field("x"), pc.field("y")
NULL = pc.scalar(pa.scalar(None, pa.bool_()))


def pruning(expression):
    return pruning_of(read_expression(expression))


def on_x(op, *values, **passing):
    return about(("x",), op, *values, **passing)


def about(path, op, *values, **passing):
    literals = {"values": pa.array(values)} if values else {}
    return Comparison(field_term(*path), op, **literals, **passing)


def text(how, pattern, ignore_case=False, path=("x",), **more):
    return SearchPredicate(field_term(*path), how, pattern, ignore_case, **more)


COMPARISONS = [
    (X == 1, Op.EQ, Op.NE),
    (X != 1, Op.NE, Op.EQ),
    (X < 1, Op.LT, Op.GE),
    (X <= 1, Op.LE, Op.GT),
    (X > 1, Op.GT, Op.LE),
    (X >= 1, Op.GE, Op.LT),
]


@pytest.mark.parametrize(("expression", "op", "negated"), COMPARISONS)
def test_a_comparison_lets_nan_through_only_where_it_is_not_equal(expression, op, negated):
    assert pruning(expression) == on_x(op, 1, nans=op is Op.NE)


@pytest.mark.parametrize(("expression", "op", "negated"), COMPARISONS)
def test_not_lets_nan_through_but_never_null(expression, op, negated):
    assert pruning(~expression) == on_x(negated, 1, nans=op is not Op.NE)
    assert pruning(~~expression) == pruning(expression)


@pytest.mark.parametrize(
    ("function", "op"),
    [
        (pc.less, Op.GT),
        (pc.less_equal, Op.GE),
        (pc.greater, Op.LT),
        (pc.greater_equal, Op.LE),
        (pc.equal, Op.EQ),
        (pc.not_equal, Op.NE),
    ],
)
def test_a_literal_on_the_left_turns_the_comparison_round(function, op):
    assert pruning(function(pc.scalar(1), X)) == on_x(op, 1, nans=op is Op.NE)


def test_a_comparison_with_null_is_never_true_nor_false():
    null = pc.scalar(pa.scalar(None, pa.int64()))
    assert pruning(null == X) == pruning(~(null > X)) == Never()
    assert pruning(NULL) == pruning(~NULL) == Never()


def test_a_comparison_with_nan_is_not_judged():
    assert pruning(math.nan == X) == pruning(~(math.nan > X)) == Maybe()


def test_and_or_and_de_morgan():
    assert pruning((X > 1) & (X < 5)) == And((on_x(Op.GT, 1), on_x(Op.LT, 5)))
    assert pruning((X > 1) | (X < 5)) == Or((on_x(Op.GT, 1), on_x(Op.LT, 5)))
    negated = (on_x(Op.LE, 1, nans=True), on_x(Op.GE, 5, nans=True))
    assert pruning(~((X > 1) & (X < 5))) == Or(negated)
    assert pruning(~((X > 1) | (X < 5))) == And(negated)


def test_unknown_conditions_are_dropped_from_and_and_decide_or():
    other = pc.utf8_is_alpha(Y)
    assert pruning(other) == Maybe()
    assert pruning((X > 1) & other) == on_x(Op.GT, 1)
    assert pruning((X > 1) | other) == Maybe()
    assert pruning(~((X > 1) & other)) == Maybe()


def test_constants():
    true, false = pc.scalar(True), pc.scalar(False)
    assert pruning(true) == pruning(~false) == Maybe()
    assert pruning(false) == pruning(~true) == Never()
    assert pruning((X > 1) & false) == Never()
    assert pruning((X > 1) | false) == on_x(Op.GT, 1)


def test_a_boolean_field():
    assert pruning(X) == on_x(Op.EQ, True)
    assert pruning(~X) == on_x(Op.EQ, False)


def test_null_tests():
    assert pruning(X.is_null()) == on_x(Op.NONE, nulls=True)
    assert pruning(~X.is_null()) == on_x(Op.ANY, nans=True)
    assert pruning(X.is_valid()) == on_x(Op.ANY, nans=True)
    assert pruning(~X.is_valid()) == on_x(Op.NONE, nulls=True)
    assert pruning(X.is_null(nan_is_null=True)) == on_x(Op.NONE, nulls=True, nans=True)
    assert pruning(~X.is_null(nan_is_null=True)) == on_x(Op.ANY)


def test_null_tests_of_conditions_are_not_judged():
    assert pruning((X > 1).is_null()) == pruning((X > 1).is_valid()) == Maybe()


def test_membership():
    assert pruning(X.isin([1, 2])) == on_x(Op.IN, 1, 2)
    assert pruning(~X.isin([1, 2])) == on_x(Op.NOT_IN, 1, 2, nulls=True, nans=True)


def test_membership_with_nan_in_the_set():
    assert pruning(X.isin([1.0, math.nan])) == on_x(Op.IN, 1.0, nans=True)
    assert pruning(~X.isin([1.0, math.nan])) == on_x(Op.NOT_IN, 1.0, nulls=True, nans=True)
    assert pruning(X.isin([math.nan])) == Maybe()  # cast to Boolean, NaN would be true


def test_membership_of_nothing():
    empty = pa.array([], pa.int64())
    term = field_term("x")
    assert pruning(X.isin(empty)) == Comparison(term, Op.NONE, empty)
    assert pruning(~X.isin(empty)) == Comparison(term, Op.NOT_IN, empty, nulls=True, nans=True)


MATCH, SKIP, EMIT_NULL, INCONCLUSIVE = range(4)


def membership(value, members, behavior):
    """The result of ``is_in``, by the documentation of ``SetLookupOptions``."""
    if value is None and behavior in (EMIT_NULL, INCONCLUSIVE):
        return None
    if value is None:
        return behavior == MATCH and None in members
    if value not in members and behavior == INCONCLUSIVE and None in members:
        return None
    return value in members


@pytest.mark.parametrize("behavior", [MATCH, SKIP, EMIT_NULL, INCONCLUSIVE])
@pytest.mark.parametrize("members", [[1, 2], [1, None], [None]])
@pytest.mark.parametrize("value", [1, 3, None])
def test_no_row_is_lost_under_any_null_matching_behavior(value, members, behavior):
    options = {
        "value_set": pa.scalar(members, pa.list_(pa.int64())),
        "null_matching_behavior": pa.scalar(behavior),
    }
    is_in = Call("is_in", (FieldRef(("x",)),), options)
    answer = membership(value, members, behavior)
    leaf = functools.partial(passes, value)
    for node, is_expected in ((is_in, answer is True), (Call("invert", (is_in,)), answer is False)):
        left = rows_left(pruning_of(node), RowRanges.all(1), leaf)
        assert left or not is_expected


@pytest.mark.parametrize("skip_nulls", [False, True])
@pytest.mark.parametrize("members", [[1, 2], [1, None], [None]])
def test_no_row_is_lost_whether_nulls_are_skipped_or_not(members, skip_nulls):
    values = pa.array(members, pa.int64())
    expression = pc.is_in(X, value_set=values, skip_nulls=skip_nulls)
    data = pa.table({"x": pa.array([1, 2, 3, None])})
    for condition in (expression, ~expression):
        for value in data.filter(condition)["x"].to_pylist():
            leaf = functools.partial(passes, value)
            assert rows_left(pruning(condition), RowRanges.all(1), leaf)


def passes(value, test):
    if value is None:
        return RowRanges.all(int(test.nulls))
    inside = value in test.values.to_pylist()
    answers = {Op.IN: inside, Op.NOT_IN: not inside, Op.NONE: False, Op.ANY: True}
    return RowRanges.all(int(answers[test.op]))


def test_the_null_matching_behavior_of_the_default():
    assert pruning(X.isin([1, None])) == on_x(Op.IN, 1, nulls=True)
    assert pruning(~X.isin([1, None])) == on_x(Op.NOT_IN, 1, nans=True)
    none = pa.array([], pa.int64())
    assert pruning(X.isin(pa.array([None], pa.int64()))) == Comparison(
        field_term("x"), Op.NONE, none, nulls=True
    )


def test_in_as_duckdb_wraps_it():
    wrapped = pc.if_else(X.is_valid(), X.isin([1, 2]), NULL)
    assert pruning(wrapped) == And((on_x(Op.ANY, nans=True), on_x(Op.IN, 1, 2)))
    assert pruning(~wrapped) == And(
        (on_x(Op.ANY, nans=True), on_x(Op.NOT_IN, 1, 2, nulls=True, nans=True))
    )


def test_if_else_needs_either_branch():
    chosen = pruning(pc.if_else(X > 5, Y == 1, Y == 2))
    one, two = (about(("y",), Op.EQ, n) for n in (1, 2))
    assert chosen == Or((And((on_x(Op.GT, 5), one)), And((on_x(Op.LE, 5, nans=True), two))))


def test_nested_fields():
    assert pruning(pc.field("a", "b") > 1).term.path == ("a", "b")
    assert pruning(pc.struct_field(pc.field("a"), "b") > 1) == about(("a", "b"), Op.GT, 1)


def test_two_fields_are_not_judged():
    assert pruning(X == Y) == Maybe()
    assert pruning(X / 2 == 2) == Maybe()


def test_a_predicate_may_be_on_a_function_of_fields():
    lowered = pc.utf8_lower(X)
    term = term_of(read_expression(lowered))
    assert pruning(lowered == "a") == Comparison(term, Op.EQ, pa.array(["a"]))
    assert pruning(~(lowered == "a")) == Comparison(term, Op.NE, pa.array(["a"]), nans=True)
    assert pruning(lowered.is_null()) == Comparison(term, Op.NONE, nulls=True)
    assert str(pruning(X + Y * 2 > 3)) == "(x + (y * 2)) > 3"


def test_a_lossless_safe_cast_is_ignored():
    cast = X.cast(pa.int64())
    term = term_of(read_expression(cast))
    one = pa.array([1])
    assert pruning(cast > 1) == And((on_x(Op.GT, 1), Comparison(term, Op.GT, one)))
    assert pruning(cast.isin([1])) == And((on_x(Op.IN, 1), Comparison(term, Op.IN, one)))
    assert pruning(X.cast(pa.int8()) > 1) == on_x(Op.GT, 1)


@pytest.mark.parametrize("kind", [pa.date64(), pa.float32(), pa.float16()], ids=str)
def test_a_cast_that_may_round_is_not_ignored(kind):
    assert pruning(X.cast(kind) > 1) == Maybe()


def test_a_cast_to_a_date_is_a_term_of_its_own():
    assert str(pruning(X.cast(pa.date32()) > 1)) == "CAST(x AS DATE) > 1"


def test_an_unsafe_cast_is_not_ignored():
    assert pruning(X.cast(pa.int64(), safe=False) > 1) == Maybe()


@pytest.mark.parametrize(
    "expression",
    [
        X.cast(pa.float64()).is_null(nan_is_null=True),
        X.cast(pa.float64()).isin([math.nan]),
        X.cast(pa.float64()).isin([1.0, math.nan]),
    ],
)
def test_a_cast_may_turn_a_string_into_nan(expression):
    assert pa.table({"x": ["nan"]}).filter(expression).num_rows == 1
    assert pruning(expression) == Maybe()


def test_distinct_predicates_in_order():
    tree = pruning(((X > 1) & (Y < 2)) | ((X > 1) & (Y < 3)))
    assert [str(test) for test in predicates_of(tree)] == ["x > 1", "y < 2", "y < 3"]
    assert predicates_of(Maybe()) == predicates_of(Never()) == []


@pytest.mark.parametrize(
    ("test", "shown"),
    [
        (on_x(Op.EQ, 1), "x = 1"),
        (on_x(Op.IN, 1, 2), "x IN (1, 2)"),
        (on_x(Op.NOT_IN, 1, 2, 3, 4), "x NOT IN (1, 2, 3, … 4 values)"),
        (on_x(Op.NONE, nulls=True), "x IS NULL"),
        (on_x(Op.ANY), "x IS NOT NULL"),
        (about(("a", "b"), Op.LT, 1), "a.b < 1"),
        (text(How.LIKE, "%a%"), "x LIKE '%a%'"),
        (text(How.SUBSTRING, "a", True, negated=True), "NOT x contains 'a' in any case"),
        (text(How.LIKE, "a", through="utf8_lower"), "lower(x) LIKE 'a'"),
        (
            SearchPredicate(field_term("x"), How.LIST_ANY, values=pa.array([1, 2])),
            "x contains any of (1, 2)",
        ),
    ],
)
def test_a_predicate_is_shown_as_sql(test, shown):
    assert str(test) == shown


def test_a_pruning_tree_is_pickled_without_hashes_of_this_process():
    tree = pruning((X > 1) & pc.match_like(Y, "a%"))
    again = pickle.loads(pickle.dumps(tree))
    assert again == tree
    assert hash(again) == hash(tree)
    assert b"_hash" not in pickle.dumps(tree)


def test_many_terms_are_flattened():
    many = functools.reduce(operator.or_, (i > X for i in range(100)))
    assert len(pruning(many).parts) == 100


def test_alternatives_for_one_term_are_one_membership():
    many = functools.reduce(operator.or_, (i == X for i in range(5000)))
    test = pruning(many | X.isin([-1, 7]) | (Y == "a"))
    assert str(test.parts[1]) == "y = a"
    assert test.parts[0].op is Op.IN
    assert set(test.parts[0].values.to_pylist()) == {-1, *range(5000)}


def test_exclusions_for_one_term_are_one_membership():
    many = functools.reduce(operator.and_, (i != X for i in range(5000)))
    test = pruning(many & ~X.isin([7, 5001]) & (Y != "a"))
    assert [str(part) for part in test.parts[1:]] == [
        "x NOT IN (7, 5001)",  # NULL passes it, and no comparison
        "y <> a",
    ]
    assert test.parts[0].op is Op.NOT_IN
    assert test.parts[0].values.to_pylist() == list(range(5000))


def test_alternatives_of_other_types_nulls_or_floats_stay_apart():
    apart = (X == 1) | (pa.scalar(2, pa.int8()) == X) | X.isin([3, None]) | (Y == "a")
    assert len(pruning(apart).parts) == 4
    assert len(pruning((X == 0.0) | (X == 1.5)).parts) == 2


def test_rows_left():
    rows = {1: RowRanges.of((0, 6)), 5: RowRanges.of((4, 10))}

    def leaf(test):
        return rows[test.values[0].as_py()]

    everything = RowRanges.all(20)
    assert rows_left(Maybe(), everything, leaf) == everything
    assert rows_left(Never(), everything, leaf) == RowRanges.none()
    assert rows_left(pruning((X > 1) & (X < 5)), everything, leaf) == RowRanges.of((4, 6))
    assert rows_left(pruning((X > 1) | (X < 5)), everything, leaf) == RowRanges.of((0, 10))
    assert rows_left(pruning(X > 1), RowRanges.of((5, 8)), leaf) == RowRanges.of((5, 6))


@pytest.mark.parametrize(
    ("matching", "low", "high"),
    [
        (pc.starts_with(X, "ab"), "ab", "ac"),
        (pc.match_like(X, "ab%c"), "ab", "ac"),
        (pc.match_like(X, "ab_"), "ab", "ac"),
        (pc.match_like(X, "ab\\%"), "ab", "ac"),
        (pc.match_like(X, "é"), "é", "ê"),
    ],
)
def test_strings_with_a_prefix_lie_between_two_bounds(matching, low, high):
    above, below, match = pruning(matching).parts
    assert (above, below) == (on_x(Op.GE, low), on_x(Op.LT, high))
    assert match.term == field_term("x")
    assert match.how in (How.STARTS_WITH, How.LIKE)


@pytest.mark.parametrize("last", ["\ud7ff", "\U0010ffff"])
def test_a_prefix_without_a_successor_has_no_upper_bound(last):
    match = text(How.STARTS_WITH, "a" + last)
    assert pruning(pc.starts_with(X, "a" + last)) == And((on_x(Op.GE, "a" + last), match))


def test_a_pattern_without_a_prefix_matches_any_string():
    assert pruning(pc.match_like(X, "%a")) == And((on_x(Op.ANY), text(How.LIKE, "%a")))
    any_case = pc.match_like(X, "ab%", ignore_case=True)
    assert pruning(any_case) == And((on_x(Op.ANY), text(How.LIKE, "ab%", True)))
    assert pruning(~pc.starts_with(X, "a")) == text(How.STARTS_WITH, "a", negated=True)


@pytest.mark.parametrize(
    ("search", "how"),
    [
        (pc.match_substring, How.SUBSTRING),
        (pc.match_substring_regex, How.REGEX),
        (pc.ends_with, How.ENDS_WITH),
    ],
)
def test_string_searches_are_search_predicates(search, how):
    assert pruning(search(X, "a")) == text(how, "a")
    assert pruning(search(X, "a", ignore_case=True)) == text(how, "a", True)
    assert pruning(~search(X, "a")) == text(how, "a", negated=True)
    escapes = complement_of(read_expression(search(X, "a")))
    assert escapes == text(how, "a", negated=True, nulls=True)


def test_a_search_in_a_lowered_string_also_searches_the_string():
    lowered = term_of(read_expression(pc.utf8_lower(X)))
    actual = pruning(pc.match_substring(pc.utf8_lower(X), "a"))
    through = text(How.SUBSTRING, "a", through="utf8_lower")
    assert actual == And((SearchPredicate(lowered, How.SUBSTRING, "a"), through))


def test_a_search_is_recognized_under_casts_to_string_only():
    def terms(kind):
        return [str(test.term) for test in predicates_of(pruning(search(X.cast(kind))))]

    def search(value):
        return pc.match_substring(value, "a")

    assert terms(pa.string()) == ["x", "CAST(x AS VARCHAR)"]
    assert terms(pa.binary()) == []


def test_membership_in_lists_is_a_search_predicate():
    def call(name, literal):
        return Call(f"ia.{name}", (FieldRef(("x",)), Literal(pa.scalar(literal))))

    x, values = field_term("x"), pa.array([1, 2])
    assert pruning_of(call("list_contains", 1)) == SearchPredicate(
        x, How.LIST_ANY, values=pa.array([1])
    )
    assert pruning_of(call("list_contains_any", [1, 2])) == SearchPredicate(
        x, How.LIST_ANY, values=values
    )
    both = call("list_contains_all", [1, None, 2])
    assert pruning_of(both) == SearchPredicate(x, How.LIST_ALL, values=values)
    assert pruning_of(call("map_contains", 1)) == SearchPredicate(
        x, How.MAP_ANY, values=pa.array([1])
    )
    assert pruning_of(call("contains_words", "a b")) == text(How.WORDS, "a b")
    assert pruning_of(call("list_contains", None)) == Never()
    negated = SearchPredicate(x, How.LIST_ALL, values=values, negated=True)
    assert pruning_of(Call("invert", (both,))) == negated


def test_nan_is_searched_separately():
    assert pruning(pc.is_nan(X)) == on_x(Op.NONE, nans=True)
    assert pruning(~pc.is_nan(X)) == on_x(Op.ANY)
    assert str(pruning(pc.is_nan(X + 1))) == "(x + 1) IS NAN"
    assert str(pruning(pc.is_nan(X))) == "x IS NAN"


def test_coalesce_with_the_other_truth_value_changes_nothing():
    assert pruning(pc.coalesce(X > 1, pc.scalar(False))) == on_x(Op.GT, 1)
    assert pruning(~pc.coalesce(X > 1, pc.scalar(True))) == on_x(Op.LE, 1, nans=True)
    assert pruning(pc.coalesce(X > 1, pc.scalar(True))) == Maybe()
