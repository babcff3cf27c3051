"""Typed structures in Thrift's compact protocol, with Apache's ``thrift`` library.

``struct`` and ``field`` declare frozen dataclasses. ``decode`` and ``encode`` map these with the
library's C extension, or in Python where it is missing.

- A decoded struct keeps its bytes, so that encoding it returns the same bytes.
- ``amended`` changes some fields and copies the bytes of all others, known or not.
- Long lists of structs, declared with ``structs_of``, are decoded element by element on access.

Source: Thrift's ``thrift-compact-protocol.md``; section "Metadata" of the Parquet specification.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import re
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from operator import attrgetter
from types import SimpleNamespace
from typing import Any, NamedTuple, TypeVar, dataclass_transform, overload

from thrift.protocol.TCompactProtocol import TCompactProtocol
from thrift.Thrift import TType
from thrift.transport.TTransport import TMemoryBuffer

from intarsia.errors import FormatError
from intarsia.parquet.compact_protocol import (
    LIST,
    STRUCT,
    Decoder,
    Span,
    fast_encode,
    field_header,
    list_header,
    list_span,
    read_list_header,
    replace_fields,
    spans,
    zigzag,
)

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

S = TypeVar("S")
T = TypeVar("T")


def list_of(element: Any) -> tuple[int, Any]:
    """Returns the type of a list of ``element``: one of the constants above, or a struct class."""
    kind, arguments = _thrift_type(element)
    return TType.LIST, (kind, arguments, False)


class Structs(Sequence[T]):
    """A list of structs of one class. Each is located and decoded on first access."""

    __slots__ = ("_bounds", "_cls", "_data", "_known", "_size")

    def __init__(
        self,
        cls: type[T],
        data: bytes,
        bounds: array[int],
        size: int,
        known: dict[int, T] | None = None,
    ) -> None:
        """Takes the encoded list: element ``i`` of ``size`` is ``data[bounds[i]:bounds[i + 1]]``.

        ``bounds`` may end early and is then extended on access. ``known`` holds decoded elements.
        """
        self._cls, self._data, self._bounds, self._size = cls, data, bounds, size
        self._known: dict[int, T] = known or {}

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[T]:
        return map(self.__getitem__, range(self._size))

    @overload
    def __getitem__(self, at: int) -> T: ...
    @overload
    def __getitem__(self, at: slice) -> list[T]: ...
    def __getitem__(self, at: int | slice) -> T | list[T]:
        if isinstance(at, slice):
            return [self[i] for i in range(*at.indices(len(self)))]
        position = range(len(self))[at]
        element = self._known.get(position)
        if element is None:
            element = self._known[position] = self.decoded_as(self._cls, position)
        return element

    def decoded_as(self, cls: type[S], at: int) -> S:
        """Returns an element as ``cls``, which may have fewer fields, or ``FormatError``."""
        try:
            return decode(cls, self.encoded(at))[0]
        except FormatError as error:
            raise FormatError(f"element {at}: {error.message}", error.where) from error

    def all_as(self, cls: type[S]) -> list[S]:
        """Returns all elements decoded as ``cls``, which may declare fewer fields.

        Decodes them in one call, which is several times faster than one by one. Raises
        ``FormatError`` if one of them cannot be decoded.
        """
        kind, arguments = list_of(cls)
        spec = None, (1, kind, "all", arguments, None)
        data, stop = self._data, self._bounds[0]
        header = bytes([0x10 | LIST]) + list_header(len(self), STRUCT)
        start = stop - len(header)
        if data[max(start, 0) : stop] != header:  # the list is not the first field of a struct
            data, start = replace_fields([list_span(1, encoded_elements(self))], []), 0
        try:
            return list(Decoder(data).read(SimpleNamespace, spec, start)[0].all)
        except MemoryError:
            raise
        except Exception as error:  # as in ``decode``
            raise FormatError(f"not a valid list of {cls.__name__}: {error}") from error

    def encoded(self, at: int) -> bytes:
        """Returns the bytes of one element."""
        bounds, at = self._bounds, range(self._size)[at]
        if len(bounds) <= at + 1:
            num_located = len(bounds) - 1
            more = min(max(at + 1, 2 * num_located), self._size) - num_located
            bounds = bounds + Decoder(self._data).bounds_of_structs(bounds[-1], more)[1:]
            self._bounds = bounds  # one assignment, safe with threads
        return self._data[bounds[at] : bounds[at + 1]]

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
    """Returns the type of a list of structs that is decoded lazily, to ``Structs``."""
    return _StructsKind(element)


def field(number: int, kind: Any, *, required: bool = False) -> Any:
    """Declares field ``number`` of a struct. An optional field that is absent is None."""
    metadata = {"number": number, "kind": kind}
    if required:
        return dataclasses.field(metadata=metadata)
    return dataclasses.field(default=None, metadata=metadata)


@dataclass_transform(frozen_default=True, kw_only_default=True)
def struct(cls: type[T]) -> type[T]:
    """Makes ``cls`` a frozen dataclass that ``decode`` and ``encode`` understand."""
    cls.__annotations__["_encoded"] = bytes | None
    cls._encoded = dataclasses.field(  # type: ignore[attr-defined]  # declared above
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
            spec[number] = (number, *_thrift_type(kind)[:1], f.name, _thrift_type(kind)[1], None)
    made.thrift_spec = tuple(spec)  # read by the thrift library
    made.thrift_lists, made.thrift_numbers = lists, numbers
    # The library uses these for nested structs if its C extension is missing.
    made.read = classmethod(lambda cls, protocol: protocol.readStruct(cls, cls.thrift_spec, True))
    made.write = lambda self, protocol: protocol.writeStruct(self, self.thrift_spec)
    return made  # type: ignore[no-any-return]  # the class, with slots


def _thrift_type(kind: Any) -> tuple[int, Any]:
    if isinstance(kind, type):
        return TType.STRUCT, [kind, _spec_of(kind)]
    number, arguments = kind
    return number, arguments


_spec_of: Callable[[Any], tuple[Any, ...]] = attrgetter("thrift_spec")
"""Returns the specification by which the library reads and writes a struct."""
_lists_of: Callable[[Any], dict[int, tuple[str, type]]] = attrgetter("thrift_lists")
"""Returns the lazy lists of a struct: field number → name, and class of the elements."""


def all_as(values: Sequence[T], cls: type[S]) -> Sequence[T | S]:
    """Returns all ``values``, decoded as ``cls`` if that is faster.

    ``cls`` declares some of the fields of ``values``. Raises ``FormatError`` with the position of
    the first element that cannot be decoded.
    """
    if isinstance(values, Structs):
        with contextlib.suppress(FormatError):
            elements: list[S] = values.all_as(cls)
            return elements
    return list(values)


def decode(cls: type[T], data: bytes | memoryview) -> tuple[T, int]:
    """Returns the struct at the start of ``data`` and its bytes. Raises ``FormatError``."""
    raw = bytes(data)
    try:
        if _lists_of(cls):
            return _decode_with_lists(cls, Decoder(raw), 0)
        value, stop = Decoder(raw).read(cls, _spec_of(cls), 0)
        object.__setattr__(value, "_encoded", raw[:stop])
        return value, stop
    except (FormatError, MemoryError):
        raise
    except Exception as error:  # the library raises a dozen kinds on bad bytes
        reason = str(error) or type(error).__name__
        raise FormatError(f"not a valid {cls.__name__}: {reason}") from error


def _decode_with_lists(cls: type[T], decoder: Decoder, at: int) -> tuple[T, int]:
    """Decodes a struct, leaving its lazy lists as bytes that are divided into elements."""
    lists, data, start = _lists_of(cls), decoder.data, at
    lazy_lists: dict[str, Any] = {}
    others = []
    number = 0
    while True:
        number, kind, at = field_header(data, at, number)
        if kind == 0:
            break
        if number in lists and kind == LIST:
            name, element = lists[number]
            lazy_lists[name], stop = _structs(element, decoder, at)
        else:
            stop = decoder.stop_of_field(at, kind)
            others.append(Span(number, kind, data[at:stop]))
        at = stop
    decoder = Decoder(replace_fields(others, []))
    decoded = vars(decoder.read(SimpleNamespace, _spec_of(cls), 0)[0])
    value = cls(**decoded, **lazy_lists)
    object.__setattr__(value, "_encoded", data[start:at])
    return value, at


def _structs(cls: type[T], decoder: Decoder, at: int) -> tuple[Structs[T], int]:
    """Returns the list of structs at ``at``, and the offset after it."""
    if not _lists_of(cls):
        bounds = decoder.bounds(at)
        return Structs(cls, decoder.data, bounds, len(bounds) - 1), bounds[-1]
    # To find where an element ends, its own lists must be walked. It is decoded on the way.
    size, _, at = read_list_header(decoder.data, at)
    starts, known = array("q", [at]), {}
    for position in range(size):
        known[position], at = _decode_at(cls, decoder, at)
        starts.append(at)
    return Structs(cls, decoder.data, starts, size, known), at


def _decode_at(cls: type[T], decoder: Decoder, at: int) -> tuple[T, int]:
    """Decodes a struct with lazy lists.

    If the only lazy list is the first field, as in row groups, one call of the library skips the
    list without dividing it. Any other struct takes the slower way.
    """
    lists, data = _lists_of(cls), decoder.data
    number, kind, start = field_header(data, at, 0)
    if [*lists] != [number] or kind != LIST:
        return _decode_with_lists(cls, decoder, at)
    name, element = lists[number]
    size, kind, start = read_list_header(data, start)
    if kind != STRUCT or _lists_of(element):
        return _decode_with_lists(cls, decoder, at)
    decoded, stop = decoder.read(SimpleNamespace, _spec_of(cls), at)
    if _list_field_pattern(number).search(data, at, stop) and decoder.count_fields(at, number) != 1:
        return _decode_with_lists(cls, decoder, at)  # the last of several lists counts
    elements: Structs[Any] = Structs(element, data, array("q", [start]), size)
    value = cls(**vars(decoded), **{name: elements})
    object.__setattr__(value, "_encoded", data[at:stop])
    return value, stop


@functools.cache
def _list_field_pattern(number: int) -> re.Pattern[bytes]:
    """Returns a pattern of the header of a list field with this number, written in full.

    The number, below 64, takes one byte or two bytes with padding. Other bytes may match by chance.
    """
    (shortest,) = zigzag(number)
    encoded_numbers = re.escape(bytes([shortest, shortest | 0x80]))
    return re.compile(re.escape(bytes([LIST])) + b"[" + encoded_numbers + b"]")


def read_structs(cls: type[T], decoder: Decoder, at: int) -> tuple[Sequence[T], int]:
    """Returns the list at ``at``, and the offset after it. Raises ``FormatError``."""
    try:
        return _structs(cls, decoder, at)
    except (FormatError, MemoryError):
        raise
    except Exception as error:  # as in ``decode``
        raise FormatError(f"not a valid list of {cls.__name__}: {error}") from error


def remember_encoded(value: Any, raw: bytes) -> None:
    """Makes ``encode`` return ``raw`` for ``value``, which was assembled from these bytes."""
    object.__setattr__(value, "_encoded", raw)


def encode(value: Any) -> bytes:
    """Returns the bytes of a struct, or those that it was decoded from."""
    if value._encoded is not None:
        return bytes(value._encoded)
    lists = _lists_of(type(value))
    encoded = _encoded_fields(type(value), value)
    if not lists:
        return encoded
    lazy_lists = ((number, getattr(value, name)) for number, (name, _) in lists.items())
    return replace_fields(
        spans(encoded)[0],
        [_list_of_structs(number, v) for number, v in lazy_lists if v is not None],
    )


def _encoded_fields(cls: Any, value: Any) -> bytes:
    """Encodes the fields of ``value`` that are not None, without lazy lists."""
    if fast_encode is not None:
        return bytes(fast_encode(value, [cls, _spec_of(cls)]))
    transport = TMemoryBuffer()
    TCompactProtocol(transport).writeStruct(value, _spec_of(cls))
    return bytes(transport.getvalue())


def _list_of_structs(number: int, values: Sequence[Any]) -> Span:
    return list_span(number, encoded_elements(values))


def encoded_elements(values: Sequence[Any]) -> list[bytes]:
    """Returns the bytes of each struct of a list. Elements that are bytes stay as they are."""
    if isinstance(values, Structs):
        return [values.encoded(at) for at in range(len(values))]
    return [value if isinstance(value, bytes) else encode(value) for value in values]


def amended(value: T, /, **changes: Any) -> T:
    """Returns ``value`` with fields set, or removed if the change is None.

    A mapping changes fields of a nested struct. All other fields keep their bytes at every depth.
    This includes unknown fields, which ``dataclasses.replace`` would lose.
    """
    cls = type(value)
    return decode(cls, amended_bytes(cls, encode(value), changes))[0]


def _are_structs(value: Any) -> bool:
    return isinstance(value, list | tuple) and bool(value) and dataclasses.is_dataclass(value[0])


_COMPACT_INTEGERS: Mapping[int, int] = {TType.I32: 5, TType.I64: 6}
"""Types of fields in the compact protocol, by the types of ``thrift_spec``."""


def amended_bytes(cls: Any, data: bytes, changes: Mapping[str, Any]) -> bytes:
    """Returns an encoded struct changed as by ``amended``; lists may hold encoded structs."""
    fields, _ = spans(data)
    current = {span.number: span for span in fields}
    numbers: dict[str, int] = cls.thrift_numbers
    new_fields = []
    for name, change in changes.items():
        number = numbers[name]
        if isinstance(change, Mapping):
            nested_cls = cls.thrift_spec[number][3][0]
            old_bytes = current[number].value if number in current else b"\0"
            new_fields.append(Span(number, STRUCT, amended_bytes(nested_cls, old_bytes, change)))
        elif change is None:
            fields = [span for span in fields if span.number != number]
        elif type(change) is int and cls.thrift_spec[number][1] in _COMPACT_INTEGERS:
            kind = _COMPACT_INTEGERS[cls.thrift_spec[number][1]]
            new_fields.append(Span(number, kind, zigzag(change)))
        elif dataclasses.is_dataclass(change):
            new_fields.append(Span(number, STRUCT, encode(change)))
        elif number in cls.thrift_lists or _are_structs(change):
            new_fields.append(_list_of_structs(number, change))
        else:
            single_field = SimpleNamespace(**(dict.fromkeys(numbers) | {name: change}))
            new_fields += spans(_encoded_fields(cls, single_field))[0]
    return replace_fields(fields, new_fields)
