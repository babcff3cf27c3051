"""Evaluates a filter: our own ``functions`` become columns first, and pyarrow does the rest."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial

import pyarrow as pa
import pyarrow.acero as acero
import pyarrow.compute as pc

from intarsia.errors import PredicateError
from intarsia.expr.functions import FUNCTIONS
from intarsia.expr.map_lookup import first_key, first_values
from intarsia.expr.nested_types import column_at, has_map, type_at, with_whole_maps
from intarsia.expr.tree import (
    Call,
    FieldRef,
    Literal,
    Node,
    calls_in,
    read_expression,
    replaced,
    shown,
    to_expression,
)
from intarsia.threads import all_of, may_use_threads

_CALL = "__intarsia_call_"
_MIN_ROWS_PER_THREAD = 64 * 1024
"""Below this row count the calling thread filters; starting a thread costs more."""
_HINTS_BY_MESSAGE = {
    "no kernel matching input types": "a constant must have its column's type",
    "timestamp without timezone": "compare a column that has a time zone with values that have one",
    "Precision is not great enough": "a decimal.Decimal compares with any decimal column",
}
"""The user's remedy for an error of pyarrow, by a part of its message."""
_REFUSALS = (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError, TypeError)


def evaluate(expression: pc.Expression, table: pa.Table) -> pa.Table:
    """Returns the rows of ``table`` for which ``expression`` is true.

    Raises ``PredicateError`` if it cannot be evaluated, for example if types do not compare.
    """
    rewritten, extended = _compute_map_values(expression, table)
    try:
        filtered = _filter(rewritten, extended)
        return filtered if extended is table else filtered.select(range(table.num_columns))
    except pa.ArrowKeyError as error:  # pyarrow has no such function
        rewritten, extended = _compute_own_functions(expression, table, error)
        return evaluate(rewritten, extended).select(range(table.num_columns))
    except _REFUSALS as error:
        hints = "".join(
            f"; {hint}" for part, hint in _HINTS_BY_MESSAGE.items() if part in str(error)
        )
        raise PredicateError(f"cannot evaluate {shown(expression)}: {error}{hints}") from error


def _filter(expression: pc.Expression, table: pa.Table) -> pa.Table:
    """Returns the rows of ``table`` for which ``expression`` is true, as ``Table.filter`` does.

    It uses our own threads, and only the calling thread for few rows. A thread of Arrow may drop
    the last reference to Python's memory after the result is there. If the interpreter exits at
    that time, the process aborts.
    """
    parts = min(pa.cpu_count(), table.num_rows // _MIN_ROWS_PER_THREAD) if may_use_threads() else 1
    if parts < 2:
        return _filter_in_this_thread(expression, table)
    size = -(-table.num_rows // parts)
    slices = [table.slice(at, size) for at in range(0, table.num_rows, size)]
    return pa.concat_tables(
        all_of(partial(_filter_in_this_thread, expression, part) for part in slices)
    )


def _filter_in_this_thread(expression: pc.Expression, table: pa.Table) -> pa.Table:
    steps = [
        acero.Declaration("table_source", acero.TableSourceNodeOptions(table)),
        acero.Declaration("filter", acero.FilterNodeOptions(expression)),
    ]
    return acero.Declaration.from_sequence(steps).to_table(use_threads=False)


def _compute_map_values(
    expression: pc.Expression, table: pa.Table
) -> tuple[pc.Expression, pa.Table]:
    """Returns ``expression`` with fields for map lookups, and ``table`` with their columns."""
    if not any(map(has_map, table.schema.types)):
        return expression, table
    prefix, values_by_name = unused(_CALL, table.column_names), dict[str, pa.ChunkedArray]()
    other_lookups: list[Call] = []

    def field_for(node: Node) -> Node:
        match node:
            case Call("map_lookup", (FieldRef(path),), options):
                key = first_key(options, type_at(table.schema, path))
                if key is not None:
                    name = f"{prefix}{len(values_by_name)}"
                    values_by_name[name] = first_values(column_at(table, path), key)
                    return FieldRef((name,))
        if isinstance(node, Call) and node.function == "map_lookup":
            other_lookups.append(node)
        return node

    rewritten = replaced(read_expression(expression), field_for)
    table = with_whole_maps(table) if other_lookups else table
    for name, values in values_by_name.items():
        table = table.append_column(name, values)
    return to_expression(rewritten) if values_by_name else expression, table


def compute_columns(columns: dict[str, pc.Expression], table: pa.Table) -> pa.Table:
    """Returns a table of computed columns, one row for each row of ``table``.

    A column that is only a field keeps the field's metadata. Raises ``PredicateError`` for
    arguments that one of ``FUNCTIONS`` does not take, and pyarrow's exceptions otherwise.
    """
    result = _compute_all(columns, table)
    for number, expression in enumerate(columns.values()):
        if metadata := _metadata_of(expression, table.schema):
            field = result.schema.field(number).with_metadata(metadata)
            result = result.set_column(number, field, result.column(number))
    return result


def _metadata_of(expression: pc.Expression, schema: pa.Schema) -> dict[bytes, bytes] | None:
    node = read_expression(expression)
    if not isinstance(node, FieldRef) or len(node.path) > 1:
        return None
    at = schema.get_field_index(node.path[0])
    return schema.field(at).metadata if at >= 0 else None


def _compute_all(columns: dict[str, pc.Expression], table: pa.Table) -> pa.Table:
    try:
        return _project(columns, table)
    except pa.ArrowKeyError as error:
        extended, rewritten = table, {}
        for name, expression in columns.items():
            rewritten[name] = expression
            if needs_evaluation(expression):
                rewritten[name], extended = _compute_own_functions(expression, extended, error)
        return _project(rewritten, extended)


def _project(columns: Mapping[str, pc.Expression], table: pa.Table) -> pa.Table:
    options = acero.ProjectNodeOptions(list(columns.values()), list(columns))
    steps = [
        acero.Declaration("table_source", acero.TableSourceNodeOptions(table)),
        acero.Declaration("project", options),
    ]
    return acero.Declaration.from_sequence(steps).to_table(use_threads=False)


def needs_evaluation(expression: pc.Expression) -> bool:
    """True if ``expression`` calls one of ``FUNCTIONS``, which pyarrow cannot evaluate."""
    return any(call.function in FUNCTIONS for call in calls_in(read_expression(expression)))


def _compute_own_functions(
    expression: pc.Expression, table: pa.Table, reason: Exception
) -> tuple[pc.Expression, pa.Table]:
    """Returns ``expression`` with fields for calls of ``FUNCTIONS``, which ``table`` then holds.

    Raises ``PredicateError`` from ``reason`` if there are no such calls.
    """
    prefix, num_columns = unused(_CALL, table.column_names), table.num_columns

    def field_for(node: Node) -> Node:
        nonlocal table
        if not isinstance(node, Call) or node.function not in FUNCTIONS:
            return node
        name = f"{prefix}{table.num_columns}"
        table = table.append_column(name, _call_values(node, table))
        return FieldRef((name,))

    rewritten = replaced(read_expression(expression), field_for)
    if table.num_columns == num_columns:
        raise PredicateError(f"cannot evaluate {shown(expression)}: {reason}") from reason
    return to_expression(rewritten), table


def unused(prefix: str, taken: Iterable[str]) -> str:
    """Returns ``prefix``, made longer until none of the names in ``taken`` begins with it."""
    names = tuple(taken)
    while any(name.startswith(prefix) for name in names):
        prefix += "_"
    return prefix


def _call_values(call: Call, table: pa.Table) -> pa.ChunkedArray:
    """Returns a call's values. Raises ``PredicateError`` for arguments of wrong types."""
    if len(call.arguments) != 2:
        raise PredicateError(f"{call.function} takes 2 arguments, not {len(call.arguments)}")
    subject, constant = call.arguments
    if not isinstance(constant, Literal):
        shown_constant = shown(to_expression(constant))
        raise PredicateError(f"{call.function} takes a constant, but {shown_constant} is not one")
    check, values = FUNCTIONS[call.function]
    column = _column(subject, table)
    try:
        check(column.type, constant.value.type)
    except PredicateError as error:
        raise PredicateError(f"{shown(to_expression(call))}: {error}") from error
    return pa.chunked_array(
        [values(chunk, constant.value) for chunk in column.chunks or [pa.nulls(0, column.type)]]
    )


def _column(subject: Node, table: pa.Table) -> pa.ChunkedArray:
    match subject:
        case FieldRef((name,)) if name in table.column_names:
            return table.column(name)
    expression = to_expression(subject)
    try:
        return compute_columns({"value": expression}, table).column(0)
    except _REFUSALS as error:
        raise PredicateError(f"cannot evaluate {expression}: {error}") from error
