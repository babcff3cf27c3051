"""SQL's ways to ask what is in a list or a map, as calls of ``functions``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from intarsia.errors import PredicateError
from intarsia.expr.functions import (
    element_type,
    is_list,
    list_contains,
    list_contains_all,
    list_contains_any,
    map_contains,
)
from intarsia.expr.scalar_format import readable

_NAMED = {
    "array_has_any": False,
    "list_has_any": False,
    "array_has_all": True,
    "list_has_all": True,
}
"""Functions of a list and a list of constants: must it have all of these?"""


class Membership(NamedTuple):
    """A question whether ``subject`` holds any of ``constants``, or all of them.

    ``is_certain`` is False where only TRUE is what it is in SQL: ``= ANY`` is FALSE of a list that
    is NULL, and NULL where there is a NULL in place of a match.
    """

    subject: exp.Expr
    constants: tuple[exp.Expr, ...]
    of_lists: bool = True
    of_maps: bool = False
    all_needed: bool = True
    of_several: bool = False
    is_certain: bool = True


def membership_of(node: exp.Expr) -> Membership | None:
    """``node`` as such a question; None where it is none, or not about constants."""
    match node:
        case exp.ArrayContains(this=subject, expression=constant):
            return Membership(subject, (constant,))
        case exp.Contains(this=subject, expression=constant):
            return Membership(subject, (constant,), of_maps=True)
        case exp.In(this=constant) if (subject := node.args.get("field")) is not None:
            return Membership(subject, (constant,), of_maps=True)
        case exp.EQ(this=constant, expression=exp.Any(this=exp.Paren(this=subject))):
            return Membership(subject, (constant,), is_certain=False)
        case exp.EQ(this=constant, expression=exp.Anonymous(this=str(name), expressions=[subject])):
            is_some = name.lower() == "some"
            return Membership(subject, (constant,), is_certain=False) if is_some else None
        case exp.ArrayOverlaps(this=left, expression=right):
            return _of_list(left, right, False) or _of_list(right, left, False)
        case exp.ArrayContainsAll(this=subject, expression=constants):
            return _of_list(subject, constants, True)
        case exp.ArrayContainedBy(this=constants, expression=subject):
            return _of_list(subject, constants, True)
        case exp.Anonymous(this=str(name), expressions=[subject, second]):
            if name.lower() == "map_contains":
                return Membership(subject, (second,), of_lists=False, of_maps=True)
            if name.lower() in _NAMED:
                return _of_list(subject, second, _NAMED[name.lower()])
    return None


def _of_list(subject: exp.Expr, constants: exp.Expr, all_needed: bool) -> Membership | None:
    if not isinstance(constants, exp.Array):
        return None
    return Membership(subject, tuple(constants.expressions), all_needed=all_needed, of_several=True)


def held_type(kind: pa.DataType | None, asked: Membership) -> pa.DataType | None:
    """The type of what a column of ``kind`` holds; None where it cannot be ``asked``."""
    if kind is None:
        return None
    may_be = (asked.of_lists and is_list(kind)) or (asked.of_maps and pa.types.is_map(kind))
    return element_type(kind) if may_be else None


def call_of(
    asked: Membership, subject: pc.Expression, kind: pa.DataType, constants: Sequence[pa.Scalar]
) -> pc.Expression:
    """The call that answers it, of a column of ``kind``."""
    if not asked.of_several:
        return (map_contains if pa.types.is_map(kind) else list_contains)(subject, constants[0])
    return (list_contains_all if asked.all_needed else list_contains_any)(
        subject, _array([constant for constant in constants if constant.is_valid])
    )


def _array(constants: Sequence[pa.Scalar]) -> pa.Array:
    """Constants of one list. Raises ``PredicateError`` where they have no type in common."""
    types = {constant.type for constant in constants}
    try:
        if len(types) == 1:
            return pa.array(list(constants), *types)
        return pa.array([constant.as_py() for constant in constants])
    except (pa.ArrowException, ValueError) as error:
        shown = ", ".join(map(str, map(readable, constants)))
        raise PredicateError(f"{shown} are of several types") from error
