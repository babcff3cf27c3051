"""Polars expressions → Expressions, by Polars' public ``Expr.meta``.

An expression is taken apart with ``meta.pop`` and recognised by putting its parts together again in
every way known here: the one that ``meta.eq`` says is the same. What is not recognised is left to
Polars, which applies its predicate to the rows it is given in any case.
"""

from __future__ import annotations

import functools
import operator
import re
from collections.abc import Callable
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from intarsia.errors import PredicateError
from intarsia.predicate.exact import checked_condition

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
            for nulls_equal in (False, True):
                if expr.meta.eq(left.is_in(right, nulls_equal=nulls_equal)):
                    return self._member(left, right)
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
        return self._search(expr, left, right)

    def _search(self, expr: pl.Expr, left: pl.Expr, right: pl.Expr) -> pc.Expression | None:
        path, text = self._path(left), _text(right)
        if path is None or text is None or not _is_text(self._type(path)):
            return None
        field = pc.field(*path)
        if expr.meta.eq(left.str.starts_with(right)):
            return pc.starts_with(field, text)
        if expr.meta.eq(left.str.ends_with(right)):
            return pc.ends_with(field, text)
        if expr.meta.eq(left.str.contains(right, literal=True)):
            return pc.match_substring(field, text)
        # The two speak different dialects of regular expressions.
        if re.fullmatch(r"[\w ]*", text) and expr.meta.eq(left.str.contains(right)):
            return pc.match_substring(field, text)
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
        path = self._path(left)
        members = None if path is None else _literal(right)
        if path is None or members is None or len(members) != 1:
            return None
        kind = self._type(path)
        if pa.types.is_dictionary(kind) and compare not in (operator.eq, operator.ne):
            return None  # categories may be ordered otherwise
        constant = _as_kind(members[0], kind)
        if constant is None:
            return None
        field = pc.field(*path)
        found: pc.Expression = compare(field, pc.scalar(constant))
        if pa.types.is_floating(kind) and compare in (operator.gt, operator.ge):
            return found | pc.is_nan(field)  # to Polars, NaN is the greatest
        return found

    def _member(self, value: pl.Expr, members: pl.Expr) -> pc.Expression | None:
        """A NULL among ``members`` may match NULLs."""
        path, values = self._path(value), _literal(members)
        if path is None or values is None:
            return None
        kind = self._type(path)
        known = [_as_kind(value, kind) for value in values if value.is_valid]
        if any(constant is None for constant in known):
            return None
        field = pc.field(*path)
        if pa.types.is_floating(kind):  # membership tells −0.0 from +0.0
            found = functools.reduce(
                operator.or_, (field == pc.scalar(each) for each in known), pc.scalar(False)
            )
        else:
            found = field.isin(pa.array([c.as_py() for c in known if c], _plain(kind)))
        return found if len(known) == len(values) else found | field.is_null()

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
    return list(series.to_arrow())


def _text(expr: pl.Expr) -> str | None:
    values = _literal(expr)
    if values is None or len(values) != 1:
        return None
    found = values[0].as_py()
    return found if isinstance(found, str) else None


def _plain(kind: pa.DataType) -> pa.DataType:
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _as_kind(value: pa.Scalar, kind: pa.DataType) -> pa.Scalar | None:
    """``value`` in a field's type; None where it does not have it, or is NULL or NaN."""
    if not value.is_valid or (pa.types.is_floating(value.type) and value.as_py() != value.as_py()):
        return None
    try:
        found = value.cast(_plain(kind))
        return found if found.cast(value.type).equals(value) else None
    except pa.ArrowException:
        return None
