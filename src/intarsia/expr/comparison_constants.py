"""Constants of a filter in the types that columns are compared in.

pyarrow compares no UUIDs and no JSON. It accepts a comparison of 16 bytes with a string of any
length, and no row matches. So UUIDs, and strings that are compared with UUIDs, become the 16 bytes
that files store. A constant that can never equal a value of its column's type is rejected. So is a
comparison of two columns whose types have no value in common.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable

import pyarrow as pa
import pyarrow.compute as pc

from intarsia.errors import PredicateError
from intarsia.expr.casts import is_text, is_uuid, without_extension
from intarsia.expr.comparison_operators import COMPARISONS
from intarsia.expr.constants import UUID_BYTES, is_bytes, uuid_scalar
from intarsia.expr.evaluate import compute_columns
from intarsia.expr.filterable_types import filterable_schema, filterable_type
from intarsia.expr.functions import is_list
from intarsia.expr.nested_types import type_at, without_dictionary
from intarsia.expr.tree import Call, FieldRef, Literal, Node, field_paths, replaced, to_expression

_EQUALITIES = {"equal", "not_equal", "is_in"}
_CONSTANT_OPTION_NAMES = {"is_in": "value_set", "map_lookup": "query_key"}
"""Functions whose constants are among their options, and the names of these options."""


def with_comparable_constants(node: Node, schema: pa.Schema) -> Node:
    """Returns ``node`` with constants that pyarrow compares with columns of ``schema``.

    UUIDs and JSON become the bytes and strings that store them. A string compared with a UUID
    column is read as a UUID, with or without hyphens. Raises ``PredicateError`` in these cases:

    - the string is not a UUID, or bytes compared with a UUID column are not 16;
    - a constant's length rules out that it equals a value of its ``fixed_size_binary`` column;
    - two compared columns have such types, or one of them, and no value in common.

    >>> text = "00000000-0000-0000-0000-000000000041"
    >>> node = Call("equal", (FieldRef(("u",)), Literal(pa.scalar(text))))
    >>> to_expression(with_comparable_constants(node, pa.schema({"u": pa.uuid()})))
    <pyarrow.compute.Expression (u == "00000000000000000000000000000041")>
    """
    has_fixed_sizes = any(
        _has_type(kind, pa.types.is_fixed_size_binary)
        for kind in filterable_schema(schema).types
        if kind.num_fields or kind.id == UUID_BYTES.id
    )

    def change(part: Node) -> Node:
        match part:
            case Literal(value):
                return part if (new := _filterable(value)) is value else Literal(new)
            case Call(function, arguments, options) if options:
                new_options = {name: _filterable(value) for name, value in options.items()}
                if not all(map(operator.is_, new_options.values(), options.values())):
                    part = Call(function, arguments, new_options)
        return _comparable(part, schema) if has_fixed_sizes and isinstance(part, Call) else part

    return replaced(node, change)


def _filterable(value: pa.Scalar) -> pa.Scalar:
    """Returns a constant in its ``filterable_type``, or unchanged if it is a NULL of a view type.

    pyarrow 26 ends the process if such a NULL is compared in another type.
    """
    own = value.type
    kind = filterable_type(own)
    if kind is own or kind == own:
        return value
    if not value.is_valid and (pa.types.is_string_view(own) or pa.types.is_binary_view(own)):
        return value
    return pa.repeat(value, 1).cast(kind)[0]


def _has_type(kind: pa.DataType, predicate: Callable[[pa.DataType], bool]) -> bool:
    """True if ``predicate`` is true for ``kind`` or a type within it."""
    children = (kind.field(number).type for number in range(kind.num_fields))
    return predicate(kind) or any(_has_type(child, predicate) for child in children)


def _comparable(call: Call, schema: pa.Schema) -> Call:
    """Returns ``call`` with its constants in the type that it compares them in."""
    arguments = call.arguments
    subjects = [argument for argument in arguments if not isinstance(argument, Literal)]
    option = _CONSTANT_OPTION_NAMES.get(call.function)
    if option is not None or len(subjects) < len(arguments):
        kinds = [_compared_type(subject, schema) for subject in subjects]
        is_equality = call.function in _EQUALITIES
        options = call.options
        if option is not None:
            options = {**options, option: _constants(options[option], kinds, is_equality)}
        new_arguments = [
            Literal(_constants(argument.value, kinds, is_equality))
            if isinstance(argument, Literal)
            else argument
            for argument in arguments
        ]
        return Call(call.function, tuple(new_arguments), options)
    if call.function in COMPARISONS and len(subjects) == 2:
        _check_types(call.function, *(_compared_type(subject, schema) for subject in subjects))
    return call


def _constants(
    constants: pa.Scalar, kinds: Iterable[pa.DataType | None], is_equality: bool
) -> pa.Scalar:
    """Returns a constant, or a list of them, in the type in which it compares with ``kinds``."""
    values = pa.repeat(constants, 1)
    values = values.flatten() if is_list(constants.type) else values
    if not (_is_string_or_bytes(values.type) or pa.types.is_null(values.type)):
        return constants
    for kind in kinds:
        if is_uuid(kind):
            values = _as_uuid_bytes(values)
            if is_list(constants.type):
                values = pa.ListArray.from_arrays(pa.array([0, len(values)], pa.int32()), values)
            return values[0]
        if is_equality and kind is not None:
            _check_length(values, kind)
    return constants


def _compared_type(node: Node, schema: pa.Schema) -> pa.DataType | None:
    """Returns the type that an argument's values are compared in: a list's elements, a map's keys.

    Returns None if the type is unknown.
    """
    kind = (
        type_at(schema, node.path) if isinstance(node, FieldRef) else _computed_type(node, schema)
    )
    if kind is None:
        return None
    if is_list(kind):
        kind = kind.value_type
    return without_dictionary(kind.key_type if pa.types.is_map(kind) else kind)


def _computed_type(node: Node, schema: pa.Schema) -> pa.DataType | None:
    """Returns the type of the values of ``node``, by computing zero rows.

    Returns None if they cannot be computed. 16 bytes count as a UUID if one of the columns holds
    UUIDs.
    """
    names = {path[0] for path in field_paths(node) or ()}
    fields = [field for field in schema if field.name in names]
    stored = filterable_schema(pa.schema(fields))
    no_rows = pa.table([pa.nulls(0, field.type) for field in stored], schema=stored)
    try:
        kind = compute_columns({"": to_expression(node)}, no_rows).schema.field(0).type
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


def _check_types(function: str, one: pa.DataType | None, other: pa.DataType | None) -> None:
    """Raises ``PredicateError`` if two columns are compared whose types have no value in common.

    A UUID never equals a string. Fixed-size bytes never equal fixed-size bytes of another size.
    """
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
    if len(widths) > 1 and function in _EQUALITIES:
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
