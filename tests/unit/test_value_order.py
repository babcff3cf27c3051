import datetime
import decimal
import math
import struct

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from intarsia.parquet.column_order import order_of
from intarsia.parquet.metadata import (
    ColumnOrder,
    ConvertedType,
    DecimalType,
    Empty,
    IntType,
    LogicalType,
    SchemaElement,
    TimeType,
    TimeUnit,
    Type,
)
from intarsia.parquet.page_statistics import has_bounds
from intarsia.parquet.value_order import INT96_ORDER, Domain

UNITS = {
    "ms": TimeUnit(MILLIS=Empty()),
    "us": TimeUnit(MICROS=Empty()),
    "ns": TimeUnit(NANOS=Empty()),
}
TICKS = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}


def order(physical, logical=None, converted=None, **other):
    logical = None if logical is None else LogicalType(**logical)
    element = SchemaElement(
        name="x", type=physical, logicalType=logical, converted_type=converted, **other
    )
    return order_of(element)


def timestamp(unit, utc=False):
    kind = TimeType(isAdjustedToUTC=utc, unit=UNITS[unit])
    return order(Type.INT64, {"TIMESTAMP": kind})


def decimals(physical, scale, **other):
    return order(physical, {"DECIMAL": DecimalType(scale=scale, precision=18)}, **other)


INT32, INT64 = order(Type.INT32), order(Type.INT64)
UINT64 = order(Type.INT64, {"INTEGER": IntType(bitWidth=64, isSigned=False)})
FLOAT, DOUBLE = order(Type.FLOAT), order(Type.DOUBLE)
FLOAT16 = order(Type.FIXED_LEN_BYTE_ARRAY, {"FLOAT16": Empty()}, type_length=2)
STRING = order(Type.BYTE_ARRAY, {"STRING": Empty()})
DATE = order(Type.INT32, {"DATE": Empty()})
BOOLEAN = order(Type.BOOLEAN)


def test_signed_and_unsigned_integers_are_distinguished():
    minus_one = [b"\xff" * 4]
    assert INT32.keys(minus_one)[0].tolist() == [-1]
    for unsigned in (
        order(Type.INT32, {"INTEGER": IntType(bitWidth=32, isSigned=False)}),
        order(Type.INT32, converted=ConvertedType.UINT_32),
    ):
        assert unsigned.keys(minus_one)[0].tolist() == [2**32 - 1]
    assert UINT64.keys([b"\xff" * 8])[0].tolist() == [2**64 - 1]


def test_nan_is_not_usable_as_a_bound():
    for kind, code in ((FLOAT16, "<e"), (FLOAT, "<f"), (DOUBLE, "<d")):
        values = [struct.pack(code, v) for v in (1.5, math.nan, -math.inf)]
        assert kind.has_nan
        assert kind.keys(values)[1].tolist() == [True, False, True]


def test_missing_values_and_values_of_another_width_are_not_usable():
    assert INT32.keys([None, b"", b"\x00" * 8, b"\x00" * 4])[1].tolist() == [False] * 3 + [True]
    assert STRING.keys([None, b"", b"ab"])[1].tolist() == [False, True, True]
    assert FLOAT16.keys([b"\x00", b"\x00\x3c"])[1].tolist() == [False, True]
    fixed = order(Type.FIXED_LEN_BYTE_ARRAY, type_length=3)
    assert fixed.keys([b"ab", b"abc"])[1].tolist() == [False, True]


def test_both_zeros_are_one_key():
    keys, usable = DOUBLE.keys([struct.pack("<d", v) for v in (0.0, -0.0)])
    assert keys[0] == keys[1]
    assert usable.all()


def test_decimals_of_bytes_compare_signed_and_big_endian():
    for kind in (
        decimals(Type.FIXED_LEN_BYTE_ARRAY, 2, type_length=3),
        decimals(Type.BYTE_ARRAY, 2),
    ):
        keys, _ = kind.keys([b"\xff\xff\xff", b"\x00\x00\x01", b"\x80\x00\x00"])
        assert keys.tolist() == [-1, 1, -(2**23)]


def test_decimals_wider_than_64_bits_keep_every_digit():
    keys, _ = decimals(Type.FIXED_LEN_BYTE_ARRAY, 2, type_length=16).keys([b"\x7f" + b"\xff" * 15])
    assert keys.tolist() == [2**127 - 1]


def test_a_decimal_without_any_byte_is_not_usable():
    assert decimals(Type.BYTE_ARRAY, 2).keys([b""])[1].tolist() == [False]


@pytest.mark.parametrize("logical", ["STRING", "ENUM", "JSON", "BSON", "UUID", None])
def test_bytes_compare_unsigned(logical):
    width = {"type_length": 16} if logical == "UUID" else {}
    physical = Type.FIXED_LEN_BYTE_ARRAY if width else Type.BYTE_ARRAY
    kind = order(physical, logical and {logical: Empty()}, **width)
    keys, usable = kind.keys([b"\x7f" * 16, b"\x80" * 16])
    assert kind.domain is Domain.BYTES
    assert usable.all()
    assert keys[0] < keys[1]


@pytest.mark.parametrize(
    "kind",
    [
        order(Type.INT96),
        order(Type.FIXED_LEN_BYTE_ARRAY, converted=ConvertedType.INTERVAL, type_length=12),
        order(Type.BYTE_ARRAY, {"VARIANT": Empty()}),
        order(Type.BYTE_ARRAY, {"GEOMETRY": Empty()}),
        order(Type.BYTE_ARRAY, {"GEOGRAPHY": Empty()}),
        order(Type.BYTE_ARRAY, {}),
        order(Type.INT32, {}),
        order(Type.INT64, {"TIMESTAMP": TimeType(isAdjustedToUTC=True, unit=TimeUnit())}),
        order(99),
        order(None),
    ],
)
def test_orders_that_are_undefined(kind):
    assert not kind.is_defined
    assert kind.bracket(pa.scalar(1)) is None
    assert kind.bracket(pa.scalar("a")) is None


@pytest.mark.parametrize("value", [0, -1, 2**31, -(2**63), 2**63 - 1])
def test_integers_out_of_range_have_exact_keys(value):
    assert INT32.bracket(pa.scalar(value)) == (value, value)
    assert UINT64.bracket(pa.scalar(value)) == (value, value)


def test_integers_have_brackets_for_fractions():
    assert INT64.bracket(pa.scalar(1.5)) == (1, 2)
    assert INT64.bracket(pa.scalar(-1.5)) == (-2, -1)
    assert INT64.bracket(pa.scalar(3.0)) == (3, 3)
    assert INT64.bracket(pa.scalar(decimal.Decimal("7.01"))) == (7, 8)
    assert INT64.bracket(pa.scalar(decimal.Decimal("7.00"))) == (7, 7)


@pytest.mark.parametrize("value", [2.0**53, -1e300, math.inf, math.nan])
def test_integers_have_no_bracket_for_inexact_doubles(value):
    assert INT64.bracket(pa.scalar(value)) is None


@pytest.mark.parametrize(
    "kind",
    [INT64, UINT64, DOUBLE, STRING, DATE, BOOLEAN, timestamp("us"), decimals(Type.INT64, 2)],
)
def test_null_has_no_bracket(kind):
    for null in (pa.scalar(None), pa.scalar(None, pa.int64()), pa.scalar(None, pa.string())):
        assert kind.bracket(null) is None


@pytest.mark.parametrize(
    ("kind", "literal"),
    [
        (INT64, "1"),
        (INT64, True),
        (INT64, datetime.date(2020, 1, 1)),
        (DOUBLE, "1"),
        (DOUBLE, True),
        (DOUBLE, decimal.Decimal("0.1")),
        (STRING, 1),
        (STRING, datetime.date(2020, 1, 1)),
        (BOOLEAN, 1),
        (BOOLEAN, "true"),
        (DATE, 1),
        (DATE, "2020-01-01"),
        (DATE, datetime.time(1)),
        (timestamp("us"), 1),
        (timestamp("us"), datetime.time(1)),
        (decimals(Type.INT64, 2), 0.1),
        (decimals(Type.INT64, 2), "0.1"),
        (decimals(Type.INT64, 2), True),
    ],
)
def test_literals_of_another_kind_have_no_bracket(kind, literal):
    assert kind.bracket(pa.scalar(literal)) is None


def test_booleans():
    assert BOOLEAN.bracket(pa.scalar(True)) == (1, 1)
    assert BOOLEAN.keys([b"\x00", b"\x01"])[0].tolist() == [0, 1]


@pytest.mark.parametrize("kind", [FLOAT16, FLOAT, DOUBLE])
@pytest.mark.parametrize("value", [0.0, -0.0, 1.5, math.inf, -math.inf, 2])
def test_floats_that_are_representable_are_their_own_keys(kind, value):
    assert kind.bracket(pa.scalar(value)) == (value, value)


def test_nan_has_no_bracket():
    for kind in (FLOAT16, FLOAT, DOUBLE):
        assert kind.bracket(pa.scalar(math.nan)) is None


@pytest.mark.parametrize(
    ("kind", "value"),
    [(FLOAT, 0.1), (FLOAT, 1e-60), (FLOAT, 1e300), (FLOAT, -1e300), (FLOAT, 3.4028235e38)]
    + [(FLOAT16, v) for v in (0.1, 1e-10, 65504.5, 65519.0, -65519.0, 70000.0, 1e300)],
)
def test_floats_that_are_not_representable_are_bracketed(kind, value):
    low, high = kind.bracket(pa.scalar(value))
    assert float(low) < value < float(high)


def test_integers_that_a_float_may_round_have_no_bracket():
    assert FLOAT.bracket(pa.scalar(2**24)) == (2**24, 2**24)
    assert FLOAT.bracket(pa.scalar(2**24 + 1)) is None


@pytest.mark.parametrize("kind", [pa.float16(), pa.float32(), pa.float64()])
def test_literals_of_every_float_type_are_understood(kind):
    literal = pa.scalar(np.float16(1.5), kind)
    assert (
        DOUBLE.bracket(literal) == FLOAT.bracket(literal) == FLOAT16.bracket(literal) == (1.5, 1.5)
    )


def test_decimals_are_bracketed_at_their_scale():
    kind = decimals(Type.INT64, 2)
    assert kind.bracket(pa.scalar(decimal.Decimal("1.23"))) == (123, 123)
    assert kind.bracket(pa.scalar(decimal.Decimal("1.2"))) == (120, 120)
    assert kind.bracket(pa.scalar(decimal.Decimal("1.234"))) == (123, 124)
    assert kind.bracket(pa.scalar(decimal.Decimal("-1.234"))) == (-124, -123)
    assert kind.bracket(pa.scalar(5)) == (500, 500)


def test_decimals_out_of_range_keep_every_digit():
    nines = decimal.Decimal("9" * 76)
    assert decimals(Type.INT32, 9).bracket(pa.scalar(nines)) == (int(nines) * 10**9,) * 2


def test_decimals_by_the_older_annotation():
    kind = order(Type.INT32, converted=ConvertedType.DECIMAL, scale=1, precision=9)
    assert kind.bracket(pa.scalar(decimal.Decimal("1.5"))) == (15, 15)


def test_dates():
    assert DATE.bracket(pa.scalar(datetime.date(1970, 1, 11))) == (10, 10)
    assert DATE.bracket(pa.scalar(datetime.date(1969, 12, 31))) == (-1, -1)
    assert DATE.bracket(pa.scalar(datetime.date(1970, 1, 11), pa.date64())) == (10, 10)
    assert DATE.bracket(pa.scalar(datetime.datetime(1970, 1, 11))) == (10, 10)
    assert DATE.bracket(pa.scalar(datetime.datetime(1970, 1, 11, 5))) == (10, 11)
    assert DATE.bracket(pa.scalar(datetime.datetime(1969, 12, 31, 5))) == (-1, 0)


def test_a_date_does_not_compare_with_a_moment_in_a_time_zone():
    assert DATE.bracket(pa.scalar(0, pa.timestamp("us", "UTC"))) is None


@pytest.mark.parametrize("stored", ["ms", "us", "ns"])
@pytest.mark.parametrize("given", ["s", "ms", "us", "ns"])
def test_timestamps_of_all_units(stored, given):
    kind, ticks = timestamp(stored), 1_234_567_890
    low, high = kind.bracket(pa.scalar(ticks, pa.timestamp(given)))
    exact = ticks * TICKS[stored] / TICKS[given]
    assert (low, high) == (math.floor(exact), math.ceil(exact))
    low, high = kind.bracket(pa.scalar(-1, pa.timestamp(given)))
    assert low <= -TICKS[stored] / TICKS[given] <= high


def test_timestamps_out_of_range_keep_every_digit():
    assert timestamp("ns").bracket(pa.scalar(2**62, pa.timestamp("s"))) == (2**62 * 10**9,) * 2


def test_timestamps_compare_only_with_or_only_without_a_time_zone():
    local, utc = pa.scalar(5, pa.timestamp("us")), pa.scalar(5, pa.timestamp("us", "Asia/Tokyo"))
    assert timestamp("us").bracket(local) == (5, 5)
    assert timestamp("us").bracket(utc) is None
    assert timestamp("us", utc=True).bracket(utc) == (5, 5)
    assert timestamp("us", utc=True).bracket(local) is None


def test_timestamps_against_dates():
    day = pa.scalar(datetime.date(1970, 1, 2))
    assert timestamp("ms").bracket(day) == (86_400_000, 86_400_000)
    assert timestamp("ms", utc=True).bracket(day) is None


@pytest.mark.parametrize(
    ("converted", "ticks"),
    [(ConvertedType.TIMESTAMP_MILLIS, 1_000), (ConvertedType.TIMESTAMP_MICROS, 1_000_000)],
)
def test_timestamps_by_the_older_annotation_are_in_utc(converted, ticks):
    kind = order(Type.INT64, converted=converted)
    assert kind.bracket(pa.scalar(1, pa.timestamp("s", "UTC"))) == (ticks, ticks)


def test_times_of_day():
    kind = order(Type.INT32, {"TIME": TimeType(isAdjustedToUTC=False, unit=UNITS["ms"])})
    assert kind.bracket(pa.scalar(datetime.time(0, 0, 1))) == (1000, 1000)
    assert kind.bracket(pa.scalar(1_500, pa.time64("us"))) == (1, 2)
    assert kind.bracket(pa.scalar(5, pa.timestamp("ms"))) is None


@pytest.mark.parametrize(
    "kind",
    [
        pa.string(),
        pa.large_string(),
        pa.string_view(),
        pa.binary(),
        pa.large_binary(),
        pa.binary_view(),
        pa.binary(3),
        pa.dictionary(pa.int32(), pa.string()),
    ],
    ids=str,
)
def test_strings_and_bytes_of_every_type(kind):
    is_text = kind in (pa.string(), pa.large_string(), pa.string_view())
    value = "abc" if is_text or pa.types.is_dictionary(kind) else b"abc"
    literal = (
        pa.array([value]).dictionary_encode()[0]
        if pa.types.is_dictionary(kind)
        else (pa.scalar(value, kind))
    )
    assert STRING.bracket(literal) == (b"abc", b"abc")


def test_uuids():
    value = pa.ExtensionScalar.from_storage(pa.uuid(), pa.scalar(b"0" * 16, pa.binary(16)))
    kind = order(Type.FIXED_LEN_BYTE_ARRAY, {"UUID": Empty()}, type_length=16)
    assert kind.bracket(value) == (b"0" * 16, b"0" * 16)


@pytest.mark.parametrize("key", [0, 1, -1, 2**31 - 1, -(2**31)])
def test_keys_are_read_from_plain_encoding(key):
    for kind in (INT32, INT64, decimals(Type.INT32, 2), decimals(Type.BYTE_ARRAY, 2)):
        assert kind.keys([kind.plain(key)])[0].tolist() == [key]
    fixed = decimals(Type.FIXED_LEN_BYTE_ARRAY, 2, type_length=9)
    assert fixed.keys([fixed.plain(key)])[0].tolist() == [key]


def test_plain_refuses_values_outside_the_physical_type():
    for kind, key in ((INT32, 2**31), (UINT64, -1), (UINT64, 2**64)):
        with pytest.raises(OverflowError):
            kind.plain(key)
    with pytest.raises(OverflowError):
        decimals(Type.FIXED_LEN_BYTE_ARRAY, 2, type_length=1).plain(128)


@given(st.floats(allow_nan=False))
def test_any_double_lies_in_its_bracket(value):
    for kind in (FLOAT16, FLOAT, DOUBLE):
        low, high = kind.bracket(pa.scalar(value))
        assert float(low) <= value <= float(high)
        with np.errstate(over="ignore"):
            representable = float(kind.key.type(value)) == value
        assert (low == high) == representable


@given(
    st.floats(min_value=-(2.0**52), max_value=2.0**52) | st.decimals(-(10**20), 10**20, places=4)
)
def test_any_fraction_lies_in_its_bracket_of_integers(value):
    low, high = INT64.bracket(pa.scalar(value))
    assert low <= value <= high
    assert high - low == (0 if value == int(value) else 1)


@given(st.decimals(-(10**20), 10**20, places=6), st.integers(0, 9))
def test_any_decimal_lies_in_its_bracket(value, scale):
    low, high = decimals(Type.INT64, scale).bracket(pa.scalar(value))
    exact = value.scaleb(scale, decimal.Context(prec=60))
    assert low <= exact <= high
    assert high - low == (0 if exact == int(exact) else 1)


@given(st.integers(-(2**63), 2**63 - 1), st.sampled_from(list(TICKS)), st.sampled_from(list(UNITS)))
def test_any_moment_lies_in_its_bracket(ticks, given_unit, stored_unit):
    low, high = timestamp(stored_unit).bracket(pa.scalar(ticks, pa.timestamp(given_unit)))
    exact = ticks * TICKS[stored_unit]
    assert low * TICKS[given_unit] <= exact <= high * TICKS[given_unit]
    assert high - low == (0 if exact % TICKS[given_unit] == 0 else 1)


@given(st.text() | st.binary())
def test_any_string_is_its_own_key(value):
    plain = value.encode() if isinstance(value, str) else value
    assert STRING.bracket(pa.scalar(value)) == (plain, plain)


def int96(moment_ns):
    days, nanoseconds = divmod(moment_ns, 86_400 * 10**9)
    return struct.pack("<qI", nanoseconds, days + 2_440_588)


def test_int96_has_an_order_only_if_the_file_declares_it():
    element = SchemaElement(name="x", type=Type.INT96)
    assert not order_of(element).is_defined
    assert not order_of(element, ColumnOrder(TYPE_ORDER=Empty())).is_defined
    assert order_of(element, ColumnOrder(INT96_TIMESTAMP_ORDER=Empty())) is INT96_ORDER


def test_int96_keys_are_nanoseconds_and_moments_beyond_their_range_are_not_usable():
    moments = [0, -1, 1_700_000_000_123_456_789, 2**63 - 1, -(2**63)]
    keys, usable = INT96_ORDER.keys([int96(moment) for moment in moments])
    assert keys.tolist() == moments
    assert usable.all()
    _, usable = INT96_ORDER.keys([int96(2**63), int96(-(2**63) - 1), b"short", None])
    assert not usable.any()


def test_a_literal_is_bracketed_among_int96_moments():
    moment = pa.scalar(datetime.datetime(2024, 1, 2, 3, 4, 5), pa.timestamp("us"))
    exact = int(moment.cast(pa.timestamp("ns")).value)
    assert INT96_ORDER.bracket(moment) == (exact, exact)
    assert INT96_ORDER.bracket(moment.cast(pa.timestamp("us", "UTC"))) is None


def test_int96_has_no_bounds_even_if_its_order_is_declared():
    assert INT96_ORDER.is_defined
    assert not has_bounds(INT96_ORDER)
    assert has_bounds(order(Type.INT64))


@pytest.mark.parametrize("physical", [Type.FIXED_LEN_BYTE_ARRAY, Type.BYTE_ARRAY])
@pytest.mark.parametrize("is_older", [True, False])
def test_decimals_in_bytes_are_signed_by_either_annotation(physical, is_older):
    logical = {"DECIMAL": DecimalType(scale=1, precision=4)}
    annotation = (
        {"converted": ConvertedType.DECIMAL, "scale": 1, "precision": 4}
        if is_older
        else {"logical": logical}
    )
    kind = order(physical, **annotation, type_length=2)
    values = [n.to_bytes(2, "big", signed=True) for n in (-300, -1, 0, 1, 300)]
    keys, usable = kind.keys(values)
    assert usable.all()
    assert list(keys) == sorted(keys)
    assert len(set(keys)) == 5
    assert kind.bracket(pa.scalar(decimal.Decimal("-0.1"))) == (keys[1], keys[1])
