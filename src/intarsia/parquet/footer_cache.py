"""What the footers of files by one writer have in common, decoded once for all of them.

::

    FileMetaData   version, schema │ num_rows, row_groups │ key/values, created_by, orders
                   └──── head ────┘                       └──────────── tail ────────────┘

Of a footer whose head and tail, byte for byte, are those of one seen before, only the middle is
decoded. A data set of thousands of files has a few such shapes. The value of the key ``intarsia``,
which is another one in every file, may differ.
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

OWN_KEY = "intarsia"
"""The key whose value tells of one file only: where its directory is, or what a section is of."""
_SCHEMA, _NUM_ROWS, _ROW_GROUPS = 2, 3, 4
_I64 = 6
_LONGEST, _LONGEST_VALUE = 1 << 20, 1 << 16
_KEPT = 32
_BINARY_FIELD = b"\x18"
"""What opens a field of bytes that is one on from the field before."""


class Tail(NamedTuple):
    """What follows the row groups: ``before`` and ``after`` the value of the ``own`` entry.

    All of it is ``after`` where there is no such entry.
    """

    before: bytes
    after: bytes
    own: int | None = None
    """The entry's number among the key/values."""


class Shape:
    """The head and tail of a footer; ``kept`` facts follow from these alone, and are shared."""

    def __init__(
        self,
        head: bytes = b"",
        tail: Tail | None = None,
        common: FileMetaData | None = None,
    ) -> None:
        self.head, self.tail, self._common = head, tail or Tail(b"", b""), common
        self._facts: dict[Hashable, Any] = {}

    def kept(self, key: Hashable, make: Callable[[], T]) -> T:
        """The fact of that key, made when first asked for; at worst made twice."""
        found = self._facts.get(key, self)
        if found is self:
            found = self._facts[key] = make()
        return found  # type: ignore[no-any-return]  # what ``make`` gave

    def decoded(self, raw: bytes) -> FileMetaData | None:
        """The footer ``raw``; None where it is of another shape, or damaged."""
        common = self._common
        if common is None or not raw.startswith(self.head):
            return None
        try:
            found = self._tail_of(raw)
            middle = None if found is None else self._middle(raw, found[0])
        except FormatError:
            return None
        if found is None or middle is None:
            return None
        num_rows, groups = middle
        key_values = common.key_value_metadata
        if self.tail.own is not None and key_values is not None:
            key_values = list(key_values)
            key_values[self.tail.own] = KeyValue(key=OWN_KEY, value=found[1])
        made = FileMetaData(
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
        remember_encoded(made, raw)
        return made

    def _tail_of(self, raw: bytes) -> tuple[int, str] | None:
        """Where the tail of ``raw`` begins, and its own value; None where it has another one."""
        before, after, own = self.tail
        if not raw.endswith(after):
            return None
        stop = len(raw) - len(after)
        if own is None:
            return stop, ""
        start = raw.find(before, max(stop - len(before) - _LONGEST_VALUE, 0), stop)
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


_shapes: tuple[Shape, ...] = ()


def decode_footer(raw: bytes) -> tuple[FileMetaData, Shape]:
    """The footer and its shape. Raises ``FormatError`` as ``decode`` does."""
    global _shapes
    for shape in _shapes:
        found = shape.decoded(raw)
        if found is not None:
            return found, shape
    metadata, stop = decode(FileMetaData, raw)
    found_shape = _shape_of(raw, metadata) if stop == len(raw) else None
    if found_shape is None:
        return metadata, Shape()
    _shapes = (found_shape, *_shapes[: _KEPT - 1])  # at once: threads may be at it
    return metadata, found_shape


def _shape_of(raw: bytes, metadata: FileMetaData) -> Shape | None:
    """None where it is long, or the fields are not in their order, which no writer does."""
    found = places_of_fields(raw)
    places = {number: (start, stop) for number, kind, start, stop in found if kind}
    if [*places][:4] != [1, _SCHEMA, _NUM_ROWS, _ROW_GROUPS]:
        return None
    start, stop = places[_SCHEMA][1], places[_ROW_GROUPS][1]
    if start + len(raw) - stop > _LONGEST:
        return None
    return Shape(
        raw[:start],
        _tail(raw[stop:], metadata),
        dataclasses.replace(metadata, num_rows=0, row_groups=[]),
    )


def _tail(tail: bytes, metadata: FileMetaData) -> Tail:
    """The tail divided at the own value, where there is just one, and nothing like it besides."""
    entries = metadata.key_value_metadata or []
    numbers = [number for number, entry in enumerate(entries) if entry.key == OWN_KEY]
    if len(numbers) != 1 or (text := entries[numbers[0]].value) is None:
        return Tail(b"", tail)
    opening = _BINARY_FIELD + _string(OWN_KEY) + _BINARY_FIELD
    value = _string(text)
    if tail.count(opening) != 1 or opening + value not in tail or len(value) > _LONGEST_VALUE:
        return Tail(b"", tail)
    at = tail.index(opening) + len(opening)
    return Tail(tail[:at], tail[at + len(value) :], numbers[0])


def _string(text: str) -> bytes:
    data = text.encode()
    return varint(len(data)) + data


def _zigzag(data: bytes) -> int:
    unsigned = sum((byte & 0x7F) << 7 * i for i, byte in enumerate(data))
    return (unsigned >> 1) ^ -(unsigned & 1)
