"""The values that SQL conditions compare, as trees with types."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from intarsia.errors import PredicateError, instead
from intarsia.expr.arithmetic import Typed, computed, is_exact, nearest
from intarsia.expr.casts import cast_type, is_uuid, without_extension
from intarsia.expr.constants import (
    UUID_BYTES,
    cast_scalar,
    exactly,
    fraction,
    is_bytes,
    number_scalar,
    text_scalar,
)
from intarsia.expr.functions import is_list, json_extract_string
from intarsia.expr.nested_types import without_dictionary
from intarsia.expr.sql_text import text_of
from intarsia.expr.tree import FieldRef, Literal, Node, built
from intarsia.sql.date_functions import in_utc, part_of
from intarsia.sql.durations import duration_scalar, is_interval
from intarsia.sql.literals import is_constant
from intarsia.sql.scope import has_only

_ARITHMETIC_FUNCTIONS: dict[type[exp.Expr], Callable[[Any, Any], Any]] = {
    exp.Add: pc.add_checked,
    exp.Sub: pc.subtract_checked,
    exp.Mul: pc.multiply_checked,
}
_FUNCTIONS: dict[type[exp.Expr], Callable[[Any], pc.Expression]] = {
    exp.Lower: pc.utf8_lower,
    exp.Upper: pc.utf8_upper,
    exp.Abs: pc.abs,
}
_ROUNDING_FUNCTIONS: dict[type[exp.Expr], Callable[[Any], pc.Expression]] = {
    exp.Floor: pc.floor,
    exp.Ceil: pc.ceil,
}
_MAX_POSITION_DIGITS = 5
"""Digits of an item's position. pyarrow's ``list_slice`` crashes for positions of nine digits."""
_VALUES = (
    "values are columns, constants, +, -, *, CAST, coalesce, lower, upper, length, abs, floor, "
    "ceil, of moments date_trunc, year, month, hour and the like, of maps attrs['key'], of lists "
    "tags[1], and of JSON payload->>'$.key'"
)
"""The values that are understood, for messages."""
_ITEMS = (
    "items of lists count from 1: write tags[1] for the first; "
    "only ia.sql takes positions below 1 or above 100,000, and slices"
)
_ITEM_FUNCTIONS = ("array_extract", "element_at", "list_element", "list_extract")
_JSON = "-> and json_extract give JSON; write payload->>'$.key', which gives text"


def is_of_item(node: exp.Expr) -> bool:
    """True if ``node`` is an item of a list, such as ``tags[1]``, or a field of one."""
    while isinstance(node, exp.Dot):
        node = node.this
    match node:
        case exp.Bracket(expressions=[exp.Literal(is_string=False) as position]):
            text = str(position.this)  # sqlglot counts from 0
            return text.isdigit() and len(text) <= _MAX_POSITION_DIGITS
    return False


class Values:
    """Translates the values in a condition over the fields of a schema."""

    def __init__(self, schema: pa.Schema, *, knows_fractions: bool = True) -> None:
        """Stores the schema.

        Without ``knows_fractions``, an operand of arithmetic that is no integer is a double.
        """
        self._schema, self._knows_fractions = schema, knows_fractions
        self._arithmetic_by_node: dict[int, tuple[exp.Expr, Typed]] = {}
        """Results of arithmetic by the nodes' ``id``. A stored node keeps its ``id``."""
        self._fields: dict[tuple[str, ...], tuple[tuple[str, ...], pa.DataType]] = {}
        """The path and the type of each field by its names in the text."""

    def _value(self, node: exp.Expr) -> Node:
        match node:
            case exp.Paren(this=inner):
                return self._value(inner)
            case exp.Dot(this=inner) if is_of_item(node):
                return built(pc.struct_field, self._value(inner), [self._item_field(node).name])
            case exp.Column() | exp.Dot():
                return FieldRef(self._resolve(node)[0])
            case exp.Bracket(this=inner) if is_of_item(node):
                kind, position = self._type_of(inner), int(node.expressions[0].name)
                if kind is not None and (pa.types.is_list(kind) or pa.types.is_large_list(kind)):
                    # list_element fails for shorter lists: NULL fills up the list of one item.
                    item = (position, position + 1, 1, True)
                    slices = built(pc.list_slice, self._value(inner), *item)
                    return built(pc.list_element, slices, 0)
            case exp.Bracket(this=inner, expressions=[exp.Literal(is_string=True) as key]):
                kind = self._type_of(inner)
                if kind is not None and pa.types.is_map(kind):
                    map_key = self._scalar(key, kind.key_type).cast(kind.key_type)
                    return built(pc.map_lookup, self._value(inner), map_key, "first")
            case exp.JSONExtractScalar(this=inner, expression=path):
                document = self._text_value(inner, "json_extract_string")
                return built(json_extract_string, document, _json_path(path))
            case exp.Neg(this=inner) if not is_constant(inner):
                return built(pc.negate_checked, self._value(inner))
            case exp.Coalesce(this=inner, expressions=others):
                kind = self._type_of(node)
                values = (self._of_type(other, kind) for other in others)
                return built(pc.coalesce, self._decoded(inner), *values)
            case exp.TryCast():
                raise PredicateError(f"{text_of(node)!r}: TRY_CAST is not understood")
            case exp.Cast(this=inner, to=target) if not is_constant(node):
                return self._cast(inner, cast_type(target))
        if is_constant(node):
            return Literal(self._scalar(node, None))
        if type(node) in _ARITHMETIC_FUNCTIONS:
            return self._arithmetic_value(node)[0]
        if isinstance(node, exp.Length):
            return self._length(node.this)
        if type(node) in _ROUNDING_FUNCTIONS and has_only(node, ("this",)):
            return built(_ROUNDING_FUNCTIONS[type(node)], self._as_float(node.this))
        part = part_of(node)
        if part is not None:
            return built(part.of, self._value(part.subject), self._type_of(part.subject))
        if type(node) in _FUNCTIONS:
            return built(_FUNCTIONS[type(node)], self._decoded(node.this))
        raise _not_understood(node)

    def _arithmetic_value(self, node: exp.Expr) -> Typed:
        """Returns the result of arithmetic."""
        if id(node) not in self._arithmetic_by_node:
            left, right = node.args["this"], node.args["expression"]
            one, other = self._operand(left, right), self._operand(right, left)
            self._arithmetic_by_node[id(node)] = (
                node,
                computed(_ARITHMETIC_FUNCTIONS[type(node)], one, other),
            )
        return self._arithmetic_by_node[id(node)][1]

    def _operand(self, node: exp.Expr, other: exp.Expr) -> Typed:
        """Returns one operand of arithmetic and its type.

        A constant is a decimal if the other operand is one, or if it has a fraction and the other
        is an integer. If the other is a 32-bit float, so is the constant.
        """
        if not is_constant(node):
            kind = self._type_of(node)
            is_typed = kind is not None and (self._knows_fractions or is_exact(kind))
            return self._value(node), kind if is_typed else None
        kind = None if is_constant(other) else self._type_of(other)
        scalar = self._scalar(node, None)
        is_number = isinstance(node.unnest(), exp.Literal | exp.Neg)
        text = text_of(node.unnest()) if is_number and self._knows_fractions else ""
        if kind is not None and pa.types.is_decimal(kind):
            scalar = scalar if "e" in text.lower() else self._constant_for(other, node)
        elif kind is not None and text:
            if pa.types.is_integer(kind):
                scalar = fraction(text) or scalar
            elif pa.types.is_floating(kind):
                scalar = self._constant_for(other, node)
                if pa.types.is_integer(scalar.type):  # floats of this type hold it
                    return Literal(scalar), kind
        is_typed = self._knows_fractions or is_exact(scalar.type)
        return Literal(scalar), scalar.type if is_typed else None

    def _of_type(self, node: exp.Expr, kind: pa.DataType | None) -> Node:
        """Returns a value that must have the given type.

        pyarrow would read timestamps of one unit as another unit. Raises ``PredicateError`` for
        other types.
        """
        try:
            if kind is not None and is_constant(node):
                return Literal(exactly(self._scalar(node, kind), kind))
        except pa.ArrowException as error:
            raise PredicateError(f"{text_of(node)} is not a {kind}") from error
        own = self._type_of(node)
        if kind is None or own is None or without_dictionary(own) != kind:
            raise PredicateError(f"{text_of(node)} and the value it replaces are not of one type")
        return self._decoded(node)

    def _constant_for(self, subject: exp.Expr, constant: exp.Expr) -> pa.Scalar:
        """Returns a constant that ``subject`` is compared with."""
        return self._constants_of_type(self._type_of(subject), subject, [constant])[0]

    def _constants_of_type(
        self, kind: pa.DataType | None, subject: exp.Expr, constants: Sequence[exp.Expr]
    ) -> list[pa.Scalar]:
        """Returns constants that ``subject``, of type ``kind``, is compared with."""
        try:
            return [self._scalar(constant, kind) for constant in constants]
        except PredicateError as error:
            shown = text_of(subject)
            is_list_search = kind is not None and is_list(kind) and is_constant(constants[0])
            hint = f"; list_contains({shown}, …) searches its elements" if is_list_search else ""
            raise PredicateError(f"{shown}: {error}{hint}") from error

    def _constants_for(self, subject: exp.Expr, constants: Sequence[exp.Expr]) -> list[pa.Scalar]:
        """Returns constants that ``subject`` is compared with. If one is a double, all are."""
        kind = self._type_of(subject)
        scalars = self._constants_of_type(kind, subject, constants)
        is_narrow_float = kind is not None and pa.types.is_floating(kind) and kind != pa.float64()
        if not is_narrow_float or all(scalar.type != pa.float64() for scalar in scalars):
            return scalars
        doubles = [self._scalar(constant, pa.float64()) for constant in constants]
        return [one.cast(pa.float64()) if one.is_valid else one for one in doubles]

    def _scalar(self, node: exp.Expr, kind: pa.DataType | None) -> pa.Scalar:
        """Returns a constant as a scalar; a string is read as type ``kind``.

        Raises ``PredicateError`` for a node that is no supported constant.
        """
        match node:
            case exp.Paren(this=inner):
                return self._scalar(inner, kind)
            case exp.Null():
                return pa.scalar(None, kind or pa.null())
            case exp.Boolean(this=value):
                return pa.scalar(bool(value))
            case exp.Neg(this=exp.Literal() as inner) if not inner.is_string:
                return number_scalar(f"-{inner.this}", kind)
            case exp.Cast(this=exp.Literal(is_string=True) as inner, to=target) if _is_blob(target):
                return text_scalar(inner.this, kind if kind and is_bytes(kind) else pa.binary())
            case _ if is_interval(node) or (_is_text(node) and _is_duration(kind)):
                return duration_scalar(node, kind)
            case exp.Cast(this=inner, to=target) if _is_single_cast(node):
                return cast_scalar(partial(self._scalar, inner), cast_type(target), kind)
            case exp.Literal(this=text) if node.is_string:
                return text_scalar(text, kind)
            case exp.Literal(this=text):
                return number_scalar(text, kind)
        raise PredicateError(f"{text_of(node)!r} is not a constant this understands")

    def _type_of(self, node: exp.Expr) -> pa.DataType | None:
        """Returns the type of a value, or None if only evaluation can tell it."""
        match node:
            case exp.Paren(this=inner):
                return self._type_of(inner)
            case exp.Dot() if is_of_item(node):
                return without_extension(self._item_field(node).type)
            case exp.Column() | exp.Dot():
                kind = self._resolve(node)[1]
                return kind if is_uuid(kind) else without_extension(kind)
            case exp.Neg() | exp.Abs() | exp.Floor() | exp.Ceil():
                return self._type_of(node.this)
            case exp.Coalesce(this=inner):
                kind = self._type_of(inner)
                return None if kind is None else without_dictionary(kind)
            case exp.Add() | exp.Sub() | exp.Mul():
                return self._arithmetic_value(node)[1]
            case exp.Cast(to=target):
                return cast_type(target)
            case exp.Lower() | exp.Upper() | exp.JSONExtractScalar():
                return pa.string()
            case exp.Length():
                return pa.int32()
            case exp.Bracket(this=inner):
                kind = self._type_of(inner)
                if kind is not None and is_of_item(node) and is_list(kind):
                    return without_extension(kind.value_type)
                return kind.item_type if kind is not None and pa.types.is_map(kind) else None
        part = part_of(node)
        return None if part is None else part.type(self._type_of(part.subject))

    def _item_field(self, node: exp.Dot) -> pa.Field:
        """Returns a field of a list's item, as ``items[1].sku``.

        Raises ``PredicateError`` for an unknown or ambiguous field.
        """
        kind, name = self._type_of(node.this), node.expression.name
        has_fields = kind is not None and pa.types.is_struct(kind)
        fields = kind.fields if kind is not None and has_fields else ()
        matches = _fields_named(name, fields)
        if len(matches) != 1:
            problem = "is ambiguous" if matches else "is not there"
            raise PredicateError(f"{text_of(node)!r} {problem}: {text_of(node.this)} is {kind}")
        return matches[0]

    def _resolve(self, node: exp.Expr) -> tuple[tuple[str, ...], pa.DataType]:
        """Returns the path and the type of a field. Exact names take precedence over other cases.

        Raises ``PredicateError`` for an unknown or ambiguous field.
        """
        parts: list[exp.Expr] = node.parts  # type: ignore[attr-defined]  # Column and Dot
        if not all(isinstance(part, exp.Identifier) for part in parts):
            raise _not_understood(node)
        names = tuple([part.name for part in parts])
        if names not in self._fields:
            self._fields[names] = self._field(node, names)
        return self._fields[names]

    def _field(self, node: exp.Expr, names: tuple[str, ...]) -> tuple[tuple[str, ...], pa.DataType]:
        path: list[str] = []
        children: list[pa.Field] = list(self._schema)
        kind = None
        for name in names:
            matches = _fields_named(name, children)
            if len(matches) != 1:
                known_names = [f.name for f in matches or children]
                problem = f"is ambiguous: {', '.join(known_names)}" if matches else "is not there"
                hint = self._suggestion(names, path, kind)
                if not matches and hint:
                    problem += f"; {hint}"
                elif not matches:
                    alternatives = [".".join((*path, other)) for other in known_names]
                    suggestion = instead(".".join((*path, name)), alternatives)
                    problem += suggestion if known_names else f": {'.'.join(path)} is {kind}"
                if not matches and len(names) == 1 and node.this.args.get("quoted"):
                    problem += f" (a text would have single quotes: '{name}')"
                raise PredicateError(f"column {'.'.join(names)!r} {problem}")
            path.append(matches[0].name)
            kind = matches[0].type
            children = list(kind.fields) if pa.types.is_struct(kind) else []
        assert kind is not None
        return tuple(path), kind

    def _suggestion(
        self, names: Sequence[str], path: Sequence[str], kind: pa.DataType | None
    ) -> str | None:
        """Returns how to write a field that was written as a field of a struct, or None.

        It may be a column whose name has dots, or the value of a key of the map of type ``kind`` at
        ``path``.
        """
        whole = ".".join(names)
        if len(names) > 1 and whole in self._schema.names:
            return f'the column of that name is "{whole}", in double quotes'
        if kind is not None and pa.types.is_map(kind):
            key = ".".join(names[len(path) :])
            return f"the value of a map's key is {'.'.join(path)}['{key}']"
        return None

    def _text_value(self, node: exp.Expr, function: str = "LIKE") -> Node:
        """Returns a value that must be a string. Raises ``PredicateError`` if it is not."""
        kind = self._type_of(node)
        if kind is not None and not (
            pa.types.is_string(kind) or pa.types.is_large_string(kind) or _is_text_view(kind)
        ):
            raise PredicateError(f"{function} needs text, and {text_of(node)} is {kind}")
        return self._decoded(node)

    def _decoded(self, node: exp.Expr) -> Node:
        """Returns a value without Arrow's dictionary, which pyarrow's functions do not accept."""
        value, kind = self._value(node), self._type_of(node)
        if kind is not None and pa.types.is_dictionary(kind):
            return built(pc.Expression.cast, value, kind.value_type)
        return value

    def _as_float(self, node: exp.Expr) -> Node:
        """Returns a value that must be a float. Raises ``PredicateError`` if it is not.

        pyarrow would convert integers to doubles, which cannot hold all of them. A rounded decimal
        may need another digit, and pyarrow does not always report the overflow.
        """
        kind = self._type_of(node)
        if kind is not None and not pa.types.is_floating(kind):
            raise PredicateError(f"floor and ceil need floats, and {text_of(node)} is {kind}")
        return self._value(node)

    def _length(self, node: exp.Expr) -> Node:
        kind = self._type_of(node)
        if kind is not None and is_list(kind):
            return built(pc.list_value_length, self._value(node))
        return built(pc.utf8_length, self._text_value(node, "length"))

    def _cast(self, node: exp.Expr, target: pa.DataType) -> Node:
        value, kind = self._value(node), self._type_of(node)
        if is_uuid(target):
            if kind != UUID_BYTES and not is_uuid(kind):
                raise PredicateError(f"{text_of(node)} is {kind}, which cannot be cast to UUID")
            return value
        if is_uuid(kind):
            raise PredicateError(f"{text_of(node)} is a UUID; no cast to {target} is possible")
        if kind is not None and pa.types.is_date(target):
            value = built(in_utc, value, kind)
        is_decimal = kind is not None and pa.types.is_decimal(kind)
        if is_decimal and pa.types.is_floating(target) and self._knows_fractions:
            return nearest(value, kind, target)
        if kind is not None and pa.types.is_integer(target):
            if pa.types.is_floating(kind):
                value = built(pc.round, value, round_mode="half_to_even")
            elif is_decimal:
                value = built(pc.round, value, round_mode="half_towards_infinity")
        return built(pc.Expression.cast, value, target)


def _fields_named(name: str, fields: Sequence[pa.Field]) -> list[pa.Field]:
    """Returns the fields of a name, or else those whose name differs by case alone."""
    return [field for field in fields if field.name == name] or [
        field for field in fields if field.name.lower() == name.lower()
    ]


def _not_understood(node: exp.Expr) -> PredicateError:
    """Returns the error about a value that is not understood. It says what to write instead."""
    hint, part = _VALUES, node.find(exp.Bracket, exp.JSONExtract)
    if isinstance(part, exp.JSONExtract):
        hint = _JSON
    elif node.name.lower() in _ITEM_FUNCTIONS or (part and not _is_text(part.expressions[0])):
        hint = _ITEMS
    return PredicateError(f"{text_of(node)!r} is not a value this understands: {hint}")


def _json_path(node: exp.Expr) -> str:
    """Returns a path in JSON. Raises ``PredicateError`` if ``node`` is no constant path."""
    match node:
        case exp.Literal(this=path):
            return path if node.is_string else f"$[{path}]"
    raise PredicateError(f"{text_of(node)!r} is no path in JSON: it must be a constant")


def _is_text(node: exp.Expr) -> bool:
    return isinstance(node, exp.Literal) and bool(node.is_string)


def _is_duration(kind: pa.DataType | None) -> bool:
    return kind is not None and bool(pa.types.is_duration(kind))


def _is_blob(target: exp.DataType) -> bool:
    return bool(target.this == exp.DataType.Type.VARBINARY)


def _is_single_cast(node: exp.Cast) -> bool:
    """True if a constant is cast once, not the result of another cast."""
    return type(node) is exp.Cast and not isinstance(node.this.unnest(), exp.Cast)


def _is_text_view(kind: pa.DataType) -> bool:
    kind = without_dictionary(kind)
    return bool(pa.types.is_string(kind) or pa.types.is_string_view(kind))
