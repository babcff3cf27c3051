"""Thrift's compact protocol: typed structures by Apache's ``thrift``, lossless edits by spans.

``decode`` and ``encode`` map frozen dataclasses, declared with ``struct`` and ``field``, through
the C-accelerated compact protocol (its Python twin where the extension is missing). Fields nobody
declared are skipped by ``decode``; what must survive bit for bit goes through ``spans`` and
``replace_fields``, which move whole field values as the bytes they are.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, TypeVar, dataclass_transform

from thrift.protocol.TCompactProtocol import TCompactProtocol, TCompactProtocolAccelerated
from thrift.Thrift import TType
from thrift.transport.TTransport import TMemoryBuffer

from intarsia.errors import FormatError, Where

BOOL, I8, I16, I32, I64, DOUBLE = (
    (TType.BOOL, None),
    (TType.BYTE, None),
    (TType.I16, None),
    (TType.I32, None),
    (TType.I64, None),
    (TType.DOUBLE, None),
)
BINARY = (TType.STRING, "BINARY")
STRING = (TType.STRING, "UTF8")

T = TypeVar("T")


def list_of(element: Any) -> tuple[int, Any]:
    """The type of a list of ``element``: one of the constants above, or a struct class."""
    kind, arguments = _spelled(element)
    return TType.LIST, (kind, arguments, False)


def field(number: int, kind: Any, *, required: bool = False) -> Any:
    """Declare field ``number`` of a struct. An optional field that is absent is ``None``."""
    metadata = {"number": number, "kind": kind}
    if required:
        return dataclasses.field(metadata=metadata)
    return dataclasses.field(default=None, metadata=metadata)


@dataclass_transform(frozen_default=True, kw_only_default=True)
def struct(cls: type[T]) -> type[T]:
    """Make ``cls`` a frozen dataclass that ``decode`` and ``encode`` understand."""
    made = dataclasses.dataclass(frozen=True, slots=True, kw_only=True)(cls)
    declared = {f.metadata["number"]: f for f in _fields_of(made)}
    spec: list[Any] = [None] * (max(declared, default=0) + 1)
    for number, f in declared.items():
        kind, arguments = _spelled(f.metadata["kind"])
        spec[number] = (number, kind, f.name, arguments, None)
    made.thrift_spec = tuple(spec)  # type: ignore[attr-defined]  # read by the thrift library
    return made


def _spelled(kind: Any) -> tuple[int, Any]:
    if isinstance(kind, type):
        return TType.STRUCT, [kind, _spec_of(kind)]
    number, arguments = kind
    return number, arguments


def _fields_of(made: Any) -> tuple[dataclasses.Field[Any], ...]:
    return dataclasses.fields(made)


def _spec_of(cls: Any) -> tuple[Any, ...]:
    """What the thrift library reads and writes a struct by."""
    spec: tuple[Any, ...] = cls.thrift_spec
    return spec


def decode(cls: type[T], data: bytes | memoryview) -> tuple[T, int]:
    """The struct at the start of ``data`` and the number of bytes it takes.

    Raises ``FormatError`` where the bytes are not that struct. No container or string may claim
    more elements or bytes than ``data`` has, so allocation is bounded by the input.
    """
    transport = TMemoryBuffer(bytes(data))
    limit = max(len(data), 1)
    protocol = TCompactProtocolAccelerated(
        transport, string_length_limit=limit, container_length_limit=limit
    )
    spec = _spec_of(cls)
    try:
        if protocol._fast_decode is not None:
            value = protocol._fast_decode(None, protocol, [cls, spec])
        else:
            value = protocol.readStruct(cls, spec, True)
    except Exception as error:  # the library raises a dozen kinds on bad bytes
        reason = str(error) or type(error).__name__
        raise FormatError(f"not a valid {cls.__name__}: {reason}") from error
    return value, transport.cstringio_buf.tell()


def encode(value: Any) -> bytes:
    """The bytes of a struct declared with ``struct``."""
    transport = TMemoryBuffer()
    protocol = TCompactProtocolAccelerated(transport)
    if protocol._fast_encode is not None:
        return bytes(protocol._fast_encode(value, [type(value), value.thrift_spec]))
    TCompactProtocol(transport).writeStruct(value, value.thrift_spec)
    return bytes(transport.getvalue())


# --- lossless edits -----------------------------------------------------------------------------

_TRUE, _FALSE, _BYTE, _I16, _I32, _I64, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT, _UUID = range(
    1, 14
)
_MAX_DEPTH = 64


class Span(NamedTuple):
    """One field of an encoded struct: its number, its compact type, and its value's bytes."""

    number: int
    kind: int
    value: bytes


def spans(data: bytes | memoryview) -> tuple[list[Span], int]:
    """The fields of the struct at the start of ``data``, known or not, and the bytes it takes.

    Raises ``FormatError`` where the bytes end early or nest deeper than 64 levels.
    """
    raw = bytes(data)
    found: list[Span] = []
    for number, kind, start, stop in _walk(raw, 0, 0):
        if kind == 0:
            return found, stop
        found.append(Span(number, kind, raw[start:stop]))
    raise AssertionError("a walk ends with the struct's stop byte")


def field_value(data: bytes, number: int) -> bytes | None:
    """The bytes of one field's value; what follows it is not looked at. None where it is absent."""
    for found, kind, start, stop in _walk(data, 0, 0):
        if kind and found == number:
            return data[start:stop]
    return None


def string_span(number: int, text: str) -> Span:
    """A field that is a string."""
    data = text.encode()
    return Span(number, _BINARY, varint(len(data)) + data)


def replace_fields(fields: Iterable[Span], new: Iterable[Span]) -> bytes:
    """The struct of ``fields`` with those of ``new`` replacing their namesakes, or added.

    Fields that are not replaced keep their bytes and their order.
    """
    replacing = {span.number: span for span in new}
    merged = [span for span in fields if span.number not in replacing]
    for span in replacing.values():
        later = (i for i, other in enumerate(merged) if other.number > span.number)
        merged.insert(next(later, len(merged)), span)
    out = bytearray()
    last = 0
    for span in merged:
        delta = span.number - last
        if 0 < delta < 16:
            out.append(delta << 4 | span.kind)
        else:
            out.append(span.kind)
            out += zigzag(span.number)
        out += span.value
        last = span.number
    out.append(0)
    return bytes(out)


def list_span(number: int, elements: list[bytes]) -> Span:
    """A field that is a list of already encoded structs."""
    return Span(number, _LIST, list_header(len(elements), _STRUCT) + b"".join(elements))


def list_elements(data: bytes) -> list[bytes]:
    """The elements of an encoded list of structs, each as its bytes."""
    size, kind, at = _list_header(data, 0)
    if kind != _STRUCT:
        raise FormatError(f"expected a list of structs, found elements of compact type {kind}")
    elements = []
    for _ in range(size):
        stop = _skip(data, at, _STRUCT, 0)
        elements.append(data[at:stop])
        at = stop
    return elements


def list_header(size: int, kind: int) -> bytes:
    """The bytes that open a list of ``size`` elements of compact type ``kind``."""
    return bytes([size << 4 | kind]) if size < 15 else bytes([0xF0 | kind]) + varint(size)


def varint(value: int) -> bytes:
    """ULEB128 of a non-negative integer."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def zigzag(value: int) -> bytes:
    """A signed integer as compact thrift writes it."""
    return varint(value << 1 if value >= 0 else (-value << 1) - 1)


def _walk(data: bytes, at: int, depth: int) -> Iterable[tuple[int, int, int, int]]:
    """``(number, kind, start, stop)`` of each field's value; last ``(0, 0, stop, stop)``."""
    number = 0
    while True:
        header, at = _byte(data, at), at + 1
        kind, delta = header & 0x0F, header >> 4
        if kind == 0:
            yield 0, 0, at, at
            return
        if delta:
            number += delta
        else:
            unsigned, at = _varint(data, at)
            number = (unsigned >> 1) ^ -(unsigned & 1)
        stop = at if kind in (_TRUE, _FALSE) else _skip(data, at, kind, depth + 1)
        yield number, kind, at, stop
        at = stop


def _skip(data: bytes, at: int, kind: int, depth: int) -> int:
    """The end of the value of type ``kind`` that starts at ``at``."""
    if depth > _MAX_DEPTH:
        raise FormatError(f"thrift nested deeper than {_MAX_DEPTH} levels", Where(offset=at))
    skip = _SKIPS.get(kind)
    if skip is None:
        raise FormatError(f"unknown compact thrift type {kind}", Where(offset=at))
    stop = skip(data, at, depth)
    if stop > len(data):
        raise FormatError("thrift data ends early", Where(offset=at))
    return stop


def _skip_varint(data: bytes, at: int, depth: int) -> int:
    return _varint(data, at)[1]


def _skip_binary(data: bytes, at: int, depth: int) -> int:
    size, at = _varint(data, at)
    return at + size


def _skip_list(data: bytes, at: int, depth: int) -> int:
    size, kind, at = _list_header(data, at)
    for _ in range(size):
        at = _skip(data, at, kind, depth + 1)
    return at


def _skip_map(data: bytes, at: int, depth: int) -> int:
    size, at = _varint(data, at)
    if not size:
        return at
    kinds, at = _byte(data, at), at + 1
    for _ in range(size):
        at = _skip(data, at, kinds >> 4, depth + 1)
        at = _skip(data, at, kinds & 0x0F, depth + 1)
    return at


def _skip_struct(data: bytes, at: int, depth: int) -> int:
    *_, (_, _, _, stop) = _walk(data, at, depth)
    return stop


_SKIPS: dict[int, Callable[[bytes, int, int], int]] = {
    _TRUE: lambda data, at, depth: at + 1,
    _FALSE: lambda data, at, depth: at + 1,
    _BYTE: lambda data, at, depth: at + 1,
    _I16: _skip_varint,
    _I32: _skip_varint,
    _I64: _skip_varint,
    _DOUBLE: lambda data, at, depth: at + 8,
    _BINARY: _skip_binary,
    _LIST: _skip_list,
    _SET: _skip_list,
    _MAP: _skip_map,
    _STRUCT: _skip_struct,
    _UUID: lambda data, at, depth: at + 16,
}


def _list_header(data: bytes, at: int) -> tuple[int, int, int]:
    header, at = _byte(data, at), at + 1
    size, kind = header >> 4, header & 0x0F
    if size == 15:
        size, at = _varint(data, at)
    if size > len(data) - at:
        raise FormatError(f"a list claims {size:,} elements", Where(offset=at))
    return size, kind, at


def _byte(data: bytes, at: int) -> int:
    if at >= len(data):
        raise FormatError("thrift data ends early", Where(offset=at))
    return data[at]


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte, at = _byte(data, at), at + 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
        if shift > 63:
            raise FormatError("a varint is longer than 64 bits", Where(offset=at))
