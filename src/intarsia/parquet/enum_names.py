"""Short display names of types, codecs, encodings and page types, for tables.

Source of the full names: the enums and ``LogicalType`` in ``parquet.thrift``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from intarsia.parquet.metadata import (
    ColumnMetaData,
    CompressionCodec,
    ConvertedType,
    Encoding,
    LogicalType,
    PageType,
    SchemaElement,
    TimeType,
    Type,
)
from intarsia.parquet.schema import Leaf
from intarsia.parquet.value_display import name_of

_ENCODINGS = {
    "PLAIN_DICTIONARY": "DICT",
    "RLE_DICTIONARY": "DICT",
    "DELTA_BINARY_PACKED": "DELTA",
    "DELTA_LENGTH_BYTE_ARRAY": "DELTA_LENGTH",
    "DELTA_BYTE_ARRAY": "DELTA_BYTES",
    "BYTE_STREAM_SPLIT": "SPLIT",
}
_PAGE_TYPES = {
    "DATA_PAGE": "V1",
    "DATA_PAGE_V2": "V2",
    "DICTIONARY_PAGE": "DICT",
    "INDEX_PAGE": "INDEX",
}
_CONVERTED = {
    "UTF8": "STRING",
    "TIME_MILLIS": "TIME(ms, UTC)",
    "TIME_MICROS": "TIME(us, UTC)",
    "TIMESTAMP_MILLIS": "TIMESTAMP(ms, UTC)",
    "TIMESTAMP_MICROS": "TIMESTAMP(us, UTC)",
}
_LEVEL_ENCODINGS = (Encoding.RLE, Encoding.BIT_PACKED)


def type_name(leaf: Leaf) -> str:
    """Returns the name of a leaf's logical type, or of its physical type if it has none.

    A repeated column gets a ``*``, an optional one a ``?``. Levels anywhere on the column's path
    count, because its rows may then hold several values, or NULL.
    """
    name = _element_type(leaf.element)
    if leaf.max_repetition_level:
        return f"{name}*"
    return f"{name}?" if leaf.max_definition_level else name


def _element_type(element: SchemaElement) -> str:
    if element.logicalType is not None:
        known = _logical_type(element.logicalType)
        if known is not None:
            return known
    if element.converted_type is not None:
        return _converted_type(element)
    name = name_of(Type, element.type)
    if element.type == Type.FIXED_LEN_BYTE_ARRAY:
        return f"FIXED({element.type_length})"
    return name


def _logical_type(logical: LogicalType) -> str | None:
    if logical.DECIMAL is not None:
        return f"DECIMAL({logical.DECIMAL.precision},{logical.DECIMAL.scale})"
    if logical.INTEGER is not None:
        return _integer_type(logical.INTEGER.bitWidth, logical.INTEGER.isSigned)
    for name, time in (("TIME", logical.TIME), ("TIMESTAMP", logical.TIMESTAMP)):
        if time is not None:
            return _time_type(name, time)
    members = (field.name for field in dataclasses.fields(logical) if field.metadata)
    return next((name for name in members if getattr(logical, name) is not None), None)


def _time_type(name: str, time: TimeType) -> str:
    units = {1_000: "ms", 1_000_000: "us", 1_000_000_000: "ns"}
    unit = units.get(time.unit.per_second or 0, "unknown unit")
    return f"{name}({unit}, UTC)" if time.isAdjustedToUTC else f"{name}({unit})"


def _integer_type(bit_width: int, is_signed: bool) -> str:
    return f"INT({bit_width})" if is_signed else f"INT({bit_width}, unsigned)"


def _converted_type(element: SchemaElement) -> str:
    name = name_of(ConvertedType, element.converted_type)
    if name == "DECIMAL":
        return f"DECIMAL({element.precision},{element.scale or 0})"
    if name.startswith(("INT_", "UINT_")):
        return _integer_type(int(name.rpartition("_")[2]), name.startswith("INT"))
    return _CONVERTED.get(name, name)


def codec_name(codec: int) -> str:
    """Returns a codec's name, such as ``SNAPPY``, or ``none`` for an uncompressed chunk."""
    return "none" if codec == CompressionCodec.UNCOMPRESSED else name_of(CompressionCodec, codec)


def encoding_name(name: str) -> str:
    """Returns the short name of an encoding."""
    return _ENCODINGS.get(name, name)


def page_name(name: str) -> str:
    """Returns the short name of a page type."""
    return _PAGE_TYPES.get(name, name)


def value_encodings(chunk: ColumnMetaData) -> list[str]:
    """Returns the short names of the encodings that a chunk's values use.

    Takes the data pages' encodings from ``encoding_stats`` if the footer has them. Otherwise takes
    ``encodings`` without those that are used for levels only.
    """
    data_pages = (PageType.DATA_PAGE, PageType.DATA_PAGE_V2)
    encodings: Iterable[int] = [
        stats.encoding for stats in chunk.encoding_stats or () if stats.page_type in data_pages
    ]
    if not encodings:
        level_only = _LEVEL_ENCODINGS if chunk.type != Type.BOOLEAN else _LEVEL_ENCODINGS[1:]
        encodings = [encoding for encoding in chunk.encodings if encoding not in level_only]
    names = (encoding_name(name_of(Encoding, encoding)) for encoding in sorted(encodings))
    return list(dict.fromkeys(names))
