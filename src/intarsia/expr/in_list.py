"""``IN`` with a list of constants."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from intarsia.expr.constants import exactly
from intarsia.expr.filterable_types import VIEWED
from intarsia.expr.nested_types import without_dictionary


def is_member(
    subject: pc.Expression, members: list[pa.Scalar], kind: pa.DataType | None
) -> pc.Expression:
    """Returns the Expression that is TRUE where ``subject`` equals one of ``members``.

    ``members`` holds no NULL. If the members do not share the type ``kind`` of ``subject``, each is
    compared on its own.
    """
    if kind is not None:
        kind = without_dictionary(kind)
        kind = VIEWED.get(kind, kind)
        if pa.types.is_decimal32(kind) or pa.types.is_decimal64(
            kind
        ):  # pyarrow has no ``is_in`` for them
            return _any_of([subject == pc.scalar(member) for member in members])
    try:
        values = [member if kind is None else exactly(member, kind) for member in members]
        if kind is None and any(map(_is_zero, values)):
            return _any_of([subject == pc.scalar(value) for value in values])  # a value may be −0.0
        return subject.isin(pa.array(with_both_zeros(values), kind or _common_type(values)))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError):
        return _any_of([subject == pc.scalar(member) for member in members])


def with_both_zeros(values: Sequence[pa.Scalar]) -> list[pa.Scalar]:
    """Returns ``values`` with both zeros if either is among them, as ``is_in`` tells them apart."""
    floats = [value for value in values if pa.types.is_floating(value.type)]
    return [
        *values,
        *(pa.scalar(-value.as_py(), value.type) for value in floats if _is_zero(value)),
    ]


def _is_zero(value: pa.Scalar) -> bool:
    checks = (pa.types.is_floating, pa.types.is_integer, pa.types.is_decimal)
    return any(check(value.type) for check in checks) and value.as_py() == 0


def _any_of(conditions: Sequence[pc.Expression]) -> pc.Expression:
    """Returns the OR of the conditions as a balanced tree.

    A deep tree overflows pyarrow's stack.
    """
    if len(conditions) < 2:
        return conditions[0] if conditions else pc.scalar(False)
    middle = len(conditions) // 2
    return _any_of(conditions[:middle]) | _any_of(conditions[middle:])


def _common_type(values: list[pa.Scalar]) -> pa.DataType | None:
    types = {value.type for value in values}
    return types.pop() if len(types) == 1 else None
