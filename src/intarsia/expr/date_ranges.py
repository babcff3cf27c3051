"""Rewrites comparisons of the day, month or year of a timestamp as ranges of the timestamp.

A range can be compared with minimum and maximum values, and it is all that each row needs::

    cast(ts, date32) = 2024-05-01          ⇔   ts >= 2024-05-01 and ts < 2024-05-02
    floor_temporal(ts, month) > 2024-05-17  ⇔   ts >= 2024-06-01
    year(ts) <= 2023                        ⇔   ts < 2024-01-01
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, NamedTuple

import pyarrow as pa

from intarsia.expr.casts import has_zone, is_moment
from intarsia.expr.comparison_operators import COMPARISONS, MIRRORED, Op
from intarsia.expr.constant_evaluation import DAYS, TIMES, Interval, later, truncated, unit
from intarsia.expr.nested_types import type_at
from intarsia.expr.tree import Call, FieldRef, Literal, Node, calls_in, joined, replaced

_UNIT_NAMES = ("nanosecond", *TIMES, *DAYS)
"""Names of units by the number that ``floor_temporal`` has for them."""
_FUNCTIONS = ("cast", "floor_temporal", "year")
_MAX_MEMBERS = 64
"""Longer ``is_in`` lists are left as they are."""
_NO_SLACK, _ROUNDING = timedelta(0), timedelta(microseconds=1)
"""An engine with microseconds may move a timestamp with nanoseconds by this much."""
_DEFAULT_OPTIONS = {"multiple": 1, "week_starts_monday": True}
"""Options of ``floor_temporal``. Other values change its meaning, and the call is left as it is."""


class _Period(NamedTuple):
    """A function of a date or timestamp field: the beginning of a period, or the year's number.

    ``kind`` is the type of the field, ``type`` that of the function's result. An engine may take a
    timestamp for one that is up to ``slack`` earlier or later. If ``has_eras``, an engine may give
    years before the first without their era: 1200 for 1200 BC.
    """

    path: tuple[str, ...]
    kind: pa.DataType
    length: Interval
    type: pa.DataType
    slack: timedelta = _NO_SLACK
    has_eras: bool = False


def periods_as_ranges(node: Node, schema: pa.Schema, *, loosely: bool = False) -> Node:
    """Returns ``node`` with ranges in place of periods, or ``node`` itself if it has none.

    The result is TRUE, FALSE and NULL in the same rows. A timestamp in a time zone other than UTC
    is left as it is. So is a constant that the calendar of the years 1 to 9999 or the field's type
    does not hold.

    With ``loosely``, the result allows for what an engine sees. Nanoseconds may be microseconds
    nearby. The year of a timestamp with a time zone may be the number within its era. The result is
    then TRUE wherever either reading is, and perhaps in more rows; ``<>`` of nanoseconds is left as
    it is.
    """
    if not any(call.function in _FUNCTIONS for call in calls_in(node)):
        return node
    return replaced(node, functools.partial(_rewrite, schema, loosely))


def has_periods(node: Node, schema: pa.Schema) -> bool:
    """True if anything is left that ``periods_as_ranges`` might have replaced."""
    return any(_period(call, schema) is not None for call in calls_in(node))


def _rewrite(schema: pa.Schema, loosely: bool, node: Node) -> Node:
    def period_of(argument: Node) -> _Period | None:
        exact_period = _period(argument, schema)
        if exact_period is None or not loosely:
            return exact_period
        slack, has_eras = engine_tolerance(exact_period.kind, exact_period.type)
        return exact_period._replace(slack=slack, has_eras=has_eras)

    try:
        match node:
            case Call(function, (subject,), options) if function in _REWRITES:
                period = period_of(subject)
                return (period and _REWRITES[function](period, options)) or node
            case Call(function, (left, right)) if function in COMPARISONS:
                op = COMPARISONS[function]
                if isinstance(left, Literal):
                    left, right, op = right, left, MIRRORED.get(op, op)
                period = period_of(left)
                if period is not None and isinstance(right, Literal):
                    return _comparison(period, op, right.value) or node
    except (ValueError, OverflowError, pa.ArrowException):  # beyond a calendar or a type
        pass
    return node


def _period(node: Node, schema: pa.Schema) -> _Period | None:
    if not isinstance(node, Call) or len(node.arguments) != 1:
        return None
    moments = _moment_field(node.arguments[0], schema)
    if moments is None:
        return None
    field, kind = moments
    is_date = pa.types.is_date32(kind)
    match node:
        case Call("cast", _, options):
            target = options.get("to_type")
            to_day = target is not None and pa.types.is_date32(target.type) and not is_date
            return _Period(field.path, kind, unit("day"), pa.date32()) if to_day else None
        case Call("floor_temporal", _, options):
            name = _UNIT_NAMES[options["unit"].as_py()]
            is_plain = all(
                options[option].as_py() == value for option, value in _DEFAULT_OPTIONS.items()
            )
            is_known = name in DAYS or (name in TIMES and not is_date)
            return _Period(field.path, kind, unit(name), kind) if is_plain and is_known else None
        case Call("year"):
            return _Period(field.path, kind, unit("year"), pa.int64())
    return None


def engine_tolerance(kind: pa.DataType, result_type: pa.DataType) -> tuple[timedelta, bool]:
    """Returns the ``slack`` and ``has_eras`` of a period for an engine like DuckDB.

    That engine computes in microseconds, and knows eras for timestamps with a time zone. The field
    has type ``kind``, the period's result ``result_type``.
    """
    if not pa.types.is_timestamp(kind):
        return _NO_SLACK, False
    if kind.unit == "ns":  # its range begins after the first year
        return _ROUNDING, False
    return _NO_SLACK, has_zone(kind) and bool(pa.types.is_integer(result_type))


def _moment_field(node: Node, schema: pa.Schema) -> tuple[FieldRef, pa.DataType] | None:
    """Returns a date or timestamp field, in UTC or without a time zone, and its own type.

    The field may be cast from another time zone to UTC. Returns None for any other tree.
    """
    match node:
        case FieldRef():
            kind = type_at(schema, node.path)
            if kind is None:
                return None
            is_known = pa.types.is_timestamp(kind) and kind.tz in (None, "UTC")
            return (node, kind) if is_known or pa.types.is_date32(kind) else None
        case Call("cast", (FieldRef() as field,), options):
            kind, target = type_at(schema, field.path), options.get("to_type")
            if kind is None or target is None or not has_zone(kind):
                return None
            if target.type == pa.timestamp(kind.unit, "UTC"):
                return field, kind
    return None


def _comparison(period: _Period, op: Op, value: pa.Scalar) -> Node | None:
    matching_range = _range_of(period, op, value)
    if matching_range is None or not period.has_eras:
        return matching_range
    return joined("or_kleene", [matching_range, _bound(period, "less", datetime.min)])


def _range_of(period: _Period, op: Op, value: pa.Scalar) -> Node | None:
    start = _compared_moment(period, value)
    if start is None:
        return None
    period_start = truncated(start, period.length)
    period_end = later(period_start, period.length)
    begin = period_start if start == period_start else period_end  # none begins in between
    slack = period.slack
    below, from_ = (functools.partial(_bound, period, f) for f in ("less", "greater_equal"))
    match op:
        case Op.EQ:
            return joined("and_kleene", [from_(begin - slack), below(period_end + slack)])
        case Op.NE if not slack:
            return joined("or_kleene", [below(begin), from_(period_end)])
        case Op.LT:
            return below(begin + slack)
        case Op.GE:
            return from_(begin - slack)
        case Op.LE:
            return below(period_end + slack)
        case Op.GT:
            return from_(period_end - slack)
    return None


def _bound(period: _Period, function: str, moment: datetime) -> Node:
    """Returns a comparison of the field with a moment."""
    return Call(function, (FieldRef(period.path), Literal(_scalar(period, moment))))


def _is_in(period: _Period, options: dict[str, Any]) -> Node | None:
    """Returns ``is_in`` of constants as an OR of ranges. It is FALSE for NULL, as ``is_in`` is.

    Returns None if the list holds NULL or is too long. Also returns None if it has another type
    than the period: pyarrow would cast its timestamps to dates.
    """
    values = options["value_set"].values
    if values is None or values.null_count or not 0 < len(values) <= _MAX_MEMBERS:
        return None
    if values.type != period.type:
        return None
    ranges = [_comparison(period, Op.EQ, value) for value in values]
    known_ranges = [matching_range for matching_range in ranges if matching_range is not None]
    if len(known_ranges) < len(ranges):
        return None
    return Call("coalesce", (joined("or_kleene", known_ranges), Literal(pa.scalar(False))))


_REWRITES: dict[str, Callable[[_Period, dict[str, Any]], Node | None]] = {
    "is_in": _is_in,
    "is_null": lambda period, options: Call("is_null", (FieldRef(period.path),), options),
    "is_valid": lambda period, _: Call("is_valid", (FieldRef(period.path),)),
}


def _compared_moment(period: _Period, value: pa.Scalar) -> datetime | None:
    """Returns the timestamp that a constant stands for, in UTC; for a year, its beginning.

    Returns None if the constant's type does not fit the period.
    """
    kind = value.type
    if not value.is_valid:
        return None
    if pa.types.is_integer(period.type):
        return datetime(value.as_py(), 1, 1) if pa.types.is_integer(kind) else None
    if not is_moment(kind) or has_zone(kind) != has_zone(period.type):
        return None
    moment: datetime = value.cast(pa.timestamp("us")).as_py()
    return moment


def _scalar(period: _Period, moment: datetime) -> pa.Scalar:
    """Returns a timestamp in the field's type. Raises ``ArrowInvalid`` if it does not fit."""
    kind = period.kind
    if pa.types.is_date32(kind):
        return pa.scalar(moment.date(), kind)
    return pa.scalar(moment, pa.timestamp("us", kind.tz)).cast(kind)
