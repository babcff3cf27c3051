"""Thrift's compact protocol as bytes: finding values, moving them whole, putting structs together.

A struct is a list of ``Span``, one a field: its value's bytes, known to anyone or not. Bytes are
gone through by Apache's C extension where they are long, which the ``Decoder`` wraps.
"""

from __future__ import annotations

import functools
from array import array
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from typing import Any, NamedTuple

from thrift.protocol.TCompactProtocol import TCompactProtocolAccelerated
from thrift.Thrift import TType
from thrift.transport.TTransport import TMemoryBuffer

from intarsia.errors import FormatError, Where

_TRUE, _FALSE, _BYTE, _I16, _I32, _I64, _DOUBLE, _BINARY, LIST, _SET, _MAP, STRUCT, _UUID = range(
    1, 14
)
_MAX_DEPTH = 64


class Span(NamedTuple):
    """One field of an encoded struct: its number, its compact type, and its value's bytes."""

    number: int
    kind: int
    value: bytes


class _Protocol(TCompactProtocolAccelerated):  # type: ignore[misc]  # thrift is not typed
    """Where its C extension is missing, text that is not UTF-8 is read as with it."""

    def readString(self) -> str:  # noqa: N802 # the library's name
        return bytes(self.readBinary()).decode("utf-8", "replace")


_IN_C = _Protocol(TMemoryBuffer())
fast_encode: Callable[[Any, Any], bytes] | None = _IN_C._fast_encode
"""The library's C extension, which encodes a value by its class and specification; None where it
is missing."""


class _Given(NamedTuple):
    """What the C extension asks of a protocol: the library's own takes longer to make than that
    takes to decode a page header.
    """

    trans: TMemoryBuffer
    string_length_limit: int
    container_length_limit: int


class _Noted:
    """Counts how often an attribute of it is set."""

    count = 0

    def __setattr__(self, name: str, value: object) -> None:
        self.__dict__["count"] = self.count + 1


class Decoder:
    """Apache's decoder over some bytes, to be used from any offset.

    No container or string may claim more elements or bytes than there are, so allocation is bounded
    by the input.
    """

    def __init__(self, data: bytes) -> None:
        limit = max(len(data), 1)
        transport = TMemoryBuffer(data)
        self.data, self._buffer = data, transport.cstringio_buf
        self._fast = _IN_C._fast_decode
        made: Any = _Protocol if self._fast is None else _Given
        self._protocol = made(transport, limit, limit)

    def read(self, made: Callable[..., Any], spec: tuple[Any, ...], at: int) -> tuple[Any, int]:
        """A ``made`` with the fields of the struct at ``at``, and the offset behind it."""
        self._buffer.seek(at)
        if self._fast is not None:
            value = self._fast(None, self._protocol, [made, spec])
        else:
            value = self._protocol.readStruct(made, spec, True)
        return value, self._buffer.tell()

    def count_fields(self, at: int, number: int) -> int | None:
        """How many fields of the struct at ``at`` are lists of structs of this number.

        None if that is not known.
        """
        if self._fast is None:
            return None
        skipped = TType.STRUCT, [object, ()], False
        spec = (*[None] * number, (number, TType.LIST, "list", skipped, None))
        noted = _Noted()
        self._buffer.seek(at)
        self._fast(noted, self._protocol, [_Noted, spec])
        return noted.count

    def bounds(self, at: int) -> array[int]:
        """Where each element of the list at ``at`` begins; last, where the list ends."""
        size, kind, at = read_list_header(self.data, at)
        if kind == STRUCT:
            return self.bounds_of_structs(at, size)
        bounds = array("q", [at])
        for _ in range(size):
            bounds.append(_skip(self.data, bounds[-1], kind, 2))
        return bounds

    def bounds_of_structs(self, at: int, size: int) -> array[int]:
        """Where each of ``size`` structs begins, the first at ``at``; last, where they end."""
        bounds = array("q", [at])
        if self._fast is None:
            for _ in range(size):
                bounds.append(_skip_struct(self.data, bounds[-1], 1))
            return bounds
        self._buffer.seek(at)
        skip = functools.partial(self._fast, None, self._protocol, [object, ()])
        tell = self._buffer.tell
        try:
            for _ in range(size):
                skip()
                bounds.append(tell())
        except MemoryError:
            raise
        except Exception as error:  # the library raises a dozen kinds on bad bytes
            reason = str(error) or type(error).__name__
            raise FormatError(f"not valid thrift: {reason}", Where(offset=bounds[-1])) from error
        return bounds

    def stop_of_field(self, at: int, kind: int) -> int:
        """The end of a field's value; the library skips lists and structs, which may be long."""
        if kind == STRUCT:
            return self.bounds_of_structs(at, 1)[-1]
        return self.bounds(at)[-1] if kind == LIST else _skip_field(self.data, at, kind, 1)


def spans(data: bytes | memoryview) -> tuple[list[Span], int]:
    """The fields of the struct at the start of ``data``, known or not, and the bytes it takes.

    Raises ``FormatError`` where the bytes end early or nest deeper than 64 levels.
    """
    raw = bytes(data)
    *found, (_, _, _, stop) = places_of_fields(raw)
    return [Span(number, kind, raw[start:stop]) for number, kind, start, stop in found], stop


def field_value(data: bytes, number: int) -> bytes | None:
    """The bytes of one field's value; what follows it is not looked at. None where it is absent."""
    for found, kind, start, stop in places_of_fields(data):
        if kind and found == number:
            return data[start:stop]
    return None


def places_of_fields(data: bytes) -> Iterator[tuple[int, int, int, int]]:
    """``(number, kind, start, stop)`` of each field's value; last ``(0, 0, stop, stop)``.

    As ``_walk`` gives them, with lists, which may be long, skipped by the library.
    """
    decoder = Decoder(data)
    number = at = 0
    while True:
        number, kind, at = field_header(data, at, number)
        if kind == 0:
            yield 0, 0, at, at
            return
        stop = decoder.stop_of_field(at, kind)
        yield number, kind, at, stop
        at = stop


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
    return Span(number, LIST, list_header(len(elements), STRUCT) + b"".join(elements))


def list_elements(data: bytes) -> list[bytes]:
    """The elements of an encoded list of structs, each as its bytes."""
    size, kind, at = read_list_header(data, 0)
    if kind != STRUCT:
        raise FormatError(f"expected a list of structs, found elements of compact type {kind}")
    bounds = Decoder(data).bounds_of_structs(at, size)
    return [data[start:stop] for start, stop in pairwise(bounds)]


def struct_stop(data: bytes, at: int) -> int:
    """The end of the struct at ``at``. Raises ``FormatError`` where it is not whole."""
    return _skip(data, at, STRUCT, 0)


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
        number, kind, at = field_header(data, at, number)
        if kind == 0:
            yield 0, 0, at, at
            return
        stop = _skip_field(data, at, kind, depth + 1)
        yield number, kind, at, stop
        at = stop


def field_header(data: bytes, at: int, number: int) -> tuple[int, int, int]:
    """A field's number and kind, and where its value starts; ``number`` is the one before it."""
    header, at = _byte(data, at), at + 1
    kind, delta = header & 0x0F, header >> 4
    if kind and not delta:
        unsigned, at = read_varint(data, at)
        return (unsigned >> 1) ^ -(unsigned & 1), kind, at
    return number + delta, kind, at


def _skip_field(data: bytes, at: int, kind: int, depth: int) -> int:
    """The end of a field's value; a Boolean's is in the field's header."""
    return at if kind in (_TRUE, _FALSE) else _skip(data, at, kind, depth)


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
    return read_varint(data, at)[1]


def _skip_binary(data: bytes, at: int, depth: int) -> int:
    size, at = read_varint(data, at)
    return at + size


def _skip_list(data: bytes, at: int, depth: int) -> int:
    size, kind, at = read_list_header(data, at)
    for _ in range(size):
        at = _skip(data, at, kind, depth + 1)
    return at


def _skip_map(data: bytes, at: int, depth: int) -> int:
    size, at = read_varint(data, at)
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
    LIST: _skip_list,
    _SET: _skip_list,
    _MAP: _skip_map,
    STRUCT: _skip_struct,
    _UUID: lambda data, at, depth: at + 16,
}


def read_list_header(data: bytes, at: int) -> tuple[int, int, int]:
    """A list's size and the type of its elements, and where these start."""
    header, at = _byte(data, at), at + 1
    size, kind = header >> 4, header & 0x0F
    if size == 15:
        size, at = read_varint(data, at)
    if size > len(data) - at:
        raise FormatError(f"a list claims {size:,} elements", Where(offset=at))
    return size, kind, at


def _byte(data: bytes, at: int) -> int:
    if at >= len(data):
        raise FormatError("thrift data ends early", Where(offset=at))
    return data[at]


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    """The unsigned integer at ``at``, and the offset behind it."""
    value = shift = 0
    while True:
        byte, at = _byte(data, at), at + 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
        if shift > 63:
            raise FormatError("a varint is longer than 64 bits", Where(offset=at))
