"""The pointer: one small file that lists the tables of a data set's catalog.

::

    lake/_intarsia/catalog.json                               replaced at once, by renaming
    lake/_intarsia/catalog-<16 digits>-<table>-<8>.table      never changed; named by the pointer

A catalog is a list of segments. Each segment describes the files that one build read. The pointer's
first line holds the version, and the length and CRC of the JSON document that follows. Everything
is checked before use. Any failure raises ``FormatError``; callers then ignore the catalog.
The names of the dataclasses' fields are the keys of the JSON document.
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
from intarsia.index.directory import integer_of, json_object, string_of

T = TypeVar("T")
POINTER = "catalog.json"
_POINTER_VERSION = 1
_TABLE_NAME = re.compile(r"catalog-[0-9a-f]{16}-[a-z]+-[0-9a-f]{8}\.(table|parquet)")
"""The suffix is not ``.parquet``, because ``**/*.parquet`` would read tables as data. Old ones have
that suffix.
"""
_MAX_HEADER_BYTES = 200
_MAX_SEGMENT_FILES = 1 << 32


@dataclass(frozen=True, slots=True)
class Table:
    """A table of the catalog, a Parquet file with a page index: its name and how to check it.

    ``size`` and ``meta_length`` are in bytes.
    """

    name: str
    size: int
    meta_length: int
    meta_crc32: int
    rows: int


@dataclass(frozen=True, slots=True)
class TailPart:
    """A table with the ends of consecutive files, one row each, from file number ``first``."""

    first: int
    table: Table


@dataclass(frozen=True, slots=True)
class KeyPart:
    """A table with index entries from key ``low`` to key ``high``, both included.

    Entries of these two keys may also be in the parts before and after.
    """

    low: int
    high: int
    table: Table


@dataclass(frozen=True, slots=True)
class KeyTable:
    """All keys of one index, from those files of one schema group that have the index."""

    kind: str
    kind_version: int
    on: str
    params: Mapping[str, Any]
    meaning: str
    form: int
    parts: tuple[KeyPart, ...]


@dataclass(frozen=True, slots=True)
class SchemaGroupRecord:
    """A schema group: files whose schemas have the same hash. ``exemplar`` is one file's number.

    The pointer's JSON calls it a ``form``, and so do the fields that it mirrors.
    """

    hash: str
    exemplar: int


@dataclass(frozen=True, slots=True)
class Segment:
    """Files that one build read together, numbered from 0."""

    num_files: int
    forms: tuple[SchemaGroupRecord, ...]
    leaves: tuple[tuple[str, ...], ...]
    """Paths of the columns with bounds."""
    files: Table
    bounds: Table
    covers: Table
    tails: tuple[TailPart, ...]
    keys: tuple[KeyTable, ...]

    @property
    def tables(self) -> list[Table]:
        """All tables of the segment."""
        parts = [part.table for index in self.keys for part in index.parts]
        return [self.files, self.bounds, self.covers, *(t.table for t in self.tails), *parts]


@dataclass(frozen=True, slots=True)
class First:
    """The data set's first file, which gives the schema: its identity and its end.

    ``path`` is relative to the data set's folder, ``size`` is in bytes, ``mtime`` in nanoseconds.
    """

    path: str
    size: int
    mtime: int
    tail: bytes


@dataclass(frozen=True, slots=True)
class Pointer:
    """One generation of the catalog. Only the generation before uses the ``retired`` tables."""

    generation: str
    segments: tuple[Segment, ...]
    retired: tuple[str, ...] = ()
    first: First | None = None

    @property
    def names(self) -> list[str]:
        """File names of all tables of the generation."""
        return [table.name for segment in self.segments for table in segment.tables]


def is_table_name(name: str) -> bool:
    """True if the name has the pattern of a catalog table."""
    return _TABLE_NAME.fullmatch(name) is not None


def encode_pointer(pointer: Pointer) -> bytes:
    """Returns the content of the pointer's file."""
    document = dataclasses.asdict(pointer)
    if pointer.first is not None:
        document["first"]["tail"] = base64.b64encode(pointer.first.tail).decode()
    body = json.dumps(document).encode()
    head = {"version": _POINTER_VERSION, "length": len(body), "crc32": zlib.crc32(body)}
    return json.dumps(head).encode() + b"\n" + body


def decode_pointer(data: bytes) -> Pointer:
    """Parses the pointer. Raises ``FormatError`` if it is damaged or of an unknown version."""
    line, _, body = data.partition(b"\n")
    if len(line) > _MAX_HEADER_BYTES:
        raise FormatError("the catalog's pointer has no valid first line")
    head = json_object(line)
    if head.get("version") != _POINTER_VERSION:
        raise FormatError(f"catalog version {head.get('version')!r} is not known here")
    if integer_of(head, "length") != len(body) or integer_of(head, "crc32") != zlib.crc32(body):
        raise FormatError("the catalog's pointer does not match its checksum")
    document = json_object(body)
    first = document.get("first")
    return Pointer(
        string_of(document, "generation"),
        _list(document, "segments", _segment),
        tuple(_name(name) for name in _items(document, "retired")),
        None if first is None else _first(_object(first)),
    )


def _segment(value: dict[str, Any]) -> Segment:
    num_files = integer_of(value, "num_files")
    if num_files >= _MAX_SEGMENT_FILES:
        raise FormatError(f"{num_files:,} files cannot be numbered")
    forms = _list(value, "forms", _schema_group)
    segment = Segment(
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
        raise FormatError("the catalog has a schema group whose example file does not exist")
    if any(index.form >= len(forms) for index in segment.keys):
        raise FormatError("the catalog has index keys of a schema group that does not exist")
    stops = [part.first + part.table.rows for part in segment.tails]
    if [part.first for part in segment.tails] != [0, *stops][: len(stops)] or (
        stops[-1:] != [num_files] and num_files
    ):
        raise FormatError("the catalog's tables of file ends do not cover all files")
    if segment.files.rows != num_files:
        raise FormatError("the catalog does not list all of its files")
    return segment


def _schema_group(value: dict[str, Any]) -> SchemaGroupRecord:
    return SchemaGroupRecord(string_of(value, "hash"), integer_of(value, "exemplar"))


def _tail_part(value: dict[str, Any]) -> TailPart:
    return TailPart(integer_of(value, "first"), _table(_object(value.get("table"))))


def _key_part(value: dict[str, Any]) -> KeyPart:
    table = _table(_object(value.get("table")))
    return KeyPart(integer_of(value, "low"), integer_of(value, "high"), table)


def _key_table(value: dict[str, Any]) -> KeyTable:
    return KeyTable(
        string_of(value, "kind"),
        integer_of(value, "kind_version"),
        string_of(value, "on"),
        _object(value.get("params")),
        string_of(value, "meaning"),
        integer_of(value, "form"),
        _list(value, "parts", _key_part),
    )


def _table(value: dict[str, Any]) -> Table:
    numbers = (integer_of(value, name) for name in ("size", "meta_length", "meta_crc32", "rows"))
    return Table(_name(value.get("name")), *numbers)


def _first(value: dict[str, Any]) -> First:
    try:
        tail = base64.b64decode(string_of(value, "tail"), validate=True)
    except ValueError as error:
        raise FormatError(
            "the footer of the first file in the catalog is not valid base64"
        ) from error
    return First(string_of(value, "path"), integer_of(value, "size"), _moment(value), tail)


def _moment(value: dict[str, Any]) -> int:
    mtime = value.get("mtime")
    if not isinstance(mtime, int) or isinstance(mtime, bool):
        raise FormatError(f"{mtime!r} is not an integer time")
    return mtime


def _name(value: Any) -> str:
    if not isinstance(value, str) or not is_table_name(value):
        raise FormatError(f"{value!r} is not the name of a catalog's table")
    return value


def _path(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or not value or not all(isinstance(n, str) for n in value):
        raise FormatError(f"{value!r} is not a column's path")
    return tuple(value)


def _items(value: dict[str, Any], name: str) -> list[Any]:
    items = value.get(name)
    if not isinstance(items, list):
        raise FormatError(f"the catalog has no list of {name}")
    return items


def _object(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise FormatError(f"{value!r} is not an object")
    return value


def _list(value: dict[str, Any], name: str, make: Callable[[dict[str, Any]], T]) -> tuple[T, ...]:
    return tuple(make(_object(item)) for item in _items(value, name))
