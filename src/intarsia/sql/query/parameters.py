"""Values for a query's ``?``, ``$1`` and ``$name``, as constants that conditions may be read with.

The engine is given the values themselves. A parameter stays one, which no condition understands,
where a constant might mean something else than its value does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import sqlglot
from sqlglot import TokenType, exp

from intarsia.sql.literals import constant_of

Parameters = Sequence[object] | Mapping[str, object]

_UNKNOWN = object()


def numbered(query: str, dialect: str) -> str:
    """``query`` with ``$1``, ``$2``, … for its every ``?``, unless it has others as well.

    Raises sqlglot's errors for what is no SQL.
    """
    tokens = sqlglot.tokenize(query, read=dialect)
    if any(token.token_type is TokenType.PARAMETER for token in tokens):
        return query
    parts, end = [], 0
    marks = (token for token in tokens if token.token_type is TokenType.PLACEHOLDER)
    for number, mark in enumerate(marks, start=1):
        # $ may be part of a name before it, and $1,$ begins a quote to sqlglot.
        parts += [query[end : mark.start], f" ${number} "]
        end = mark.end + 1
    return "".join([*parts, query[end:]])


def by_name(parameters: Parameters) -> Mapping[str, object]:
    """Parameters by what they are called after ``$``."""
    if isinstance(parameters, Mapping):
        return parameters
    return {str(number): value for number, value in enumerate(parameters, start=1)}


def put_in(tree: exp.Expr, parameters: Parameters) -> None:
    """Replace parameters in conditions of ``tree`` by the constants of their values."""
    values = {name.lower(): value for name, value in by_name(parameters).items()}
    for place in list(tree.find_all(exp.Placeholder)):
        value = values.get(place.name.lower(), _UNKNOWN)
        if isinstance(place.parent, exp.In) and place.arg_key == "field":
            _put_members(place.parent, value)
        elif _is_in_condition(place) and (constant := constant_of(value)):
            place.replace(constant)


def _is_in_condition(place: exp.Placeholder) -> bool:
    """Is it compared or handed to a function? To order by a number is to order by a column."""
    return isinstance(place.parent, exp.Condition) and not isinstance(place.parent, exp.Paren)


def _put_members(node: exp.In, value: object) -> None:
    """IN a list of values of one type, none of which is NULL: with one it is FALSE, never NULL."""
    members = list(value) if isinstance(value, list | tuple) else []
    found = [constant_of(member) for member in members if member is not None]
    constants = [constant for constant in found if constant is not None]
    if members and len(constants) == len(members) and len(set(map(type, members))) == 1:
        node.set("field", None)
        node.set("expressions", constants)
