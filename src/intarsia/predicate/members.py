"""``IN`` of constants."""

from __future__ import annotations

import functools
import operator

import pyarrow as pa
import pyarrow.compute as pc

from intarsia.predicate.constants import exactly


def is_member(
    subject: pc.Expression, members: list[pa.Scalar], kind: pa.DataType | None
) -> pc.Expression:
    """``subject`` equals one of ``members``; one by one where they do not share its type."""
    if kind is not None and pa.types.is_dictionary(kind):
        kind = kind.value_type
    try:
        values = [member if kind is None else exactly(member, kind) for member in members]
        return subject.isin(pa.array(values, kind or _common(values)))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError):
        return functools.reduce(operator.or_, (subject == pc.scalar(m) for m in members))


def _common(values: list[pa.Scalar]) -> pa.DataType | None:
    types = {value.type for value in values}
    return types.pop() if len(types) == 1 else None
