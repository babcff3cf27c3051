"""Translates an Expression into a Spark Column of the same meaning, or refuses.

The accepted functions are TRUE, FALSE and NULL for the same rows in pyarrow and in Spark under all
settings of a session. They have no casts, no arithmetic and no strings to parse. If the two differ,
for NaN or for NULLs of ``is_in``, the Column gets pyarrow's meaning. Pruning by statistics could
still break this meaning (see ``native_reader``).
"""

from __future__ import annotations

import datetime as dt
import functools
import math
import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from intarsia.errors import PredicateError
from intarsia.expr.casts import is_text
from intarsia.expr.date_ranges import periods_as_ranges
from intarsia.expr.nested_types import without_dictionary
from intarsia.expr.tree import Call, FieldRef, Literal, Node, read_expression

if TYPE_CHECKING:
    from pyspark.sql import Column

_COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "equal": operator.eq,
    "not_equal": operator.ne,
    "less": operator.lt,
    "less_equal": operator.le,
    "greater": operator.gt,
    "greater_equal": operator.ge,
}
_MIRRORED = {
    "less": "greater",
    "less_equal": "greater_equal",
    "greater": "less",
    "greater_equal": "less_equal",
}
_SEARCHES = {"starts_with": "startswith", "ends_with": "endswith", "match_substring": "contains"}
_MAX_MEMBERS = 1000
"""Members of an IN list that Spark gets: it parses each as a literal."""
_MAX_DIGITS = 38
"""The largest precision of Spark's decimals."""
_MAX_EXACT_INTEGER = 2**53
"""Up to this absolute value, a double holds every integer exactly."""
_EPOCH = dt.date(1970, 1, 1)


def spark_condition(where: pc.Expression, schema: pa.Schema) -> Column:
    """Returns ``where`` as a Column. Raises ``PredicateError`` if Spark might differ."""
    try:
        plain = periods_as_ranges(read_expression(where), schema)
        return _Translator(schema).condition(plain)
    except RecursionError as error:
        raise PredicateError("the condition nests too deeply") from error


def spark_column(name: str) -> Column:
    """Returns the column of exactly this name, dots and backquotes included."""
    from pyspark.sql import functions

    return functions.col(f"`{name.replace('`', '``')}`")


class _Translator:
    def __init__(self, schema: pa.Schema) -> None:
        from pyspark.sql import functions

        self._schema, self._functions = schema, functions

    def condition(self, node: Node) -> Column:
        match node:
            case Call("and_kleene", parts):
                return functools.reduce(operator.and_, map(self.condition, parts))
            case Call("or_kleene", parts):
                return functools.reduce(operator.or_, map(self.condition, parts))
            case Call("invert", (part,)):
                return ~self.condition(part)
            case Call("if_else", (test, then, other)):
                if_true, if_false = self.condition(then), self.condition(other)
                condition = self.condition(test)
                unknown = self._functions.lit(None).cast("boolean")
                return (
                    self._functions.when(condition.isNull(), unknown)
                    .when(condition, if_true)
                    .otherwise(if_false)
                )
            case Call("coalesce", parts):
                return self._functions.coalesce(*map(self.condition, parts))
            case Call("is_valid", (FieldRef() as field,)):
                return self._column(field).isNotNull()
            case Call("is_null", (FieldRef() as field,), options):
                if not options["nan_is_null"].as_py() or not self._is_float(field):
                    return self._column(field).isNull()
            case Call("is_nan", (FieldRef() as field,)) if self._is_float(field):
                column = self._column(field)
                unknown = self._functions.lit(None).cast("boolean")
                return self._functions.when(column.isNull(), unknown).otherwise(
                    self._functions.isnan(column)
                )
            case Call("is_in", (FieldRef() as field,), options):
                return self._membership(field, options)
            case Call("match_like", (FieldRef() as field,), options):
                return self._like(field, options)
            case Call(name, (FieldRef() as field,), options) if name in _SEARCHES:
                return self._search(_SEARCHES[name], field, options)
            case Call(name, (FieldRef() as field, Literal(value))) if name in _COMPARE:
                return self._compare(name, field, value)
            case Call(name, (Literal(value), FieldRef() as field)) if name in _COMPARE:
                return self._compare(_MIRRORED.get(name, name), field, value)
            case Literal(value) if pa.types.is_boolean(value.type) or pa.types.is_null(value.type):
                return self._functions.lit(value.as_py()).cast("boolean")
            case FieldRef() as field if pa.types.is_boolean(self._type(field)):
                return self._column(field)
        raise _refusal(node)

    def _type(self, field: FieldRef) -> pa.DataType:
        if len(field.path) != 1 or field.path[0] not in self._schema.names:
            raise _refusal(field)
        return without_dictionary(self._schema.field(field.path[0]).type)

    def _is_float(self, field: FieldRef) -> bool:
        return _is_float(self._type(field))

    def _column(self, field: FieldRef) -> Column:
        self._type(field)  # refuses what is no column
        return spark_column(field.path[0])

    def _compare(self, name: str, field: FieldRef, value: pa.Scalar) -> Column:
        column = self._column(field)
        comparison: Column = _COMPARE[name](column, self._literal(value, self._type(field)))
        if self._is_float(field) and name in ("greater", "greater_equal"):
            return comparison & ~self._functions.isnan(column)
        return comparison

    def _membership(self, field: FieldRef, options: dict[str, Any]) -> Column:
        """Returns an IN that is FALSE for NULL, as ``is_in`` is if its set has no NULL."""
        members, kind = options.get("value_set"), self._type(field)
        if not isinstance(members, pa.ListScalar) or members.values is None:
            raise PredicateError("is_in has a set that is not a list")
        values = members.values
        if pa.types.is_dictionary(values.type):
            values = values.dictionary_decode()
        is_few = len(values) <= _MAX_MEMBERS
        if values.null_count or not is_few or options["null_matching_behavior"].as_py():
            raise PredicateError("is_in has a NULL in its set, or more values than are handed over")
        if self._is_float(field) or pa.types.is_decimal(kind) or pa.types.is_boolean(kind):
            raise PredicateError(f"is_in on {kind}")
        literals = [self._literal(value, kind) for value in values]
        if not literals:
            return self._functions.lit(False)
        return self._functions.coalesce(
            self._column(field).isin(literals), self._functions.lit(False)
        )

    def _like(self, field: FieldRef, options: dict[str, Any]) -> Column:
        """Returns a search for one string, at the beginning, at the end or anywhere."""
        pattern = options["pattern"].as_py()
        string = pattern.removeprefix("%").removesuffix("%")
        if options["ignore_case"].as_py() or set(string) & set("%_\\") or not string:
            raise PredicateError(f"LIKE {pattern!r}")
        column = self._string_column(field)
        match pattern.startswith("%"), pattern.endswith("%"):
            case True, True:
                return column.contains(self._functions.lit(string))
            case True, False:
                return column.endswith(self._functions.lit(string))
            case False, True:
                return column.startswith(self._functions.lit(string))
        return column == self._functions.lit(string)

    def _search(self, method: str, field: FieldRef, options: dict[str, Any]) -> Column:
        if options["ignore_case"].as_py():
            raise PredicateError("a search that ignores case")
        search: Column = getattr(self._string_column(field), method)(
            self._functions.lit(options["pattern"].as_py())
        )
        return search

    def _string_column(self, field: FieldRef) -> Column:
        if not is_text(self._type(field)):
            raise _refusal(field)
        return self._column(field)

    # --- constants ------------------------------------------------------------------------------

    def _literal(self, value: pa.Scalar, kind: pa.DataType) -> Column:
        """Returns ``value`` as a literal that compares exactly with Spark's type for ``kind``."""
        literal = self._known_literal(value, kind) if value.is_valid else None
        if literal is None:
            raise PredicateError(f"{value!r} compared with {kind}")
        return literal

    def _known_literal(self, value: pa.Scalar, kind: pa.DataType) -> Column | None:
        functions, is_a = self._functions, pa.types
        value_kind = value.type
        if is_a.is_boolean(kind) and is_a.is_boolean(value_kind):
            return functions.lit(value.as_py())
        if is_a.is_signed_integer(kind) and is_a.is_integer(value_kind):
            return functions.lit(value.as_py()) if value.as_py() < 2**63 else None
        if is_text(kind) and is_text(value_kind):
            return functions.lit(value.as_py())
        if is_a.is_date32(kind) and is_a.is_date32(value_kind):
            return functions.date_from_unix_date(functions.lit((value.as_py() - _EPOCH).days))
        if is_a.is_timestamp(kind) and is_a.is_timestamp(value_kind):
            return self._timestamp(value, kind)
        if is_a.is_decimal128(kind) and is_a.is_decimal128(value_kind):
            return self._decimal(value, kind)
        if is_a.is_float64(kind) or (is_a.is_float32(kind) and is_a.is_float32(value_kind)):
            return self._float(value)
        return None

    def _timestamp(self, value: pa.Scalar, kind: pa.DataType) -> Column | None:
        if (kind.tz is None) != (value.type.tz is None) or "ns" in (kind.unit, value.type.unit):
            return None
        micros = value.cast(pa.timestamp("us", value.type.tz)).value
        if kind.tz is not None:
            return self._functions.timestamp_micros(self._functions.lit(micros))
        datetime = dt.datetime(1970, 1, 1) + dt.timedelta(microseconds=micros)
        return self._functions.lit(datetime.isoformat(" ")).cast("timestamp_ntz")

    def _decimal(self, value: pa.Scalar, kind: pa.DataType) -> Column | None:
        value_kind = value.type
        whole_digits = max(kind.precision - kind.scale, value_kind.precision - value_kind.scale)
        if min(kind.scale, value_kind.scale) < 0 or value_kind.scale > value_kind.precision:
            return None
        if whole_digits + max(kind.scale, value_kind.scale) > _MAX_DIGITS:
            return None
        text, target = f"{value.as_py():f}", f"decimal({value_kind.precision},{value_kind.scale})"
        return self._functions.lit(text).cast(target)

    def _float(self, value: pa.Scalar) -> Column | None:
        kind = value.type
        if pa.types.is_integer(kind) and abs(value.as_py()) > _MAX_EXACT_INTEGER:
            return None
        if not (pa.types.is_integer(kind) or _is_float(kind)):
            return None
        number = float(value.as_py())
        return None if math.isnan(number) else self._functions.lit(number)


def _is_float(kind: pa.DataType) -> bool:
    return bool(pa.types.is_float32(kind) or pa.types.is_float64(kind))


def _refusal(node: Node) -> PredicateError:
    subject = f"the function {node.function}" if isinstance(node, Call) else str(node)
    return PredicateError(f"{subject} may mean something else to Spark")
