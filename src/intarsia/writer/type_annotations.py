"""What a file says of columns that Arrow has no type for, so that their new files say it as well.

pyarrow reads such a column as what it is stored as, and writes that: ENUM would become bytes, and
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
from intarsia.writer.parquet_writer import empty_file

_LOGICAL = {"ENUM", "BSON", "VARIANT", "GEOMETRY", "GEOGRAPHY", "FILE"}
_CONVERTED = {ConvertedType.ENUM, ConvertedType.BSON, ConvertedType.INTERVAL}
Place = tuple[int, int]
"""A leaf, by its number within its column, and how many groups up from it."""


@dataclass(frozen=True, slots=True)
class Annotation:
    """What an element of a schema says beside how it is stored."""

    converted: int | None
    logical: LogicalType | None

    @property
    def name(self) -> str:
        """As the specification calls it; ``""`` where that is newer than this code."""
        if self.logical is None:
            return "" if self.converted is None else ConvertedType(self.converted).name
        members = (member.name for member in dataclasses.fields(self.logical))
        return next((name for name in members if getattr(self.logical, name) is not None), "")

    def is_as(self, other: Annotation) -> bool:
        """Do both mean the same? Old writers have no logical types."""
        if self.logical is None or other.logical is None:
            return self.name == other.name
        return self.logical == other.logical

    @property
    def fields(self) -> dict[str, Any]:
        return {"converted_type": self.converted, "logicalType": self.logical}


Annotations = Mapping[str, Mapping[Place, Annotation]]
"""By the names of columns."""


def annotations_of(schema: Schema) -> dict[str, dict[Place, Annotation]]:
    """What is said of columns that pyarrow does not know."""
    found: dict[str, dict[Place, Annotation]] = {}
    for root in schema.roots:
        for place, position in _places(schema, root).items():
            said = _annotation(schema.elements[position])
            if said is not None:
                found.setdefault(root.name, {})[place] = said
    return found


def _places(schema: Schema, root: Root) -> dict[Place, int]:
    """The positions of a column's leaves, and of groups by the first leaf that is right in them."""
    found: dict[int, Place] = {}
    for number, at in enumerate(root.leaves):
        for up, position in enumerate(reversed(schema.leaves[at].elements[-2:])):
            found.setdefault(position, (number, up))
    return {place: position for position, place in found.items()}


def _annotation(element: SchemaElement) -> Annotation | None:
    said = Annotation(element.converted_type, element.logicalType)
    if said.logical is None:
        return said if said.converted in _CONVERTED else None
    return said if said.name in (*_LOGICAL, "") else None


def agreed(
    files: Sequence[tuple[pa.Schema, Annotations]], schema: pa.Schema, where: str
) -> dict[str, Mapping[Place, Annotation]]:
    """What all of ``files`` that have a column say of it, whose rows are to be of ``schema``.

    Raises ``UnsupportedError`` where they do not agree, or their types are united, as a VARIANT's
    must not be.
    """
    found: dict[str, Mapping[Place, Annotation]] = {}
    for name in dict.fromkeys(name for _, own in files for name in own):
        kind = nullable(schema.field(name)).type
        having = [(types, own.get(name, {})) for types, own in files if name in types.names]
        first = next(own for _, own in having if own)
        names = sorted({said.name for said in first.values()})
        if "" in names:
            problem = "is of a type that is newer than this reader"
        elif not all(_agree(first, own) for _, own in having):
            problem = f"is {', '.join(names)} in some files, and not in all alike"
        elif any(nullable(types.field(name)).type != kind for types, _ in having):
            problem = f"is {', '.join(names)}, and differs in how it is stored between files"
        else:
            found[name] = first
            continue
        raise UnsupportedError(f"column {name!r} {problem}", Where(where))
    return found


def agreed_alone(
    files: Sequence[tuple[pa.Schema, Annotations]], schema: pa.Schema
) -> dict[str, Mapping[Place, Annotation]]:
    """As ``agreed``, without columns that raise there, and those that ``schema`` lacks."""
    found: dict[str, Mapping[Place, Annotation]] = {}
    for name in dict.fromkeys(name for _, own in files for name in own):
        if name in schema.names:
            alone = [(types, {name: own[name]} if name in own else {}) for types, own in files]
            with contextlib.suppress(UnsupportedError):
                found |= agreed(alone, schema, "")
    return found


def _agree(one: Mapping[Place, Annotation], other: Mapping[Place, Annotation]) -> bool:
    return one.keys() == other.keys() and all(said.is_as(other[at]) for at, said in one.items())


@dataclass(frozen=True, slots=True)
class Placed:
    """Fields of elements, by their positions in the schema of a new file."""

    fields: Mapping[int, Mapping[str, Any]]
    ordered: tuple[str, ...] | None
    """The leaves that may have statistics, by their paths; None where all may."""


def placed(annotations: Annotations, schema: pa.Schema, options: Mapping[str, Any]) -> Placed:
    """``annotations`` as of the files that pyarrow writes of ``schema`` with its ``options``."""
    if not annotations:
        return Placed({}, None)
    written = empty_file(schema, "", options).schema
    fields: dict[int, Mapping[str, Any]] = {}
    for root in written.roots:
        places = _places(written, root)
        for place, said in annotations.get(root.name, {}).items():
            fields[places[place]] = said.fields
    elements = {at: amended(written.elements[at], **own) for at, own in fields.items()}
    ordered = [
        leaf.name
        for leaf in written.leaves
        if order_of(elements.get(leaf.elements[-1], leaf.element)).is_defined
    ]
    return Placed(fields, None if len(ordered) == len(written.leaves) else tuple(ordered))
