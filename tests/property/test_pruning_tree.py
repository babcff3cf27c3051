import functools
import math

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from intarsia.expr.tree import read_expression
from intarsia.parquet.column_order import order_of
from intarsia.parquet.metadata import (
    ColumnMetaData,
    Empty,
    LogicalType,
    SchemaElement,
    Statistics,
    Type,
)
from intarsia.parquet.statistics import chunk_bounds
from intarsia.pruning.bounds_comparison import rows_might_match
from intarsia.pruning.builder import pruning_of
from intarsia.pruning.predicates import Comparison, rows_left
from intarsia.row_ranges import RowRanges

KINDS = {"i": pa.int64(), "f": pa.float64(), "g": pa.float32(), "s": pa.string(), "b": pa.bool_()}
TEXT = LogicalType(STRING=Empty())
ELEMENTS = {
    "i": SchemaElement(name="i", type=Type.INT64),
    "f": SchemaElement(name="f", type=Type.DOUBLE),
    "g": SchemaElement(name="g", type=Type.FLOAT),
    "s": SchemaElement(name="s", type=Type.BYTE_ARRAY, logicalType=TEXT),
    "b": SchemaElement(name="b", type=Type.BOOLEAN),
}
NUMPY = {"i": "<i8", "f": "<f8", "g": "<f4", "b": "u1"}
INTEGERS = st.integers(-3, 3) | st.sampled_from([2**53 - 1, -(2**53) + 1, 2**24 + 1])
FLOATS = st.sampled_from([-0.0, 0.0, 0.1, 1.0, 1.5, -2.5, 16777217.0, math.inf, math.nan])
NARROW = FLOATS.map(lambda value: float(np.float32(value)))
TEXTS = st.text("ab\x00ü", max_size=3)
VALUES = {"i": st.integers(-3, 3), "f": FLOATS, "g": NARROW, "s": TEXTS, "b": st.booleans()}
LITERALS = {
    "i": INTEGERS | FLOATS,
    "f": FLOATS | st.integers(-3, 3),
    "g": FLOATS | st.integers(-3, 3),
    "s": TEXTS,
    "b": st.booleans(),
}
OPERATORS = [pc.equal, pc.not_equal, pc.less, pc.less_equal, pc.greater, pc.greater_equal]


@st.composite
def tables(draw):
    size = draw(st.integers(1, 8))
    columns = {
        name: pa.array(draw(st.lists(st.none() | VALUES[name], min_size=size, max_size=size)), kind)
        for name, kind in KINDS.items()
    }
    return pa.table({**columns, "row": range(size)})


@st.composite
def comparisons(draw):
    name = draw(st.sampled_from(list(KINDS)))
    literal = draw(LITERALS[name])
    kind = draw(st.sampled_from([None, KINDS[name]])) if type(literal) is int else None
    scalar = pc.scalar(pa.scalar(literal, kind))
    sides = draw(st.permutations([pc.field(name), scalar]))
    return draw(st.sampled_from(OPERATORS))(*sides)


@st.composite
def memberships(draw):
    name = draw(st.sampled_from(list(KINDS)))
    members = pa.array(draw(st.lists(st.none() | VALUES[name], max_size=4)), KINDS[name])
    field = pc.field(name)
    if draw(st.booleans()):
        return field.isin(members)
    null = pc.scalar(pa.scalar(None, pa.bool_()))
    return pc.if_else(field.is_valid(), field.isin(members), null)


@st.composite
def null_tests(draw):
    field = pc.field(draw(st.sampled_from(list(KINDS))))
    asked = st.sampled_from([field.is_null(), field.is_null(nan_is_null=True), field.is_valid()])
    return draw(asked)


@st.composite
def text_tests(draw):
    pattern = draw(TEXTS | st.text("ab%_ü\\", max_size=3).filter(lambda text: text[-1:] != "\\"))
    search = draw(st.sampled_from([pc.starts_with, pc.match_like]))
    return search(pc.field("s"), pattern, ignore_case=draw(st.booleans()))


NAN_TESTS = st.sampled_from([pc.is_nan(pc.field("f")), pc.is_nan(pc.field("g"))])
CONSTANTS = st.sampled_from([True, False, None]).map(lambda v: pc.scalar(pa.scalar(v, pa.bool_())))
LEAVES = (
    comparisons()
    | memberships()
    | null_tests()
    | text_tests()
    | NAN_TESTS
    | CONSTANTS
    | st.just(pc.field("b"))
)


def branches(inner):
    return (
        inner.map(lambda a: ~a)
        | st.tuples(inner, st.booleans()).map(lambda p: pc.coalesce(p[0], pc.scalar(p[1])))
        | st.tuples(inner, inner).map(lambda p: p[0] & p[1])
        | st.tuples(inner, inner).map(lambda p: p[0] | p[1])
        | st.tuples(inner, inner, inner).map(lambda p: pc.if_else(*p))
    )


EXPRESSIONS = st.recursive(LEAVES, branches, max_leaves=6)


def encoded(name, value):
    if name == "s":
        return value.encode()
    return np.array([value], dtype=NUMPY[name]).tobytes()


def row_of_statistics(name, value):
    """The metadata of a chunk that contains one value, as exact as a writer can make it."""
    is_nan = isinstance(value, float) and math.isnan(value)
    stored = None if value is None or is_nan else encoded(name, value)
    statistics = Statistics(
        null_count=int(value is None), min_value=stored, max_value=stored, nan_count=int(is_nan)
    )
    return ColumnMetaData(
        type=ELEMENTS[name].type, encodings=[], path_in_schema=[name], codec=0, num_values=1,
        total_uncompressed_size=0, total_compressed_size=0, data_page_offset=4,
        statistics=statistics,
    )  # fmt: skip


def bounds_of_rows(table):
    return {
        name: chunk_bounds(
            order_of(ELEMENTS[name]),
            [row_of_statistics(name, value) for value in table[name].to_pylist()],
            declared=True,
        )
        for name in KINDS
    }


@settings(max_examples=400, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(tables(), EXPRESSIONS)
def test_a_row_that_pyarrow_keeps_is_never_pruned(table, expression):
    kept = table.filter(expression)["row"].to_pylist()
    bounds = bounds_of_rows(table)

    @functools.cache
    def leaf(test):
        if not isinstance(test, Comparison) or not test.term.path:
            return RowRanges.all(table.num_rows)
        return RowRanges.from_mask(rows_might_match(test, bounds[test.term.path[0]]))

    pruning = pruning_of(read_expression(expression))
    left = rows_left(pruning, RowRanges.all(table.num_rows), leaf)
    assert set(kept) <= set(left.rows().tolist())


@settings(max_examples=200, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(tables(), comparisons() | memberships() | null_tests())
def test_no_single_predicate_loses_a_row(table, expression):
    pruning = pruning_of(read_expression(expression))
    bounds = bounds_of_rows(table)

    def leaf(test):
        if not isinstance(test, Comparison) or not test.term.path:
            return RowRanges.all(table.num_rows)
        return RowRanges.from_mask(rows_might_match(test, bounds[test.term.path[0]]))

    left = rows_left(pruning, RowRanges.all(table.num_rows), leaf)
    assert set(table.filter(expression)["row"].to_pylist()) <= set(left.rows().tolist())
