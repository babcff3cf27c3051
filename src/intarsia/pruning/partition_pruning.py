"""Columns that have one value in all rows of a file, and what they imply for a filter.

These are partition columns, and columns that the file lacks, which are NULL. If it is unknown
whether a row matches, it might.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from intarsia.errors import PredicateError
from intarsia.expr.comparison_operators import Op
from intarsia.expr.evaluate import compute_columns
from intarsia.expr.tree import Call, FieldRef, Literal, Node
from intarsia.pruning.predicates import Comparison, Predicate, Pruning, SearchPredicate, might_pass
from intarsia.pruning.term import PROPAGATES_NULL, Term

Constants = Mapping[str, pa.Scalar]
"""Columns that have the same value in all rows of a file, by name."""

_PYARROW_COMPARISONS = {
    Op.EQ: pc.equal,
    Op.NE: pc.not_equal,
    Op.LT: pc.less,
    Op.LE: pc.less_equal,
    Op.GT: pc.greater,
    Op.GE: pc.greater_equal,
}
_PYTHON_COMPARISONS: dict[Op, Callable[[Any, Any], bool]] = {
    Op.EQ: operator.eq,
    Op.NE: operator.ne,
    Op.LT: operator.lt,
    Op.LE: operator.le,
    Op.GT: operator.gt,
    Op.GE: operator.ge,
}


def constants_might_match(predicate: Predicate, constants: Constants) -> bool:
    """True if a row might pass ``predicate``, as far as the values of ``constants`` decide that."""
    if not any(path[0] in constants for path in predicate.term.fields):
        return True
    value = constant_value(predicate.term, constants)
    if value is None:
        return True
    if isinstance(predicate, SearchPredicate):
        return value.is_valid or predicate.nulls
    return constant_might_match(predicate, value)


def folder_might_match(pruning: Pruning, constants: Constants) -> bool:
    """True if the values of ``constants`` allow rows to pass. The file is not opened."""
    return might_pass(pruning, lambda test: constants_might_match(test, constants))


def constant_value(term: Term, constants: Constants) -> pa.Scalar | None:
    """Returns the value that ``term`` has in every row, or None if ``constants`` leave it open."""
    if len(term.path) == 1:
        return constants.get(term.path[0])
    if _is_null(term.node, constants):
        return pa.scalar(None)
    names = sorted({path[0] for path in term.fields})
    if not constants.keys() >= set(names):
        return None
    return _computed(term, tuple((name, constants[name]) for name in names))


def _is_null(node: Node, constants: Constants) -> bool:
    """True if a term is NULL in every row because a part of it is."""
    match node:
        case FieldRef(path):
            return path[0] in constants and not constants[path[0]].is_valid
        case Literal(value):
            return not value.is_valid
        case Call(function, arguments):
            quantifier = any if PROPAGATES_NULL[function] else all
            return quantifier(_is_null(argument, constants) for argument in arguments)
    return False


@functools.lru_cache(maxsize=1024)
def _computed(term: Term, constants: tuple[tuple[str, pa.Scalar], ...]) -> pa.Scalar | None:
    """Returns the value of a term over one row, or None if it cannot be computed."""
    try:
        row = pa.table({name: _column(value) for name, value in constants})
        return compute_columns({"value": term.expression}, row).column(0)[0]
    except (PredicateError, pa.ArrowException):
        return None


def _column(value: pa.Scalar) -> pa.Array:
    return pa.repeat(value, 1) if value.is_valid else pa.nulls(1, value.type)


def constant_might_match(comparison: Comparison, value: pa.Scalar) -> bool:
    """True if a row might pass where every row holds ``value``, as in a Hive partition."""
    if not value.is_valid:
        return comparison.nulls
    try:
        match comparison.op:
            case Op.NONE:
                return comparison.nans and _is_nan(value)
            case Op.ANY:
                return True
            case Op.IN | Op.NOT_IN:
                if not _same_kind(value.type, comparison.values.type):
                    return True  # ``is_in`` casts only its list, a comparison both sides
                is_in = bool(pc.any(pc.equal(comparison.values, value)).as_py())
                return is_in == (comparison.op is Op.IN) or (comparison.nans and _is_nan(value))
            case _:
                return _compare(comparison.op, value, comparison.values[0]) or (
                    comparison.nans and _is_nan(value)
                )
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError):
        return True


def _is_nan(value: pa.Scalar) -> bool:
    plain = value.as_py()
    return isinstance(plain, float) and math.isnan(plain)


def _same_kind(one: pa.DataType, other: pa.DataType) -> bool:
    return bool(one.equals(other) or (pa.types.is_integer(one) and pa.types.is_integer(other)))


def _compare(op: Op, value: pa.Scalar, member: pa.Scalar) -> bool:
    if value.type == member.type and _compares_as_in_python(value.type) and member.is_valid:
        return bool(
            _PYTHON_COMPARISONS[op](value.as_py(), member.as_py())
        )  # takes a tenth of the time of pyarrow's
    return bool(_PYARROW_COMPARISONS[op](value, member).as_py())


def _compares_as_in_python(kind: pa.DataType) -> bool:
    """True if values of ``kind`` compare in Python as they do in pyarrow."""
    return bool(pa.types.is_integer(kind) or pa.types.is_string(kind))
