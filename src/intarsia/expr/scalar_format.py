"""Arrow values as Python values for display, including values that no Python type holds."""

from __future__ import annotations

import contextlib
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from intarsia.expr.constants import DECIMALS

_BEYOND_PYTHON = (ValueError, OverflowError, KeyError)
"""The exceptions that ``as_py`` raises for values that Python cannot hold.

These are nanoseconds if pandas is missing, dates beyond the calendar, strings that are not UTF-8,
and unknown time zones.
"""
_NAT = -(2**63)
"""The number of nanoseconds that pandas reads as NULL."""


def readable_values(values: pa.Array | pa.ChunkedArray) -> list[Any]:
    """Returns the ``readable`` values of an array."""
    if not _is_misread(values.type) or _is_readable_array(values):
        with contextlib.suppress(*_BEYOND_PYTHON):
            python_values: list[Any] = values.to_pylist()
            return python_values
    return [readable(value) for value in values]


def readable(value: pa.Scalar) -> Any:
    """Returns a value as ``as_py`` does, or in a form for display if ``as_py`` cannot give it.

    Times and timestamps with nanoseconds become strings. Dates and timestamps beyond the calendar
    become numbers. Strings that are not UTF-8 become ``0x`` and hexadecimal digits.
    """
    if not value.is_valid or not _is_misread(value.type) or _is_readable_scalar(value):
        with contextlib.suppress(*_BEYOND_PYTHON):
            return value.as_py()
    match value:
        case pa.Time32Scalar() | pa.Time64Scalar():
            return _time(value)
        case pa.DictionaryScalar() | pa.ExtensionScalar():
            return readable(value.value)
        case pa.StructScalar():
            pairs = [(name, readable(value[i])) for i, name in enumerate(value.type.names)]
            fields = dict(pairs)
            return fields if len(fields) == len(pairs) else pairs
        case pa.MapScalar():
            return [(readable(pair[0]), readable(pair[1])) for pair in value.values]
        case pa.ListScalar():
            return readable_values(value.values)
        case pa.TimestampScalar() if value.type.unit == "ns" and value.value != _NAT:
            with contextlib.suppress(*_BEYOND_PYTHON):
                return _with_nanoseconds(value)
    return value.value if hasattr(value, "value") else f"0x{value.as_buffer().to_pybytes().hex()}"


def _is_readable_array(values: pa.Array | pa.ChunkedArray) -> bool:
    return _is_moment(values.type) and pc.min(values.cast(pa.int64())).as_py() != _NAT


def _is_readable_scalar(value: pa.Scalar) -> bool:
    return _is_moment(value.type) and value.value != _NAT


def _is_moment(kind: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(kind) or pa.types.is_duration(kind))


def _is_misread(kind: pa.DataType) -> bool:
    """True if ``as_py`` gives other values than a type holds, or reads one of them as NULL.

    It drops the nanoseconds of times if pandas is installed, and takes times beyond a day modulo
    one day.
    """
    if pa.types.is_time(kind):
        return True
    if _is_moment(kind):
        return bool(kind.unit == "ns")
    if isinstance(kind, pa.BaseExtensionType):
        return _is_misread(kind.storage_type)
    if pa.types.is_dictionary(kind):
        return _is_misread(kind.value_type)
    return any(_is_misread(kind.field(number).type) for number in range(kind.num_fields))


def _time(value: pa.Scalar) -> Any:
    """Returns a time for display: as a number if it lies outside of a day."""
    unit = value.type.unit
    if not 0 <= value.value < 86_400 * 10 ** DECIMALS[unit]:
        return value.value
    return _with_nanoseconds(value) if unit == "ns" and value.value % 1000 else value.as_py()


def _with_nanoseconds(value: pa.Scalar) -> str:
    """Returns a time or timestamp as Python writes it, with three more digits."""
    is_time = pa.types.is_time(value.type)
    micros, nanos = divmod(value.value, 1000)
    without_nanos = pa.scalar(
        micros, pa.time64("us") if is_time else pa.timestamp("us", value.type.tz)
    )
    moment = without_nanos.as_py()
    shown = str(moment.replace(microsecond=1))
    return shown.replace(".000001", f".{moment.microsecond:06}{nanos:03}")
