import datetime
import decimal
import itertools
import math
import struct

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from intarsia.file.chunk_reader import Chunk
from intarsia.io.source import BufferSource
from intarsia.parquet.column_order import order_of
from intarsia.parquet.metadata import (
    BoundaryOrder,
    ConvertedType,
    DecimalType,
    Empty,
    LogicalType,
    SchemaElement,
    Type,
)
from intarsia.parquet.page_statistics import (
    boundary_order,
    is_text,
    may_shorten,
    shortened_high,
    shortened_low,
    summarize,
)
from intarsia.scan.parquet_file import open_file

EPOCH = datetime.datetime(1970, 1, 1)
DAY = datetime.date(1970, 1, 1)


def decoded(chunk):
    """All physical values of a chunk."""
    parts = [part.drop_null() for part in chunk.arrays(list(chunk.pages()))]
    return pa.concat_arrays(parts) if parts else pa.array([])


def little(width, *, signed=True):
    return lambda value: int(value).to_bytes(width, "little", signed=signed)


def ticks(per_second, width=8):
    def plain(value):
        if isinstance(value, datetime.time):
            value = datetime.datetime.combine(DAY, value)
        delta = value.replace(tzinfo=None) - EPOCH
        microseconds = delta // datetime.timedelta(microseconds=1)
        return (microseconds * per_second // 1_000_000).to_bytes(width, "little", signed=True)

    return plain


def unscaled(value, scale):
    with decimal.localcontext(prec=60):
        return int(decimal.Decimal(value).scaleb(scale))


def signed_integers(bits):
    return [0, 1, -1, 7, -(2 ** (bits - 1)), 2 ** (bits - 1) - 1]


def unsigned_integers(bits):
    return [0, 1, 7, 2 ** (bits - 1) - 1, 2 ** (bits - 1), 2**bits - 1]


MOMENTS = [EPOCH, datetime.datetime(1969, 7, 20, 1), datetime.datetime(2024, 2, 29, 12, 0, 1, 5000)]
TIMES = [datetime.time(0), datetime.time(23, 59, 59, 999000), datetime.time(12, 0, 0, 1000)]
SMALL_DECIMALS = [decimal.Decimal(t) for t in ("0.00", "-1.50", "1.28", "-0.01", "99999.99")]
BIG_DECIMALS = [decimal.Decimal(t) for t in ("0.00", "-1.50", "1.28", "-12345678901234567890.00")]
BYTES = [b"", b"a", b"a\x00", b"\x00", b"\xff", b"\x7f\xff", b"\x80" * 70]
TEXTS = ["", "a", "ab", "ä", "日本", "\U0010ffff", "z" * 100]
FLOATS = [0.0, -0.0, 1.5, -2.25, math.nan, math.inf, -math.inf]

# The kind, cells, their PLAIN encoding, and other settings of the writer.
KINDS = {
    **{
        f"int{b}": (getattr(pa, f"int{b}")(), signed_integers(b), little(max(b // 8, 4)))
        for b in (8, 16, 32, 64)
    },
    **{
        f"uint{b}": (
            getattr(pa, f"uint{b}")(),
            unsigned_integers(b),
            little(max(b // 8, 4), signed=False),
        )
        for b in (8, 16, 32, 64)
    },
    "bool": (pa.bool_(), [True, False], lambda v: bytes([v])),
    "float16": (pa.float16(), [np.float16(v) for v in FLOATS], lambda v: struct.pack("<e", v)),
    "float32": (pa.float32(), FLOATS, lambda v: struct.pack("<f", v)),
    "float64": (pa.float64(), FLOATS, lambda v: struct.pack("<d", v)),
    "utf8": (pa.string(), TEXTS, str.encode),
    "binary": (pa.binary(), BYTES, bytes),
    "fixed": (pa.binary(2), [b"\x00\x01", b"\xff\x00", b"\x7f\xff", b"\x80\x00"], bytes),
    "date": (
        pa.date32(),
        [DAY, datetime.date(1969, 12, 31), datetime.date(2024, 2, 29)],
        lambda v: little(4)((v - DAY).days),
    ),
    "time ms": (pa.time32("ms"), TIMES, ticks(1_000, 4)),
    "time us": (pa.time64("us"), TIMES, ticks(1_000_000)),
    "time ns": (pa.time64("ns"), TIMES, ticks(1_000_000_000)),
    "timestamp ms": (pa.timestamp("ms"), MOMENTS, ticks(1_000)),
    "timestamp us": (pa.timestamp("us", "UTC"), MOMENTS, ticks(1_000_000)),
    "timestamp ns": (pa.timestamp("ns"), MOMENTS, ticks(1_000_000_000)),
    "decimal int32": (
        pa.decimal128(7, 2),
        SMALL_DECIMALS,
        lambda v: little(4)(unscaled(v, 2)),
        {"store_decimal_as_integer": True},
    ),
    "decimal int64": (
        pa.decimal128(15, 2),
        SMALL_DECIMALS,
        lambda v: little(8)(unscaled(v, 2)),
        {"store_decimal_as_integer": True},
    ),
    "decimal fixed": (
        pa.decimal128(30, 2),
        BIG_DECIMALS,
        lambda v: unscaled(v, 2).to_bytes(13, "big", signed=True),
    ),
}


def rank(cell):
    """The key by which the column's order compares: the value, or the bytes of a string."""
    return cell.encode() if isinstance(cell, str) else cell


def slow_bounds(cells, plain, *, floating):
    """The encoded minimum and maximum of a page by Python's min and max, and its NaN count."""
    values = [cell for cell in cells if cell is not None]
    nans = sum(floating and math.isnan(value) for value in values)
    values = [value for value in values if not (floating and math.isnan(value))]
    if not values:
        return None, None, nans
    low, high = min(values, key=rank), max(values, key=rank)
    if floating:
        low, high = (-0.0 if low == 0 else low), (0.0 if high == 0 else high)
    return plain(low), plain(high), nans


def summarized(kind, pages, options):
    """The summaries of ``pages`` of cells, from the physical values in a written file."""
    cells = list(itertools.chain(*pages))
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"x": pa.array(cells, kind)}), sink, **options)
    file = open_file(BufferSource(memoryview(sink.getvalue())))
    chunk = Chunk(file, 0, 0)
    values = decoded(chunk)
    counts = [sum(cell is not None for cell in page) for page in pages]
    return summarize(file.order(0), values, np.array(counts, dtype=np.int64))


@pytest.mark.parametrize("name", KINDS)
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_bounds_of_pages_are_their_least_and_greatest_values(name, data):
    kind, choices, plain, *options = KINDS[name]
    page = st.lists(st.sampled_from([*choices, None]), max_size=6) | st.just([None, None])
    pages = [[choices[0]], *data.draw(st.lists(page, max_size=6))]
    actual = summarized(kind, pages, options[0] if options else {})
    floating = pa.types.is_floating(kind)
    expected = [slow_bounds(cells, plain, floating=floating) for cells in pages]
    assert actual.min_values == [low for low, _, _ in expected]
    assert actual.max_values == [high for _, high, _ in expected]
    if floating:
        assert actual.nan_counts.tolist() == [nans for _, _, nans in expected]
    else:
        assert actual.nan_counts is None


def test_decimals_of_any_width_compare_as_signed_numbers():
    element = SchemaElement(
        name="x",
        type=Type.BYTE_ARRAY,
        logicalType=LogicalType(DECIMAL=DecimalType(scale=0, precision=9)),
    )
    values = pa.array([b"\x01", b"\xff", b"\x00\x80", b"\x80", b"\xff\xfe\x00"], pa.binary())
    actual = summarize(order_of(element), values, np.array([2, 0, 3]))
    assert actual.min_values == [b"\xff", None, b"\xff\xfe\x00"]
    assert actual.max_values == [b"\x01", None, b"\x00\x80"]


def test_no_pages_and_only_empty_pages_have_no_bounds():
    for kind, physical in ((Type.INT32, pa.int32()), (Type.BYTE_ARRAY, pa.binary())):
        order = order_of(SchemaElement(name="x", type=kind))
        for counts in ([], [0], [0, 0, 0]):
            actual = summarize(order, pa.array([], physical), np.array(counts, dtype=np.int64))
            assert actual.min_values == actual.max_values == [None] * len(counts)


@pytest.mark.parametrize("counts", [[0, 3], [3, 0], [0, 1, 0, 0, 2, 0], [1, 1, 1]])
@pytest.mark.parametrize(
    ("kind", "physical"),
    [
        (Type.INT64, pa.int64()),
        (Type.DOUBLE, pa.float64()),
        (Type.BYTE_ARRAY, pa.binary()),
        (Type.BOOLEAN, pa.bool_()),
    ],
)
def test_empty_pages_do_not_affect_adjacent_pages(counts, kind, physical):
    cells = {
        pa.int64(): [5, 3, 4],
        pa.float64(): [5.0, 3.0, 4.0],
        pa.binary(): [b"e", b"c", b"d"],
        pa.bool_(): [True, False, True],
    }[physical]
    order = order_of(SchemaElement(name="x", type=kind))
    # A slice, so that its offset is tested as well.
    values = pa.array([cells[0], *cells], physical).slice(1)
    actual = summarize(order, values, np.array(counts, dtype=np.int64))
    rest = iter(cells)
    for count, low, high in zip(counts, actual.min_values, actual.max_values, strict=True):
        page_values = list(itertools.islice(rest, count))
        if not page_values:
            assert low is high is None
            continue
        keys = [order.keys([bound])[0][0] for bound in (low, high)]
        assert keys == [min(page_values), max(page_values)]


# --- shortening ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "length", "low", "high"),
    [
        ("abc", 3, "abc", "abc"),
        ("abcd", 3, "abc", "abd"),
        ("äbc", 1, "", "äbc"),
        ("aäb", 2, "a", "b"),
        ("a\x7fb", 2, "a\x7f", "a\x80"),
        ("\ud7ffx", 3, "\ud7ff", "\ue000"),
        ("a\U0010ffff\U0010ffffz", 9, "a\U0010ffff\U0010ffff", "b"),
        ("\U0010ffff" * 2, 4, "\U0010ffff", "\U0010ffff" * 2),
    ],
)
def test_strings_are_cut_between_characters_and_raised_by_one(value, length, low, high):
    assert shortened_low(value.encode(), length, text=True).decode() == low
    assert shortened_high(value.encode(), length, text=True).decode() == high


@pytest.mark.parametrize(
    ("value", "length", "low", "high"),
    [
        (b"\x00\x00", 1, b"\x00", b"\x01"),
        (b"a\xff\xffb", 3, b"a\xff\xff", b"b"),
        (b"\xff\xff\xff", 2, b"\xff\xff", b"\xff\xff\xff"),
        (b"a\xc3\xa4", 2, b"a\xc3", b"a\xc4"),
    ],
)
def test_bytes_are_cut_anywhere_and_raised_by_one(value, length, low, high):
    assert shortened_low(value, length, text=False) == low
    assert shortened_high(value, length, text=False) == high


def element_of(kind=Type.BYTE_ARRAY, converted=None, **logical):
    annotation = LogicalType(**logical) if logical else None
    return SchemaElement(name="x", type=kind, converted_type=converted, logicalType=annotation)


@pytest.mark.parametrize(
    ("element", "shorten", "text"),
    [
        (element_of(), True, False),
        (element_of(STRING=Empty()), True, True),
        (element_of(ENUM=Empty()), True, True),
        (element_of(JSON=Empty()), True, True),
        (element_of(BSON=Empty()), True, False),
        (element_of(converted=ConvertedType.UTF8), True, True),
        (element_of(converted=ConvertedType.JSON), True, True),
        (element_of(converted=ConvertedType.BSON), True, False),
        (element_of(DECIMAL=DecimalType(scale=0, precision=3)), False, False),
        (element_of(converted=ConvertedType.DECIMAL), False, False),
        (element_of(Type.FIXED_LEN_BYTE_ARRAY), False, False),
        (element_of(Type.FIXED_LEN_BYTE_ARRAY, FLOAT16=Empty()), False, False),
        (element_of(Type.FIXED_LEN_BYTE_ARRAY, UUID=Empty()), False, False),
        (element_of(Type.INT32), False, False),
    ],
)
def test_only_byte_strings_of_any_length_are_shortened(element, shorten, text):
    assert may_shorten(element, order_of(element)) is shorten
    assert is_text(element) is text


# --- order of the boundaries --------------------------------------------------------------------

INT = order_of(SchemaElement(name="x", type=Type.INT32))
ANY = order_of(SchemaElement(name="x", type=Type.BYTE_ARRAY))


def order_of_ints(pairs):
    low, high = ([struct.pack("<i", pair[i]) for pair in pairs] for i in (0, 1))
    return boundary_order(INT, low, high)


@pytest.mark.parametrize(
    ("pairs", "expected"),
    [
        ([], BoundaryOrder.ASCENDING),
        ([(1, 2)], BoundaryOrder.ASCENDING),
        ([(1, 2), (1, 2)], BoundaryOrder.ASCENDING),
        ([(-5, -3), (1, 2), (1, 9)], BoundaryOrder.ASCENDING),
        ([(1, 9), (1, 2), (-5, -3)], BoundaryOrder.DESCENDING),
        ([(1, 9), (2, 3)], BoundaryOrder.UNORDERED),
        ([(1, 2), (3, 4), (2, 3)], BoundaryOrder.UNORDERED),
        ([(-1, -1), (1, 1), (-1, -1)], BoundaryOrder.UNORDERED),
    ],
)
def test_boundaries_are_ordered_where_both_bounds_are(pairs, expected):
    assert order_of_ints(pairs) == expected


@given(st.lists(st.tuples(st.integers(-3, 3), st.integers(0, 3)), max_size=5))
def test_the_boundary_order_equals_that_found_by_sorting(pairs):
    pairs = [(low, low + more) for low, more in pairs]
    lows, highs = [low for low, _ in pairs], [high for _, high in pairs]
    if lows == sorted(lows) and highs == sorted(highs):
        expected = BoundaryOrder.ASCENDING
    elif lows == sorted(lows)[::-1] and highs == sorted(highs)[::-1]:
        expected = BoundaryOrder.DESCENDING
    else:
        expected = BoundaryOrder.UNORDERED
    assert order_of_ints(pairs) == expected


def test_byte_strings_are_ordered_unsigned_and_with_their_zeros():
    ascending = [b"", b"\x00", b"\x00\x00", b"a", b"\x80"]
    assert boundary_order(ANY, ascending, ascending) == BoundaryOrder.ASCENDING
    assert boundary_order(ANY, ascending[::-1], ascending[::-1]) == BoundaryOrder.DESCENDING


@pytest.mark.parametrize("bits", [0x7F800001, 0xFF800001, 0x7FC00000, 0xFFC00123])
@pytest.mark.parametrize("at", range(4))
def test_signaling_nans_hide_no_value(bits, at):
    raw = np.array([1.0, 3.0, 2.0], np.float32).view(np.uint32)
    numbers = np.insert(raw, at, bits).view(np.float32)
    values = pa.Array.from_buffers(pa.float32(), 4, [None, pa.py_buffer(numbers.tobytes())])
    order = order_of(SchemaElement(name="x", type=Type.FLOAT))
    actual = summarize(order, values, np.array([4]))
    bounds = [
        np.frombuffer(side[0], np.float32)[0] for side in (actual.min_values, actual.max_values)
    ]
    assert (bounds, actual.nan_counts.tolist()) == ([1.0, 3.0], [1])
