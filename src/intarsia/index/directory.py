"""The directory of a file: a list of its index sections, bound to this very file.

The footer's key ``intarsia`` points at a JSON document in the body. The document names the file by
a random ``file_id``, which each section repeats, and by its *binding*, a hash of the file's layout.
Tools that rewrite a file often copy its key/values. The binding then no longer matches, and the
directory is ignored.
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
from intarsia.parquet.footer_cache import FOOTER_KEY
from intarsia.parquet.metadata import BoundChunk, FileMetaData, IndexPlaces, Statistics
from intarsia.parquet.thrift import all_as


def without_pointer(schema: pa.Schema) -> pa.Schema:
    """Returns ``schema`` without the metadata key that points at a directory.

    pyarrow turns a footer's keys into schema metadata if the footer stores no Arrow schema.
    """
    metadata = dict(schema.metadata or {})
    if metadata.pop(FOOTER_KEY.encode(), None) is None:
        return schema
    return schema.with_metadata(metadata or None)


class StaleError(FormatError):
    """Undamaged indexes, in ``entries``, of the file before another tool rewrote it."""

    def __init__(
        self, message: str, where: Where | None = None, entries: tuple[IndexEntry, ...] = ()
    ) -> None:
        super().__init__(message, where)
        self.entries = entries


_VERSION = 1
MAX_INDEXES = 10_000
"""Most indexes per file. Each query walks the whole list, even of an untrusted file."""
_MAX_NESTING = 32
"""Most levels of lists and objects in an index's parameters."""
_MAX_FUNCTIONS, _MAX_FUNCTION_CHARACTERS = 500, 100_000
"""Most indexed functions per file, and most characters of their SQL expressions together.

Parsing one takes some milliseconds.
"""
_MAX_INTEGER = 2**63
"""End of the range of byte counts, excluded."""


@dataclass(frozen=True, slots=True)
class IndexEntry:
    """One index section: what it indexes, and its position. Offsets and lengths are in bytes.

    ``on`` is a column path or, if ``meaning`` is not empty, SQL text of a function of columns.
    ``meaning`` identifies what the functions meant when the index was built.
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
    """CRC-32 of a file's footer and of its page indexes.

    The footer's is computed without the entry that points at the directory. The page indexes are
    ordered by row group and column, a column index before its offset index. Chunks without page
    index are left out.
    """

    footer: int
    page_indexes: tuple[int, ...]

    @property
    def document(self) -> dict[str, Any]:
        """The checksums as the directory stores them."""
        packed = struct.pack(f"<{len(self.page_indexes)}I", *self.page_indexes)
        return {"footer": self.footer, "page_indexes": base64.b64encode(packed).decode()}


def footer_checksum(footer: bytes) -> int:
    """Returns the CRC-32 of a footer without the entry that points at the directory."""
    return zlib.crc32(with_key_values(footer, {FOOTER_KEY: None}))


def page_index_places(metadata: FileMetaData) -> list[tuple[tuple[int, int, str], ByteRange]]:
    """Returns the position of each page index that the footer lists.

    An element is (row group, column, ``"column_index"`` or ``"offset_index"``), and offset and
    length in bytes.
    """
    places = []
    for group, row_group in enumerate(metadata.row_groups):
        for leaf, column in enumerate(all_as(row_group.columns, IndexPlaces)):
            for name in ("column_index", "offset_index"):
                offset = getattr(column, f"{name}_offset")
                length = getattr(column, f"{name}_length")
                if offset is not None and length:
                    places.append(((group, leaf, name), (offset, length)))
    return places


@dataclass(frozen=True, slots=True)
class Directory:
    """All index sections of a file.

    ``base_length`` is the file's length in bytes before indexes were added. ``checksums`` cover the
    parts that have no checksum in Parquet; None in files of earlier versions.
    """

    file_id: str
    binding: str
    base_length: int
    indexes: tuple[IndexEntry, ...]
    checksums: Checksums | None = None


def binding_of(metadata: FileMetaData) -> str:
    """Returns the binding of a file, 32 hexadecimal digits.

    It is a hash over row counts and each chunk's position, sizes, encodings and statistics.
    Deprecated bounds without new ones are hashed as both, because adding column orders to a footer
    copies them.
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
    """Returns directory and pointer. Raises ``IndexSpecError`` if it is too long."""
    entries = [_entry_document(entry) for entry in directory.indexes]
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


def _entry_document(entry: IndexEntry) -> dict[str, Any]:
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
    """Returns the directory that the footer points at, or None if it points at none.

    ``binding`` returns the binding of ``metadata``, if it is known already.

    Raises ``FormatError`` if the directory is damaged or of an unknown version. Raises
    ``StaleError`` if it belongs to another file. It also raises ``StaleError`` if there is no valid
    directory and the pointer does not end at the footer: the pointer was then copied from another
    file.
    """
    value = metadata.key_value(FOOTER_KEY)
    if value is None:
        return None
    pointer = json_object(value)
    if "granules" in pointer and "version" not in pointer:
        return None  # an exported section describes itself under this key
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
    """Returns the directory at ``pointer``. Raises ``FormatError`` if it is damaged."""
    if pointer.get("version") != _VERSION:
        raise FormatError(
            f"directory version {_shortened(pointer.get('version'))} is not known here"
        )
    offset, length, crc32 = (integer_of(pointer, name) for name in ("offset", "length", "crc32"))
    check_claim("the directory", length, MAX_DIRECTORY_BYTES)
    data = source.read([(offset, length)])[0]
    if zlib.crc32(data) != crc32:
        raise FormatError("the directory does not match its checksum")
    return _parse_directory(json_object(bytes(data)), source.size)


def _parse_directory(document: dict[str, Any], size: int) -> Directory:
    indexes = document.get("indexes")
    if not isinstance(indexes, list) or not all(isinstance(entry, dict) for entry in indexes):
        raise FormatError("the directory lists no indexes")
    if len(indexes) > MAX_INDEXES:
        raise FormatError(
            f"the directory lists {len(indexes):,} indexes, at most {MAX_INDEXES:,} allowed"
        )
    entries = tuple(_parse_entry(entry, size) for entry in indexes)
    _check_functions(entries)
    _check_disjoint(entries)
    return Directory(
        string_of(document, "file_id"),
        string_of(document, "binding"),
        integer_of(document, "base_length"),
        entries,
        _parse_checksums(document.get("checksums")),
    )


def _parse_checksums(document: Any) -> Checksums | None:
    if document is None:
        return None
    try:
        packed = base64.b64decode(string_of(document, "page_indexes"), validate=True)
        page_indexes = struct.unpack(f"<{len(packed) // 4}I", packed)
    except (AttributeError, binascii.Error, struct.error) as error:
        raise FormatError("the directory's checksums cannot be read") from error
    return Checksums(integer_of(document, "footer"), page_indexes)


def verify_footer(
    metadata: FileMetaData, footer: bytes, source: Source, offset: int
) -> Checksums | None:
    """Returns the checksums that the directory stores, after checking the footer against them.

    Returns None if there is no directory with checksums, or the footer that points at it was copied
    from another file. Raises ``FormatError`` if the footer does not match its checksum.
    """
    value = metadata.key_value(FOOTER_KEY)
    try:
        pointer = json_object(value or "{}")
        checksums = directory_at(pointer, source).checksums
        end = integer_of(pointer, "offset") + integer_of(pointer, "length")
    except FormatError:
        return None
    if checksums is None or end != offset:
        return None
    if footer_checksum(footer) != checksums.footer:
        message = "the footer does not match its checksum: damaged, or changed by another tool"
        raise FormatError(message, Where(offset=offset))
    return checksums


def _check_functions(entries: Sequence[IndexEntry]) -> None:
    texts = [entry.on for entry in entries if entry.meaning]
    size = sum(map(len, texts))
    if len(texts) > _MAX_FUNCTIONS or size > _MAX_FUNCTION_CHARACTERS:
        raise FormatError(
            f"indexes on {len(texts):,} functions of {size:,} characters are too many"
        )


def _check_disjoint(entries: Sequence[IndexEntry]) -> None:
    """Raises ``FormatError`` if sections overlap, as their bytes could be read often."""
    places = sorted((entry.offset, entry.length, entry.name) for entry in entries)
    for (offset, length, name), (next_offset, _, next_name) in itertools.pairwise(places):
        if offset + length > next_offset:
            raise FormatError(f"indexes {name} and {next_name} overlap")


def _parse_entry(entry: dict[str, Any], size: int) -> IndexEntry:
    params = entry.get("params")
    if not isinstance(params, dict) or _nests_deeper(params, _MAX_NESTING):
        raise FormatError("an index has no parameters, or too deeply nested ones")
    parsed = IndexEntry(
        string_of(entry, "kind"),
        integer_of(entry, "kind_version"),
        string_of(entry, "on"),
        params,
        integer_of(entry, "offset"),
        integer_of(entry, "length"),
        integer_of(entry, "meta_length"),
        integer_of(entry, "meta_crc32"),
        string_of(entry, "meaning") if "meaning" in entry else "",
    )
    if parsed.offset + parsed.length > size or parsed.meta_length > parsed.length:
        raise FormatError(f"index {parsed.name} lies outside the file")
    return parsed


def _nests_deeper(value: object, max_levels: int) -> bool:
    """True if lists or objects nest more than ``max_levels`` deep in ``value``."""
    level = [value]
    for _ in range(max_levels):
        level = [
            inner
            for outer in level
            if isinstance(outer, dict | list)
            for inner in (outer.values() if isinstance(outer, dict) else outer)
        ]
        if not level:
            break
    return any(isinstance(inner, dict | list) for inner in level)


def json_object(text: str | bytes) -> dict[str, Any]:
    """Parses a JSON object. Raises ``FormatError`` for anything else."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise FormatError("the directory is not a JSON document") from error
    if not isinstance(value, dict):
        raise FormatError("the directory is not a JSON object")
    return value


def integer_of(value: Mapping[str, Any], name: str) -> int:
    """Returns a count of bytes, 0 to 2**63 - 1. Raises ``FormatError`` for anything else."""
    number = value.get(name)
    if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number < _MAX_INTEGER:
        raise FormatError(f"{name} is {_shortened(number)}, not a count of bytes")
    return number


def string_of(value: Mapping[str, Any], name: str) -> str:
    """Returns a string. Raises ``FormatError`` for anything else, and for lone surrogates."""
    text = value.get(name)
    if isinstance(text, str):
        with contextlib.suppress(UnicodeEncodeError):
            text.encode()
            return text
    raise FormatError(f"{name} is {_shortened(text)}, not text")


def _shortened(value: object) -> str:
    """Returns a value for a message, shortened: an untrusted file may hold megabytes."""
    return reprlib.repr(value)
