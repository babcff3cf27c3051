"""What the footers of files by one writer have in common, decoded once for all of them.

::

    FileMetaData   version, schema │ num_rows, row_groups │ key/values, created_by, orders
                   └──── head ────┘                       └──────────── tail ────────────┘

Of a footer whose head and tail, byte for byte, are those of one seen before, only the middle is
decoded. A data set of thousands of files has a few such shapes.
"""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, Hashable, Sequence
from typing import Any, TypeVar

from intarsia.errors import FormatError
from intarsia.format.compact import LIST, Decoder, field_header
from intarsia.format.metadata import FileMetaData, RowGroup
from intarsia.format.thrift import decode, read_structs, remember_encoded

T = TypeVar("T")

_SCHEMA, _NUM_ROWS, _ROW_GROUPS = 2, 3, 4
_I64 = 6
_LONGEST = 1 << 20
_KEPT = 16


class Shape:
    """The head and tail of a footer; ``kept`` facts follow from these alone, and are shared."""

    def __init__(
        self, head: bytes = b"", tail: bytes = b"", common: FileMetaData | None = None
    ) -> None:
        self.head, self.tail, self._common = head, tail, common
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
        if common is None or not (raw.startswith(self.head) and raw.endswith(self.tail)):
            return None
        try:
            middle = self._middle(raw)
        except FormatError:
            return None
        if middle is None:
            return None
        num_rows, groups = middle
        made = FileMetaData(
            version=common.version,
            schema=common.schema,
            num_rows=num_rows,
            row_groups=groups,
            key_value_metadata=common.key_value_metadata,
            created_by=common.created_by,
            column_orders=common.column_orders,
            encryption_algorithm=common.encryption_algorithm,
            footer_signing_key_metadata=common.footer_signing_key_metadata,
        )
        remember_encoded(made, raw)
        return made

    def _middle(self, raw: bytes) -> tuple[int, Sequence[RowGroup]] | None:
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
        return (num_rows, groups) if at == len(raw) - len(self.tail) else None


_lock = threading.Lock()
_shapes: list[Shape] = []


def decode_footer(raw: bytes) -> tuple[FileMetaData, Shape]:
    """The footer and its shape. Raises ``FormatError`` as ``decode`` does."""
    for shape in list(_shapes):
        found = shape.decoded(raw)
        if found is not None:
            return found, shape
    metadata, stop = decode(FileMetaData, raw)
    found_shape = _shape_of(raw, metadata) if stop == len(raw) <= _LONGEST else None
    if found_shape is None:
        return metadata, Shape()
    with _lock:
        _shapes.insert(0, found_shape)
        del _shapes[_KEPT:]
    return metadata, found_shape


def _shape_of(raw: bytes, metadata: FileMetaData) -> Shape | None:
    """None where the fields are not in their order, which no writer does."""
    decoder = Decoder(raw)
    places: dict[int, tuple[int, int]] = {}
    number = at = 0
    while True:
        number, kind, at = field_header(raw, at, number)
        if not kind:
            break
        start, at = at, decoder.stop_of_field(at, kind)
        places[number] = start, at
    if [*places][:4] != [1, _SCHEMA, _NUM_ROWS, _ROW_GROUPS]:
        return None
    head, tail = raw[: places[_SCHEMA][1]], raw[places[_ROW_GROUPS][1] :]
    return Shape(head, tail, dataclasses.replace(metadata, num_rows=0, row_groups=[]))


def _zigzag(data: bytes) -> int:
    unsigned = sum((byte & 0x7F) << 7 * i for i, byte in enumerate(data))
    return (unsigned >> 1) ^ -(unsigned & 1)
