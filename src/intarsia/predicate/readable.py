"""Arrow's values as Python's, for people: those too that Python's own types do not hold."""

from __future__ import annotations

import contextlib
from typing import Any

import pyarrow as pa

_BEYOND_PYTHON = (ValueError, OverflowError, KeyError)
"""What ``as_py`` raises for nanoseconds without pandas, days beyond the calendar, texts that are
not UTF-8, and time zones nobody knows."""
_TIME = pa.time64("ns")
"""Of which ``as_py`` drops nanoseconds where there is pandas."""


def readable_values(values: pa.Array | pa.ChunkedArray) -> list[Any]:
    """The ``readable`` values of an array."""
    if values.type != _TIME:
        with contextlib.suppress(*_BEYOND_PYTHON):
            found: list[Any] = values.to_pylist()
            return found
    return [readable(value) for value in values]


def readable(value: pa.Scalar) -> Any:
    """A value as ``as_py`` gives it. Of what that cannot give, times with nanoseconds come as text,
    moments beyond the calendar as numbers, and texts that are not UTF-8 as ``0x`` and digits.
    """
    if value.type != _TIME or not value.is_valid or value.value % 1000 == 0:
        with contextlib.suppress(*_BEYOND_PYTHON):
            return value.as_py()
    match value:
        case pa.DictionaryScalar() | pa.ExtensionScalar():
            return readable(value.value)
        case pa.StructScalar():
            return {name: readable(value[i]) for i, name in enumerate(value.type.names)}
        case pa.MapScalar():
            return [(readable(pair[0]), readable(pair[1])) for pair in value.values]
        case pa.ListScalar():
            return readable_values(value.values)
        case pa.TimestampScalar() | pa.Time64Scalar() if value.type.unit == "ns":
            with contextlib.suppress(*_BEYOND_PYTHON):
                return _with_nanoseconds(value)
    return value.value if hasattr(value, "value") else f"0x{value.as_buffer().to_pybytes().hex()}"


def _with_nanoseconds(value: pa.Scalar) -> str:
    """As Python writes a moment, with three digits more."""
    is_time = value.type == _TIME
    micros, rest = divmod(value.value, 1000)
    whole = pa.scalar(micros, pa.time64("us") if is_time else pa.timestamp("us", value.type.tz))
    moment = whole.as_py()
    shown = str(moment.replace(microsecond=1))
    return shown.replace(".000001", f".{moment.microsecond:06}{rest:03}")
