"""The directory: which sections a file holds, bound to the very file it describes.

The footer's key ``intarsia`` points at a JSON document in the body. The document names the file by
a random ``file_id``, which every section repeats, and by its *binding*, a hash of the file's
layout. Tools that rewrite a file often copy its key/values along: then the binding no longer
matches, and the directory is ignored.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import dataclasses
import hashlib
import itertools
import json
import reprlib
import struct
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from intarsia.errors import FormatError, IndexSpecError, Where
from intarsia.index.base import index_name
from intarsia.io.source import ByteRange, Source
from intarsia.limits import MAX_DIRECTORY_BYTES, check_claim
from intarsia.parquet.footer import with_key_values
from intarsia.parquet.footer_cache import OWN_KEY
from intarsia.parquet.metadata import BoundChunk, FileMetaData, IndexPlaces, Statistics
from intarsia.parquet.thrift import all_as

FOOTER_KEY = OWN_KEY


def without_pointer(schema: pa.Schema) -> pa.Schema:
    """``schema`` without what leads to a directory in the file that it was read from: pyarrow takes
    a footer's keys for metadata of rows where no Arrow schema is stored.
    """
    found = dict(schema.metadata or {})
    if found.pop(FOOTER_KEY.encode(), None) is None:
        return schema
    return schema.with_metadata(found or None)


class StaleError(FormatError):
    """Indexes that are whole, and belong to what the file was before something rewrote it.

    ``entries`` are theirs, as far as they can be told.
    """

    def __init__(
        self, message: str, where: Where | None = None, entries: tuple[IndexEntry, ...] = ()
    ) -> None:
        super().__init__(message, where)
        self.entries = entries


_VERSION = 1
MOST_INDEXES = 10_000
"""Of a file. What a stranger's directory lists is gone through for every query."""
_MOST_NESTED = 32
_MOST_FUNCTIONS, _FUNCTION_CHARACTERS = 500, 100_000
"""Of these, and of their texts together: they are parsed, at some milliseconds each."""
_LARGEST = 2**63


@dataclass(frozen=True, slots=True)
class IndexEntry:
    """One section: what it indexes, and where it is. Offsets and lengths are in bytes.

    ``on`` is a column's path or, where ``meaning`` is not empty, SQL text of a function of columns;
    ``meaning`` names what its functions meant when it was built.
    """

    kind: str
    kind_version: int
    on: str
    params: Mapping[str, Any] = field(hash=False)
    offset: int
    length: int
    meta_length: int
    meta_crc32: int
    meaning: str = ""

    @property
    def name(self) -> str:
        return index_name(self.on, self.kind)


@dataclass(frozen=True, slots=True)
class Checksums:
    """CRC-32 of a file's footer, without the entry that points at the directory, and of its page
    indexes.

    These follow each other by row group and column, a column index before its offset index; chunks
    without one are left out.
    """

    footer: int
    page_indexes: tuple[int, ...]

    @property
    def document(self) -> dict[str, Any]:
        """As the directory holds them."""
        packed = struct.pack(f"<{len(self.page_indexes)}I", *self.page_indexes)
        return {"footer": self.footer, "page_indexes": base64.b64encode(packed).decode()}


def footer_checksum(footer: bytes) -> int:
    """The CRC-32 of a footer without the entry that points at the directory."""
    return zlib.crc32(with_key_values(footer, {FOOTER_KEY: None}))


def page_index_places(metadata: FileMetaData) -> list[tuple[tuple[int, int, str], ByteRange]]:
    """Every page index that the footer tells of: row group, column and name, and where it is."""
    found = []
    for group, row_group in enumerate(metadata.row_groups):
        for leaf, column in enumerate(all_as(row_group.columns, IndexPlaces)):
            for name in ("column_index", "offset_index"):
                offset = getattr(column, f"{name}_offset")
                length = getattr(column, f"{name}_length")
                if offset is not None and length:
                    found.append(((group, leaf, name), (offset, length)))
    return found


@dataclass(frozen=True, slots=True)
class Directory:
    """All sections of a file. ``base_length`` is the file's length before anything was added.

    ``checksums`` are those of what has none in the format; None in files written before them.
    """

    file_id: str
    binding: str
    base_length: int
    indexes: tuple[IndexEntry, ...]
    checksums: Checksums | None = None


def binding_of(metadata: FileMetaData) -> str:
    """A hash over row counts, and every chunk's place, size, encodings and statistics: 32 hex
    digits.

    Deprecated bounds alone count as if they were stated under both names, as they are to be where
    the file declares orders.
    """
    digest = hashlib.blake2b(digest_size=16)
    for group in metadata.row_groups:
        digest.update(struct.pack("<qq", group.num_rows, len(group.columns)))
        for column in all_as(group.columns, BoundChunk):
            chunk = column.meta_data
            if chunk is None:
                digest.update(b"-")
                continue
            stats = chunk.statistics
            facts = (
                chunk.data_page_offset,
                chunk.dictionary_page_offset,
                chunk.total_compressed_size,
                chunk.total_uncompressed_size,
                chunk.num_values,
                chunk.encodings,
                stats and (stats.min, stats.max, *_bounds_of(stats)),
                stats and (stats.null_count, stats.distinct_count),
            )
            digest.update(repr(facts).encode())
    return digest.hexdigest()


def _bounds_of(stats: Statistics) -> tuple[bytes | None, bytes | None]:
    if stats.min_value is None and stats.max_value is None:
        return stats.min, stats.max
    return stats.min_value, stats.max_value


def encode_directory(directory: Directory, offset: int) -> tuple[bytes, str]:
    """The JSON document, to be placed at ``offset``, and the footer's value that points at it.

    Raises ``IndexSpecError`` for a document beyond ``MAX_DIRECTORY_BYTES``.
    """
    entries = [_document(entry) for entry in directory.indexes]
    document: dict[str, Any] = {
        "file_id": directory.file_id,
        "binding": directory.binding,
        "base_length": directory.base_length,
        "indexes": entries,
    }
    if directory.checksums is not None:
        document["checksums"] = directory.checksums.document
    data = json.dumps(document).encode()
    if len(data) > MAX_DIRECTORY_BYTES:
        raise IndexSpecError(
            f"the directory of {len(entries):,} indexes would take {len(data):,} bytes; "
            f"the limit is {MAX_DIRECTORY_BYTES:,} bytes"
        )
    pointer = {
        "version": _VERSION,
        "offset": offset,
        "length": len(data),
        "crc32": zlib.crc32(data),
    }
    return data, json.dumps(pointer)


def _document(entry: IndexEntry) -> dict[str, Any]:
    document = dataclasses.asdict(entry)
    if not entry.meaning:
        del document["meaning"]
    return document


def read_directory(
    metadata: FileMetaData,
    source: Source,
    footer_offset: int | None = None,
    binding: Callable[[], str] | None = None,
) -> Directory | None:
    """The directory the footer points at; None where it points at none.

    ``binding`` gives that of ``metadata``, where it is known.

    Raises ``FormatError`` where it is damaged or of a version unknown here, ``StaleError`` where it
    is of another file; so it is where nothing whole is there, and not just before the footer: then
    the footer's entry was copied from another file, or this one was cut.
    """
    value = metadata.key_value(FOOTER_KEY)
    if value is None:
        return None
    pointer = json_object(value)
    if "granules" in pointer and "version" not in pointer:
        return None  # it is a section that was exported, and tells of itself there
    try:
        directory = directory_at(pointer, source)
    except FormatError as error:
        if footer_offset is None or pointer.get("version") != _VERSION:
            raise
        if integer_of(pointer, "offset") + integer_of(pointer, "length") == footer_offset:
            raise
        message = f"{error.message}; the file was rewritten since"
        raise StaleError(message, error.where) from error
    if directory.binding != (binding_of(metadata) if binding is None else binding()):
        message = "the directory belongs to another file; this one was rewritten since"
        raise StaleError(message, entries=directory.indexes)
    return directory


def directory_at(pointer: Mapping[str, Any], source: Source) -> Directory:
    """The directory that ``pointer`` points at. Raises ``FormatError`` where it is damaged."""
    if pointer.get("version") != _VERSION:
        raise FormatError(f"directory version {_brief(pointer.get('version'))} is not known here")
    offset, length, crc32 = (integer_of(pointer, name) for name in ("offset", "length", "crc32"))
    check_claim("the directory", length, MAX_DIRECTORY_BYTES)
    data = source.read([(offset, length)])[0]
    if zlib.crc32(data) != crc32:
        raise FormatError("the directory does not match its checksum")
    return _parsed(json_object(bytes(data)), source.size)


def _parsed(document: dict[str, Any], size: int) -> Directory:
    indexes = document.get("indexes")
    if not isinstance(indexes, list) or not all(isinstance(entry, dict) for entry in indexes):
        raise FormatError("the directory lists no indexes")
    if len(indexes) > MOST_INDEXES:
        raise FormatError(f"the directory lists {len(indexes):,} indexes; {MOST_INDEXES:,} is most")
    entries = tuple(_entry(entry, size) for entry in indexes)
    _check_functions(entries)
    _check_disjoint(entries)
    return Directory(
        text_in(document, "file_id"),
        text_in(document, "binding"),
        integer_of(document, "base_length"),
        entries,
        _checksums(document.get("checksums")),
    )


def _checksums(document: Any) -> Checksums | None:
    if document is None:
        return None
    try:
        packed = base64.b64decode(text_in(document, "page_indexes"), validate=True)
        found = struct.unpack(f"<{len(packed) // 4}I", packed)
    except (AttributeError, binascii.Error, struct.error) as error:
        raise FormatError("the directory's checksums cannot be read") from error
    return Checksums(integer_of(document, "footer"), found)


def checked_footer(
    metadata: FileMetaData, footer: bytes, source: Source, offset: int
) -> Checksums | None:
    """The checksums that the directory has of the file, where the footer has the one it should.

    None where there is no directory that tells, or one that a footer from elsewhere points at.
    Raises ``FormatError`` where the footer does not match its checksum.
    """
    value = metadata.key_value(FOOTER_KEY)
    try:
        pointer = json_object(value or "{}")
        found = directory_at(pointer, source).checksums
        end = integer_of(pointer, "offset") + integer_of(pointer, "length")
    except FormatError:
        return None
    if found is None or end != offset:
        return None
    if footer_checksum(footer) != found.footer:
        message = "the footer does not match its checksum: damaged, or changed by another tool"
        raise FormatError(message, Where(offset=offset))
    return found


def _check_functions(entries: Sequence[IndexEntry]) -> None:
    texts = [entry.on for entry in entries if entry.meaning]
    size = sum(map(len, texts))
    if len(texts) > _MOST_FUNCTIONS or size > _FUNCTION_CHARACTERS:
        raise FormatError(
            f"indexes on {len(texts):,} functions of {size:,} characters are too many"
        )


def _check_disjoint(entries: Sequence[IndexEntry]) -> None:
    """Raise ``FormatError`` where sections overlap: one would be read as often as it is listed."""
    places = sorted((entry.offset, entry.length, entry.name) for entry in entries)
    for (offset, length, name), (start, _, other) in itertools.pairwise(places):
        if offset + length > start:
            raise FormatError(f"indexes {name} and {other} overlap")


def _entry(entry: dict[str, Any], size: int) -> IndexEntry:
    params = entry.get("params")
    if not isinstance(params, dict) or _nests(params, _MOST_NESTED):
        raise FormatError("an index without parameters, or with some that nest too deeply")
    made = IndexEntry(
        text_in(entry, "kind"),
        integer_of(entry, "kind_version"),
        text_in(entry, "on"),
        params,
        integer_of(entry, "offset"),
        integer_of(entry, "length"),
        integer_of(entry, "meta_length"),
        integer_of(entry, "meta_crc32"),
        text_in(entry, "meaning") if "meaning" in entry else "",
    )
    if made.offset + made.length > size or made.meta_length > made.length:
        raise FormatError(f"index {made.name} lies outside the file")
    return made


def _nests(value: object, most: int) -> bool:
    """Are there lists or objects within one another, more than ``most``?"""
    level = [value]
    for _ in range(most):
        level = [
            inner
            for outer in level
            if isinstance(outer, dict | list)
            for inner in (outer.values() if isinstance(outer, dict) else outer)
        ]
    return any(isinstance(inner, dict | list) for inner in level)


def json_object(text: str | bytes) -> dict[str, Any]:
    """A JSON object. Raises ``FormatError`` for anything else."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise FormatError("the directory is not a JSON document") from error
    if not isinstance(value, dict):
        raise FormatError("the directory is not a JSON object")
    return value


def integer_of(value: Mapping[str, Any], name: str) -> int:
    """A count of bytes. Raises ``FormatError`` for anything else."""
    number = value.get(name)
    if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number < _LARGEST:
        raise FormatError(f"{name} is {_brief(number)}, not a count of bytes")
    return number


def text_in(value: Mapping[str, Any], name: str) -> str:
    """A text. Raises ``FormatError`` for anything else, and for what UTF-8 cannot hold."""
    text = value.get(name)
    if isinstance(text, str):
        with contextlib.suppress(UnicodeEncodeError):
            text.encode()
            return text
    raise FormatError(f"{name} is {_brief(text)}, not text")


def _brief(value: object) -> str:
    """A value of anybody's as it is told: nobody reads a message of a megabyte."""
    return reprlib.repr(value)
