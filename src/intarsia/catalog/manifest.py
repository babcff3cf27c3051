"""The pointer: one small file that says which tables the catalog of a data set is made of.

::

    lake/_intarsia/catalog.json                               replaced at once, by renaming
    lake/_intarsia/catalog-<16 digits>-<table>-<8>.table      never changed; named by the pointer

A catalog is a list of segments, each of which is about a number of files and made at one time.
A first line holds the version, and length and CRC of the JSON document that follows. Everything
read here is checked before it is believed; any failure is a ``FormatError``, which callers take to
mean that there is no catalog.
"""

from __future__ import annotations

import base64
import dataclasses
import json
import re
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from intarsia.errors import FormatError
from intarsia.index.directory import integer_of, json_object, text_in

T = TypeVar("T")
POINTER = "catalog.json"
_VERSION = 1
_NAME = re.compile(r"catalog-[0-9a-f]{16}-[a-z]+-[0-9a-f]{8}\.(table|parquet)")
"""Tables ended in ``.parquet`` once, which ``**/*.parquet`` took for data."""
_LONGEST_LINE = 200
_MOST_FILES = 1 << 32


@dataclass(frozen=True, slots=True)
class Table:
    """A page-indexed Parquet file: its name, and what has to be known to check it. Bytes, rows."""

    name: str
    size: int
    meta_length: int
    meta_crc32: int
    rows: int


@dataclass(frozen=True, slots=True)
class TailPart:
    """Ends of the files from number ``first`` on, a row each."""

    first: int
    table: Table


@dataclass(frozen=True, slots=True)
class KeyPart:
    """Entries from key ``low`` to key ``high``; both may be in its neighbours as well."""

    low: int
    high: int
    table: Table


@dataclass(frozen=True, slots=True)
class KeyTable:
    """All keys of one index, of those files of a segment that have it and are of one form."""

    kind: str
    kind_version: int
    on: str
    params: Mapping[str, Any]
    meaning: str
    form: int
    parts: tuple[KeyPart, ...]


@dataclass(frozen=True, slots=True)
class Form:
    """What files of one schema have in common, as a hash; the ``exemplar`` is one such file."""

    hash: str
    exemplar: int


@dataclass(frozen=True, slots=True)
class Segment:
    """Files that were looked at together; they are numbered from 0."""

    num_files: int
    forms: tuple[Form, ...]
    leaves: tuple[tuple[str, ...], ...]
    """Columns that bounds are about, by their paths."""
    files: Table
    bounds: Table
    covers: Table
    tails: tuple[TailPart, ...]
    keys: tuple[KeyTable, ...]

    @property
    def tables(self) -> list[Table]:
        """All of its tables."""
        parts = [part.table for index in self.keys for part in index.parts]
        return [self.files, self.bounds, self.covers, *(t.table for t in self.tails), *parts]


@dataclass(frozen=True, slots=True)
class First:
    """The file that the data set has its schema of: identity and end, so that it need not be read.

    ``path`` is below the data set's folder, ``mtime`` in nanoseconds.
    """

    path: str
    size: int
    mtime: int
    tail: bytes


@dataclass(frozen=True, slots=True)
class Pointer:
    """A generation of the catalog. ``retired`` are tables that only the generation before has."""

    generation: str
    segments: tuple[Segment, ...]
    retired: tuple[str, ...] = ()
    first: First | None = None

    @property
    def names(self) -> list[str]:
        """The files that all of its tables are in."""
        return [table.name for segment in self.segments for table in segment.tables]


def is_table_name(name: str) -> bool:
    """Might a file of this name be a table of a catalog?"""
    return _NAME.fullmatch(name) is not None


def encode_pointer(pointer: Pointer) -> bytes:
    """The bytes of the pointer's file."""
    document = dataclasses.asdict(pointer)
    if pointer.first is not None:
        document["first"]["tail"] = base64.b64encode(pointer.first.tail).decode()
    body = json.dumps(document).encode()
    head = {"version": _VERSION, "length": len(body), "crc32": zlib.crc32(body)}
    return json.dumps(head).encode() + b"\n" + body


def decode_pointer(data: bytes) -> Pointer:
    """The pointer of a file's bytes. Raises ``FormatError`` where it is damaged or not known."""
    line, _, body = data.partition(b"\n")
    if len(line) > _LONGEST_LINE:
        raise FormatError("the catalog's pointer does not begin as one")
    head = json_object(line)
    if head.get("version") != _VERSION:
        raise FormatError(f"catalog version {head.get('version')!r} is not known here")
    if integer_of(head, "length") != len(body) or integer_of(head, "crc32") != zlib.crc32(body):
        raise FormatError("the catalog's pointer does not match its checksum")
    document = json_object(body)
    first = document.get("first")
    return Pointer(
        text_in(document, "generation"),
        _list(document, "segments", _segment),
        tuple(_name(name) for name in _items(document, "retired")),
        None if first is None else _first(_object(first)),
    )


def _segment(value: dict[str, Any]) -> Segment:
    num_files = integer_of(value, "num_files")
    if num_files >= _MOST_FILES:
        raise FormatError(f"{num_files:,} files cannot be numbered")
    forms = _list(value, "forms", _form)
    made = Segment(
        num_files,
        forms,
        tuple(_path(path) for path in _items(value, "leaves")),
        _table(_object(value.get("files"))),
        _table(_object(value.get("bounds"))),
        _table(_object(value.get("covers"))),
        _list(value, "tails", _tail_part),
        _list(value, "keys", _key_table),
    )
    if any(form.exemplar >= num_files for form in forms):
        raise FormatError("the catalog has a form of a file that it does not have")
    if any(index.form >= len(forms) for index in made.keys):
        raise FormatError("the catalog has keys of a form that it does not have")
    stops = [part.first + part.table.rows for part in made.tails]
    if [part.first for part in made.tails] != [0, *stops][: len(stops)] or (
        stops[-1:] != [num_files] and num_files
    ):
        raise FormatError("the catalog lacks the ends of some files")
    if made.files.rows != num_files:
        raise FormatError("the catalog does not list all of its files")
    return made


def _form(value: dict[str, Any]) -> Form:
    return Form(text_in(value, "hash"), integer_of(value, "exemplar"))


def _tail_part(value: dict[str, Any]) -> TailPart:
    return TailPart(integer_of(value, "first"), _table(_object(value.get("table"))))


def _key_part(value: dict[str, Any]) -> KeyPart:
    table = _table(_object(value.get("table")))
    return KeyPart(integer_of(value, "low"), integer_of(value, "high"), table)


def _key_table(value: dict[str, Any]) -> KeyTable:
    return KeyTable(
        text_in(value, "kind"),
        integer_of(value, "kind_version"),
        text_in(value, "on"),
        _object(value.get("params")),
        text_in(value, "meaning"),
        integer_of(value, "form"),
        _list(value, "parts", _key_part),
    )


def _table(value: dict[str, Any]) -> Table:
    numbers = (integer_of(value, name) for name in ("size", "meta_length", "meta_crc32", "rows"))
    return Table(_name(value.get("name")), *numbers)


def _first(value: dict[str, Any]) -> First:
    try:
        tail = base64.b64decode(text_in(value, "tail"), validate=True)
    except ValueError as error:
        raise FormatError("the catalog's first footer cannot be decoded") from error
    return First(text_in(value, "path"), integer_of(value, "size"), _moment(value), tail)


def _moment(value: dict[str, Any]) -> int:
    found = value.get("mtime")
    if not isinstance(found, int) or isinstance(found, bool):
        raise FormatError(f"{found!r} is not a time")
    return found


def _name(value: Any) -> str:
    if not isinstance(value, str) or not is_table_name(value):
        raise FormatError(f"{value!r} is not the name of a catalog's table")
    return value


def _path(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or not value or not all(isinstance(n, str) for n in value):
        raise FormatError(f"{value!r} is not a column's path")
    return tuple(value)


def _items(value: dict[str, Any], name: str) -> list[Any]:
    found = value.get(name)
    if not isinstance(found, list):
        raise FormatError(f"the catalog has no list of {name}")
    return found


def _object(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise FormatError(f"{value!r} is not an object")
    return value


def _list(value: dict[str, Any], name: str, make: Callable[[dict[str, Any]], T]) -> tuple[T, ...]:
    return tuple(make(_object(item)) for item in _items(value, name))
