"""Values for a query's ``?``, ``$1`` and ``$name``, as constants that conditions can be read with.

The engine receives the values themselves. A parameter stays in the tree if a constant might mean
something else than its value. Then no condition with it is understood.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import sqlglot
from sqlglot import TokenType, exp

from intarsia.sql.literals import constant_of
from intarsia.sql.long_lists import node_of_values

Parameters = Sequence[object] | Mapping[str, object]
"""The values by position, or by name."""

_UNKNOWN = object()


def numbered(query: str, dialect: str) -> str:
    """Returns ``query`` with ``$1``, ``$2``, … for each ``?``, unless it has other parameters.

    Raises sqlglot's errors if ``query`` is not SQL.
    """
    tokens = sqlglot.tokenize(query, read=dialect)
    if any(token.token_type is TokenType.PARAMETER for token in tokens):
        return query
    parts, end = [], 0
    marks = (token for token in tokens if token.token_type is TokenType.PLACEHOLDER)
    for number, mark in enumerate(marks, start=1):
        # The spaces keep $ out of a name before it. sqlglot reads $1,$ as the begin of a quote.
        parts += [query[end : mark.start], f" ${number} "]
        end = mark.end + 1
    return "".join([*parts, query[end:]])


def by_name(parameters: Parameters) -> Mapping[str, object]:
    """Returns parameters by their name after ``$``."""
    if isinstance(parameters, Mapping):
        return parameters
    return {str(number): value for number, value in enumerate(parameters, start=1)}


def substitute_parameters(tree: exp.Expr, parameters: Parameters) -> None:
    """Replaces parameters in conditions of ``tree`` by constants of their values."""
    values = {name.lower(): value for name, value in by_name(parameters).items()}
    lists: dict[int, exp.In] = {}
    for place in list(tree.find_all(exp.Placeholder)):
        value, parent = values.get(place.name.lower(), _UNKNOWN), place.parent
        if isinstance(parent, exp.In) and place.arg_key == "field":
            _put_members(parent, value)
        elif isinstance(parent, exp.In) and place.arg_key == "expressions":
            lists[id(parent)] = parent
        elif _is_in_condition(place) and (constant := constant_of(value)):
            place.replace(constant)
    for node in lists.values():  # at once: replacing one member takes sqlglot a pass over all
        _replace_members(node, values)


def _is_in_condition(place: exp.Placeholder) -> bool:
    """True if a parameter is compared or passed to a function.

    It is not, for example, in ORDER BY, where a number would stand for a column.
    """
    return isinstance(place.parent, exp.Condition) and not isinstance(place.parent, exp.Paren)


def _put_members(node: exp.In, value: object) -> None:
    """Sets the members of IN from a list of values of one type without NULL.

    A list with NULL stays a parameter: IN is then FALSE, never NULL.
    """
    members = list(value) if isinstance(value, list | tuple) else []
    if not members or len(set(map(type, members))) > 1 or members[0] is None:
        return
    long_list = node_of_values(members)
    nodes = map(constant_of, members) if long_list is None else [long_list]
    constants = [constant for constant in nodes if constant is not None]
    if long_list is not None or len(constants) == len(members):
        node.set("field", None)
        node.set("expressions", constants)


def _replace_members(node: exp.In, values: Mapping[str, object]) -> None:
    """Replaces the parameters among the members of IN."""
    members = node.expressions
    given = [
        values.get(member.name.lower(), _UNKNOWN) if isinstance(member, exp.Placeholder) else member
        for member in members
    ]
    long_list = node_of_values(given)
    if long_list is None:
        members = [constant_of(value) or old for value, old in zip(given, members, strict=True)]
    node.set("expressions", members if long_list is None else [long_list])
