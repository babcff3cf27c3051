"""Reads a footer that was cut short: its schema, and the row groups before the cut.

Fields are in the order of their numbers: version, schema, number of rows, row groups, key/values.

Source: ``FileMetaData`` in ``parquet.thrift``.
"""

from __future__ import annotations

from dataclasses import dataclass

from intarsia.errors import FormatError
from intarsia.parquet.compact_protocol import (
    LIST,
    STRUCT,
    Decoder,
    Span,
    field_header,
    list_span,
    replace_fields,
    struct_stop,
    zigzag,
)

_VERSION, _SCHEMA, _NUM_ROWS, _ROW_GROUPS, _ENCRYPTION_ALGORITHM = 1, 2, 3, 4, 8
_I64 = 6


@dataclass(frozen=True, slots=True)
class PartialFooter:
    """The complete fields of a footer, and the bytes of each complete row group."""

    raw: bytes
    """A valid ``FileMetaData`` with the complete fields, 0 rows and no row groups."""
    row_groups: list[bytes]


def read_partial_footer(data: memoryview) -> PartialFooter | None:
    """Returns the start of a footer; None if it is signed or its schema incomplete."""
    raw = bytes(data)
    decoder = Decoder(raw)
    fields: list[Span] = []
    groups: list[bytes] = []
    at = number = 0
    try:
        while True:
            number, kind, at = field_header(raw, at, number)
            if kind == 0:
                break
            if number == _ROW_GROUPS and kind == LIST:
                size, at = _list_header(raw, at)
                for _ in range(size):
                    stop = struct_stop(raw, at)
                    groups.append(raw[at:stop])
                    at = stop
                continue
            stop = decoder.stop_of_field(at, kind)
            if stop > len(raw):
                break
            fields.append(Span(number, kind, raw[at:stop]))
            at = stop
    except FormatError:
        pass
    numbers = [span.number for span in fields]
    if (
        numbers[:2] != [_VERSION, _SCHEMA]
        or fields[1].kind != LIST
        or _ENCRYPTION_ALGORITHM in numbers
    ):
        return None
    if fields[1].value[:1] and fields[1].value[0] & 0x0F != STRUCT:
        return None
    empty_row_groups = [Span(_NUM_ROWS, _I64, zigzag(0)), list_span(_ROW_GROUPS, [])]
    return PartialFooter(replace_fields(fields, empty_row_groups), groups)


def _list_header(raw: bytes, at: int) -> tuple[int, int]:
    """Returns a list's size, and the offset of its first struct.

    The size may exceed the number of structs that are left. Raises ``FormatError`` if the elements
    are not structs.
    """
    header, at = raw[at : at + 1], at + 1
    if not header or header[0] & 0x0F != STRUCT:
        raise FormatError("no list of structs")
    size, shift = header[0] >> 4, 0
    if size < 15:
        return size, at
    size = 0
    while True:
        if at >= len(raw) or shift > 28:
            raise FormatError("a list's size ends early")
        size |= (raw[at] & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if raw[at - 1] < 0x80:
            return size, at
