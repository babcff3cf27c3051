"""Values for a query's ``?``, ``$1`` and ``$name``, as constants that conditions may be read with.

The engine is given the values themselves. A parameter stays one, which no condition understands,
where a constant might mean something else than its value does.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal

import sqlglot
from sqlglot import exp

Parameters = Sequence[object] | Mapping[str, object]


def numbered(query: str, dialect: str) -> str:
    """``query`` with ``$1``, ``$2``, … for its every ``?``, unless it has others as well.

    Raises sqlglot's errors for what is no SQL.
    """
    tokens = sqlglot.tokenize(query, read=dialect)
    if any(token.token_type is sqlglot.TokenType.PARAMETER for token in tokens):
        return query
    parts, end = [], 0
    marks = (token for token in tokens if token.token_type is sqlglot.TokenType.PLACEHOLDER)
    for number, mark in enumerate(marks, start=1):
        parts += [query[end : mark.start], f"${number}"]
        end = mark.end + 1
    return "".join([*parts, query[end:]])


def put_in(tree: exp.Expr, parameters: Parameters) -> None:
    """Replace parameters in conditions of ``tree`` by the constants of their values."""
    if not isinstance(parameters, Mapping):
        parameters = {str(number): value for number, value in enumerate(parameters, start=1)}
    values = {name.lower(): value for name, value in parameters.items()}
    for place in list(tree.find_all(exp.Placeholder)):
        value = values.get(place.name.lower(), _UNKNOWN)
        if isinstance(place.parent, exp.In) and place.arg_key == "field":
            _put_members(place.parent, value)
        elif _is_in_condition(place) and (constant := _constant(value)):
            place.replace(constant)


def _is_in_condition(place: exp.Placeholder) -> bool:
    """Is it compared or handed to a function? To order by a number is to order by a column."""
    return isinstance(place.parent, exp.Condition) and not isinstance(place.parent, exp.Paren)


def _put_members(node: exp.In, value: object) -> None:
    """IN a list of values of one type, none of which is NULL: with one it is FALSE, never NULL."""
    members = list(value) if isinstance(value, list | tuple) else []
    found = [_constant(member) for member in members if member is not None]
    constants = [constant for constant in found if constant is not None]
    if members and len(constants) == len(members) and len(set(map(type, members))) == 1:
        node.set("field", None)
        node.set("expressions", constants)


def _constant(value: object) -> exp.Expr | None:
    """The constant that means what ``value`` does; None where there is none."""
    if isinstance(value, datetime):  # pandas' are of a type of their own
        zone = "TIMESTAMP" if value.tzinfo is None else "TIMESTAMPTZ"
        return exp.cast(exp.Literal.string(value.isoformat(" ")), zone)
    constant = _CONSTANTS.get(type(value))
    return None if constant is None else constant(value)


def _number(value: int | float) -> exp.Expr:
    literal = exp.Literal.number(abs(value))
    return exp.Neg(this=literal) if value < 0 else literal


def _decimal(value: Decimal) -> exp.Expr | None:
    """With all digits, which arithmetic would round."""
    if not value.is_finite():
        return None
    literal = exp.Literal.number(f"{value.copy_abs():f}")
    return exp.Neg(this=literal) if value < 0 else literal


def _double(value: float) -> exp.Expr | None:
    """As DOUBLE: a literal with a point is a DECIMAL."""
    return exp.cast(_number(value), "DOUBLE") if math.isfinite(value) else None


_UNKNOWN = object()
_CONSTANTS: Mapping[type, Callable[..., exp.Expr | None]] = {
    type(None): lambda _: exp.Null(),
    bool: lambda value: exp.Boolean(this=value),
    int: _number,
    float: _double,
    Decimal: _decimal,
    str: exp.Literal.string,
    date: lambda value: exp.cast(exp.Literal.string(value.isoformat()), "DATE"),
}
