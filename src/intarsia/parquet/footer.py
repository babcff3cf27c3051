"""Reading, checking and editing the footer of a Parquet file.

A file ends in ``<FileMetaData> <4-byte little-endian length> PAR1``. An edited footer keeps every
byte of the fields that are not replaced, including unknown fields.

Source: section "File format" of the Parquet specification, and ``FileMetaData`` in
``parquet.thrift``.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from intarsia.errors import FormatError, UnsupportedError, Where
from intarsia.io.source import CachedRangeSource, Source
from intarsia.limits import MAX_FOOTER_BYTES, check_claim
from intarsia.parquet.column_order import order_of
from intarsia.parquet.compact_protocol import list_elements, list_span, replace_fields, spans
from intarsia.parquet.footer_cache import FooterLayout, decode_footer
from intarsia.parquet.metadata import (
    BoundChunk,
    ColumnChunk,
    ColumnOrder,
    Empty,
    FileMetaData,
    KeyValue,
    RowGroup,
)
from intarsia.parquet.statistics import usable_bounds
from intarsia.parquet.thrift import all_as, amended, amended_bytes, decode, encode, encoded_elements

MAGIC = b"PAR1"
_ENCRYPTED_MAGIC = b"PARE"
_DRAFT_MAGIC = b"RED1"
TRAILER_BYTES = 8
"""Length of the metadata (4 bytes) and the magic (4 bytes)."""
TAIL_BYTES = 64 * 1024
"""Bytes read from a file's end in the first request. Most footers fit into them."""

_KEY_VALUE_METADATA = 5
_ENCRYPTION_ALGORITHM = 8
"""Field numbers in ``FileMetaData``."""


@dataclass(frozen=True, slots=True)
class Footer:
    """A decoded footer and its bytes."""

    metadata: FileMetaData
    raw: bytes
    """The encoded ``FileMetaData``, without the trailer."""
    offset: int
    """Start of the metadata, in bytes from the start of the file."""
    source: CachedRangeSource
    """The file, with the tail that was read kept in memory."""
    shape: FooterLayout
    """The layout that this footer shares with other files of the same schema and writer."""


def read_footer(source: Source, tail_bytes: int = TAIL_BYTES) -> Footer:
    """Reads and decodes the footer, with one request if it fits into ``tail_bytes``, else two.

    Raises ``FormatError`` if the file is not a complete Parquet file. Raises ``UnsupportedError``
    if the footer is encrypted or the file uses the format's first draft (``RED1``).
    """
    size = source.size
    if size < len(MAGIC) + TRAILER_BYTES:
        raise FormatError(f"{size} bytes are too few for a Parquet file")
    tail = source.read([(size - min(size, tail_bytes), min(size, tail_bytes))])[0]
    length, magic = struct.unpack("<I4s", tail[-TRAILER_BYTES:])
    _check_magic(magic, size)
    offset = size - TRAILER_BYTES - length
    if offset < 0:
        raise FormatError(
            f"the footer claims {length:,} bytes of a file of {size:,}", Where(offset=size - 8)
        )
    try:
        check_claim("the footer", length, MAX_FOOTER_BYTES)
    except FormatError as error:
        raise error.at(Where(offset=size - 8)) from error
    if length + TRAILER_BYTES > tail.nbytes:
        tail = source.read([(offset, length + TRAILER_BYTES)])[0]
    raw = bytes(tail[-(length + TRAILER_BYTES) : -TRAILER_BYTES])
    try:
        metadata, shape = decode_footer(raw)
    except FormatError as error:
        raise error.at(Where(offset=offset)) from error
    _check_counts(metadata, offset)
    source_with_tail = CachedRangeSource(source, size - tail.nbytes, tail)
    return Footer(metadata, raw, offset, source_with_tail, shape)


def _check_magic(magic: bytes, size: int) -> None:
    if magic == MAGIC:
        return
    where = Where(offset=size - len(MAGIC))
    if magic == _ENCRYPTED_MAGIC:
        raise UnsupportedError("the footer is encrypted; it cannot be read without its key", where)
    if magic == _DRAFT_MAGIC:
        raise UnsupportedError("this is the format's first draft (RED1), never released", where)
    raise FormatError(
        f"not a Parquet file, or one that was cut short: it ends in {magic!r}, not b'PAR1'", where
    )


def _check_counts(metadata: FileMetaData, offset: int) -> None:
    if min([group.num_rows for group in metadata.row_groups], default=0) < 0:
        raise FormatError("a negative number of rows", Where(offset=offset))


def check_editable(raw: bytes) -> None:
    """Raises ``UnsupportedError`` if an edit would make the footer unreadable.

    A signed plaintext footer (``encryption_algorithm`` is set) carries a signature over its own
    bytes, which an edit would invalidate. Source: section "Plaintext footer mode" of
    ``Encryption.md``.
    """
    if any(span.number == _ENCRYPTION_ALGORITHM for span in spans(raw)[0]):
        raise UnsupportedError("the footer is signed; changing the file would break its signature")


def with_key_values(raw: bytes, entries: Mapping[str, str | None]) -> bytes:
    """Returns the footer ``raw`` with key/value entries set, or removed if their value is None.

    All other fields and entries keep their bytes. Raises ``UnsupportedError`` if the footer is
    signed.
    """
    check_editable(raw)
    fields, _ = spans(raw)
    current = next((span for span in fields if span.number == _KEY_VALUE_METADATA), None)
    unchanged = [
        element
        for element in (list_elements(current.value) if current else ())
        if decode(KeyValue, element)[0].key not in entries
    ]
    added = [
        encode(KeyValue(key=key, value=value))
        for key, value in entries.items()
        if value is not None
    ]
    if not unchanged and not added:
        return replace_fields(
            [field for field in fields if field.number != _KEY_VALUE_METADATA], []
        )
    return replace_fields(fields, [list_span(_KEY_VALUE_METADATA, unchanged + added)])


def with_chunks(raw: bytes, changes: Mapping[tuple[int, int], Mapping[str, Any]]) -> bytes:
    """Returns the footer ``raw`` with fields of column chunks set, as by ``amended``.

    ``changes`` maps (row group, column) to field names and values. All other fields keep their
    bytes. Raises ``FormatError`` if a chunk is not a struct, ``UnsupportedError`` if the footer is
    signed.
    """
    check_editable(raw)
    groups = decode(FileMetaData, raw)[0].row_groups
    encoded_groups = encoded_elements(groups)
    columns_by_group: dict[int, list[bytes]] = {}
    for (group, column), fields in changes.items():
        if group not in columns_by_group:
            columns_by_group[group] = encoded_elements(groups[group].columns)
        columns = columns_by_group[group]
        columns[column] = amended_bytes(ColumnChunk, columns[column], fields)
    for group, columns in columns_by_group.items():
        encoded_groups[group] = amended_bytes(RowGroup, encoded_groups[group], {"columns": columns})
    return amended_bytes(FileMetaData, raw, {"row_groups": encoded_groups})


def with_elements(raw: bytes, changes: Mapping[int, Mapping[str, Any]]) -> bytes:
    """Returns the footer ``raw`` with fields of schema elements set, as by ``amended``.

    ``changes`` maps the positions of schema elements to field names and values. All other fields
    keep their bytes. Raises ``UnsupportedError`` if the footer is signed.
    """
    check_editable(raw)
    metadata, _ = decode(FileMetaData, raw)
    elements = list(metadata.schema)
    for position, fields in changes.items():
        elements[position] = amended(elements[position], **fields)
    return encode(amended(metadata, schema=elements))


def with_column_orders(raw: bytes) -> bytes:
    """Returns the footer ``raw`` with TYPE_ORDER declared for each column, if no order is declared.

    Returns ``raw`` unchanged if a chunk has ``min_value`` or ``max_value`` without a declared
    order. Declaring one would give these bounds a meaning that their writer did not state.

    Copies deprecated ``min`` and ``max`` that are usable without an order to ``min_value`` and
    ``max_value``. Readers that see a declared order ignore the deprecated fields.

    Source: ``ColumnOrder`` and ``Statistics`` in ``parquet.thrift``.
    """
    metadata, _ = decode(FileMetaData, raw)
    if metadata.column_orders is not None:
        return raw
    leaves = [element for element in metadata.schema if element.type is not None]
    orders = [ColumnOrder(TYPE_ORDER=Empty())] * len(leaves)
    changes = {}
    for group_number, group in enumerate(metadata.row_groups):
        chunks = all_as(group.columns, BoundChunk)
        for column, (chunk, element) in enumerate(zip(chunks, leaves, strict=True)):
            stats = chunk.meta_data.statistics if chunk.meta_data else None
            if stats is None:
                continue
            if stats.min_value is not None or stats.max_value is not None:
                return raw
            low, high = usable_bounds(stats, order_of(element))
            if low is not None:
                bounds = {"min_value": low, "max_value": high}
                changes[group_number, column] = {"meta_data": {"statistics": bounds}}
    return with_chunks(encode(amended(metadata, column_orders=orders)), changes)


def framed(raw: bytes) -> bytes:
    """Returns the footer ``raw`` followed by its length and the magic, as a file ends."""
    return raw + struct.pack("<I", len(raw)) + MAGIC
