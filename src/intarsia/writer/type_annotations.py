"""Keeps the annotations of columns that Arrow has no type for when they are written to new files.

pyarrow reads such a column as its storage type and writes that. ENUM would become bytes, and
VARIANT a struct.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from intarsia.errors import UnsupportedError, Where
from intarsia.expr.nested_types import nullable
from intarsia.parquet.column_order import order_of
from intarsia.parquet.metadata import ConvertedType, LogicalType, SchemaElement
from intarsia.parquet.schema import Root, Schema
from intarsia.parquet.thrift import amended
from intarsia.writer.empty_file import empty_file

_LOGICAL = {"ENUM", "BSON", "VARIANT", "GEOMETRY", "GEOGRAPHY", "FILE"}
"""Logical types that Arrow lacks."""
_CONVERTED = {ConvertedType.ENUM, ConvertedType.BSON, ConvertedType.INTERVAL}
"""Converted types that Arrow lacks."""
Place = tuple[int, int]
"""A leaf by its number within its column, and the number of groups to go up from it."""


@dataclass(frozen=True, slots=True)
class Annotation:
    """The converted and logical type of a schema element."""

    converted: int | None
    logical: LogicalType | None

    @property
    def name(self) -> str:
        """The name in the specification. ``""`` for a type that is newer than this code."""
        if self.logical is None:
            return "" if self.converted is None else ConvertedType(self.converted).name
        members = (member.name for member in dataclasses.fields(self.logical))
        return next((name for name in members if getattr(self.logical, name) is not None), "")

    def is_equivalent(self, other: Annotation) -> bool:
        """True if both mean the same type. Old writers have no logical types."""
        if self.logical is None or other.logical is None:
            return self.name == other.name
        return self.logical == other.logical

    @property
    def fields(self) -> dict[str, Any]:
        """The fields of the SchemaElement."""
        return {"converted_type": self.converted, "logicalType": self.logical}


Annotations = Mapping[str, Mapping[Place, Annotation]]
"""Annotations by column name and place."""


def annotations_of(schema: Schema) -> dict[str, dict[Place, Annotation]]:
    """Returns the annotations of columns that pyarrow does not know."""
    annotations: dict[str, dict[Place, Annotation]] = {}
    for root in schema.roots:
        for place, position in _places(schema, root).items():
            annotation = _annotation(schema.elements[position])
            if annotation is not None:
                annotations.setdefault(root.name, {})[place] = annotation
    return annotations


def _places(schema: Schema, root: Root) -> dict[Place, int]:
    """Returns the positions of a column's leaves, and of groups by the first leaf in them."""
    place_of: dict[int, Place] = {}
    for number, at in enumerate(root.leaves):
        for up, position in enumerate(reversed(schema.leaves[at].elements[-2:])):
            place_of.setdefault(position, (number, up))
    return {place: position for position, place in place_of.items()}


def _annotation(element: SchemaElement) -> Annotation | None:
    """Returns the annotation of an element. Returns None if pyarrow knows its type."""
    annotation = Annotation(element.converted_type, element.logicalType)
    if annotation.logical is None:
        return annotation if annotation.converted in _CONVERTED else None
    return annotation if annotation.name in (*_LOGICAL, "") else None


def agreed(
    files: Sequence[tuple[pa.Schema, Annotations]], schema: pa.Schema, where: str
) -> dict[str, Mapping[Place, Annotation]]:
    """Returns the annotations that all files share. Raises ``UnsupportedError`` if they differ."""
    agreed_annotations: dict[str, Mapping[Place, Annotation]] = {}
    for name in dict.fromkeys(name for _, file_annotations in files for name in file_annotations):
        kind = nullable(schema.field(name)).type
        files_with_column = [
            (types, file_annotations.get(name, {}))
            for types, file_annotations in files
            if name in types.names
        ]
        first = next(
            file_annotations for _, file_annotations in files_with_column if file_annotations
        )
        names = sorted({annotation.name for annotation in first.values()})
        if "" in names:
            problem = "is of a type that is newer than this reader"
        elif not all(_agree(first, file_annotations) for _, file_annotations in files_with_column):
            problem = f"is {', '.join(names)} in some files, but not in all"
        elif any(nullable(types.field(name)).type != kind for types, _ in files_with_column):
            problem = f"is {', '.join(names)}, and its storage type differs between files"
        else:
            agreed_annotations[name] = first
            continue
        raise UnsupportedError(f"column {name!r} {problem}", Where(where))
    return agreed_annotations


def agreed_where_possible(
    files: Sequence[tuple[pa.Schema, Annotations]], schema: pa.Schema
) -> dict[str, Mapping[Place, Annotation]]:
    """Returns the same as ``agreed``, without columns that raise there or that ``schema`` lacks."""
    agreed_annotations: dict[str, Mapping[Place, Annotation]] = {}
    for name in dict.fromkeys(name for _, file_annotations in files for name in file_annotations):
        if name in schema.names:
            alone = [
                (types, {name: file_annotations[name]} if name in file_annotations else {})
                for types, file_annotations in files
            ]
            with contextlib.suppress(UnsupportedError):
                agreed_annotations |= agreed(alone, schema, "")
    return agreed_annotations


def _agree(one: Mapping[Place, Annotation], other: Mapping[Place, Annotation]) -> bool:
    return one.keys() == other.keys() and all(
        annotation.is_equivalent(other[place]) for place, annotation in one.items()
    )


@dataclass(frozen=True, slots=True)
class Placed:
    """Fields of elements, by their positions in a new file's schema."""

    fields: Mapping[int, Mapping[str, Any]]
    ordered: tuple[str, ...] | None
    """Paths of the leaves that may have statistics. None if all may."""


def placed(annotations: Annotations, schema: pa.Schema, options: Mapping[str, Any]) -> Placed:
    """Returns ``annotations`` for files of ``schema`` that pyarrow writes with ``options``."""
    if not annotations:
        return Placed({}, None)
    written = empty_file(schema, "", options).schema
    fields: dict[int, Mapping[str, Any]] = {}
    for root in written.roots:
        places = _places(written, root)
        for place, annotation in annotations.get(root.name, {}).items():
            fields[places[place]] = annotation.fields
    elements = {
        position: amended(written.elements[position], **element_fields)
        for position, element_fields in fields.items()
    }
    ordered = [
        leaf.name
        for leaf in written.leaves
        if order_of(elements.get(leaf.elements[-1], leaf.element)).is_defined
    ]
    return Placed(fields, None if len(ordered) == len(written.leaves) else tuple(ordered))
