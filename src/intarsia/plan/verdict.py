"""Might a row that a folder gives a value pass a test? When in doubt, yes."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from intarsia.predicate.leaves import Op, Test

_PYARROW = {
    Op.EQ: pc.equal,
    Op.NE: pc.not_equal,
    Op.LT: pc.less,
    Op.LE: pc.less_equal,
    Op.GT: pc.greater,
    Op.GE: pc.greater_equal,
}
_PYTHONS: dict[Op, Callable[[Any, Any], bool]] = {
    Op.EQ: operator.eq,
    Op.NE: operator.ne,
    Op.LT: operator.lt,
    Op.LE: operator.le,
    Op.GT: operator.gt,
    Op.GE: operator.ge,
}


def constant_might_match(test: Test, value: pa.Scalar) -> bool:
    """Might a row pass where every row holds ``value``, as in a Hive partition?"""
    if not value.is_valid:
        return test.nulls
    try:
        match test.op:
            case Op.NONE:
                return test.nans and _is_nan(value)
            case Op.ANY:
                return True
            case Op.IN | Op.NOT_IN:
                if not _same_kind(value.type, test.values.type):
                    return True  # membership casts its set, comparison both sides: not the same
                found = bool(pc.any(pc.equal(test.values, value)).as_py())
                return found == (test.op is Op.IN) or (test.nans and _is_nan(value))
            case _:
                return _compare(test.op, value, test.values[0]) or (test.nans and _is_nan(value))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError):
        return True


def _is_nan(value: pa.Scalar) -> bool:
    plain = value.as_py()
    return isinstance(plain, float) and math.isnan(plain)


def _same_kind(one: pa.DataType, other: pa.DataType) -> bool:
    return bool(one.equals(other) or (pa.types.is_integer(one) and pa.types.is_integer(other)))


def _compare(op: Op, value: pa.Scalar, member: pa.Scalar) -> bool:
    if value.type == member.type and _is_plain(value.type) and member.is_valid:
        return bool(_PYTHONS[op](value.as_py(), member.as_py()))  # in a tenth of the time
    return bool(_PYARROW[op](value, member).as_py())


def _is_plain(kind: pa.DataType) -> bool:
    """Do its values compare as Python's do?"""
    return bool(pa.types.is_integer(kind) or pa.types.is_string(kind))
