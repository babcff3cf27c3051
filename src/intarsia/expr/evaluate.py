"""Evaluating a filter: pyarrow does, once the calls of ``functions`` in it have become columns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial

import pyarrow as pa
import pyarrow.acero as acero
import pyarrow.compute as pc

from intarsia.errors import PredicateError
from intarsia.expr.functions import FUNCTIONS
from intarsia.expr.map_lookup import MAP_LOOKUP, first_key, first_values
from intarsia.expr.nested_types import column_at, has_map, type_at, with_whole_maps
from intarsia.expr.tree import (
    Call,
    FieldRef,
    Literal,
    calls_replaced,
    read_expression,
    replaced,
    shown,
)
from intarsia.threads import all_of, may_divide

_CALL = "__intarsia_call_"
_THREADED_ROWS = 64 * 1024
"""Fewer are filtered sooner than a thread is woken."""
_HINTS = {
    "no kernel matching input types": "a constant has to be of its column's type",
    "timestamp without timezone": "where a column has a time zone, so has what it is compared with",
    "Precision is not great enough": "decimal.Decimal compares with any decimal",
}
"""What to do about pyarrow's refusals, by a part of what it says."""
_REFUSALS = (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError, TypeError)


def evaluate(expression: pc.Expression, table: pa.Table) -> pa.Table:
    """The rows of ``table`` for which ``expression`` is true.

    Raises ``PredicateError`` where it cannot be evaluated: types that do not compare, say.
    """
    rest, extended = _with_map_values(expression, table)
    try:
        found = _filtered(rest, extended)
        return found if extended is table else found.select(range(table.num_columns))
    except pa.ArrowKeyError as error:  # pyarrow has no such function
        rest, extended = _computed(expression, table, error)
        return evaluate(rest, extended).select(range(table.num_columns))
    except _REFUSALS as error:
        hints = "".join(f"; {hint}" for part, hint in _HINTS.items() if part in str(error))
        raise PredicateError(f"cannot evaluate {shown(expression)}: {error}{hints}") from error


def _filtered(expression: pc.Expression, table: pa.Table) -> pa.Table:
    """As ``Table.filter``, in threads of ours, and one where there is little to do.

    A thread of Arrow's may drop the last reference to memory of Python's after the result is there.
    If the interpreter exits meanwhile, that ends the process with an abort.
    """
    parts = min(pa.cpu_count(), table.num_rows // _THREADED_ROWS) if may_divide() else 1
    if parts < 2:
        return _filtered_here(expression, table)
    size = -(-table.num_rows // parts)
    slices = [table.slice(at, size) for at in range(0, table.num_rows, size)]
    return pa.concat_tables(all_of(partial(_filtered_here, expression, part) for part in slices))


def _filtered_here(expression: pc.Expression, table: pa.Table) -> pa.Table:
    steps = [
        acero.Declaration("table_source", acero.TableSourceNodeOptions(table)),
        acero.Declaration("filter", acero.FilterNodeOptions(expression)),
    ]
    return acero.Declaration.from_sequence(steps).to_table(use_threads=False)


def _with_map_values(expression: pc.Expression, table: pa.Table) -> tuple[pc.Expression, pa.Table]:
    """``expression`` with fields for values of maps' keys, and ``table`` with columns for these."""
    if not any(map(has_map, table.schema.types)):
        return expression, table
    prefix, found = unused(_CALL, table.column_names), dict[str, pa.ChunkedArray]()
    others: list[Call] = []

    def field_for(call: Call) -> pc.Expression | None:
        match call.arguments:
            case (FieldRef(path),):
                key = first_key(call.options, type_at(table.schema, path))
                if key is not None:
                    name = f"{prefix}{len(found)}"
                    found[name] = first_values(column_at(table, path), key)
                    return pc.field(name)
        others.append(call)
        return None

    rest = replaced(expression, [MAP_LOOKUP], field_for)
    table = with_whole_maps(table) if others else table
    for name, values in found.items():
        table = table.append_column(name, values)
    return rest, table


def compute_columns(columns: dict[str, pc.Expression], table: pa.Table) -> pa.Table:
    """A table of computed columns, one row for each of ``table``'s; a column as it is keeps its
    metadata.

    Raises ``PredicateError`` for what ``FUNCTIONS`` do not take, else what pyarrow does.
    """
    found = _all_computed(columns, table)
    for number, expression in enumerate(columns.values()):
        if metadata := _metadata_of(expression, table.schema):
            field = found.schema.field(number).with_metadata(metadata)
            found = found.set_column(number, field, found.column(number))
    return found


def _metadata_of(expression: pc.Expression, schema: pa.Schema) -> dict[bytes, bytes] | None:
    node = read_expression(expression)
    if not isinstance(node, FieldRef) or len(node.path) > 1:
        return None
    at = schema.get_field_index(node.path[0])
    return schema.field(at).metadata if at >= 0 else None


def _all_computed(columns: dict[str, pc.Expression], table: pa.Table) -> pa.Table:
    try:
        return _projected(columns, table)
    except pa.ArrowKeyError as error:
        extended, rest = table, {}
        for name, expression in columns.items():
            rest[name] = expression
            if needs_evaluation(expression):
                rest[name], extended = _computed(expression, extended, error)
        return _projected(rest, extended)


def _projected(columns: Mapping[str, pc.Expression], table: pa.Table) -> pa.Table:
    options = acero.ProjectNodeOptions(list(columns.values()), list(columns))
    steps = [
        acero.Declaration("table_source", acero.TableSourceNodeOptions(table)),
        acero.Declaration("project", options),
    ]
    return acero.Declaration.from_sequence(steps).to_table(use_threads=False)


def needs_evaluation(expression: pc.Expression) -> bool:
    """Does ``expression`` call one of ``FUNCTIONS``, and so mean nothing to pyarrow alone?"""
    return bool(calls_replaced(expression, FUNCTIONS, _CALL).calls)


def _computed(
    expression: pc.Expression, table: pa.Table, reason: Exception
) -> tuple[pc.Expression, pa.Table]:
    """``expression`` with fields for calls of ``FUNCTIONS``, and ``table`` with columns for these.

    Raises ``PredicateError`` for ``reason`` where there are none.
    """
    rest, calls = calls_replaced(expression, FUNCTIONS, unused(_CALL, table.column_names))
    if not calls:
        raise PredicateError(f"cannot evaluate {shown(expression)}: {reason}") from reason
    extended = table
    for name, (function, arguments) in calls.items():
        extended = extended.append_column(name, _value(function, arguments, table))
    return rest, extended


def unused(prefix: str, taken: Iterable[str]) -> str:
    """``prefix``, longer where need be: none of the names that are ``taken`` begins with it."""
    names = tuple(taken)
    while any(name.startswith(prefix) for name in names):
        prefix += "_"
    return prefix


def _value(function: str, arguments: tuple[pc.Expression, ...], table: pa.Table) -> pa.ChunkedArray:
    """A call's values. Raises ``PredicateError`` for arguments that are not as it takes them."""
    if len(arguments) != 2:
        raise PredicateError(f"{function} takes 2 arguments, not {len(arguments)}")
    subject, constant = arguments
    literal = read_expression(constant)
    if not isinstance(literal, Literal):
        raise PredicateError(f"{function} takes a constant, which {constant} is not")
    check, values = FUNCTIONS[function]
    column = _column(subject, table)
    try:
        check(column.type, literal.value.type)
    except PredicateError as error:
        raise PredicateError(f"{function}({subject}, {constant}): {error}") from error
    return pa.chunked_array(
        [values(chunk, literal.value) for chunk in column.chunks or [pa.nulls(0, column.type)]]
    )


def _column(subject: pc.Expression, table: pa.Table) -> pa.ChunkedArray:
    match read_expression(subject):
        case FieldRef((name,)) if name in table.column_names:
            return table.column(name)
    try:
        return compute_columns({"value": subject}, table).column(0)
    except _REFUSALS as error:
        raise PredicateError(f"cannot evaluate {subject}: {error}") from error
