"""SQL's searches in lists and maps, as calls of our own ``functions``."""

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

_NEEDS_ALL = {
    "array_has_any": False,
    "list_has_any": False,
    "array_has_all": True,
    "list_has_all": True,
}
"""Functions of a list and a list of constants: True if the first must hold all of the second."""


class Membership(NamedTuple):
    """A search in ``subject`` for any of ``constants``, or for all of them.

    If ``is_certain`` is False, it agrees with SQL only where it is TRUE. SQL's ``= ANY`` is FALSE
    for a NULL list, and NULL if there is no match but a NULL element.
    """

    subject: exp.Expr
    constants: tuple[exp.Expr, ...]
    of_lists: bool = True
    of_maps: bool = False
    all_needed: bool = True
    of_several: bool = False
    is_certain: bool = True


def membership_of(node: exp.Expr) -> Membership | None:
    """Returns the search that ``node`` is, or None if it is none, or not for constants."""
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
            return _list_search(left, right, False) or _list_search(right, left, False)
        case exp.ArrayContainsAll(this=subject, expression=constants):
            return _list_search(subject, constants, True)
        case exp.ArrayContainedBy(this=constants, expression=subject):
            return _list_search(subject, constants, True)
        case exp.Anonymous(this=str(name), expressions=[subject, second]):
            if name.lower() == "map_contains":
                return Membership(subject, (second,), of_lists=False, of_maps=True)
            if name.lower() in _NEEDS_ALL:
                return _list_search(subject, second, _NEEDS_ALL[name.lower()])
    return None


def _list_search(subject: exp.Expr, constants: exp.Expr, all_needed: bool) -> Membership | None:
    if not isinstance(constants, exp.Array):
        return None
    return Membership(subject, tuple(constants.expressions), all_needed=all_needed, of_several=True)


def searched_type(kind: pa.DataType | None, membership: Membership) -> pa.DataType | None:
    """Returns the type of the elements or keys of a column of type ``kind``.

    Returns None if ``membership`` is no search in such a column.
    """
    if kind is None:
        return None
    is_searchable = (membership.of_lists and is_list(kind)) or (
        membership.of_maps and pa.types.is_map(kind)
    )
    return element_type(kind) if is_searchable else None


def call_of(
    membership: Membership,
    subject: pc.Expression,
    kind: pa.DataType,
    constants: Sequence[pa.Scalar],
) -> pc.Expression:
    """Returns the call that performs a search in ``subject``, a column of type ``kind``."""
    if not membership.of_several:
        return (map_contains if pa.types.is_map(kind) else list_contains)(subject, constants[0])
    return (list_contains_all if membership.all_needed else list_contains_any)(
        subject, _array([constant for constant in constants if constant.is_valid])
    )


def _array(constants: Sequence[pa.Scalar]) -> pa.Array:
    """Returns constants as one array. Raises ``PredicateError`` if they have no common type."""
    types = {constant.type for constant in constants}
    try:
        if len(types) == 1:
            return pa.array(list(constants), *types)
        return pa.array([constant.as_py() for constant in constants])
    except (pa.ArrowException, ValueError) as error:
        shown = ", ".join(map(str, map(readable, constants)))
        raise PredicateError(f"{shown} have no common type") from error
