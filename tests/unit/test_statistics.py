import struct

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from intarsia import ParquetFile
from intarsia.expr.tree import read_expression
from intarsia.io.source import BufferSource
from intarsia.parquet.column_order import order_of
from intarsia.parquet.compact_protocol import (
    Span,
    list_elements,
    list_span,
    replace_fields,
    spans,
    varint,
)
from intarsia.parquet.footer import framed, read_footer
from intarsia.parquet.metadata import (
    ColumnMetaData,
    ColumnOrder,
    DecimalType,
    Empty,
    IntType,
    LogicalType,
    SchemaElement,
    Statistics,
    Type,
)
from intarsia.parquet.page_index import ColumnIndex
from intarsia.parquet.statistics import (
    UNKNOWN,
    chunk_bounds,
    order_is_declared,
    page_bounds,
    without_false_nulls,
)
from intarsia.parquet.thrift import encode
from intarsia.pruning.bounds_comparison import rows_might_match
from intarsia.pruning.builder import pruning_of

X = pc.field("x")
BINARY, STRUCT = 8, 12


def order(physical, logical=None, **other):
    logical = None if logical is None else LogicalType(**logical)
    return order_of(SchemaElement(name="x", type=physical, logicalType=logical, **other))


INT64, DOUBLE = order(Type.INT64), order(Type.DOUBLE)
UINT32 = order(Type.INT32, {"INTEGER": IntType(bitWidth=32, isSigned=False)})
STRING = order(Type.BYTE_ARRAY, {"STRING": Empty()})
INT96 = order(Type.INT96)
DECIMAL = order(Type.FIXED_LEN_BYTE_ARRAY, {"DECIMAL": DecimalType(scale=0, precision=4)},
                type_length=2)  # fmt: skip


def int64(value):
    return struct.pack("<q", value)


def double(value):
    return struct.pack("<d", value)


def chunk(num_values=10, **statistics):
    return ColumnMetaData(
        type=0, encodings=[], path_in_schema=["x"], codec=0, num_values=num_values,
        total_uncompressed_size=0, total_compressed_size=0, data_page_offset=4,
        statistics=Statistics(**statistics),
    )  # fmt: skip


def of_chunk(kind, *, declared=True, **statistics):
    return chunk_bounds(kind, [chunk(**statistics)], declared=declared)


def of_pages(kind, lows, highs, *, null_pages=None, nulls=None, nans=None, declared=True):
    index = ColumnIndex(
        np.array(null_pages or [False] * len(lows), dtype=np.bool_),
        lows,
        highs,
        0,
        None if nulls is None else np.array(nulls),
        None if nans is None else np.array(nans),
    )
    return page_bounds(kind, index, declared=declared)


def might(expression, bounds):
    return rows_might_match(pruning_of(read_expression(expression)), bounds).tolist()


def test_bounds_prune():
    bounds = of_pages(INT64, [int64(0), int64(10)], [int64(9), int64(19)])
    assert might(X == 12, bounds) == [False, True]
    assert might(X < 10, bounds) == [True, False]
    assert might(X <= 10, bounds) == [True, True]
    assert might(X > 9, bounds) == [False, True]
    assert might(X >= 9, bounds) == [True, True]
    assert might(X.isin([25, 9]), bounds) == [True, False]
    assert might(X.isin([25, -3]), bounds) == [False, False]
    assert might(X != 12, bounds) == [True, True]


def test_a_single_value_can_be_excluded():
    bounds = of_pages(INT64, [int64(5), int64(5)], [int64(5), int64(6)], nulls=[0, 0])
    assert might(X != 5, bounds) == [False, True]
    assert might(~X.isin([4, 5]), bounds) == [False, True]


@pytest.mark.parametrize("created_by", ["parquet-mr version 1.7.0", "hand-made", None])
def test_deprecated_bounds_of_strings_by_old_or_unknown_writers_are_not_used(created_by):
    file = with_deprecated_statistics(pa.table({"x": ["a", "b", "c"]}), b"c", b"c", created_by)
    assert file.read(filter=X == "a").num_rows == 1


def with_deprecated_statistics(table, low, high, created_by):
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, write_statistics=False)
    data = sink.getvalue().to_pybytes()
    footer = read_footer(BufferSource(data))
    raw = edited(footer.raw, 4, lambda group: edited(group, 1, lambda c: with_bounds(c, low, high)))
    fields = [span for span in spans(raw)[0] if span.number != 6]
    text = (created_by or "").encode()
    by = [Span(6, BINARY, varint(len(text)) + text)] if created_by else []
    return ParquetFile(BufferSource(data[: footer.offset] + framed(replace_fields(fields, by))))


def edited(raw, number, edit):
    fields, _ = spans(raw)
    (value,) = (span.value for span in fields if span.number == number)
    elements = [edit(element) for element in list_elements(value)]
    return replace_fields(fields, [list_span(number, elements)])


def with_bounds(column, low, high):
    fields, _ = spans(column)
    (value,) = (span.value for span in fields if span.number == 3)
    statistics = Span(12, STRUCT, encode(Statistics(min=low, max=high, null_count=0)))
    return replace_fields(fields, [Span(3, STRUCT, replace_fields(spans(value)[0], [statistics]))])


def test_deprecated_bounds_hold_for_signed_order():
    for declared in (True, False):
        bounds = of_chunk(INT64, declared=declared, min=int64(-5), max=int64(5))
        assert bounds.bounded.tolist() == [True]
        assert might(X > 5, bounds) == [False]


@pytest.mark.parametrize(
    ("kind", "low", "high"),
    [
        (UINT32, b"\x00" * 4, b"\x05\x00\x00\x00"),
        (STRING, b"a", b"z"),
        (DECIMAL, b"\x00\x01", b"\x00\x05"),
    ],
)
def test_deprecated_bounds_of_any_other_order_are_not_used(kind, low, high):
    assert of_chunk(kind, min=low, max=high).bounded.tolist() == [False]


def test_bounds_without_a_declared_order_are_not_used():
    given = {"min_value": int64(0), "max_value": int64(1)}
    assert of_chunk(INT64, declared=False, **given).bounded.tolist() == [False]
    assert of_chunk(INT64, declared=True, **given).bounded.tolist() == [True]
    pages = of_pages(INT64, [int64(0)], [int64(1)], declared=False)
    assert pages.bounded.tolist() == [False]


@pytest.mark.parametrize(
    ("column_order", "declared"),
    [
        (None, False),
        (ColumnOrder(), False),
        (ColumnOrder(INT96_TIMESTAMP_ORDER=Empty()), True),
        (ColumnOrder(TYPE_ORDER=Empty()), True),
        (ColumnOrder(IEEE_754_TOTAL_ORDER=Empty()), True),
    ],
)
def test_column_orders_are_known_that_declare_an_order(column_order, declared):
    assert order_is_declared(column_order) is declared


def test_only_a_count_of_nan_proves_that_there_is_none():
    given = ([double(1.0)], [double(1.0)])
    unknown, none, some = (of_pages(DOUBLE, *given, nans=n) for n in (None, [0], [2]))
    for expression in (X != 1.0, ~(X < 5.0), ~(X == 1.0)):
        assert might(expression, unknown) == [True]
        assert might(expression, some) == [True]
        assert might(expression, none) == [False]


def test_nan_never_makes_an_ordinary_comparison_true():
    bounds = of_pages(DOUBLE, [double(1.0)], [double(1.0)], nans=[3])
    assert might(X > 1.0, bounds) == [False]
    assert might(X == 2.0, bounds) == [False]


def test_a_bound_that_is_nan_is_not_used():
    nan = double(float("nan"))
    assert of_pages(DOUBLE, [double(0.0), nan], [nan, double(0.0)]).bounded.tolist() == [False] * 2


@pytest.mark.parametrize(("low", "high"), [(0.0, 5.0), (-5.0, -0.0), (-0.0, 0.0), (0.0, -0.0)])
@pytest.mark.parametrize("literal", [0.0, -0.0])
def test_a_zero_bound_may_hide_the_other_zero(low, high, literal):
    bounds = of_pages(DOUBLE, [double(low)], [double(high)], nans=[0])
    for expression in (literal == X, literal >= X, literal <= X, X.isin([literal, 77.0])):
        assert might(expression, bounds) == [True]


@pytest.mark.parametrize(("value", "member"), [(0.0, -0.0), (-0.0, 0.0)])
def test_is_in_distinguishes_zeros_as_pyarrow_does(value, member):
    assert pa.table({"x": [value]}).filter(~X.isin([member])).num_rows == 1
    bounds = of_pages(DOUBLE, [double(value)], [double(value)], nulls=[0], nans=[0])
    assert might(~X.isin([member]), bounds) == [True]


def test_a_missing_null_count_is_not_zero():
    bounds = of_chunk(INT64, min_value=int64(0), max_value=int64(1))
    assert bounds.null_counts.tolist() == [UNKNOWN]
    assert might(X.is_null(), bounds) == [True]
    assert might(X.is_null(), of_pages(INT64, [int64(0)], [int64(1)])) == [True]


def test_a_null_count_of_zero_rules_null_out():
    bounds = of_chunk(INT64, min_value=int64(0), max_value=int64(1), null_count=0)
    assert might(X.is_null(), bounds) == [False]


@pytest.mark.parametrize("count", [-1, -7])
def test_a_negative_null_count_is_unknown(count):
    assert might(X.is_null(), of_chunk(INT64, null_count=count)) == [True]


@pytest.mark.parametrize("count", [10, 100])
def test_a_null_count_that_is_too_large_does_not_hide_values(count):
    bounds = of_chunk(INT64, min_value=int64(0), max_value=int64(5), null_count=count)
    assert might(X == 3, bounds) == [True]


@pytest.mark.parametrize("count", [10, 20])
@pytest.mark.parametrize(
    "bounds",
    [
        {"min_value": int64(0), "max_value": int64(5)},
        {"min_value": int64(0)},
        {"min": int64(0), "max": int64(5)},
        {"max": int64(5)},
    ],
)
@pytest.mark.parametrize("declared", [True, False])
@pytest.mark.parametrize("kind", [INT64, STRING])
def test_a_chunk_with_bounds_has_a_value_whatever_its_null_count(kind, declared, bounds, count):
    actual = of_chunk(kind, declared=declared, **bounds, null_count=count)
    assert might(X.is_valid(), actual) == might(X.is_null(), actual) == [True]
    assert not actual.all_null.any()
    assert actual.null_counts.tolist() == [UNKNOWN]


def test_a_chunk_of_nulls_only_has_no_value():
    bounds = of_chunk(INT64, null_count=10)
    assert might(X == 3, bounds) == [False]
    assert might(X.is_valid(), bounds) == [False]
    assert might(X.is_null(), bounds) == [True]


def test_null_pages_is_ignored_if_the_null_count_is_zero():
    bounds = of_pages(INT64, [b""], [b""], null_pages=[True], nulls=[0])
    assert might(X == 3, bounds) == might(X.is_null(), bounds) == [True]


def test_a_null_page_with_a_negative_null_count_might_match_anything():
    # parquet-java has written null_pages = true and null_counts = -1 for pages without a NULL.
    bounds = of_pages(INT64, [b""], [b""], null_pages=[True], nulls=[-1])
    assert might(X == 3, bounds) == might(X.is_valid(), bounds) == [True]


@pytest.mark.parametrize(
    ("nulls", "rows", "of_chunk", "is_used"),
    [
        ([10, 0], [10, 10], 10, True),
        ([10, 0], [10, 10], None, True),
        (None, None, None, True),
        (None, [10, 10], 10, True),
        ([12, 0], None, 12, True),
        ([1, 0], [10, 10], 10, False),
        ([9, 0], [10, 10], None, False),
        ([11, 0], [10, 10], None, False),
        ([10, 0], [10, 10], 9, False),
        ([10, 0], None, 0, False),
        (None, [10, 10], 9, False),
        (None, None, 0, False),
    ],
)
def test_null_pages_is_used_unless_a_count_contradicts_it(nulls, rows, of_chunk, is_used):
    index = ColumnIndex(
        np.array([True, False]),
        [b"", int64(1)],
        [b"", int64(1)],
        0,
        None if nulls is None else np.array(nulls),
        None,
    )
    chunk_ = chunk(20, null_count=of_chunk)
    actual = without_false_nulls(index, None if rows is None else np.array(rows), chunk_)
    bounds = page_bounds(INT64, actual, declared=True)
    assert bounds.all_null.tolist() == [is_used, False]
    assert might(X == 3, bounds) == [not is_used, False]


def test_a_page_of_nulls_is_skipped_by_comparisons():
    for nulls in (None, [10]):
        bounds = of_pages(INT64, [b""], [b""], null_pages=[True], nulls=nulls)
        assert might(X == 3, bounds) == might(X.is_valid(), bounds) == [False]
        assert might(X.is_null(), bounds) == [True]


def test_bounds_of_a_null_page_of_strings_are_ignored():
    bounds = of_pages(STRING, [b""], [b""], null_pages=[True], nulls=[0])
    assert bounds.bounded.tolist() == [False]


@pytest.mark.parametrize("exact", [None, False])
def test_truncated_bounds_still_include_all_values(exact):
    bounds = of_chunk(
        STRING, min_value=b"ab", max_value=b"ac", is_min_value_exact=exact, is_max_value_exact=exact
    )
    assert might(X == "abcdef", bounds) == [True]
    assert might(X == "b", bounds) == [False]


def test_int96_has_no_order():
    bounds = of_chunk(INT96, min_value=b"\x00" * 12, max_value=b"\x00" * 12, null_count=0)
    assert might(X > 5, bounds) == [True]
    assert might(X.is_null(), bounds) == [False]


@pytest.mark.parametrize("kind", [INT96, order(Type.FIXED_LEN_BYTE_ARRAY, {}, type_length=12)])
def test_pages_of_an_undefined_order_might_all_match(kind):
    bounds = of_pages(kind, [b"\x00" * 12], [b"\x00" * 12], nulls=[0])
    assert might(X == 5, bounds) == might(X == "a", bounds) == [True]
    assert might(X.is_null(), bounds) == [False]


def test_decimals_compare_signed():
    bounds = of_pages(DECIMAL, [b"\xff\xfe"], [b"\x00\x01"])
    assert might(X == -1, bounds) == [True]
    assert might(X == 2, bounds) == [False]


def test_bytes_compare_unsigned():
    bounds = of_pages(order(Type.BYTE_ARRAY), [b"\x01"], [b"\xf0"])
    assert might(X == b"\x80", bounds) == [True]
    assert might(X == b"\xf1", bounds) == [False]


@pytest.mark.parametrize("value", [b"a", b"a\x00", b"a\x00\x00", b"\x00", b""])
@pytest.mark.parametrize("members", [1, 2])
def test_bytes_are_compared_with_their_trailing_zeros(value, members):
    bounds = of_pages(order(Type.BYTE_ARRAY), [value], [value], nulls=[0])
    assert might(X.isin([value, b"zz"][:members]), bounds) == [True]
    assert might(X.isin([value + b"\x00", b"zz"][:members]), bounds) == [False]
    assert might(value == X, bounds) == might(value >= X, bounds) == [True]
    assert might(value + b"\x00" > X, bounds) == [True]
    assert might(value > X, bounds) == might(value != X, bounds) == [False]


def test_reversed_bounds_are_not_used():
    assert of_pages(INT64, [int64(5)], [int64(1)]).bounded.tolist() == [False]
    assert might(X == 9, of_pages(STRING, [b"z"], [b"a"])) == [True]


def test_bounds_of_the_wrong_width_are_not_used():
    assert of_pages(INT64, [b"\x00" * 4], [b"\x00" * 8]).bounded.tolist() == [False]


def test_one_bound_alone_is_not_used():
    assert of_chunk(INT64, min_value=int64(0)).bounded.tolist() == [False]


def test_literals_out_of_range_are_compared():
    bounds = of_pages(order(Type.INT32), [b"\x00" * 4], [b"\x01\x00\x00\x00"])
    assert might(X < 2**40, bounds) == [True]
    assert might(X > 2**40, bounds) == might(X == -(2**40), bounds) == [False]
    unsigned = of_pages(UINT32, [b"\x00" * 4], [b"\xff" * 4])
    assert might(X > -1, unsigned) == [True]
    assert might(X < 0, unsigned) == [False]
    assert might(X.isin([-1, 2**40]), unsigned) == [False]


def test_one_column_may_have_an_index_and_another_none():
    sink = pa.BufferOutputStream()
    table = pa.table({"x": range(1000), "y": range(1000)})
    pq.write_table(table, sink, write_page_index=True, write_statistics=["x"], data_page_size=64)
    file = ParquetFile(BufferSource(sink.getvalue().to_pybytes()))
    for column in ("x", "y"):
        assert file.read(filter=pc.field(column) == 7).num_rows == 1


def test_an_empty_index_has_no_bounds():
    bounds = of_pages(INT64, [], [])
    assert len(bounds) == 0
    assert might(X == 1, bounds) == []


def test_pages_need_not_be_sorted():
    lows, highs = [int64(n) for n in (20, 0, 10)], [int64(n) for n in (29, 9, 19)]
    assert might(X == 12, of_pages(INT64, lows, highs)) == [False, False, True]
