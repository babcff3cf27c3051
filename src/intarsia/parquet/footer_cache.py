"""Decodes the repeated parts of similar footers once.

::

    FileMetaData   version, schema │ num_rows, row_groups │ key/values, created_by, orders
                   └──── head ────┘                       └──────────── tail ────────────┘

Files of one schema and writer have the same head and tail. If both match those of an earlier
footer byte for byte, only the middle is decoded. A data set of thousands of files has a few such
layouts. The value of the key ``intarsia`` differs from file to file and is not compared.

Source: ``FileMetaData`` in ``parquet.thrift``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Hashable, Sequence
from typing import Any, NamedTuple, TypeVar

from intarsia.errors import FormatError
from intarsia.parquet.compact_protocol import (
    LIST,
    Decoder,
    field_header,
    places_of_fields,
    read_varint,
    varint,
)
from intarsia.parquet.metadata import FileMetaData, KeyValue, RowGroup
from intarsia.parquet.thrift import decode, read_structs, remember_encoded

T = TypeVar("T")

FOOTER_KEY = "intarsia"
"""The key of the entry that differs in each file.

It holds the position of the file's index directory, or describes an index section.
"""
_SCHEMA, _NUM_ROWS, _ROW_GROUPS = 2, 3, 4
_I64 = 6
_MAX_LAYOUT_BYTES, _MAX_OWN_VALUE_BYTES = 1 << 20, 1 << 16
"""A longer head and tail, or value of ``FOOTER_KEY``, is not remembered, to bound memory."""
_MAX_LAYOUTS = 32
"""Layouts remembered per process; every footer is compared with each of them."""
_BINARY_FIELD = b"\x18"
"""Header of a binary field whose number is one more than that of the field before."""


class Tail(NamedTuple):
    """The bytes after the row groups, without the value of ``FOOTER_KEY``.

    ``before`` precedes that value and ``after`` follows it. Without such an entry, ``after`` is
    all.
    """

    before: bytes
    after: bytes
    own: int | None = None
    """Position of the ``FOOTER_KEY`` entry among the key/values. None if there is none."""


class FooterLayout:
    """Head and tail of a footer, and facts that depend on these. Files share the object."""

    def __init__(
        self,
        head: bytes = b"",
        tail: Tail | None = None,
        common: FileMetaData | None = None,
    ) -> None:
        self.head, self.tail, self._common = head, tail or Tail(b"", b""), common
        self._facts: dict[Hashable, Any] = {}

    def cached(self, key: Hashable, make: Callable[[], T]) -> T:
        """Returns the fact for ``key``, by ``make`` on first use, perhaps in two threads."""
        fact = self._facts.get(key, self)
        if fact is self:
            fact = self._facts[key] = make()
        return fact  # type: ignore[no-any-return]  # what ``make`` gave

    def decoded(self, raw: bytes) -> FileMetaData | None:
        """Returns the decoded footer ``raw``, or None if it is damaged or has another layout."""
        common = self._common
        if common is None or not raw.startswith(self.head):
            return None
        try:
            tail_match = self._tail_of(raw)
            middle = None if tail_match is None else self._middle(raw, tail_match[0])
        except FormatError:
            return None
        if tail_match is None or middle is None:
            return None
        num_rows, groups = middle
        key_values = common.key_value_metadata
        if self.tail.own is not None and key_values is not None:
            key_values = list(key_values)
            key_values[self.tail.own] = KeyValue(key=FOOTER_KEY, value=tail_match[1])
        metadata = FileMetaData(
            version=common.version,
            schema=common.schema,
            num_rows=num_rows,
            row_groups=groups,
            key_value_metadata=key_values,
            created_by=common.created_by,
            column_orders=common.column_orders,
            encryption_algorithm=common.encryption_algorithm,
            footer_signing_key_metadata=common.footer_signing_key_metadata,
        )
        remember_encoded(metadata, raw)
        return metadata

    def _tail_of(self, raw: bytes) -> tuple[int, str] | None:
        """Returns the tail's offset and the value of ``FOOTER_KEY``, None if it differs."""
        before, after, own = self.tail
        if not raw.endswith(after):
            return None
        stop = len(raw) - len(after)
        if own is None:
            return stop, ""
        start = raw.find(before, max(stop - len(before) - _MAX_OWN_VALUE_BYTES, 0), stop)
        if start < 0:
            return None
        length, at = read_varint(raw, start + len(before))
        if at + length != stop:
            return None
        return start, raw[at:stop].decode("utf-8", "replace")

    def _middle(self, raw: bytes, stop: int) -> tuple[int, Sequence[RowGroup]] | None:
        decoder, at = Decoder(raw), len(self.head)
        number, kind, at = field_header(raw, at, _SCHEMA)
        if (number, kind) != (_NUM_ROWS, _I64):
            return None
        start, at = at, decoder.stop_of_field(at, kind)
        num_rows = _zigzag(raw[start:at])
        number, kind, at = field_header(raw, at, number)
        if (number, kind) != (_ROW_GROUPS, LIST):
            return None
        groups, at = read_structs(RowGroup, decoder, at)
        return (num_rows, groups) if at == stop else None


_shapes: tuple[FooterLayout, ...] = ()
"""Layouts seen in this process, the newest first."""


def decode_footer(raw: bytes) -> tuple[FileMetaData, FooterLayout]:
    """Returns the decoded footer and its layout. Raises ``FormatError`` if ``raw`` is invalid."""
    global _shapes
    for shape in _shapes:
        known_metadata = shape.decoded(raw)
        if known_metadata is not None:
            return known_metadata, shape
    metadata, stop = decode(FileMetaData, raw)
    new_shape = _shape_of(raw, metadata) if stop == len(raw) else None
    if new_shape is None:
        return metadata, FooterLayout()
    _shapes = (new_shape, *_shapes[: _MAX_LAYOUTS - 1])  # one assignment, safe with threads
    return metadata, new_shape


def _shape_of(raw: bytes, metadata: FileMetaData) -> FooterLayout | None:
    """Returns a footer's layout. None if it is too long or its fields do not ascend."""
    fields = places_of_fields(raw)
    places = {number: (start, stop) for number, kind, start, stop in fields if kind}
    if [*places][:4] != [1, _SCHEMA, _NUM_ROWS, _ROW_GROUPS]:
        return None
    start, stop = places[_SCHEMA][1], places[_ROW_GROUPS][1]
    if start + len(raw) - stop > _MAX_LAYOUT_BYTES:
        return None
    return FooterLayout(
        raw[:start],
        _tail(raw[stop:], metadata),
        dataclasses.replace(metadata, num_rows=0, row_groups=[]),
    )


def _tail(tail: bytes, metadata: FileMetaData) -> Tail:
    """Returns the tail, split at the value of ``FOOTER_KEY`` if that occurs exactly once."""
    entries = metadata.key_value_metadata or []
    numbers = [number for number, entry in enumerate(entries) if entry.key == FOOTER_KEY]
    if len(numbers) != 1 or (own_value := entries[numbers[0]].value) is None:
        return Tail(b"", tail)
    opening = _BINARY_FIELD + _string(FOOTER_KEY) + _BINARY_FIELD
    value = _string(own_value)
    if tail.count(opening) != 1 or opening + value not in tail or len(value) > _MAX_OWN_VALUE_BYTES:
        return Tail(b"", tail)
    at = tail.index(opening) + len(opening)
    return Tail(tail[:at], tail[at + len(value) :], numbers[0])


def _string(text: str) -> bytes:
    data = text.encode()
    return varint(len(data)) + data


def _zigzag(data: bytes) -> int:
    unsigned = sum((byte & 0x7F) << 7 * i for i, byte in enumerate(data))
    return (unsigned >> 1) ^ -(unsigned & 1)
