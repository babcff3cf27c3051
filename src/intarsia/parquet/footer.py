"""Finding, checking and extending the footer of a Parquet file.

A file ends in ``<FileMetaData> <4-byte little-endian length> PAR1``. An edited footer keeps every
byte of the fields it does not replace, known to this version or not.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from intarsia.errors import FormatError, UnsupportedError, Where
from intarsia.io.source import HeldSource, Source
from intarsia.limits import MAX_FOOTER_BYTES, check_claim
from intarsia.parquet.column_order import order_of
from intarsia.parquet.compact_protocol import list_elements, list_span, replace_fields, spans
from intarsia.parquet.footer_cache import Shape, decode_footer
from intarsia.parquet.metadata import (
    BoundChunk,
    ColumnChunk,
    ColumnOrder,
    Empty,
    FileMetaData,
    KeyValue,
    RowGroup,
)
from intarsia.parquet.statistics import believed
from intarsia.parquet.thrift import all_as, amended, amended_bytes, decode, encode, encoded_elements

MAGIC = b"PAR1"
_ENCRYPTED_MAGIC = b"PARE"
_DRAFT_MAGIC = b"RED1"
TRAILER_BYTES = 8
TAIL_BYTES = 64 * 1024
"""How much of a file's end is read at once in the hope that it holds the whole footer."""

_KEY_VALUE_METADATA = 5
_ENCRYPTION_ALGORITHM = 8


@dataclass(frozen=True, slots=True)
class Footer:
    """A decoded footer, its bytes, and a source that still holds the file's tail in memory."""

    metadata: FileMetaData
    raw: bytes
    offset: int
    """Where the metadata starts, in bytes from the start of the file."""
    source: HeldSource
    shape: Shape


def read_footer(source: Source, tail_bytes: int = TAIL_BYTES) -> Footer:
    """Read and decode the footer in one request, two where it is longer than ``tail_bytes``.

    Raises ``FormatError`` for what is not a whole Parquet file, ``UnsupportedError`` for an
    encrypted footer or the magic of the format's first draft.
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
    held = HeldSource(source, size - tail.nbytes, tail)
    return Footer(metadata, raw, offset, held, shape)


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
    if any(group.num_rows < 0 for group in metadata.row_groups):
        raise FormatError("a negative number of rows", Where(offset=offset))


def check_editable(raw: bytes) -> None:
    """Raise ``UnsupportedError`` for a footer that an edit would make unreadable.

    A signed plaintext footer (``encryption_algorithm`` is set) is followed by a signature over the
    very bytes an edit would change.
    """
    if any(span.number == _ENCRYPTION_ALGORITHM for span in spans(raw)[0]):
        raise UnsupportedError("the footer is signed; changing the file would break its signature")


def with_key_values(raw: bytes, entries: Mapping[str, str | None]) -> bytes:
    """The footer ``raw`` with key/value entries set, or removed where the value is None.

    Every other field, and every other entry, keeps its bytes.
    """
    check_editable(raw)
    fields, _ = spans(raw)
    current = next((span for span in fields if span.number == _KEY_VALUE_METADATA), None)
    kept = [
        element
        for element in (list_elements(current.value) if current else ())
        if decode(KeyValue, element)[0].key not in entries
    ]
    added = [
        encode(KeyValue(key=key, value=value))
        for key, value in entries.items()
        if value is not None
    ]
    if not kept and not added:
        return replace_fields([s for s in fields if s.number != _KEY_VALUE_METADATA], [])
    return replace_fields(fields, [list_span(_KEY_VALUE_METADATA, kept + added)])


def with_chunks(raw: bytes, changes: Mapping[tuple[int, int], Mapping[str, Any]]) -> bytes:
    """The footer ``raw`` with fields of chunks, by row group and column, set as in ``amended``.

    Every other field keeps its bytes. Raises ``FormatError`` for a chunk that is no struct.
    """
    check_editable(raw)
    groups = decode(FileMetaData, raw)[0].row_groups
    encoded = encoded_elements(groups)
    touched: dict[int, list[bytes]] = {}
    for (group, column), fields in changes.items():
        if group not in touched:
            touched[group] = encoded_elements(groups[group].columns)
        columns = touched[group]
        columns[column] = amended_bytes(ColumnChunk, columns[column], fields)
    for group, columns in touched.items():
        encoded[group] = amended_bytes(RowGroup, encoded[group], {"columns": columns})
    return amended_bytes(FileMetaData, raw, {"row_groups": encoded})


def with_elements(raw: bytes, changes: Mapping[int, Mapping[str, Any]]) -> bytes:
    """The footer ``raw`` with fields of the schema's elements, by position, set as in ``amended``.

    Every other field keeps its bytes.
    """
    check_editable(raw)
    metadata, _ = decode(FileMetaData, raw)
    elements = list(metadata.schema)
    for position, fields in changes.items():
        elements[position] = amended(elements[position], **fields)
    return encode(amended(metadata, schema=elements))


def with_column_orders(raw: bytes) -> bytes:
    """The footer ``raw`` with each column's order declared as its type's, where none is declared.

    Left as it is where statistics exist whose order was never declared: they would gain a meaning
    that nobody vouches for. Deprecated bounds that are believed without an order are stated under
    both names: readers that find an order look for the new ones only.
    """
    metadata, _ = decode(FileMetaData, raw)
    if metadata.column_orders is not None:
        return raw
    leaves = [element for element in metadata.schema if element.type is not None]
    declared = [ColumnOrder(TYPE_ORDER=Empty())] * len(leaves)
    known = {}
    for number, group in enumerate(metadata.row_groups):
        chunks = all_as(group.columns, BoundChunk)
        for column, (chunk, element) in enumerate(zip(chunks, leaves, strict=True)):
            stats = chunk.meta_data.statistics if chunk.meta_data else None
            if stats is None:
                continue
            if stats.min_value is not None or stats.max_value is not None:
                return raw
            low, high = believed(stats, order_of(element))
            if low is not None:
                bounds = {"min_value": low, "max_value": high}
                known[number, column] = {"meta_data": {"statistics": bounds}}
    return with_chunks(encode(amended(metadata, column_orders=declared)), known)


def framed(raw: bytes) -> bytes:
    """A footer's bytes as they end a file: with their length and the magic."""
    return raw + struct.pack("<I", len(raw)) + MAGIC
