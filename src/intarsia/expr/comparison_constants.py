"""Constants of a filter in the types that columns are compared in.

pyarrow compares no UUIDs and no JSON. It accepts a comparison of 16 bytes with a string of any
length, and no row matches. So UUIDs, and strings that are compared with UUIDs, become the 16 bytes
that files store. A constant that can never equal a value of its column's type is rejected. So is a
comparison of two columns whose types have no value in common.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from intarsia.errors import PredicateError
from intarsia.expr.casts import is_text, is_uuid, without_extension
from intarsia.expr.constants import UUID_BYTES, is_bytes, uuid_scalar
from intarsia.expr.evaluate import compute_columns
from intarsia.expr.filterable_types import filterable_schema, filterable_type
from intarsia.expr.functions import is_list
from intarsia.expr.nested_types import type_at, without_dictionary
from intarsia.pyarrow_internals import Nodes, batch_of, serialized_of

_EQUALITIES = {"equal", "not_equal", "is_in"}
_COMPARISONS = {"equal", "not_equal", "less", "less_equal", "greater", "greater_equal"}
_CONSTANT_OPTION_NAMES = {"is_in": "value_set", "map_lookup": "query_key"}
"""Functions whose constants are among their options, and the names of these options."""
_ExpressionBuilder = Callable[[Nodes], pc.Expression]
"""Builds the Expression of some of a filter's nodes."""


class _Call(NamedTuple):
    """A call: function, nodes of its non-constant arguments, column numbers of its constants."""

    function: str
    arguments: list[Nodes]
    constants: list[int]


def with_comparable_constants(expression: pc.Expression, schema: pa.Schema) -> pc.Expression:
    """Returns ``expression`` with constants that pyarrow compares with columns of ``schema``.

    UUIDs and JSON become the bytes and strings that store them. A string compared with a UUID
    column is read as a UUID, with or without hyphens. Raises ``PredicateError`` in these cases:

    - the string is not a UUID, or bytes compared with a UUID column are not 16;
    - a constant's length rules out that it equals a value of its ``fixed_size_binary`` column;
    - two compared columns have such types, or one of them, and no value in common.

    >>> text = "00000000-0000-0000-0000-000000000041"
    >>> with_comparable_constants(pc.field("u") == text, pa.schema({"u": pa.uuid()}))
    <pyarrow.compute.Expression (u == "00000000000000000000000000000041")>
    """
    serialized = serialized_of(expression)
    if serialized is None:
        return expression
    original = serialized.batch.columns
    columns = [_filterable(column) for column in original]

    def expression_of(nodes: Nodes) -> pc.Expression:
        return serialized._replace(batch=batch_of(columns)).part(nodes)

    if any(
        _has_type(field.type, pa.types.is_fixed_size_binary) for field in filterable_schema(schema)
    ):
        for call in _calls(serialized.nodes):
            for at in call.constants:
                columns[at] = _comparable(columns[at], call, expression_of, schema)
            if call.function in _COMPARISONS and len(call.arguments) == 2:
                _check_types(call, expression_of, schema)
    if all(new.type == old.type for new, old in zip(columns, original, strict=True)):
        return expression
    return expression_of(serialized.nodes)


def _filterable(column: pa.Array) -> pa.Array:
    """Returns a constant in its ``filterable_type``, or unchanged if it is a NULL of a view type.

    pyarrow 26 ends the process if such a NULL is compared in another type.
    """
    kind = filterable_type(column.type)
    is_view = pa.types.is_string_view(column.type) or pa.types.is_binary_view(column.type)
    return column if kind == column.type or (is_view and column.null_count) else column.cast(kind)


def _has_type(kind: pa.DataType, predicate: Callable[[pa.DataType], bool]) -> bool:
    """True if ``predicate`` is true for ``kind`` or a type within it."""
    children = (kind.field(number).type for number in range(kind.num_fields))
    return predicate(kind) or any(_has_type(child, predicate) for child in children)


def _calls(nodes: Nodes) -> Iterator[_Call]:
    """Yields every call. A call's arguments come before the call."""
    open_calls: list[tuple[int, _Call]] = []
    at = 0
    while at < len(nodes):
        kind, value = nodes[at]
        start, at = at, at + 1 + (int(value) if kind == "nested_field_ref" else 0)
        if kind == "call":
            open_calls.append((start, _Call(value, [], [])))
            continue
        if kind == "end":
            start, call = open_calls.pop()
            yield call
        if not open_calls:
            continue
        outer = open_calls[-1][1]
        if kind == "literal" or (kind == "options" and outer.function in _CONSTANT_OPTION_NAMES):
            outer.constants.append(int(value))
        elif kind != "options":
            outer.arguments.append(nodes[start:at])


def _comparable(
    column: pa.Array, call: _Call, expression_of: _ExpressionBuilder, schema: pa.Schema
) -> pa.Array:
    """Returns the constants in ``column``, one row, in the type that ``call`` compares them in."""
    name = _CONSTANT_OPTION_NAMES.get(call.function)
    constants = column if name is None else column.field(name)
    values = constants.flatten() if is_list(constants.type) else constants
    if not (_is_string_or_bytes(values.type) or pa.types.is_null(values.type)):
        return column
    for nodes in call.arguments:
        kind = _compared_type(nodes, expression_of, schema)
        if is_uuid(kind):
            values = _as_uuid_bytes(values)
            break
        if call.function in _EQUALITIES and kind is not None:
            _check_length(values, kind)
    else:
        return column
    if is_list(constants.type):
        values = pa.ListArray.from_arrays(pa.array([0, len(values)], pa.int32()), values)
    if name is None:
        return values
    fields = [values if field.name == name else column.field(field.name) for field in column.type]
    return pa.StructArray.from_arrays(fields, column.type.names)


def _compared_type(
    nodes: Nodes, expression_of: _ExpressionBuilder, schema: pa.Schema
) -> pa.DataType | None:
    """Returns the type that an argument's values are compared in: a list's elements, a map's keys.

    Returns None if the type is unknown.
    """
    paths = list(_paths(nodes))
    if len(nodes) == len(paths[0] if paths else ()) + (nodes[0][0] == "nested_field_ref"):
        kind = type_at(schema, paths[0])
    else:
        kind = _computed_type(nodes, expression_of, schema, {path[0] for path in paths})
    if kind is None:
        return None
    if is_list(kind):
        kind = kind.value_type
    return without_dictionary(kind.key_type if pa.types.is_map(kind) else kind)


def _paths(nodes: Nodes) -> Iterator[tuple[str, ...]]:
    """Yields the path of each field among ``nodes``."""
    at = 0
    while at < len(nodes):
        kind, value = nodes[at]
        if kind == "field_ref":
            yield (value,)
        if kind == "nested_field_ref":
            yield tuple(name for _, name in nodes[at + 1 : at + 1 + int(value)])
            at += int(value)
        at += 1


def _computed_type(
    nodes: Nodes, expression_of: _ExpressionBuilder, schema: pa.Schema, names: Container[str]
) -> pa.DataType | None:
    """Returns the type that ``nodes`` compute from the columns ``names``, by computing zero rows.

    Returns None if it cannot be computed. 16 bytes count as a UUID if one of the columns holds
    UUIDs.
    """
    fields = [field for field in schema if field.name in names]
    stored = filterable_schema(pa.schema(fields))
    no_rows = pa.table([pa.nulls(0, field.type) for field in stored], schema=stored)
    try:
        kind = compute_columns({"": expression_of(nodes)}, no_rows).schema.field(0).type
    except (PredicateError, pa.ArrowException, TypeError):  # evaluating the filter says why
        return None
    holds_uuids = any(_has_type(field.type, is_uuid) for field in fields)
    return pa.uuid() if kind == UUID_BYTES and holds_uuids else kind


def _is_string_or_bytes(kind: pa.DataType) -> bool:
    return is_text(kind) or is_bytes(kind)


def _as_uuid_bytes(values: pa.Array) -> pa.Array:
    """Returns UUIDs, given as strings or as 16 bytes, in their storage type.

    Raises ``PredicateError`` for a value that is not a UUID.
    """
    if pa.types.is_null(values.type):
        return values.cast(UUID_BYTES)
    if is_text(values.type):
        strings = values.to_pylist()
        uuids = [None if string is None else uuid_scalar(string).as_py() for string in strings]
        return pa.array(uuids, UUID_BYTES)
    for value in values.to_pylist():
        if value is not None and len(value) != UUID_BYTES.byte_width:
            raise PredicateError(f"a UUID has 16 bytes, but {value!r} has {len(value)}")
    return values.cast(UUID_BYTES)


def _check_types(call: _Call, expression_of: _ExpressionBuilder, schema: pa.Schema) -> None:
    """Raises ``PredicateError`` if two columns are compared whose types have no value in common.

    A UUID never equals a string. Fixed-size bytes never equal fixed-size bytes of another size.
    """
    one, other = (_compared_type(nodes, expression_of, schema) for nodes in call.arguments)
    if one is None or other is None:
        return
    for left, right in ((one, other), (other, one)):
        if is_uuid(left) and is_text(without_extension(right)):
            raise PredicateError(f"a UUID does not compare with {right}")
    widths = {
        kind.byte_width
        for kind in map(without_extension, (one, other))
        if pa.types.is_fixed_size_binary(kind)
    }
    if len(widths) > 1 and call.function in _EQUALITIES:
        raise PredicateError(f"a value of {one} never equals one of {other}")


def _check_length(values: pa.Array, kind: pa.DataType) -> None:
    """Raises ``PredicateError`` if no string or bytes in ``values`` has the length of ``kind``."""
    if not pa.types.is_fixed_size_binary(kind) or pa.types.is_null(values.type):
        return
    known = values.drop_null()
    lengths = pc.binary_length(known).to_pylist()
    if lengths and kind.byte_width not in lengths:
        raise PredicateError(
            f"{known[0].as_py()!r} has {lengths[0]} bytes, so it never equals a value of {kind}; "
            "bytes.fromhex(...) reads hexadecimal digits, uuid.UUID(...).bytes those of a UUID"
        )
