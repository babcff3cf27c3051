"""Polars expressions → Expressions, by Polars' public ``Expr.meta``.

An expression is taken apart with ``meta.pop`` and recognised by putting its parts together again in
every way known here: the one that ``meta.eq`` says is the same. What is not recognised is left to
Polars, which applies its predicate to the rows it is given in any case.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from intarsia.engines.polars_moments import asked_of
from intarsia.engines.polars_text import (
    is_lowered,
    is_uppered,
    lowered_equals,
    lowered_searched,
    searched,
    uppered_equals,
)
from intarsia.errors import PredicateError
from intarsia.predicate.casts import is_text, keeps_values
from intarsia.predicate.exact import checked_condition
from intarsia.predicate.functions import is_list, list_contains
from intarsia.predicate.members import with_both_zeros
from intarsia.predicate.nested import without_dictionary

_COMPARISONS: tuple[Callable[[Any, Any], Any], ...] = (
    operator.eq,
    operator.gt,
    operator.ge,
    operator.lt,
    operator.le,
    operator.ne,
)
_MIRRORED: dict[Callable[[Any, Any], Any], Callable[[Any, Any], Any]] = {
    operator.gt: operator.lt,
    operator.ge: operator.le,
    operator.lt: operator.gt,
    operator.le: operator.ge,
}
_OPPOSITES: dict[Callable[[Any, Any], Any], Callable[[Any, Any], Any]] = {
    operator.gt: operator.le,
    operator.ge: operator.lt,
}
"""What says the opposite, except of NaN, which to Polars is the greatest."""
_CASTS: dict[Any, pa.DataType] = {
    pl.Int8: pa.int8(),
    pl.Int16: pa.int16(),
    pl.Int32: pa.int32(),
    pl.Int64: pa.int64(),
    pl.UInt8: pa.uint8(),
    pl.UInt16: pa.uint16(),
    pl.UInt32: pa.uint32(),
    pl.UInt64: pa.uint64(),
    pl.Float32: pa.float32(),
    pl.Float64: pa.float64(),
    pl.String: pa.large_string(),
}
_CAST_OPTIONS: tuple[dict[str, Any], ...] = (
    {},
    {"strict": False},
    {"strict": False, "wrap_numerical": True},  # what Polars makes of casts that cannot fail
)
_CLOSED: dict[str, tuple[Callable[[Any, Any], Any], Callable[[Any, Any], Any]]] = {
    "both": (operator.ge, operator.le),
    "left": (operator.ge, operator.lt),
    "right": (operator.gt, operator.le),
    "none": (operator.gt, operator.lt),
}


def arrow_predicate(predicate: pl.Expr, schema: pa.Schema) -> pc.Expression | None:
    """An Expression that is TRUE wherever ``predicate`` is; None where that may be anywhere."""
    try:
        found = _Converter(schema).weaker(predicate)
        return None if found is None else checked_condition(found, schema)
    except (PredicateError, RecursionError):
        return None


class _Converter:
    """Converts predicates over the fields of a schema."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema

    def weaker(self, expr: pl.Expr) -> pc.Expression | None:
        """TRUE wherever ``expr`` is, and perhaps elsewhere."""
        inputs = _inputs(expr)
        if len(inputs) == 2:
            left, right = inputs
            if expr.meta.eq(left & right):
                return _all_known(self.weaker(left), self.weaker(right))
            if expr.meta.eq(left | right):
                return _both(operator.or_, self.weaker(left), self.weaker(right))
            for nulls_equal in (False, True) if right.meta.is_literal() else ():
                if expr.meta.eq(left.is_in(right, nulls_equal=nulls_equal)):
                    return self._member(left, right)
            found = self._lowered_search(expr, left, right)
            if found is not None:
                return found
        return self.exact(expr)

    def exact(self, expr: pl.Expr) -> pc.Expression | None:
        """TRUE, FALSE and NULL as ``expr`` is."""
        inputs = _inputs(expr)
        match len(inputs):
            case 0:
                return self._flag(expr)
            case 1:
                return self._of_one(expr, *inputs)
            case 2:
                return self._of_two(expr, *inputs)
            case 3:
                return self._between(expr, *inputs)
        return None

    def _flag(self, expr: pl.Expr) -> pc.Expression | None:
        path = self._path(expr)
        is_flag = path is not None and pa.types.is_boolean(self._type(path))
        return pc.field(*path) if path is not None and is_flag else None

    def _of_one(self, expr: pl.Expr, value: pl.Expr) -> pc.Expression | None:
        if expr.meta.eq(~value):
            inner = self.exact(value)
            return None if inner is None else ~inner
        path = self._path(value)
        if path is None:
            return self._flag(expr)
        field = pc.field(*path)
        if expr.meta.eq(value.is_null()):
            return field.is_null()
        if expr.meta.eq(value.is_not_null()):
            return field.is_valid()
        if pa.types.is_floating(self._type(path)):
            if expr.meta.eq(value.is_nan()):
                return pc.is_nan(field)
            if expr.meta.eq(value.is_not_nan()):
                return ~pc.is_nan(field)
        return self._flag(expr)

    def _of_two(self, expr: pl.Expr, left: pl.Expr, right: pl.Expr) -> pc.Expression | None:
        if expr.meta.eq(left & right):
            return _both(operator.and_, self.exact(left), self.exact(right))
        if expr.meta.eq(left | right):
            return _both(operator.or_, self.exact(left), self.exact(right))
        for compare in _COMPARISONS:
            if expr.meta.eq(compare(left, right)):
                return self._compare(compare, left, right)
        if expr.meta.eq(left.eq_missing(right)):
            equal = self._compare(operator.eq, left, right)
            return None if equal is None else pc.coalesce(equal, pc.scalar(False))
        found = self._search(expr, left, right)
        return self._holds(expr, left, right) if found is None else found

    def _search(self, expr: pl.Expr, left: pl.Expr, right: pl.Expr) -> pc.Expression | None:
        path, text = self._text_path(left), _text(right)
        if path is not None and text is not None:
            return searched(expr, left, right, pc.field(*path), text)
        if text is not None and "i" not in text:
            return self._lowered_search(expr, left, right)
        return None

    def _lowered_search(self, expr: pl.Expr, left: pl.Expr, right: pl.Expr) -> pc.Expression | None:
        """A search in a text in lower case; it may find more than ``expr`` does."""
        inputs, text = _inputs(left), _text(right)
        if len(inputs) != 1 or text is None or not is_lowered(left, inputs[0]):
            return None
        path = self._text_path(inputs[0])
        return None if path is None else lowered_searched(expr, left, right, pc.field(*path), text)

    def _holds(self, expr: pl.Expr, left: pl.Expr, right: pl.Expr) -> pc.Expression | None:
        """Is a constant an element of a list?"""
        for lists, value in ((left, right), (right, left)):
            path, members = self._path(lists), _literal(value)
            if path is None or members is None or len(members) != 1:
                continue
            asked = [lists.list.contains(value), lists.arr.contains(value)]
            asked += [value.is_in(lists, nulls_equal=nulls_equal) for nulls_equal in (False, True)]
            if is_list(self._type(path)) and any(map(expr.meta.eq, asked)):
                held = self._type(path).value_type
                constant = None if pa.types.is_dictionary(held) else _as_kind(members[0], held)
                return None if constant is None else list_contains(pc.field(*path), constant)
        return None

    def _between(
        self, expr: pl.Expr, value: pl.Expr, low: pl.Expr, high: pl.Expr
    ) -> pc.Expression | None:
        for closed, (above, below) in _CLOSED.items():
            if expr.meta.eq(value.is_between(low, high, closed=closed)):  # type: ignore[arg-type]  # a key, not Literal
                parts = self._compare(above, value, low), self._compare(below, value, high)
                return _both(operator.and_, *parts)
        return None

    def _compare(
        self, compare: Callable[[Any, Any], Any], left: pl.Expr, right: pl.Expr
    ) -> pc.Expression | None:
        if left.meta.is_literal():
            left, right, compare = right, left, _MIRRORED.get(compare, compare)
        members = _literal(right)
        if members is None or len(members) != 1:
            return None
        if compare in (operator.eq, operator.ne):
            equal = self._in_case(left, members[0])
            if equal is not None:
                return equal if compare is operator.eq else ~equal
        value = self._value(left)
        if value is None:
            return None
        field, kind = value
        if pa.types.is_dictionary(kind) and compare not in (operator.eq, operator.ne):
            return None  # categories may be ordered otherwise
        constant = _as_kind(members[0], kind)
        if constant is None:
            return None
        opposite = _OPPOSITES.get(compare) if pa.types.is_floating(kind) else None
        found: pc.Expression = (opposite or compare)(field, pc.scalar(constant))
        return ~found if opposite else found

    def _in_case(self, value: pl.Expr, constant: pa.Scalar) -> pc.Expression | None:
        """Is a text in lower or upper case ``constant``?"""
        inputs = _inputs(value)
        path = self._text_path(inputs[0]) if len(inputs) == 1 else None
        if path is None or not isinstance(constant, pa.StringScalar):
            return None
        text = constant.as_py()
        if is_lowered(value, inputs[0]):
            return lowered_equals(pc.field(*path), text)
        if is_uppered(value, inputs[0]):
            return uppered_equals(pc.field(*path), text)
        return None

    def _value(self, expr: pl.Expr) -> tuple[pc.Expression, pa.DataType] | None:
        """A field, one cast to a type that holds all of its values, or what is asked of a moment;
        and its type.
        """
        path = self._path(expr)
        if path is not None:
            return pc.field(*path), self._type(path)
        inputs = _inputs(expr)
        path = self._path(inputs[0]) if inputs else None
        if path is None:
            return None
        field, kind = pc.field(*path), self._type(path)
        for target, to in _CASTS.items() if len(inputs) == 1 else ():
            for options in _CAST_OPTIONS:
                if expr.meta.eq(inputs[0].cast(target, **options)):
                    return (field.cast(to), to) if keeps_values(kind, to) else None
        return asked_of(expr, inputs[0], field, kind)

    def _member(self, value: pl.Expr, members: pl.Expr) -> pc.Expression | None:
        """A NULL among ``members`` may match NULLs."""
        subject, values = self._value(value), _literal(members)
        if subject is None or values is None:
            return None
        field, kind = subject
        known = [_as_kind(value, kind) for value in values if value.is_valid]
        if any(constant is None for constant in known):
            return None
        found = field.isin(pa.array(with_both_zeros(known), without_dictionary(kind)))
        return found if len(known) == len(values) else found | field.is_null()

    def _text_path(self, expr: pl.Expr) -> tuple[str, ...] | None:
        path = self._path(expr)
        return path if path is not None and is_text(self._type(path)) else None

    def _path(self, expr: pl.Expr) -> tuple[str, ...] | None:
        """The path of a field of the schema, which may be a struct's."""
        if expr.meta.is_column():
            name = expr.meta.output_name()
            return (name,) if name in self._schema.names else None
        inputs = _inputs(expr)
        if len(inputs) != 1:
            return None
        parent = self._path(inputs[0])
        if parent is None or not pa.types.is_struct(self._type(parent)):
            return None
        member = expr.meta.output_name(raise_if_undetermined=False)
        if member is None or not expr.meta.eq(inputs[0].struct.field(member)):
            return None
        return (*parent, member)

    def _type(self, path: tuple[str, ...]) -> pa.DataType:
        kind = self._schema.field(path[0]).type
        for name in path[1:]:
            kind = kind.field(name).type
        return kind


def _inputs(expr: pl.Expr) -> list[pl.Expr]:
    """What an expression is made of, in order."""
    if expr.meta.is_column() or expr.meta.is_literal():
        return []
    return expr.meta.pop()[::-1]


def _all_known(left: pc.Expression | None, right: pc.Expression | None) -> pc.Expression | None:
    """AND of what is known of its sides."""
    if left is None or right is None:
        return right if left is None else left
    return left & right


def _both(
    join: Callable[[Any, Any], Any], left: pc.Expression | None, right: pc.Expression | None
) -> pc.Expression | None:
    return None if left is None or right is None else join(left, right)


def _literal(expr: pl.Expr) -> list[pa.Scalar] | None:
    """The values of a constant: one, or a list's."""
    if not expr.meta.is_literal():
        return None
    series = pl.select(expr).to_series()
    if series.dtype == pl.List:
        series = series.explode(empty_as_null=False)
    try:
        return list(series.to_arrow())
    except pa.ArrowException:  # Int128
        return None


def _text(expr: pl.Expr) -> str | None:
    values = _literal(expr)
    if values is None or len(values) != 1:
        return None
    return values[0].as_py() if isinstance(values[0], pa.StringScalar) else None


def _as_kind(value: pa.Scalar, kind: pa.DataType) -> pa.Scalar | None:
    """``value`` in a field's type; None where it does not have it, or is NULL or NaN.

    Numbers beside times count what Polars counts these in, not what the file does.
    """
    if pa.types.is_temporal(without_dictionary(kind)) and not pa.types.is_temporal(value.type):
        return None
    if not value.is_valid or (pa.types.is_floating(value.type) and value.as_py() != value.as_py()):
        return None
    try:
        found = value.cast(without_dictionary(kind))
        return found if found.cast(value.type).equals(value) else None
    except pa.ArrowException:
        return None
