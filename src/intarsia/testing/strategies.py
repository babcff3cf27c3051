"""Hypothesis strategies for values of Arrow types, awkward ones included, and for filters."""

from __future__ import annotations

import datetime
import decimal
import math
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from hypothesis import strategies as st

from intarsia.index.value_predicates import TEXT_SEARCHES

TEXTS = ["", "a", "A", "ab", "K", "ſ", "İ", "日本 語", "\U0001f600", "a%b_c", "z" * 100]
"""Strings that break careless kinds: empty, long, of several cases, scripts and widths."""
SEARCHES = {search.__name__: search for search in TEXT_SEARCHES.values()}
"""The string searches of pyarrow, by name."""
COMPARISONS = (
    pc.equal,
    pc.not_equal,
    pc.less,
    pc.less_equal,
    pc.greater,
    pc.greater_equal,
)
_EPOCH = datetime.datetime(2020, 1, 1)


def example_values(kind: pa.DataType) -> list[Any]:
    """Returns a few values of an Arrow type, without NULL.

    Raises ``TypeError`` as ``values_of`` does.
    """
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return TEXTS
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return [b"", b"a", b"a\x00", b"\xff" * 70]
    if pa.types.is_boolean(kind):
        return [False, True]
    if pa.types.is_integer(kind):
        return [0, 1, *_extremes(kind), 5]
    if pa.types.is_float32(kind) or pa.types.is_float64(kind):
        return [0.0, -0.0, 1.5, -math.inf, math.inf, 0.25, math.nan]
    if pa.types.is_date(kind):
        return [_EPOCH.date() + datetime.timedelta(days=n) for n in (0, 1, -20_000)]
    if pa.types.is_timestamp(kind):
        zone = None if kind.tz is None else datetime.UTC
        return [(_EPOCH + datetime.timedelta(seconds=n)).replace(tzinfo=zone) for n in (0, 1, -3)]
    if pa.types.is_decimal(kind):
        return [decimal.Decimal(n).scaleb(-kind.scale) for n in (0, 1, -3)]
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        elements = example_values(kind.value_type)
        return [[], elements[:1], [None], elements[:3]]
    raise TypeError(f"there is no strategy for values of {kind}")


def _extremes(kind: pa.DataType) -> tuple[int, int]:
    bits = kind.bit_width
    if pa.types.is_signed_integer(kind):
        return -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    return 0, 2**bits - 1


def values_of(kind: pa.DataType) -> st.SearchStrategy[Any]:
    """Generates values of an Arrow type, without NULL.

    Most are from a few distinct values, so that filters match. Raises ``TypeError`` for a type
    without a strategy.
    """
    usual = st.sampled_from(example_values(kind))
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return usual | st.text(max_size=20)
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return usual | st.binary(max_size=9)
    if pa.types.is_integer(kind):
        return usual | st.integers(*_extremes(kind))
    if pa.types.is_floating(kind):
        return usual | st.floats(width=kind.bit_width)
    if pa.types.is_date(kind):
        return st.dates(datetime.date(1960, 1, 1), datetime.date(2040, 1, 1))
    if pa.types.is_timestamp(kind):
        zone = None if kind.tz is None else datetime.UTC
        steps = st.integers(-3, 3) | st.integers(0, 10**6)
        return steps.map(lambda n: (_EPOCH + datetime.timedelta(seconds=n)).replace(tzinfo=zone))
    if pa.types.is_decimal(kind):
        digits = st.integers(-3, 3) | st.integers(-999, 999)
        return digits.map(lambda n: decimal.Decimal(n).scaleb(-kind.scale))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return st.lists(st.none() | values_of(kind.value_type), max_size=4)
    return usual


@st.composite
def arrays(
    draw: st.DrawFn, kind: pa.DataType, extra: Sequence[Any] = (), max_size: int = 40
) -> pa.Array:
    """Generates arrays with or without NULLs, sorted or not, often with values of ``extra``."""
    value = values_of(kind)
    if extra:
        value = st.sampled_from(list(extra)) | value
    cells = draw(st.lists(st.none() | value if draw(st.booleans()) else value, max_size=max_size))
    if draw(st.booleans()):
        cells.sort(key=lambda cell: (cell is None, str(cell)))
    return pa.array(cells, kind)


@st.composite
def conditions(
    draw: st.DrawFn,
    subject: pc.Expression,
    values: pa.Array,
    searches: Sequence[str] = (),
    patterns: Sequence[str] = (),
) -> pc.Expression:
    """Generates conditions on ``subject``, whose values are ``values``.

    They compare with some of these values, or with any of their type. ``searches`` are names of
    ``SEARCHES``. Searches look for parts of the values, or for one of ``patterns``.
    """
    kind = values.type
    present_value = st.sampled_from(values.to_pylist()) if len(values) else st.none()
    value = present_value | values_of(kind)
    condition_kinds = ["compare", "in", "null"] + ["nan"] * pa.types.is_floating(kind)
    match draw(st.sampled_from(condition_kinds + ["search"] * (4 * bool(searches)))):
        case "compare":
            literal = pc.scalar(pa.scalar(draw(value), kind))
            condition = draw(st.sampled_from(COMPARISONS))(subject, literal)
        case "in":
            condition = subject.isin(pa.array(draw(st.lists(value, max_size=4)), kind))
        case "null":
            condition = subject.is_null()
        case "nan":
            condition = pc.is_nan(subject)
        case _:
            search = SEARCHES[draw(st.sampled_from(list(searches)))]
            part = (
                _parts(draw, draw(present_value)) if not patterns or draw(st.booleans()) else None
            )
            pattern = draw(st.sampled_from(list(patterns))) if part is None else part
            condition = search(subject, pattern, ignore_case=draw(st.booleans()))
    return ~condition if draw(st.booleans()) else condition


def _parts(draw: st.DrawFn, value: Any) -> str:
    """Returns a part of a string. For other values, returns a part of "a"."""
    string = value if isinstance(value, str) else "a"
    start = draw(st.integers(0, len(string)))
    part = string[start : draw(st.integers(start, len(string)))]
    return "".join(c for c in part if c.isalnum() or c in " %_/.:-")
