"""Hypothesis strategies: values of Arrow types, the awkward ones among them, and filters."""

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
SEARCHES = {search.__name__: search for search in TEXT_SEARCHES.values()}
COMPARISONS = (
    pc.equal,
    pc.not_equal,
    pc.less,
    pc.less_equal,
    pc.greater,
    pc.greater_equal,
)
_EPOCH = datetime.datetime(2020, 1, 1)


def usual_of(kind: pa.DataType) -> list[Any]:
    """A few values of an Arrow type, without NULL. Raises ``TypeError`` as ``values_of`` does."""
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
        held = usual_of(kind.value_type)
        return [[], held[:1], [None], held[:3]]
    raise TypeError(f"there is no strategy for values of {kind}")


def _extremes(kind: pa.DataType) -> tuple[int, int]:
    bits = kind.bit_width
    if pa.types.is_signed_integer(kind):
        return -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    return 0, 2**bits - 1


def values_of(kind: pa.DataType) -> st.SearchStrategy[Any]:
    """Values of an Arrow type, without NULL: few distinct ones mostly, so that filters hit.

    Raises ``TypeError`` for a type that there is no strategy for.
    """
    usual = st.sampled_from(usual_of(kind))
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
    """Arrays of a type: with NULLs or without, in order or not. ``extra`` values come up often."""
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
    held: pa.Array,
    searches: Sequence[str] = (),
    patterns: Sequence[str] = (),
) -> pc.Expression:
    """Conditions on ``subject``, whose values ``held`` are: some of them, or any of their type.

    ``searches`` are names of ``SEARCHES``; they look for parts of the values held, or for one of
    ``patterns``.
    """
    kind = held.type
    some = st.sampled_from(held.to_pylist()) if len(held) else st.none()
    value = some | values_of(kind)
    shapes = ["compare", "in", "null"] + ["nan"] * pa.types.is_floating(kind)
    match draw(st.sampled_from(shapes + ["search"] * (4 * bool(searches)))):
        case "compare":
            literal = pc.scalar(pa.scalar(draw(value), kind))
            found = draw(st.sampled_from(COMPARISONS))(subject, literal)
        case "in":
            found = subject.isin(pa.array(draw(st.lists(value, max_size=4)), kind))
        case "null":
            found = subject.is_null()
        case "nan":
            found = pc.is_nan(subject)
        case _:
            search = SEARCHES[draw(st.sampled_from(list(searches)))]
            sought = _parts(draw, draw(some)) if not patterns or draw(st.booleans()) else None
            pattern = draw(st.sampled_from(list(patterns))) if sought is None else sought
            found = search(subject, pattern, ignore_case=draw(st.booleans()))
    return ~found if draw(st.booleans()) else found


def _parts(draw: st.DrawFn, value: Any) -> str:
    """A part of a text; of any other value, a text."""
    text = value if isinstance(value, str) else "a"
    start = draw(st.integers(0, len(text)))
    part = text[start : draw(st.integers(start, len(text)))]
    return "".join(c for c in part if c.isalnum() or c in " %_/.:-")
