"""Evaluates comparisons of columns with constants, joined by AND, OR and NOT.

Most filters consist of these. pyarrow's kernels evaluate them without setting up its query engine;
for few rows the set-up takes longer than the evaluation.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from intarsia.expr.comparison_operators import COMPARISONS
from intarsia.expr.map_lookup import first_key, first_values
from intarsia.expr.nested_types import column_at, type_at
from intarsia.expr.tree import CHAINS, Call, FieldRef, Literal, Node, is_deep
from intarsia.scan.dictionary_codes import Holds, map_entries
from intarsia.scan.filter.value_set import ValueSet

_CONNECTIVES = (*CHAINS, "invert")
_IS_SUPPORTED = (
    pa.types.is_integer,
    pa.types.is_float32,
    pa.types.is_float64,
    pa.types.is_string,
    pa.types.is_large_string,
    pa.types.is_binary,
    pa.types.is_timestamp,
    pa.types.is_date,
)
_MAX_EXACT_DOUBLE = 2**53
_SET = "set"
"""The option of ``is_in`` that has its ``ValueSet``."""
_NULLS_MATCH = 0
"""The default of ``is_in`` for NULLs: they compare like any other value."""


def comparison_of(node: Node, schema: pa.Schema) -> Node | None:
    """Returns ``node`` with constants in the columns' types, if it consists of comparisons.

    These may be joined by AND, OR and NOT, but not nested too deeply. Constants are cast if that
    does not change the result. Returns None for any other condition. Evaluating the returned node
    never fails.
    """
    return None if is_deep(node) else _comparison(node, schema)


def _comparison(node: Node, schema: pa.Schema) -> Node | None:
    match node:
        case Call(function, arguments) if function in _CONNECTIVES:
            parts = [_comparison(argument, schema) for argument in arguments]
            complete = tuple(part for part in parts if part is not None)
            return Call(function, complete) if len(complete) == len(parts) else None
        case Call("is_in", (subject,), options):
            constants = _constants(options, _type_of(subject, schema))
            return None if constants is None else Call("is_in", (subject,), {_SET: constants})
        case Call(function, (subject, Literal(value))):
            typed = (
                _cast_constant(value, _type_of(subject, schema))
                if function in COMPARISONS
                else None
            )
            return None if typed is None else Call(function, (subject, Literal(typed)))
        case _:
            return None


def _type_of(subject: Node, schema: pa.Schema) -> pa.DataType | None:
    """Returns the type of a column, or of a map's values looked up by key; None for others."""
    match subject:
        case FieldRef(path):
            return type_at(schema, path)
        case Call("map_lookup", (FieldRef(path),), options):
            kind = type_at(schema, path)
            if kind is not None and first_key(options, kind) is not None:
                return kind.item_type
            return None
        case _:
            return None


def _constants(options: Mapping[str, Any], kind: pa.DataType | None) -> ValueSet | None:
    """Returns the constants of an ``is_in`` cast to ``kind``; None if impossible or any is NULL."""
    values = options["value_set"].values
    if (
        values is None
        or values.null_count
        or options["null_matching_behavior"].as_py() != _NULLS_MATCH
    ):
        return None
    if kind is None or not any(is_kind(kind) for is_kind in _IS_SUPPORTED):
        return None
    if values.type != kind:
        if not (pa.types.is_integer(values.type) and pa.types.is_integer(kind)):
            return None
        try:
            values = values.cast(kind)
        except pa.ArrowInvalid:
            return None
    return ValueSet(values)


def _cast_constant(value: pa.Scalar, kind: pa.DataType | None) -> pa.Scalar | None:
    """Returns ``value`` cast to ``kind``; None if it would compare differently."""
    if kind is None or not any(is_kind(kind) for is_kind in _IS_SUPPORTED):
        return None
    if value.type == kind:
        return value
    if not pa.types.is_integer(value.type) or not value.is_valid:
        return None
    if pa.types.is_integer(kind) or (
        pa.types.is_float64(kind) and abs(value.as_py()) <= _MAX_EXACT_DOUBLE
    ):
        try:
            return value.cast(kind)
        except pa.ArrowInvalid:
            return None
    return None


def holds(node: Node, table: pa.Table) -> pa.ChunkedArray:
    """Evaluates a result of ``comparison_of``. Returns Booleans, with NULLs.

    In dictionary-encoded columns, each entry is compared once.
    """
    match node:
        case Call("is_in", (subject,), options):
            return _by_entry(_column_of(subject, table), options[_SET].contains)
        case Call(function, (subject, Literal(value))):
            return _by_entry(_column_of(subject, table), partial(_compared, function, value))
        case Call(function, arguments) if function in CHAINS:
            parts = (holds(argument, table) for argument in arguments)
            return functools.reduce(lambda a, b: pc.call_function(function, [a, b]), parts)
        case Call(function, arguments):
            return pc.call_function(function, [holds(argument, table) for argument in arguments])
        case _:
            raise TypeError(f"{node} is no comparison")


def _column_of(subject: Node, table: pa.Table) -> pa.ChunkedArray:
    match subject:
        case FieldRef(path):
            return column_at(table, path)
        case Call("map_lookup", (maps,), options):
            return first_values(_column_of(maps, table), options["query_key"])
        case _:
            raise TypeError(f"{subject} is no column")


def _compared(function: str, value: pa.Scalar, values: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.call_function(function, [values, value])


def _by_entry(values: pa.ChunkedArray, evaluate: Holds) -> pa.ChunkedArray:
    return (
        map_entries(values, evaluate) if pa.types.is_dictionary(values.type) else evaluate(values)
    )
