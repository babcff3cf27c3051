"""Columns that pyarrow, DuckDB and Polars decode to the same values.

An engine's own reader may read a file instead of ours if all columns of the query are portable. The
list is short on purpose: a column that is not on it is read by our reader.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pyarrow as pa

from intarsia.expr.nested_types import without_dictionary
from intarsia.file.open_file import OpenedFile
from intarsia.parquet.metadata import ConvertedType, FieldRepetitionType, SchemaElement, Type
from intarsia.parquet.schema import Schema

_MAX_DECIMAL_DIGITS = 38
"""The most that engines support; Arrow supports 76."""
_INTEGERS = {
    pa.int8(): (Type.INT32, ConvertedType.INT_8),
    pa.int16(): (Type.INT32, ConvertedType.INT_16),
    pa.int32(): (Type.INT32, ConvertedType.INT_32),
    pa.int64(): (Type.INT64, ConvertedType.INT_64),
    pa.uint8(): (Type.INT32, ConvertedType.UINT_8),
    pa.uint16(): (Type.INT32, ConvertedType.UINT_16),
    pa.uint32(): (Type.INT32, ConvertedType.UINT_32),
    pa.uint64(): (Type.INT64, ConvertedType.UINT_64),
}
"""Physical type and annotation of each integer type; int32 and int64 may lack the annotation."""
_UNANNOTATED = {
    pa.bool_(): Type.BOOLEAN,
    pa.int32(): Type.INT32,
    pa.int64(): Type.INT64,
    pa.float32(): Type.FLOAT,
    pa.float64(): Type.DOUBLE,
    pa.binary(): Type.BYTE_ARRAY,
}
_TIMESTAMPS = {
    "ms": ConvertedType.TIMESTAMP_MILLIS,
    "us": ConvertedType.TIMESTAMP_MICROS,
    "ns": None,
}
"""Annotation of timestamps by unit; nanoseconds have a logical type alone."""
_LIST_CHILDREN_OF_TWO_LEVELS = ("array", "_tuple")
"""Names of the repeated group in lists of two levels, which readers tell apart differently."""


def why_not_portable(
    file: OpenedFile, name: str, kind: pa.DataType, units: Sequence[str] = ("us",)
) -> str:
    """Returns why an engine may read column ``name`` of ``file`` otherwise than as ``kind``.

    ``kind`` is the type in the data set. ``units`` are the timestamp units that the engine
    supports, of "ms", "us" and "ns". Returns "" if it reads the same values. Files with the same
    schema share the result.
    """
    key = ("portable", name, kind, *units)
    return str(file.shape.cached(key, lambda: _why_not_portable(file, name, kind, units)))


def _why_not_portable(file: OpenedFile, name: str, kind: pa.DataType, units: Sequence[str]) -> str:
    schema = file.schema
    root = schema.root(name)
    if root is None:
        return f"column {name!r} is missing"
    # If two names differ only by case, DuckDB renames a column, perhaps to the name of a third.
    if not file.shape.cached("names without case", lambda: _differ_without_case(schema)):
        return "names of columns differ by case only"
    stored = file.arrow_type(root)
    if plain_type(stored) != plain_type(kind):
        return f"column {name!r} is {stored}, and read as {kind}"
    walk = _Walk(schema.elements, units)
    if not root.all_leaves or not walk.matches(root.elements.start, plain_type(kind)):
        return f"column {name!r} is stored in an unusual way"
    return ""


def _differ_without_case(schema: Schema) -> bool:
    return len({root.name.lower() for root in schema.roots}) == len(schema.roots)


def plain_type(kind: pa.DataType) -> pa.DataType:
    """Returns ``kind`` as engines have it: no widths, views, dictionaries, names or zones."""
    kind = without_dictionary(kind)
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind):
        return pa.binary()
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        return pa.timestamp(kind.unit, "UTC")
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(plain_type(kind.value_type))
    if pa.types.is_map(kind) and not pa.types.is_null(kind.key_type):
        return pa.map_(plain_type(kind.key_type), plain_type(kind.item_type))
    if pa.types.is_struct(kind):
        return pa.struct([(field.name, plain_type(field.type)) for field in kind])
    return kind


class _Walk:
    """A depth-first walk over the elements of a file's schema, beside an Arrow type."""

    def __init__(self, elements: Sequence[SchemaElement], units: Sequence[str]) -> None:
        self._elements = elements
        self._units = units

    def matches(self, at: int, kind: pa.DataType) -> bool:
        """True if the element at position ``at`` is the usual way to store ``kind``."""
        element = self._elements[at]
        if element.repetition_type == FieldRepetitionType.REPEATED:
            return False  # a list without an annotation
        children = self._children(at)
        if pa.types.is_list(kind):
            return self._is_list(element, children, kind)
        if pa.types.is_map(kind):
            return self._is_map(element, children, kind)
        if pa.types.is_struct(kind):
            return not _is_annotated(element) and self._have(children, kind)
        return not children and _is_stored_as(element, kind, self._units)

    def _is_list(self, element: SchemaElement, children: Sequence[int], kind: pa.DataType) -> bool:
        if not _has(element, "LIST", ConvertedType.LIST) or len(children) != 1:
            return False
        repeated, inner = self._elements[children[0]], self._children(children[0])
        return (
            repeated.repetition_type == FieldRepetitionType.REPEATED
            and not repeated.name.endswith(_LIST_CHILDREN_OF_TWO_LEVELS)
            and len(inner) == 1
            and self.matches(inner[0], kind.value_type)
        )

    def _is_map(self, element: SchemaElement, children: Sequence[int], kind: pa.DataType) -> bool:
        if not _has(element, "MAP", ConvertedType.MAP) or len(children) != 1:
            return False
        inner = self._children(children[0])
        return (
            self._elements[children[0]].repetition_type == FieldRepetitionType.REPEATED
            and len(inner) == 2
            and self._elements[inner[0]].repetition_type == FieldRepetitionType.REQUIRED
            and self.matches(inner[0], kind.key_type)
            and self.matches(inner[1], kind.item_type)
        )

    def _have(self, children: Sequence[int], kind: pa.StructType) -> bool:
        """True if ``children`` are the fields of a struct, each of another name."""
        names = [self._elements[child].name for child in children]
        return (
            names == [field.name for field in kind]
            and len({name.lower() for name in names}) == len(names)
            and all(self.matches(at, f.type) for at, f in zip(children, kind, strict=True))
        )

    def _children(self, at: int) -> list[int]:
        children, child = [], at + 1
        for _ in range(self._elements[at].num_children or 0):
            children.append(child)
            child = self._end(child)
        return children

    def _end(self, at: int) -> int:
        """Returns the position behind the element at ``at`` and its descendants."""
        end = at + 1
        for _ in range(self._elements[at].num_children or 0):
            end = self._end(end)
        return end


def _is_stored_as(element: SchemaElement, kind: pa.DataType, units: Sequence[str]) -> bool:
    """True if a leaf of this element is the usual way to store ``kind``."""
    physical = element.type
    if not _is_annotated(element):
        return physical is not None and _UNANNOTATED.get(kind) == physical
    if kind in _INTEGERS:
        stored, converted = _INTEGERS[kind]
        return physical == stored and _has(element, "INTEGER", converted)
    if kind == pa.string():
        return physical == Type.BYTE_ARRAY and _has(element, "STRING", ConvertedType.UTF8)
    if kind == pa.date32():
        return physical == Type.INT32 and _has(element, "DATE", ConvertedType.DATE)
    if pa.types.is_timestamp(kind) and kind.unit in units:
        unit = _TIMESTAMPS[kind.unit]
        stated = element.logicalType.TIMESTAMP if element.logicalType is not None else None
        # ARROW:schema may give a zone to a column that has none in DuckDB.
        is_instant = stated is not None and stated.isAdjustedToUTC
        is_same = is_instant == (kind.tz is not None)
        return physical == Type.INT64 and is_same and _has(element, "TIMESTAMP", unit)
    if pa.types.is_decimal(kind) and kind.precision <= _MAX_DECIMAL_DIGITS:
        return physical != Type.BYTE_ARRAY and _has(element, "DECIMAL", ConvertedType.DECIMAL)
    return kind == pa.uuid() and physical == Type.FIXED_LEN_BYTE_ARRAY


def _is_annotated(element: SchemaElement) -> bool:
    return element.logicalType is not None or element.converted_type is not None


def _has(element: SchemaElement, logical: str, converted: ConvertedType | None) -> bool:
    """True if a schema element has this annotation, and no other one."""
    if element.logicalType is not None and getattr(element.logicalType, logical) is None:
        return False
    return element.converted_type == converted or (
        element.logicalType is not None and element.converted_type is None
    )


def has_old_bounds(file: OpenedFile, names: Iterable[str]) -> bool:
    """True if a column's statistics may be in the order of signed bytes, as in old files."""
    if file.metadata.column_orders:
        return False
    roots = frozenset(names)
    leaves = [leaf for leaf in file.schema.leaves if leaf.path[0] in roots]
    return any(not _is_signed(leaf.element) for leaf in leaves)


def _is_signed(element: SchemaElement) -> bool:
    is_bytes = element.type in (Type.BYTE_ARRAY, Type.FIXED_LEN_BYTE_ARRAY, Type.INT96)
    integer = None if element.logicalType is None else element.logicalType.INTEGER
    is_unsigned = integer is not None and not integer.isSigned
    return not is_bytes and not is_unsigned and element.converted_type not in _UNSIGNED


_UNSIGNED = {
    ConvertedType.UINT_8,
    ConvertedType.UINT_16,
    ConvertedType.UINT_32,
    ConvertedType.UINT_64,
}
