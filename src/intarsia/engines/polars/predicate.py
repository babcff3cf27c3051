"""Polars expressions → Expressions, by Polars' public ``Expr.meta``.

``meta.pop`` takes an expression apart. The converter puts the parts together again in every way
that it knows, until ``meta.eq`` says that the result is the same. Other expressions are left to
Polars, which applies its predicate to the rows in any case. An exception here is logged and has the
same effect. ``tests/interop/test_polars_pushed.py`` checks what is pushed down.
"""

from __future__ import annotations

import logging
import operator
from collections.abc import Callable
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from intarsia.engines.polars.cast_ranges import as_range, domain_of
from intarsia.engines.polars.operands import (
    FAILURES,
    Values,
    as_kind,
    constants_of,
    inputs_of,
    text_of,
)
from intarsia.engines.polars.strings import (
    convert_lower_case_search,
    convert_search,
    is_lower_case,
    is_upper_case,
    lower_case_equals,
    upper_case_equals,
)
from intarsia.expr.functions import is_list, list_contains
from intarsia.expr.in_list import is_member
from intarsia.sql.engine_condition import checked_condition

_LOG = logging.getLogger(__name__)
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
"""The negated comparisons. For floats, these treat NaN as the greatest value, as Polars does."""
_CLOSED: dict[str, tuple[Callable[[Any, Any], Any], Callable[[Any, Any], Any]]] = {
    "both": (operator.ge, operator.le),
    "left": (operator.ge, operator.lt),
    "right": (operator.gt, operator.le),
    "none": (operator.gt, operator.lt),
}


def arrow_predicate(predicate: pl.Expr, schema: pa.Schema) -> pc.Expression | None:
    """Returns an Expression that is TRUE wherever ``predicate`` is, None if none is known."""
    return _Converter(schema).known(predicate)


class _Converter(Values):
    """Converts predicates over the fields of a schema."""

    def known(self, expr: pl.Expr) -> pc.Expression | None:
        """Returns ``weaker`` of those conditions of an AND that can be evaluated, None if none.

        A condition that raises any exception is left to Polars.
        """
        try:
            inputs = inputs_of(expr)
            if len(inputs) == 2 and expr.meta.eq(inputs[0] & inputs[1]):
                return _and_of_known(*map(self.known, inputs))
            condition = self.weaker(expr)
            return None if condition is None else checked_condition(condition, self._schema)
        except FAILURES:
            _LOG.debug("a predicate is left to Polars", exc_info=True)
            return None

    def weaker(self, expr: pl.Expr) -> pc.Expression | None:
        """Returns an Expression that is TRUE wherever ``expr`` is, and perhaps elsewhere."""
        inputs = inputs_of(expr)
        if len(inputs) == 2:
            left, right = inputs
            if expr.meta.eq(left & right):
                return _and_of_known(self.weaker(left), self.weaker(right))
            if expr.meta.eq(left | right):
                return _both(operator.or_, self.weaker(left), self.weaker(right))
            search = self._lowered_search(expr, left, right)
            if search is not None:
                return search
        return self.exact(expr, loosely=True)

    def exact(self, expr: pl.Expr, *, loosely: bool = False) -> pc.Expression | None:
        """Returns an Expression with the values of ``expr``.

        With ``loosely``, it may be TRUE elsewhere.
        """
        expr = expr.meta.undo_aliases()
        inputs = inputs_of(expr)
        match len(inputs):
            case 0:
                return self._flag(expr)
            case 1:
                return self._of_one(expr, *inputs)
            case 2:
                return self._of_two(expr, *inputs, loosely=loosely)
            case 3:
                between = self._between(expr, *inputs, loosely=loosely)
                return self._chosen(expr, *inputs) if between is None else between
        return None

    def _flag(self, expr: pl.Expr) -> pc.Expression | None:
        if expr.meta.is_literal():
            values = constants_of(expr) or [None]
            is_flag = len(values) == 1 and isinstance(values[0], pa.BooleanScalar)
            return pc.scalar(values[0]) if is_flag else None
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

    def _of_two(
        self, expr: pl.Expr, left: pl.Expr, right: pl.Expr, *, loosely: bool
    ) -> pc.Expression | None:
        for join in (operator.and_, operator.or_):
            if expr.meta.eq(join(left, right)):
                sides = (self.exact(side, loosely=loosely) for side in (left, right))
                return _both(join, *sides)
        for compare in _COMPARISONS:
            if expr.meta.eq(compare(left, right)):
                return self._compare(compare, left, right, loosely=loosely)
        if expr.meta.eq(left.eq_missing(right)):
            equal = self._compare(operator.eq, left, right, loosely=loosely)
            return None if equal is None else pc.coalesce(equal, pc.scalar(False))
        if expr.meta.eq(left.ne_missing(right)):
            other = self._compare(operator.ne, left, right, loosely=loosely)
            return None if other is None else pc.coalesce(other, pc.scalar(True))
        for nulls_equal in (False, True) if right.meta.is_literal() else ():
            if expr.meta.eq(left.is_in(right, nulls_equal=nulls_equal)):
                return self._member(left, right, loosely=loosely)
        search = self._search(expr, left, right)
        return self._holds(expr, left, right) if search is None else search

    def _search(self, expr: pl.Expr, left: pl.Expr, right: pl.Expr) -> pc.Expression | None:
        path, text = self._text_path(left), text_of(right)
        if path is not None and text is not None:
            return convert_search(expr, left, right, pc.field(*path), text)
        if text is not None and "i" not in text:
            return self._lowered_search(expr, left, right)
        return None

    def _lowered_search(self, expr: pl.Expr, left: pl.Expr, right: pl.Expr) -> pc.Expression | None:
        """Converts a search in a string in lower case. The result may match more than ``expr``."""
        inputs, text = inputs_of(left), text_of(right)
        if len(inputs) != 1 or text is None or not is_lower_case(left, inputs[0]):
            return None
        path = self._text_path(inputs[0])
        return (
            None
            if path is None
            else convert_lower_case_search(expr, left, right, pc.field(*path), text)
        )

    def _holds(self, expr: pl.Expr, left: pl.Expr, right: pl.Expr) -> pc.Expression | None:
        """Converts the condition that a list contains a constant."""
        for lists, value in ((left, right), (right, left)):
            path, members = self._path(lists), constants_of(value)
            if path is None or members is None or len(members) != 1:
                continue
            spellings = [lists.list.contains(value), lists.arr.contains(value)]
            spellings += [
                value.is_in(lists, nulls_equal=nulls_equal) for nulls_equal in (False, True)
            ]
            if is_list(self._type(path)) and any(map(expr.meta.eq, spellings)):
                element_type = self._type(path).value_type
                constant = (
                    None
                    if pa.types.is_dictionary(element_type)
                    else as_kind(members[0], element_type)
                )
                return None if constant is None else list_contains(pc.field(*path), constant)
        return None

    def _between(
        self, expr: pl.Expr, value: pl.Expr, low: pl.Expr, high: pl.Expr, *, loosely: bool
    ) -> pc.Expression | None:
        for closed, (above, below) in _CLOSED.items():
            if expr.meta.eq(value.is_between(low, high, closed=closed)):  # type: ignore[arg-type]  # a key, not Literal
                lower = self._compare(above, value, low, loosely=loosely)
                return _both(
                    operator.and_, lower, self._compare(below, value, high, loosely=loosely)
                )
        return None

    def _chosen(
        self, expr: pl.Expr, then: pl.Expr, other: pl.Expr, when: pl.Expr
    ) -> pc.Expression | None:
        """Converts ``when(…).then(…).otherwise(…)`` of conditions.

        Polars rewrites comparisons of integers with values outside their type like this.
        """
        if not expr.meta.eq(pl.when(when).then(then).otherwise(other)):
            return None
        condition, first, second = map(self.exact, (when, then, other))
        if condition is None:
            return None
        is_first = pc.coalesce(condition, pc.scalar(False))
        chosen = _both(operator.and_, is_first, first), _both(operator.and_, ~is_first, second)
        return _both(operator.or_, *chosen)

    def _compare(
        self,
        compare: Callable[[Any, Any], Any],
        left: pl.Expr,
        right: pl.Expr,
        *,
        loosely: bool,
    ) -> pc.Expression | None:
        if left.meta.is_literal():
            left, right, compare = right, left, _MIRRORED.get(compare, compare)
        if not right.meta.is_literal():
            return None
        members = constants_of(right)
        if members is not None and len(members) == 1:
            comparison = self._compare_plainly(compare, left, members[0])
            if comparison is not None:
                return comparison
        return self._compare_in_order(compare, left, right, loosely=loosely)

    def _compare_plainly(
        self, compare: Callable[[Any, Any], Any], left: pl.Expr, constant: pa.Scalar
    ) -> pc.Expression | None:
        """Converts the comparison of a value with a constant that fits its type."""
        if compare in (operator.eq, operator.ne):
            equal = self._in_case(left, constant)
            if equal is not None:
                return equal if compare is operator.eq else ~equal
        value = self._value(left)
        if value is None:
            return None
        field, kind = value
        if pa.types.is_dictionary(kind) and compare not in (operator.eq, operator.ne):
            return None  # categories may have another order
        known = as_kind(constant, kind)
        if known is None:
            return None
        opposite = _OPPOSITES.get(compare) if pa.types.is_floating(kind) else None
        comparison: pc.Expression = (opposite or compare)(field, pc.scalar(known))
        return ~comparison if opposite else comparison

    def _compare_in_order(
        self,
        compare: Callable[[Any, Any], Any],
        left: pl.Expr,
        right: pl.Expr,
        *,
        loosely: bool,
    ) -> pc.Expression | None:
        """Converts the comparison of a field with a constant. Casts of the field keep its order."""
        cast = self._cast(left)
        if cast is None:
            return None
        path, types, change = cast
        constant = pl.select(right).to_series()
        domain = domain_of(self._type(path), [*types, constant.dtype])
        if domain is None or not (domain.is_whole or loosely):
            return None
        field = pc.field(*path)
        comparison = as_range(compare, field, domain, change, right)
        return comparison if domain.is_whole else comparison | domain.is_outside(field)

    def _in_case(self, value: pl.Expr, constant: pa.Scalar) -> pc.Expression | None:
        """Converts the condition that a string in lower or upper case is ``constant``."""
        inputs = inputs_of(value)
        path = self._text_path(inputs[0]) if len(inputs) == 1 else None
        if path is None or not isinstance(constant, pa.StringScalar):
            return None
        text = constant.as_py()
        if is_lower_case(value, inputs[0]):
            return lower_case_equals(pc.field(*path), text)
        if is_upper_case(value, inputs[0]):
            return upper_case_equals(pc.field(*path), text)
        return None

    def _member(self, value: pl.Expr, members: pl.Expr, *, loosely: bool) -> pc.Expression | None:
        """Converts membership in constants. A NULL among these may match NULLs."""
        subject, values = self._value(value), constants_of(members)
        if subject is None or values is None or pa.types.is_nested(subject[1]):
            return None
        field, kind = subject
        valid = [value for value in values if value.is_valid]
        known = [as_kind(value, kind) for value in valid]
        if pa.types.is_decimal(kind):  # a constant with more digits equals no value
            known = [
                constant
                for constant, value in zip(known, valid, strict=True)
                if constant is not None or not pa.types.is_decimal(value.type)
            ]
        has_null = len(valid) < len(values)
        if any(constant is None for constant in known) or (has_null and not loosely):
            return None
        membership = is_member(field, known, kind)
        if loosely:
            return membership | field.is_null() if has_null else membership
        return pc.if_else(field.is_valid(), membership, pc.scalar(pa.scalar(None, pa.bool_())))


def _and_of_known(left: pc.Expression | None, right: pc.Expression | None) -> pc.Expression | None:
    """Joins the sides of an AND that are not None."""
    if left is None or right is None:
        return right if left is None else left
    return left & right


def _both(
    join: Callable[[Any, Any], Any], left: pc.Expression | None, right: pc.Expression | None
) -> pc.Expression | None:
    return None if left is None or right is None else join(left, right)
