"""A file as one JSON document, with the specification's names."""

from __future__ import annotations

import base64
import dataclasses
import json
import math
from collections.abc import Collection, Sequence
from typing import Any

from intarsia.control_characters import shown_in_json
from intarsia.errors import FormatError
from intarsia.file.open_file import OpenedFile
from intarsia.parquet.metadata import (
    CompressionCodec,
    ConvertedType,
    EdgeInterpolationAlgorithm,
    Encoding,
    FieldRepetitionType,
    PageType,
    RowGroup,
    SchemaElement,
    Statistics,
    Type,
)
from intarsia.parquet.schema import Leaf
from intarsia.parquet.value_display import readable
from intarsia.redaction import redacted

_ENUMS = {
    "type": Type,
    "converted_type": ConvertedType,
    "repetition_type": FieldRepetitionType,
    "encodings": Encoding,
    "encoding": Encoding,
    "codec": CompressionCodec,
    "page_type": PageType,
    "algorithm": EdgeInterpolationAlgorithm,
}
"""Enums by the names of their fields."""


def describe(file: OpenedFile, leaves: Sequence[Leaf]) -> tuple[dict[str, Any], bool]:
    """Returns the document, and True if all of the file could be decoded.

    Row groups list the chunks of ``leaves`` only. A chunk that cannot be decoded is an object with
    the single name ``error``.
    """
    leaf_indexes = {leaf.index for leaf in leaves}
    metadata = _fields(file.metadata, without="row_groups")
    metadata["row_groups"] = [
        _row_group(file, group, leaf_indexes) for group in file.metadata.row_groups
    ]
    whole = not any("error" in c for group in metadata["row_groups"] for c in group["columns"])
    indexes = file.sections.entries
    document = {
        "file": redacted(file.name),
        "size": file.source.size,
        "footer": {"offset": file.footer_offset, "length": len(file.footer)},
        "metadata": metadata,
        "indexes": [{"name": entry.name, **dataclasses.asdict(entry)} for entry in indexes],
    }
    return jsonable(document), whole


def json_text(value: Any, indent: int | None = None) -> str:
    """Returns a JSON document without characters that act on a terminal."""
    text = json.dumps(jsonable(value), indent=indent, ensure_ascii=False, allow_nan=False)
    return shown_in_json(text)


def jsonable(value: Any) -> Any:
    """Returns ``value`` with types of JSON: NaN and infinities by name, bytes in base 64."""
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if math.isfinite(value) else str(value)
        case bytes():
            return base64.b64encode(value).decode()
        case dict():
            return {str(key): jsonable(item) for key, item in value.items()}
        case list() | tuple():
            return [jsonable(item) for item in value]
    return str(value)


def _row_group(file: OpenedFile, group: RowGroup, leaf_indexes: Collection[int]) -> dict[str, Any]:
    chunks = [_chunk(group, leaf) for leaf in file.schema.leaves if leaf.index in leaf_indexes]
    return {"columns": chunks, **_fields(group, without="columns")}


def _chunk(group: RowGroup, leaf: Leaf) -> dict[str, Any]:
    try:
        return _fields(group.columns[leaf.index], leaf.element)
    except FormatError as error:
        return {"error": str(error)}


def _fields(
    value: Any, element: SchemaElement | None = None, without: str | None = None
) -> dict[str, Any]:
    """Returns the fields of a struct that are set. ``element`` is the column of statistics."""
    named = {}
    for field in dataclasses.fields(value):
        item = getattr(value, field.name) if field.metadata and field.name != without else None
        if item is not None:
            bounds = isinstance(value, Statistics) and isinstance(item, bytes)
            plain = readable(element, item) if bounds and element else _plain(item, element)
            named[field.name] = _by_name(field.name, plain)
    return named


def _plain(value: Any, element: SchemaElement | None) -> Any:
    if dataclasses.is_dataclass(value):
        return _fields(value, element)
    if isinstance(value, list):
        return [_plain(item, element) for item in value]
    return value


def _by_name(field: str, value: Any) -> Any:
    """Replaces enum numbers by names. Unknown numbers stay."""
    names = _ENUMS.get(field)
    if names is None or isinstance(value, dict):
        return value
    if isinstance(value, list):
        return [_by_name(field, item) for item in value]
    try:
        return names(value).name
    except ValueError:
        return value
