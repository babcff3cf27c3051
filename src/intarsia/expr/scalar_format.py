"""Arrow's values as Python's, for people: those too that Python's own types do not hold."""

from __future__ import annotations

import contextlib
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from intarsia.expr.constants import DECIMALS

_BEYOND_PYTHON = (ValueError, OverflowError, KeyError)
"""What ``as_py`` raises for nanoseconds without pandas, days beyond the calendar, texts that are
not UTF-8, and time zones nobody knows."""
_LEAST = -(2**63)
"""Nanoseconds that pandas takes for NULL."""


def readable_values(values: pa.Array | pa.ChunkedArray) -> list[Any]:
    """The ``readable`` values of an array."""
    if not _is_misread(values.type) or _has_no_least(values):
        with contextlib.suppress(*_BEYOND_PYTHON):
            found: list[Any] = values.to_pylist()
            return found
    return [readable(value) for value in values]


def readable(value: pa.Scalar) -> Any:
    """A value as ``as_py`` gives it. Of what that cannot give, times with nanoseconds come as text,
    moments beyond the calendar as numbers, and texts that are not UTF-8 as ``0x`` and digits.
    """
    if not value.is_valid or not _is_misread(value.type) or _is_moment_but_least(value):
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
        case pa.TimestampScalar() if value.type.unit == "ns" and value.value != _LEAST:
            with contextlib.suppress(*_BEYOND_PYTHON):
                return _with_nanoseconds(value)
    return value.value if hasattr(value, "value") else f"0x{value.as_buffer().to_pybytes().hex()}"


def _has_no_least(values: pa.Array | pa.ChunkedArray) -> bool:
    return _is_moment(values.type) and pc.min(values.cast(pa.int64())).as_py() != _LEAST


def _is_moment_but_least(value: pa.Scalar) -> bool:
    return _is_moment(value.type) and value.value != _LEAST


def _is_moment(kind: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(kind) or pa.types.is_duration(kind))


def _is_misread(kind: pa.DataType) -> bool:
    """Does ``as_py`` give other values of a type, or hold one for NULL?

    It drops nanoseconds of times where there is pandas, and takes those beyond a day modulo one.
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
    """The number of a time that is in no day."""
    unit = value.type.unit
    if not 0 <= value.value < 86_400 * 10 ** DECIMALS[unit]:
        return value.value
    return _with_nanoseconds(value) if unit == "ns" and value.value % 1000 else value.as_py()


def _with_nanoseconds(value: pa.Scalar) -> str:
    """As Python writes a moment, with three digits more."""
    is_time = pa.types.is_time(value.type)
    micros, rest = divmod(value.value, 1000)
    whole = pa.scalar(micros, pa.time64("us") if is_time else pa.timestamp("us", value.type.tz))
    moment = whole.as_py()
    shown = str(moment.replace(microsecond=1))
    return shown.replace(".000001", f".{moment.microsecond:06}{rest:03}")
