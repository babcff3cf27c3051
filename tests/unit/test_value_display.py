import datetime
import decimal
import struct

import pytest

from intarsia.parquet.metadata import (
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
from intarsia.parquet.value_display import readable


def element(type_, logical=None, **fields):
    return SchemaElement(name="x", type=type_, logicalType=logical, **fields)


def moment(unit, *, utc, of="TIMESTAMP"):
    return LogicalType(**{of: TimeType(isAdjustedToUTC=utc, unit=TimeUnit(**{unit: Empty()}))})


INT32, INT64 = struct.Struct("<i"), struct.Struct("<q")
UUID_ELEMENT = element(Type.FIXED_LEN_BYTE_ARRAY, LogicalType(UUID=Empty()), type_length=16)


@pytest.mark.parametrize(
    ("column", "value", "expected"),
    [
        (element(Type.BOOLEAN), b"\x01", True),
        (element(Type.INT32), INT32.pack(-7), -7),
        (
            element(Type.INT32, LogicalType(INTEGER=IntType(bitWidth=32, isSigned=False))),
            INT32.pack(-1),
            2**32 - 1,
        ),
        (element(Type.DOUBLE), struct.pack("<d", 1.5), 1.5),
        (element(Type.DOUBLE), b"\x01\x02", "0x0102"),
        (element(Type.INT32, LogicalType(DATE=Empty())), INT32.pack(1), datetime.date(1970, 1, 2)),
        (element(Type.INT32, LogicalType(DATE=Empty())), INT32.pack(2**31 - 1), 2**31 - 1),
        (
            element(Type.INT64, moment("MILLIS", utc=True)),
            INT64.pack(1),
            "1970-01-01T00:00:00.001Z",
        ),
        (
            element(Type.INT64, moment("NANOS", utc=False)),
            INT64.pack(-1),
            "1969-12-31T23:59:59.999999999",
        ),
        (
            element(Type.INT64, moment("MICROS", utc=False, of="TIME")),
            INT64.pack(10**6),
            "00:00:01",
        ),
        (element(Type.BYTE_ARRAY, LogicalType(STRING=Empty())), "é".encode(), "é"),
        (UUID_ELEMENT, bytes(range(16)), "00010203-0405-0607-0809-0a0b0c0d0e0f"),
        (UUID_ELEMENT, b"cut off", "0x637574206f6666"),
        (element(Type.BYTE_ARRAY, LogicalType(STRING=Empty())), b"\xff", "0xff"),
        (element(Type.BYTE_ARRAY), b"abc", "0x616263"),
        (element(Type.INT96), bytes(12), "0x" + "00" * 12),
        (element(Type.BYTE_ARRAY), None, None),
    ],
)
def test_bounds_are_shown_as_values(column, value, expected):
    assert readable(column, value) == expected


def test_nan_is_shown_as_nan():
    assert str(readable(element(Type.FLOAT), struct.pack("<f", float("nan")))) == "nan"


@pytest.mark.parametrize("scale", [0, 2, 38, 2**31 - 1, -(2**31)])
def test_decimals_keep_every_digit_whatever_their_scale(scale):
    logical = LogicalType(DECIMAL=DecimalType(scale=scale, precision=300))
    unscaled = -(10**250) - 1
    actual = readable(element(Type.BYTE_ARRAY, logical), unscaled.to_bytes(105, "big", signed=True))
    sign, digits, exponent = actual.as_tuple()
    assert (sign, int("".join(map(str, digits))), exponent) == (1, -unscaled, -scale)


def test_converted_types_are_understood_as_well():
    column = element(Type.INT32, converted_type=ConvertedType.DECIMAL, scale=1, precision=5)
    assert readable(column, INT32.pack(15)) == decimal.Decimal("1.5")
