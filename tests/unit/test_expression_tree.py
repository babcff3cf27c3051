import datetime
import functools
import operator

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pytest

from intarsia.expr import tree
from intarsia.expr.tree import (
    Call,
    FieldRef,
    Literal,
    Opaque,
    conjuncts,
    field_paths,
    joined,
    read_expression,
    replaced,
    to_expression,
)
from intarsia.pyarrow_internals import call

X = pc.field("x")


def test_a_field():
    assert read_expression(X) == FieldRef(("x",))


def test_a_nested_field():
    assert read_expression(pc.field("a", "b", "c")) == FieldRef(("a", "b", "c"))


@pytest.mark.parametrize("name", ["", "a.b", "a b", "ü", "end", "call", "literal", "0"])
def test_fields_of_odd_names(name):
    assert read_expression(pc.field(name) == 1).arguments[0] == FieldRef((name,))
    assert read_expression(pc.field("top", name)) == FieldRef(("top", name))


@pytest.mark.parametrize(
    "value",
    [
        pa.scalar(1),
        pa.scalar(1, pa.int8()),
        pa.scalar(2**64 - 1, pa.uint64()),
        pa.scalar(1.5),
        pa.scalar(1.5, pa.float32()),
        pa.scalar("text"),
        pa.scalar("text", pa.large_string()),
        pa.scalar("end"),
        pa.scalar(b"\x00\xff"),
        pa.scalar(True),
        pa.scalar(None),
        pa.scalar(None, pa.int64()),
        pa.scalar(datetime.date(2020, 1, 1)),
        pa.scalar(5, pa.timestamp("ns", "Asia/Tokyo")),
        pa.scalar(5, pa.time64("us")),
        pa.scalar(5, pa.duration("ms")),
        pa.scalar([1, None]),
        pa.scalar({"a": 1}),
    ],
    ids=lambda value: str(value.type),
)
def test_a_literal_keeps_its_type_and_value(value):
    actual = read_expression(pc.scalar(value))
    assert isinstance(actual, Literal)
    assert actual.value.type == value.type
    assert actual.value.equals(value)


@pytest.mark.parametrize(
    ("expression", "function"),
    [
        (X == 1, "equal"),
        (X != 1, "not_equal"),
        (X < 1, "less"),
        (X <= 1, "less_equal"),
        (X > 1, "greater"),
        (X >= 1, "greater_equal"),
        (X + 1, "add_checked"),
        (X - 1, "subtract_checked"),
        (X * 1, "multiply_checked"),
        (X / 1, "divide_checked"),
    ],
)
def test_operators_of_a_field_and_a_literal(expression, function):
    assert read_expression(expression) == Call(function, (FieldRef(("x",)), Literal(pa.scalar(1))))


@pytest.mark.parametrize(
    ("expression", "function"),
    [(pc.field("a") & pc.field("b"), "and_kleene"), (pc.field("a") | pc.field("b"), "or_kleene")],
)
def test_operators_of_two_conditions(expression, function):
    assert read_expression(expression) == Call(function, (FieldRef(("a",)), FieldRef(("b",))))


def test_not():
    assert read_expression(~X) == Call("invert", (FieldRef(("x",)),))


def test_is_valid():
    assert read_expression(X.is_valid()) == Call("is_valid", (FieldRef(("x",)),))


@pytest.mark.parametrize("nan_is_null", [True, False])
def test_is_null_and_its_option(nan_is_null):
    node = read_expression(X.is_null(nan_is_null=nan_is_null))
    assert node.function == "is_null"
    assert node.options["nan_is_null"].as_py() is nan_is_null


def test_is_in_and_its_set():
    node = read_expression(X.isin([3, None, 5]))
    assert (node.function, node.arguments) == ("is_in", (FieldRef(("x",)),))
    assert node.options["value_set"].values.to_pylist() == [3, None, 5]


def test_a_cast_and_its_type():
    node = read_expression(X.cast(pa.timestamp("ms", "UTC")))
    assert node.function == "cast"
    assert node.options["to_type"].type == pa.timestamp("ms", "UTC")


def test_a_function_of_three_arguments():
    node = read_expression(pc.if_else(pc.field("c"), X, pc.scalar(2)))
    assert node == Call("if_else", (FieldRef(("c",)), FieldRef(("x",)), Literal(pa.scalar(2))))


def test_repeated_functions_fields_and_literals_are_all_kept():
    node = read_expression(((X == 1) | (X == 1)) & ((X == 1) | (X == 2)))
    one = Call("equal", (FieldRef(("x",)), Literal(pa.scalar(1))))
    two = Call("equal", (FieldRef(("x",)), Literal(pa.scalar(2))))
    assert node == Call(
        "and_kleene", (Call("or_kleene", (one, one)), Call("or_kleene", (one, two)))
    )


def test_options_belong_to_the_call_they_were_given_to():
    node = read_expression(X.isin([1]) & pc.field("y").isin([2, 3]) & pc.match_like(X, "a%"))
    first, second, like = node.arguments
    assert first.options["value_set"].values.to_pylist() == [1]
    assert second.options["value_set"].values.to_pylist() == [2, 3]
    assert like.options["pattern"].as_py() == "a%" or like.options["pattern"].as_py() == b"a%"


def test_a_field_by_position_is_opaque():
    assert isinstance(read_expression(pc.field(0) == 1), Opaque)


@pytest.mark.parametrize("terms", [50, 3000])
def test_many_terms(terms):
    many = functools.reduce(operator.or_, (i == X for i in range(terms)))
    assert field_paths(read_expression(many)) == {("x",)}


def test_the_fields_of_an_expression():
    expression = (pc.field("a", "b") > 1) & (pc.field("c").is_null() | (pc.scalar(1) == 1))
    assert field_paths(read_expression(expression)) == {("a", "b"), ("c",)}
    assert field_paths(read_expression(pc.scalar(True))) == set()


def test_the_fields_of_an_opaque_expression_are_unknown():
    assert field_paths(Opaque(X)) is None
    assert field_paths(Call("equal", (FieldRef(("x",)), Opaque(X)))) is None


CONDITIONS = [
    pc.field("a") == 5,
    pc.field("s").isin(["x", None]),
    pc.match_substring(pc.field("m"), "dd") | pc.field("q", "r").is_null(),
    ~(pc.field("a") > 1),
    pc.scalar(True),
    pc.field("flag"),
]


def texts(nodes):
    return [str(to_expression(node)) for node in nodes]


@pytest.mark.parametrize("order", [[0, 1], [2, 1, 0], [5, 4], [0, 1, 2, 3, 4, 5]])
def test_conjuncts_are_what_ands_join(order):
    parts = [CONDITIONS[i] for i in order]
    nested = functools.reduce(lambda left, right: right & left, parts)
    joined_parts = functools.reduce(operator.and_, parts)
    assert texts(conjuncts(read_expression(joined_parts))) == list(map(str, parts))
    assert texts(conjuncts(read_expression(nested))) == list(map(str, reversed(parts)))


def test_conjuncts_of_ands_on_both_sides():
    a, b, c, d = CONDITIONS[:4]
    joined_parts = (a & b) & (c & d)
    assert texts(conjuncts(read_expression(joined_parts))) == list(map(str, (a, b, c, d)))


@pytest.mark.parametrize("alone", [*CONDITIONS, CONDITIONS[0] | CONDITIONS[1], ds.field(0) == 1])
def test_an_expression_that_is_no_and_is_its_own_conjunct(alone):
    assert texts(conjuncts(read_expression(alone))) == [str(alone)]


UUIDS = pa.array([b"0123456789abcdef", None], pa.uuid())


@pytest.mark.parametrize(
    "expression",
    [
        *CONDITIONS,
        ds.field(0) == 1,
        functools.reduce(operator.and_, CONDITIONS),
        functools.reduce(operator.or_, [CONDITIONS[0] & CONDITIONS[3]] * 3000),
        pc.field("a", "b", "c").cast(pa.timestamp("ms", "UTC")) == pa.scalar(None, pa.date32()),
        pc.map_lookup(pc.field("m"), pa.scalar("k"), "first") > 1,
        pc.round(X, 2) < pc.scalar({"a": [1, None]}),
        UUIDS[0] == X,
        X.isin(pa.chunked_array([UUIDS]).combine_chunks()),
        pc.match_substring(X, b"\xff"),
        call("nonesuch", [X, pc.scalar(pa.scalar(None))]),
    ],
    ids=lambda expression: str(type(read_expression(expression)).__name__),
)
def test_a_tree_is_written_as_the_expression_that_was_read(expression):
    node = read_expression(expression)
    read_expression(X)  # forgets the last one
    written = to_expression(node)
    read_expression(X)
    assert read_expression(written) == node


def test_chains_are_one_call_and_are_written_as_flat_trees():
    terms = [pc.field("a") == number for number in range(5)]
    node = read_expression(functools.reduce(operator.or_, terms))
    assert len(node.arguments) == 5
    assert str(to_expression(joined("or_kleene", node.arguments[:4]))) == (
        "((((a == 0) or (a == 1)) or (a == 2)) or (a == 3))"
    )
    deep = joined("or_kleene", [node, *[Literal(pa.scalar(True))] * 100_000])
    assert len(deep.arguments) == 100_005
    assert isinstance(to_expression(deep), pc.Expression)


def test_parts_are_replaced_from_within():
    def change(node):
        match node:
            case FieldRef(("a",)):
                return FieldRef(("b",))
            case Call("invert", (Call("equal"),)):
                return Call("or_kleene", (node, FieldRef(("c",))))
        return node

    a, b, c, d = map(pc.field, "abcd")
    node = read_expression(d | ~(a == 1))
    assert replaced(node, change) == read_expression(d | (~(b == 1) | c))
    assert len(replaced(node, change).arguments) == 3
    same = read_expression(d | (b == 1))
    assert replaced(same, change) is same


def test_a_form_that_this_version_does_not_know_is_opaque(monkeypatch):
    serialized = tree.serialized_of(X == 1)
    newer = serialized._replace(items=[("lambda", "1"), *serialized.items])
    monkeypatch.setattr(tree, "serialized_of", lambda _: newer)
    expression = pc.field("y") == 1
    assert read_expression(expression) == Opaque(expression)
