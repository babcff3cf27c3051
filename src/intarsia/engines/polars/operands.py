"""The operands of Polars expressions: columns, fields of structs, casts of these, constants."""

from __future__ import annotations

from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from intarsia.engines.polars.cast_ranges import Change, keeps_order
from intarsia.engines.polars.temporal import date_part
from intarsia.expr.casts import is_text, keeps_values
from intarsia.expr.nested_types import without_dictionary

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
    {"strict": False, "wrap_numerical": True},  # Polars marks casts that cannot fail like this
)


FAILURES = (Exception, pl.exceptions.PanicException)
"""All errors of Polars and pyarrow. A panic of Polars is no ``Exception``."""


class Values:
    """Converts the values in predicates over the fields of a schema."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema

    def _value(self, expr: pl.Expr) -> tuple[pc.Expression, pa.DataType] | None:
        """Returns a field, a cast of one that keeps all values, or a part of a date; and its type.

        Returns None for any other expression.
        """
        path = self._path(expr)
        if path is not None:
            return pc.field(*path), self._type(path)
        inputs = inputs_of(expr)
        path = self._path(inputs[0]) if inputs else None
        if path is None:
            return None
        field, kind = pc.field(*path), self._type(path)
        for target, to in _CASTS.items() if len(inputs) == 1 else ():
            for options in _CAST_OPTIONS:
                if expr.meta.eq(inputs[0].cast(target, **options)):
                    return (field.cast(to), to) if keeps_values(kind, to) else None
        return date_part(expr, inputs[0], field, kind)

    def _cast(self, expr: pl.Expr) -> tuple[tuple[str, ...], list[pl.DataType], Change] | None:
        """Returns the path of a field that may be cast, its types in turn, and the casts.

        Returns None for any other expression, and if the casts may change the order of values.
        """
        path = self._path(expr)
        if path is not None:
            return path, [_dtype(self._type(path))], lambda column: column
        inputs = inputs_of(expr)
        cast = self._cast(inputs[0]) if len(inputs) == 1 else None
        if cast is None:
            return None
        path, types, change = cast
        names = expr.meta.root_names()
        known = {name: _dtype(self._schema.field(name).type) for name in names}
        target = pl.LazyFrame(schema=known).select(expr).collect_schema().dtypes()[0]
        for options in _CAST_OPTIONS if keeps_order(types[-1], target) else ():
            if expr.meta.eq(inputs[0].cast(target, **options)):
                return path, [*types, target], _then_cast(change, target, options)
        return None

    def _text_path(self, expr: pl.Expr) -> tuple[str, ...] | None:
        path = self._path(expr)
        return path if path is not None and is_text(self._type(path)) else None

    def _path(self, expr: pl.Expr) -> tuple[str, ...] | None:
        """Returns the path of a column or a field of a struct, None for any other expression."""
        if expr.meta.is_column():
            name = expr.meta.output_name()
            return (name,) if name in self._schema.names else None
        inputs = inputs_of(expr)
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


def inputs_of(expr: pl.Expr) -> list[pl.Expr]:
    """Returns the inputs of an expression, in order."""
    if expr.meta.is_column() or expr.meta.is_literal():
        return []
    return expr.meta.pop()[::-1]


def is_by_row(expr: pl.Expr) -> bool:
    """True if each batch of rows can be filtered alone: if no constant has a value for each row.

    False for an expression that ``meta.pop`` cannot take apart.
    """
    pending = [expr]
    try:
        while pending:
            current = pending.pop()
            if current.meta.is_literal() and pl.select(current).height != 1:
                return False
            pending += inputs_of(current)
    except FAILURES:
        return False
    return True


def _then_cast(change: Change, target: pl.DataType, options: dict[str, Any]) -> Change:
    return lambda column: change(column).cast(target, **options)


def _dtype(kind: pa.DataType) -> pl.DataType:
    """Returns Polars' type for an Arrow type."""
    return pl.Series(pl.from_arrow(pa.nulls(0, kind))).dtype


def constants_of(expr: pl.Expr) -> list[pa.Scalar] | None:
    """Returns the value of a constant, or its list's values. None if it has several rows."""
    if not expr.meta.is_literal():
        return None
    series = pl.select(expr).to_series()
    if len(series) != 1:
        return None
    if series.dtype == pl.List:
        series = series.explode(empty_as_null=False)
    try:
        return list(series.to_arrow())
    except pa.ArrowException:  # Int128
        return None


def text_of(expr: pl.Expr) -> str | None:
    """Returns the string of a constant. Returns None if it is no string, or several."""
    values = constants_of(expr)
    if values is None or len(values) != 1:
        return None
    return values[0].as_py() if isinstance(values[0], pa.StringScalar) else None


def as_kind(value: pa.Scalar, kind: pa.DataType) -> pa.Scalar | None:
    """Casts ``value`` to a field's type. Returns None if it does not fit, or is NULL or NaN.

    Returns None also for a number compared with a time: Polars counts in its own unit, not the
    file's.
    """
    if pa.types.is_temporal(without_dictionary(kind)) and not pa.types.is_temporal(value.type):
        return None
    if not value.is_valid or (pa.types.is_floating(value.type) and value.as_py() != value.as_py()):
        return None
    try:
        cast_value = value.cast(without_dictionary(kind))
        return cast_value if cast_value.cast(value.type).equals(value) else None
    except pa.ArrowException:
        return None
