"""Comparisons of the day, the month, the year … that a moment is in, as ranges of the moment.

Whatever knows bounds of the moments can answer these, and rows are told by comparing them alone::

    cast(ts, date32) = 2024-05-01          ⇔   ts >= 2024-05-01 and ts < 2024-05-02
    floor_temporal(ts, month) > 2024-05-17  ⇔   ts >= 2024-06-01
    year(ts) <= 2023                        ⇔   ts < 2024-01-01
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from intarsia.expr.casts import has_zone, is_moment
from intarsia.expr.comparison_operators import COMPARISONS, MIRRORED, Op
from intarsia.expr.constant_evaluation import DAYS, TIMES, Interval, later, truncated, unit
from intarsia.expr.tree import Call, FieldRef, Literal, Node, calls_in, read_expression, replaced

_NAMES = ("nanosecond", *TIMES, *DAYS)
"""As pyarrow numbers them."""
_FUNCTIONS = ("cast", "floor_temporal", "year")
_MOST_MEMBERS = 64
_NONE, _ROUNDING = timedelta(0), timedelta(microseconds=1)
_PLAIN = {"multiple": 1, "week_starts_monday": True}
"""Options of ``floor_temporal`` without which it is something else."""


class _Period(NamedTuple):
    """What a field of moments is asked for: the beginning of a period, or its year's number.

    ``kind`` is the type of the field, ``type`` of what is asked for. A moment may be taken for one
    that is up to ``slack`` earlier or later. ``has_eras``: years before the first may be told
    without their era, as 1200 of 1200 BC.
    """

    path: tuple[str, ...]
    kind: pa.DataType
    length: Interval
    type: pa.DataType
    slack: timedelta = _NONE
    has_eras: bool = False


def without_periods(
    expression: pc.Expression, node: Node, schema: pa.Schema, *, loosely: bool = False
) -> tuple[pc.Expression, Node]:
    """An Expression that is TRUE, FALSE and NULL where ``expression`` is, whose tree is ``node``;
    and its tree.

    Left as they are: moments in a time zone other than UTC, and constants that are none of a
    calendar of the years 1 to 9999, or of more digits than the field's. ``loosely`` goes by what an
    engine may see: of nanoseconds microseconds nearby, and of moments in a time zone the number of
    a year in its era. Then what it gives is TRUE wherever either is, and perhaps elsewhere; ``<>``
    of nanoseconds is left.
    """
    if not any(call.function in _FUNCTIONS for call in calls_in(node)):
        return expression, node
    asking = {*COMPARISONS, *_ASKING}
    plain = replaced(expression, asking, functools.partial(_as_range, schema, loosely))
    return (expression, node) if plain is expression else (plain, read_expression(plain))


def has_periods(node: Node, schema: pa.Schema) -> bool:
    """Is anything left that ``without_periods`` might have replaced?"""
    return any(_period(call, schema) is not None for call in calls_in(node))


def _as_range(schema: pa.Schema, loosely: bool, node: Call) -> pc.Expression | None:
    def period_of(asked: Node) -> _Period | None:
        found = _period(asked, schema)
        if found is None or not loosely:
            return found
        slack, has_eras = looseness(found.kind, found.type)
        return found._replace(slack=slack, has_eras=has_eras)

    try:
        match node:
            case Call(function, (subject,), options) if function in _ASKING:
                period = period_of(subject)
                return None if period is None else _ASKING[function](period, options)
            case Call(function, (left, right)):
                op = COMPARISONS[function]
                if isinstance(left, Literal):
                    left, right, op = right, left, MIRRORED.get(op, op)
                period = period_of(left)
                if period is not None and isinstance(right, Literal):
                    return _compared(period, op, right.value)
    except (ValueError, OverflowError, pa.ArrowException):  # beyond a calendar or a type
        pass
    return None


def _period(node: Node, schema: pa.Schema) -> _Period | None:
    if not isinstance(node, Call) or len(node.arguments) != 1:
        return None
    moments = _moments(node.arguments[0], schema)
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
            name = _NAMES[options["unit"].as_py()]
            is_plain = all(options[option].as_py() == value for option, value in _PLAIN.items())
            is_known = name in DAYS or (name in TIMES and not is_date)
            return _Period(field.path, kind, unit(name), kind) if is_plain and is_known else None
        case Call("year"):
            return _Period(field.path, kind, unit("year"), pa.int64())
    return None


def looseness(kind: pa.DataType, asked: pa.DataType) -> tuple[timedelta, bool]:
    """A period's ``slack`` and ``has_eras`` to an engine that has microseconds, and eras of moments
    in a zone: of moments of type ``kind``, where what is asked for is of type ``asked``.
    """
    if not pa.types.is_timestamp(kind):
        return _NONE, False
    if kind.unit == "ns":  # which know no time before the first year
        return _ROUNDING, False
    return _NONE, has_zone(kind) and bool(pa.types.is_integer(asked))


def _moments(node: Node, schema: pa.Schema) -> tuple[FieldRef, pa.DataType] | None:
    """A field whose values are moments in UTC, of no zone, or days, and its own type."""
    match node:
        case FieldRef():
            kind = _type_of(node, schema)
            is_known = pa.types.is_timestamp(kind) and kind.tz in (None, "UTC")
            return (node, kind) if is_known or pa.types.is_date32(kind) else None
        case Call("cast", (FieldRef() as field,), options):
            kind, target = _type_of(field, schema), options.get("to_type")
            in_utc = pa.timestamp(kind.unit, "UTC") if has_zone(kind) else None
            if target is not None and target.type == in_utc:
                return field, kind
    return None


def _type_of(field: FieldRef, schema: pa.Schema) -> pa.DataType:
    """The type of a field; null where there is none."""
    kind = pa.struct(schema)
    for name in field.path:
        if not pa.types.is_struct(kind) or kind.get_field_index(name) < 0:
            return pa.null()
        kind = kind.field(name).type
    return kind


def _compared(period: _Period, op: Op, value: pa.Scalar) -> pc.Expression | None:
    found = _within(period, op, value)
    if found is None or not period.has_eras:
        return found
    return found | (pc.field(*period.path) < _scalar(period, datetime.min))


def _within(period: _Period, op: Op, value: pa.Scalar) -> pc.Expression | None:
    start = _moment(period, value)
    if start is None:
        return None
    first = truncated(start, period.length)
    after = later(first, period.length)
    begin = first if start == first else after  # nothing begins between the two
    field, slack, at = pc.field(*period.path), period.slack, functools.partial(_scalar, period)
    match op:
        case Op.EQ:
            return (field >= at(begin - slack)) & (field < at(after + slack))
        case Op.NE if not slack:
            return (field < at(begin)) | (field >= at(after))
        case Op.LT:
            return field < at(begin + slack)
        case Op.GE:
            return field >= at(begin - slack)
        case Op.LE:
            return field < at(after + slack)
        case Op.GT:
            return field >= at(after - slack)
    return None


def _among(period: _Period, options: dict[str, Any]) -> pc.Expression | None:
    """FALSE for NULL, as membership is that asks for no NULL.

    Members of another type than the values are left: pyarrow makes days of moments.
    """
    values = options["value_set"].values
    if values is None or values.null_count or not 0 < len(values) <= _MOST_MEMBERS:
        return None
    if values.type != period.type:
        return None
    found = [_compared(period, Op.EQ, value) for value in values]
    known = [part for part in found if part is not None]
    if len(known) < len(found):
        return None
    return pc.coalesce(functools.reduce(operator.or_, known), pc.scalar(False))


def _is_null(period: _Period, _: object) -> pc.Expression:
    return pc.field(*period.path).is_null()


def _is_valid(period: _Period, _: object) -> pc.Expression:
    return pc.field(*period.path).is_valid()


_ASKING: dict[str, Callable[[_Period, dict[str, Any]], pc.Expression | None]] = {
    "is_in": _among,
    "is_null": _is_null,
    "is_valid": _is_valid,
}


def _moment(period: _Period, value: pa.Scalar) -> datetime | None:
    """What is compared with: of a year, its beginning. In UTC, of either kind of timestamps."""
    kind = value.type
    if not value.is_valid:
        return None
    if pa.types.is_integer(period.type):
        return datetime(value.as_py(), 1, 1) if pa.types.is_integer(kind) else None
    if not is_moment(kind) or has_zone(kind) != has_zone(period.type):
        return None
    found: datetime = value.cast(pa.timestamp("us")).as_py()
    return found


def _scalar(period: _Period, moment: datetime) -> pa.Scalar:
    """Raises ``ArrowInvalid`` where the field's type has no such moment."""
    kind = period.kind
    if pa.types.is_date32(kind):
        return pa.scalar(moment.date(), kind)
    return pa.scalar(moment, pa.timestamp("us", kind.tz)).cast(kind)
