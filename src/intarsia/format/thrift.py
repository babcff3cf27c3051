"""Thrift's compact protocol: typed structures by Apache's ``thrift``, lossless edits by spans.

``decode`` and ``encode`` map frozen dataclasses, declared with ``struct`` and ``field``, through
the C-accelerated compact protocol (its Python twin where the extension is missing). A struct that
was decoded keeps its bytes, so that encoding it gives them back; ``amended`` changes some of its
fields and moves all others, known or not, as the bytes they are. Long lists of structs, declared
with ``structs_of``, are decoded element by element when asked for.
"""

from __future__ import annotations

import dataclasses
import functools
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, NamedTuple, TypeVar, dataclass_transform, overload

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


class Structs(Sequence[T]):
    """A list of structs of one class, each decoded when it is first asked for."""

    __slots__ = ("_bounds", "_cls", "_data", "_known")

    def __init__(
        self, cls: type[T], data: bytes, bounds: Sequence[int], known: dict[int, T] | None = None
    ) -> None:
        """Element ``i`` is ``data[bounds[i]:bounds[i + 1]]``; ``known`` are decoded already."""
        self._cls, self._data, self._bounds = cls, data, bounds
        self._known: dict[int, T] = known or {}

    def __len__(self) -> int:
        return len(self._bounds) - 1

    @overload
    def __getitem__(self, at: int) -> T: ...
    @overload
    def __getitem__(self, at: slice) -> list[T]: ...
    def __getitem__(self, at: int | slice) -> T | list[T]:
        if isinstance(at, slice):
            return [self[i] for i in range(*at.indices(len(self)))]
        position = range(len(self))[at]
        found = self._known.get(position)
        if found is None:
            try:
                found = self._known[position] = decode(self._cls, self.encoded(position))[0]
            except FormatError as error:
                raise FormatError(f"element {position}: {error.message}", error.where) from error
        return found

    def encoded(self, at: int) -> bytes:
        """The bytes of one element."""
        return self._data[self._bounds[at] : self._bounds[at + 1]]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence):
            return NotImplemented
        return len(self) == len(other) and all(
            (isinstance(other, Structs) and self.encoded(i) == other.encoded(i))
            or self[i] == other[i]
            for i in range(len(self))
        )

    __hash__ = None  # type: ignore[assignment]  # as a list

    def __repr__(self) -> str:
        return repr(list(self))


class _StructsKind(NamedTuple):
    """The type of a list that is decoded element by element."""

    element: type


def structs_of(element: type) -> _StructsKind:
    """The type of a list of a struct class that is decoded lazily, to ``Structs``."""
    return _StructsKind(element)


def field(number: int, kind: Any, *, required: bool = False) -> Any:
    """Declare field ``number`` of a struct. An optional field that is absent is ``None``."""
    metadata = {"number": number, "kind": kind}
    if required:
        return dataclasses.field(metadata=metadata)
    return dataclasses.field(default=None, metadata=metadata)


@dataclass_transform(frozen_default=True, kw_only_default=True)
def struct(cls: type[T]) -> type[T]:
    """Make ``cls`` a frozen dataclass that ``decode`` and ``encode`` understand."""
    cls.__annotations__["_encoded"] = bytes | None
    cls._encoded = dataclasses.field(  # type: ignore[attr-defined]
        default=None, init=False, repr=False, compare=False
    )
    made: Any = dataclasses.dataclass(frozen=True, slots=True, kw_only=True)(cls)
    declared = [f for f in dataclasses.fields(made) if f.metadata]
    numbers = {f.name: f.metadata["number"] for f in declared}
    spec: list[Any] = [None] * (max(numbers.values(), default=0) + 1)
    lists: dict[int, tuple[str, type]] = {}
    for f in declared:
        number, kind = numbers[f.name], f.metadata["kind"]
        if isinstance(kind, _StructsKind):
            lists[number] = (f.name, kind.element)
        else:
            spec[number] = (number, *_spelled(kind)[:1], f.name, _spelled(kind)[1], None)
    made.thrift_spec = tuple(spec)  # read by the thrift library
    made.thrift_lists, made.thrift_numbers = lists, numbers
    # The library's Python twin of its C extension reads and writes nested structs by these.
    made.read = classmethod(lambda cls, protocol: protocol.readStruct(cls, cls.thrift_spec, True))
    made.write = lambda self, protocol: protocol.writeStruct(self, self.thrift_spec)
    return made  # type: ignore[no-any-return]  # the class, with slots


def _spelled(kind: Any) -> tuple[int, Any]:
    if isinstance(kind, type):
        return TType.STRUCT, [kind, _spec_of(kind)]
    number, arguments = kind
    return number, arguments


def _spec_of(cls: Any) -> tuple[Any, ...]:
    """What the thrift library reads and writes a struct by."""
    spec: tuple[Any, ...] = cls.thrift_spec
    return spec


def _lists_of(cls: Any) -> dict[int, tuple[str, type]]:
    """The lazy lists of a struct: names, and classes of elements, by field number."""
    lists: dict[int, tuple[str, type]] = cls.thrift_lists
    return lists


class _Protocol(TCompactProtocolAccelerated):  # type: ignore[misc]  # thrift is not typed
    """Where its C extension is missing, text that is not UTF-8 is read as with it."""

    def readString(self) -> str:  # noqa: N802 # the library's name
        return bytes(self.readBinary()).decode("utf-8", "replace")


class _Decoder:
    """Apache's decoder over some bytes, to be used from any offset.

    No container or string may claim more elements or bytes than there are, so allocation is bounded
    by the input.
    """

    def __init__(self, data: bytes) -> None:
        limit = max(len(data), 1)
        transport = TMemoryBuffer(data)
        self.data, self._buffer = data, transport.cstringio_buf
        self._protocol = _Protocol(
            transport, string_length_limit=limit, container_length_limit=limit
        )
        self._fast = self._protocol._fast_decode

    def read(self, made: Callable[..., Any], spec: tuple[Any, ...], at: int) -> tuple[Any, int]:
        """A ``made`` with the fields of the struct at ``at``, and the offset behind it."""
        self._buffer.seek(at)
        if self._fast is not None:
            value = self._fast(None, self._protocol, [made, spec])
        else:
            value = self._protocol.readStruct(made, spec, True)
        return value, self._buffer.tell()

    def bounds(self, at: int) -> array[int]:
        """Where each element of the list at ``at`` begins; last, where the list ends."""
        size, kind, at = _list_header(self.data, at)
        bounds = array("q", [at])
        if kind != _STRUCT:
            for _ in range(size):
                bounds.append(_skip(self.data, bounds[-1], kind, 2))
            return bounds
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
        except Exception as error:  # the library raises a dozen kinds on bad bytes
            reason = str(error) or type(error).__name__
            raise FormatError(f"not valid thrift: {reason}", Where(offset=bounds[-1])) from error
        return bounds

    def stop_of_field(self, at: int, kind: int) -> int:
        """The end of a field's value; lists, which may be long, are skipped by the library."""
        return self.bounds(at)[-1] if kind == _LIST else _skip_field(self.data, at, kind, 1)


def decode(cls: type[T], data: bytes | memoryview) -> tuple[T, int]:
    """The struct at the start of ``data`` and the number of bytes it takes.

    Raises ``FormatError`` where the bytes are not that struct.
    """
    raw = bytes(data)
    try:
        if _lists_of(cls):
            return _decode_with_lists(cls, _Decoder(raw), 0)
        value, stop = _Decoder(raw).read(cls, _spec_of(cls), 0)
        object.__setattr__(value, "_encoded", raw[:stop])
        return value, stop
    except FormatError:
        raise
    except Exception as error:  # the library raises a dozen kinds on bad bytes
        reason = str(error) or type(error).__name__
        raise FormatError(f"not a valid {cls.__name__}: {reason}") from error


def _decode_with_lists(cls: type[T], decoder: _Decoder, at: int) -> tuple[T, int]:
    """A struct whose lazy lists are divided into their elements, and no more."""
    lists, data, start = _lists_of(cls), decoder.data, at
    found: dict[str, Any] = {}
    others = []
    number = 0
    while True:
        number, kind, at = _field_header(data, at, number)
        if kind == 0:
            break
        if number in lists and kind == _LIST:
            name, element = lists[number]
            found[name], stop = _structs(element, decoder, at)
        else:
            stop = decoder.stop_of_field(at, kind)
            others.append(Span(number, kind, data[at:stop]))
        at = stop
    known, _ = _Decoder(replace_fields(others, [])).read(SimpleNamespace, _spec_of(cls), 0)
    value = cls(**vars(known), **found)
    object.__setattr__(value, "_encoded", data[start:at])
    return value, at


def _structs(cls: type[T], decoder: _Decoder, at: int) -> tuple[Structs[T], int]:
    """The list of structs at ``at`` and the offset behind it."""
    if not _lists_of(cls):
        bounds = decoder.bounds(at)
        return Structs(cls, decoder.data, bounds), bounds[-1]
    # To find where each ends, its own lists have to be divided: then it is as good as decoded.
    size, _, at = _list_header(decoder.data, at)
    starts, known = [at], {}
    for position in range(size):
        known[position], at = _decode_with_lists(cls, decoder, at)
        starts.append(at)
    return Structs(cls, decoder.data, starts, known), at


def encode(value: Any) -> bytes:
    """The bytes of a struct declared with ``struct``: those it was decoded from, if it was."""
    if value._encoded is not None:
        return bytes(value._encoded)
    lists = _lists_of(type(value))
    encoded = _encoded_fields(type(value), value)
    if not lists:
        return encoded
    held = ((number, getattr(value, name)) for number, (name, _) in lists.items())
    return replace_fields(
        spans(encoded)[0], [_list_of_structs(number, v) for number, v in held if v is not None]
    )


def _encoded_fields(cls: Any, value: Any) -> bytes:
    """A struct of the fields of ``value`` that are not None and not lazy lists."""
    transport = TMemoryBuffer()
    protocol = TCompactProtocolAccelerated(transport)
    if protocol._fast_encode is not None:
        return bytes(protocol._fast_encode(value, [cls, _spec_of(cls)]))
    TCompactProtocol(transport).writeStruct(value, _spec_of(cls))
    return bytes(transport.getvalue())


def _list_of_structs(number: int, values: Sequence[Any]) -> Span:
    return list_span(number, [encode(value) for value in values])


def amended(value: T, /, **changes: Any) -> T:
    """``value`` with fields set, or removed where a change is None.

    A mapping amends a struct in its place. All other fields keep their bytes at every depth, those
    that nobody knows included; ``dataclasses.replace`` would lose these.
    """
    cls = type(value)
    data = _amended(cls, encode(value), changes)
    return decode(cls, data)[0]


def _are_structs(value: Any) -> bool:
    return isinstance(value, list | tuple) and bool(value) and dataclasses.is_dataclass(value[0])


def _amended(cls: Any, data: bytes, changes: Mapping[str, Any]) -> bytes:
    fields, _ = spans(data)
    current = {span.number: span for span in fields}
    numbers: dict[str, int] = cls.thrift_numbers
    new = []
    for name, change in changes.items():
        number = numbers[name]
        if isinstance(change, Mapping):
            inner = cls.thrift_spec[number][3][0]
            old = current[number].value if number in current else b"\0"
            new.append(Span(number, _STRUCT, _amended(inner, old, change)))
        elif change is None:
            fields = [span for span in fields if span.number != number]
        elif dataclasses.is_dataclass(change):
            new.append(Span(number, _STRUCT, encode(change)))
        elif number in cls.thrift_lists or _are_structs(change):
            new.append(_list_of_structs(number, change))
        else:
            alone = SimpleNamespace(**(dict.fromkeys(numbers) | {name: change}))
            new += spans(_encoded_fields(cls, alone))[0]
    return replace_fields(fields, new)


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
    decoder = _Decoder(raw)
    found: list[Span] = []
    number = at = 0
    while True:
        number, kind, at = _field_header(raw, at, number)
        if kind == 0:
            return found, at
        stop = decoder.stop_of_field(at, kind)
        found.append(Span(number, kind, raw[at:stop]))
        at = stop


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
        number, kind, at = _field_header(data, at, number)
        if kind == 0:
            yield 0, 0, at, at
            return
        stop = _skip_field(data, at, kind, depth + 1)
        yield number, kind, at, stop
        at = stop


def _field_header(data: bytes, at: int, number: int) -> tuple[int, int, int]:
    """A field's number and kind, and where its value starts; ``number`` is the one before it."""
    header, at = _byte(data, at), at + 1
    kind, delta = header & 0x0F, header >> 4
    if kind and not delta:
        unsigned, at = _varint(data, at)
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
