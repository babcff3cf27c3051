"""Thrift's compact protocol on raw bytes: finding, copying and joining encoded fields.

A struct is a list of ``Span``, one for each field, whether or not the field is known. ``Decoder``
wraps the C extension of Apache's library, which is used where values may be long.

Source: Thrift's ``thrift-compact-protocol.md``.
"""

from __future__ import annotations

import functools
from array import array
from collections.abc import Callable, Iterable, Iterator
from io import BytesIO
from itertools import pairwise
from types import SimpleNamespace
from typing import Any, NamedTuple

from thrift.protocol.TCompactProtocol import TCompactProtocolAccelerated
from thrift.Thrift import TType
from thrift.transport.TTransport import TMemoryBuffer

from intarsia.errors import FormatError, Where

_TRUE, _FALSE, _BYTE, _I16, _I32, _I64, _DOUBLE, _BINARY, LIST, _SET, _MAP, STRUCT, _UUID = range(
    1, 14
)
_MAX_DEPTH = 64
"""Levels of nested structs and containers that are skipped before an error is raised."""


class Span(NamedTuple):
    """One field of an encoded struct: its number, its compact type, and the bytes of its value."""

    number: int
    kind: int
    value: bytes


class _Protocol(TCompactProtocolAccelerated):  # type: ignore[misc]  # thrift is not typed
    """The library's protocol. Replaces invalid UTF-8 in strings, as the C extension does."""

    def readString(self) -> str:  # noqa: N802 # the library's name
        return bytes(self.readBinary()).decode("utf-8", "replace")


_IN_C = _Protocol(TMemoryBuffer())
fast_encode: Callable[[Any, Any], bytes] | None = _IN_C._fast_encode
"""Encodes a value by its class and specification, in C. None if the C extension is missing."""


def _no_bytes(*_: object) -> None:
    """Raises ``EOFError``. The C extension calls it at the end of the data."""
    raise EOFError


class _AssignmentCounter:
    """An object that counts how often its attributes are set."""

    count = 0

    def __setattr__(self, name: str, value: object) -> None:
        self.__dict__["count"] = self.count + 1


class Decoder:
    """The library's decoder over some bytes, usable from any offset.

    A container or string that claims more elements or bytes than ``data`` holds is refused, so the
    input bounds the memory that is allocated.
    """

    def __init__(self, data: bytes) -> None:
        self._size = len(data)
        limit = max(self._size, 1)
        self.data, self._fast = data, _IN_C._fast_decode
        transport: Any
        if self._fast is None:
            transport = TMemoryBuffer(data)
            self._protocol: Any = _Protocol(transport, limit, limit)
        else:  # the attributes that the C extension reads; the library's objects are slower
            transport = SimpleNamespace(cstringio_buf=BytesIO(data), cstringio_refill=_no_bytes)
            self._protocol = SimpleNamespace(
                trans=transport, string_length_limit=limit, container_length_limit=limit
            )
        self._buffer = transport.cstringio_buf

    def read(self, cls: Callable[..., Any], spec: tuple[Any, ...], at: int) -> tuple[Any, int]:
        """Returns an instance of ``cls`` from the struct at ``at``, and the offset after it."""
        if self._buffer.seek(at) > self._size:  # where the C extension would read other memory
            raise _ends_early(at)
        if self._fast is not None:
            value = self._fast(None, self._protocol, [cls, spec])
        else:
            value = self._protocol.readStruct(cls, spec, True)
        return value, self._buffer.tell()

    def count_fields(self, at: int, number: int) -> int | None:
        """Returns how many fields are lists with this number; None without C extension."""
        if self._fast is None:
            return None
        skipped = TType.STRUCT, [object, ()], False
        spec = (*[None] * number, (number, TType.LIST, "list", skipped, None))
        counter = _AssignmentCounter()
        if self._buffer.seek(at) > self._size:
            raise _ends_early(at)
        self._fast(counter, self._protocol, [_AssignmentCounter, spec])
        return counter.count

    def bounds(self, at: int) -> array[int]:
        """Returns the offset of each element of the list at ``at``, then of the list's end."""
        size, kind, at = read_list_header(self.data, at)
        if kind == STRUCT:
            return self.bounds_of_structs(at, size)
        bounds = array("q", [at])
        for _ in range(size):
            bounds.append(_skip(self.data, bounds[-1], kind, 2))
        return bounds

    def bounds_of_structs(self, at: int, size: int) -> array[int]:
        """Returns the offsets of ``size`` adjacent structs from ``at`` on, and the end."""
        bounds = array("q", [at])
        if self._fast is None:
            for _ in range(size):
                bounds.append(_skip_struct(self.data, bounds[-1], 1))
            return bounds
        if self._buffer.seek(at) > self._size:
            raise _ends_early(at)
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
        """Returns the offset after a field's value, skipped by the C extension if long."""
        if kind == STRUCT:
            return self.bounds_of_structs(at, 1)[-1]
        return self.bounds(at)[-1] if kind == LIST else _skip_field(self.data, at, kind, 1)


def spans(data: bytes | memoryview) -> tuple[list[Span], int]:
    """Returns the fields of the struct at the start of ``data``, and the bytes that it takes.

    Unknown fields are included. Raises ``FormatError`` if the bytes end early or nest deeper than
    64 levels.
    """
    raw = bytes(data)
    *fields, (_, _, _, stop) = places_of_fields(raw)
    return [Span(number, kind, raw[start:stop]) for number, kind, start, stop in fields], stop


def field_value(data: bytes, number: int) -> bytes | None:
    """Returns the bytes of a field's value, or None. Bytes after it are not checked."""
    for field_number, kind, start, stop in places_of_fields(data):
        if kind and field_number == number:
            return data[start:stop]
    return None


def places_of_fields(data: bytes) -> Iterator[tuple[int, int, int, int]]:
    """Yields as ``_walk`` does; the C extension skips lists, which may be long."""
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
    """Returns a field that holds a string."""
    data = text.encode()
    return Span(number, _BINARY, varint(len(data)) + data)


def replace_fields(fields: Iterable[Span], new: Iterable[Span]) -> bytes:
    """Returns a struct's bytes with ``new`` fields replaced or added. Others keep theirs."""
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
    """Returns a field that holds a list of encoded structs."""
    return Span(number, LIST, list_header(len(elements), STRUCT) + b"".join(elements))


def list_elements(data: bytes) -> list[bytes]:
    """Returns the bytes of each struct of a list. Raises ``FormatError`` for other elements."""
    size, kind, at = read_list_header(data, 0)
    if kind != STRUCT:
        raise FormatError(f"expected a list of structs, found elements of compact type {kind}")
    bounds = Decoder(data).bounds_of_structs(at, size)
    return [data[start:stop] for start, stop in pairwise(bounds)]


def struct_stop(data: bytes, at: int) -> int:
    """Returns the offset after the struct at ``at``. Raises ``FormatError`` if it is incomplete."""
    return _skip(data, at, STRUCT, 0)


def list_header(size: int, kind: int) -> bytes:
    """Returns the header of a list of ``size`` elements of compact type ``kind``."""
    return bytes([size << 4 | kind]) if size < 15 else bytes([0xF0 | kind]) + varint(size)


def varint(value: int) -> bytes:
    """Returns a non-negative integer as ULEB128."""
    out = bytearray()
    _append_varint(out, value)
    return bytes(out)


def _append_varint(out: bytearray, value: int) -> None:
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def zigzag(value: int) -> bytes:
    """Returns a signed integer in zigzag encoding, as a varint."""
    return joined((value,))


def joined(parts: Iterable[bytes | int]) -> bytes:
    """Returns ``parts`` joined. Integers are encoded by ``zigzag``."""
    out = bytearray()
    for part in parts:
        if isinstance(part, int):
            _append_varint(out, part << 1 if part >= 0 else (-part << 1) - 1)
        else:
            out += part
    return bytes(out)


def _walk(data: bytes, at: int, depth: int) -> Iterable[tuple[int, int, int, int]]:
    """Yields ``(number, kind, start, stop)`` of each field's value, then ``(0, 0, end, end)``."""
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
    """Returns a field's number and kind, and the offset of its value.

    ``at`` is the offset of the field's header, ``number`` the number of the field before it, or 0.
    """
    header, at = _byte(data, at), at + 1
    kind, delta = header & 0x0F, header >> 4
    if kind and not delta:
        unsigned, at = read_varint(data, at)
        return (unsigned >> 1) ^ -(unsigned & 1), kind, at
    return number + delta, kind, at


def _skip_field(data: bytes, at: int, kind: int, depth: int) -> int:
    """Returns the offset after a field's value. A Boolean's value is in the field's header."""
    return at if kind in (_TRUE, _FALSE) else _skip(data, at, kind, depth)


def _skip(data: bytes, at: int, kind: int, depth: int) -> int:
    """Returns the offset after the value of type ``kind`` that starts at ``at``."""
    if depth > _MAX_DEPTH:
        raise FormatError(f"thrift nested deeper than {_MAX_DEPTH} levels", Where(offset=at))
    skip = _SKIPS.get(kind)
    if skip is None:
        raise FormatError(f"unknown compact thrift type {kind}", Where(offset=at))
    stop = skip(data, at, depth)
    if stop > len(data):
        raise _ends_early(at)
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


def read_list_header(data: bytes | memoryview, at: int) -> tuple[int, int, int]:
    """Returns a list's size, the type of its elements, and the offset of the first element."""
    header, at = _byte(data, at), at + 1
    size, kind = header >> 4, header & 0x0F
    if size == 15:
        size, at = read_varint(data, at)
    if size > len(data) - at:
        raise FormatError(f"a list claims {size:,} elements", Where(offset=at))
    return size, kind, at


def _byte(data: bytes | memoryview, at: int) -> int:
    if at >= len(data):
        raise _ends_early(at)
    return data[at]


def _ends_early(at: int) -> FormatError:
    return FormatError("thrift data ends early", Where(offset=at))


def read_varint(data: bytes | memoryview, at: int) -> tuple[int, int]:
    """Returns the unsigned varint at ``at``, and the offset after it."""
    value = shift = 0
    while True:
        byte, at = _byte(data, at), at + 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
        if shift > 63:
            raise FormatError("a varint is longer than 64 bits", Where(offset=at))
