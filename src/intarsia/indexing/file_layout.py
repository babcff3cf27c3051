"""Lays out a file with indexes added or dropped, from parts of its old bytes and new bytes.

::

    as written   PAR1 … row groups … footer
    add          └───────── kept ─────────┘ | new sections | directory | footer'
    add more     └──────────────────── kept ────────────────────────────┘ | … | directory | footer'
    replace one  └─ as it was written ────┘ | page indexes | bloom filters | sections | …
    drop all     └─ as it was written ────┘

Page indexes stay together: DataFusion fetches them as one range, with all bytes between them.
"""

from __future__ import annotations

import zlib
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

from intarsia.errors import FormatError, IndexSpecError, Where
from intarsia.file.file_footer import ChunkId
from intarsia.file.open_file import OpenedFile
from intarsia.index.base import index_name
from intarsia.index.directory import (
    Checksums,
    Directory,
    binding_of,
    encode_directory,
    footer_checksum,
    page_index_places,
)
from intarsia.index.kinds.distinct_idx1 import KEY, DistinctIDX1
from intarsia.index.parquet_indexes import Bloom, PageIndex, Standard
from intarsia.index.registry import IndexSpec
from intarsia.indexing.build import Builder, names_of, new_file_id
from intarsia.indexing.parquet_index_build import ChunkPart, learned
from intarsia.io.external_sort import Workspace
from intarsia.io.file_parts import Composed, Part
from intarsia.io.source import ByteRange, Source, WindowSource
from intarsia.parquet.footer import (
    Footer,
    framed,
    read_footer,
    with_chunks,
    with_column_orders,
    with_key_values,
)
from intarsia.parquet.footer_cache import FOOTER_KEY, decode_footer
from intarsia.parquet.metadata import ColumnChunk


def base_of(file: OpenedFile) -> Footer:
    """Returns the footer from before indexes were added. Raises ``FormatError`` if it changed."""
    assert file.directory is not None
    length = file.directory.base_length
    try:
        base = read_footer(WindowSource(file.source, 0, length))
        if binding_of(base.metadata) != file.directory.binding:
            raise FormatError("it has other row groups")
    except FormatError as error:
        message = f"the file does not begin with the file that indexes were added to: {error}"
        raise FormatError(message, Where(file.name)) from error
    return base


def added_parts(file: OpenedFile, base: Footer) -> list[tuple[str, ChunkPart[ByteRange]]]:
    """Returns the page indexes and bloom filters that were added to a file, each with its name."""
    named_parts = []
    for leaf in file.schema.leaves:
        for group, base_group in enumerate(base.metadata.row_groups):
            chunk, base_chunk = file.column_chunk(group, leaf.index), base_group.columns[leaf.index]
            for name in ("column_index", "offset_index", "bloom_filter"):
                place = _place(chunk, name)
                if place is not None and place != _place(base_chunk, name):
                    part = ChunkPart((group, leaf.index), place, name)
                    bloom = index_name(leaf.name, Bloom.kind)
                    named_parts.append((bloom if part.is_bloom else PageIndex.kind, part))
    return named_parts


def _place(chunk: ColumnChunk, name: str) -> ByteRange | None:
    """Returns where a chunk's page index or bloom filter is. Returns None if it has none."""
    holder: Any = chunk.meta_data if name == "bloom_filter" else chunk
    offset = getattr(holder, f"{name}_offset", None)
    length = getattr(holder, f"{name}_length", None)
    return None if offset is None or length is None else (offset, length)


def compose(
    file: OpenedFile,
    add: Sequence[IndexSpec],
    drop: Collection[str],
    work: Workspace,
    builder: Builder | None = None,
) -> Composed:
    """Returns ``file`` with the indexes ``add`` and without the indexes named in ``drop``.

    If no index is dropped or replaced, the whole old file is kept and the new parts follow it.
    Otherwise the result begins with the file as it was before indexes were added, and remaining
    indexes are copied. Some of the new parts are files in ``work``. Raises ``FormatError`` as
    ``base_of`` does.
    """
    builder = builder or Builder()
    old = file.directory
    dropped_names = {*drop, *names_of(file, add)} - ({PageIndex.kind} - {*drop})
    entries = [entry for entry in (old.indexes if old else ()) if entry.name not in dropped_names]
    new_parts = _build_parquet_indexes(file, add, builder)
    carried_parts: list[ChunkPart[ByteRange]] = []
    footer, kept_bytes = file.footer, file.source.size
    is_scattered = not all(p.is_bloom for p in new_parts) and bool(page_index_places(file.metadata))
    if old is not None and (
        drop
        or is_scattered
        or len(entries) < len(old.indexes)
        or any(isinstance(i, Bloom) for i in add)
    ):
        base = base_of(file)
        existing_parts = added_parts(file, base)
        carried_parts = [part for index, part in existing_parts if index not in dropped_names]
        if (
            is_scattered
            or len(entries) < len(old.indexes)
            or len(carried_parts) < len(existing_parts)
        ):
            footer, kept_bytes = base.raw, old.base_length
    out = _Parts(kept_bytes)
    is_rewritten = kept_bytes < file.source.size
    for part in sorted(
        [*(carried_parts if is_rewritten else ()), *new_parts], key=lambda part: part.is_bloom
    ):
        out.change(part.chunk, part.fields(out.put(part.data)))
    if is_rewritten:
        entries = [replace(e, offset=out.put((e.offset, e.length))) for e in entries]
    file_id = old.file_id if old else builder.file_id or new_file_id()
    embedded = [index for index in add if not isinstance(index, Standard)]
    for built in builder.sections(file, embedded, file_id, work):
        entry = built.entry(out.end)
        out.put(built.section.data)
        entries.append(entry)
    is_same = kept_bytes == file.source.size == out.end
    if not out.changes and (is_same or (kept_bytes < file.source.size and not entries)):
        return Composed(kept_bytes, ())
    if sum(entry.kind == DistinctIDX1.kind for entry in entries) > 1:
        raise IndexSpecError(f"{file.name}: a file can have only one index {DistinctIDX1.kind}")
    stored = tuple(map(file.sections.stored, entries))
    directory = Directory(
        file_id, binding_of(file.metadata), old.base_length if old else kept_bytes, stored
    )
    return out.with_directory_and_footer(footer, directory, file.source)


def _build_parquet_indexes(
    file: OpenedFile, indexes: Sequence[IndexSpec], builder: Builder
) -> list[ChunkPart[bytes]]:
    """Builds page indexes and bloom filters. Granules are their pages from now on."""
    return [
        part
        for index in indexes
        if isinstance(index, Standard)
        for part in learned(file, builder.standard(file, index))
    ]


class _Parts:
    """The parts that follow the first ``kept_bytes`` bytes of the old file."""

    def __init__(self, kept_bytes: int) -> None:
        self._kept_bytes = self.end = kept_bytes
        self._parts: list[Part] = []
        self._part_at: dict[int, Part] = {}
        self.changes: dict[ChunkId, dict[str, Any]] = {}

    def put(self, part: Part) -> int:
        """Appends ``part`` and returns its offset."""
        offset = self.end
        self._parts.append(part)
        self._part_at[offset] = part
        self.end += part[1] if isinstance(part, tuple) else len(part)
        return offset

    def change(self, chunk: ChunkId, fields: Any) -> None:
        """Records new fields of a chunk's metadata."""
        chunk_fields = self.changes.setdefault(chunk, {})
        for name, value in fields.items():
            chunk_fields[name] = (
                {**chunk_fields.get(name, {}), **value} if isinstance(value, dict) else value
            )

    def with_directory_and_footer(
        self, footer: bytes, directory: Directory, old: Source
    ) -> Composed:
        """Returns all parts, the directory and the new footer. ``old`` is the file as it was."""
        lists = [entry for entry in directory.indexes if entry.kind == DistinctIDX1.kind]
        if self.changes:
            footer = with_chunks(with_column_orders(footer), self.changes)
        if lists:
            footer = with_key_values(footer, {KEY: str(lists[-1].offset)})
        directory = replace(directory, checksums=self._checksums(footer, old))
        document, pointer = encode_directory(directory, self.end)
        ends = (document, framed(with_key_values(footer, {FOOTER_KEY: pointer})))
        return Composed(self._kept_bytes, (*self._parts, *ends))

    def _checksums(self, footer: bytes, old: Source) -> Checksums:
        """Returns the checksums of the new footer and of the page indexes that it points at."""
        places = [place for _, place in page_index_places(decode_footer(footer)[0])]
        kept_places = [place for place in places if place[0] < self._kept_bytes]
        try:
            data: dict[ByteRange, bytes | memoryview] = dict(
                zip(kept_places, old.read(kept_places), strict=True)
            )
        except FormatError:  # outside the file: none of them gets a checksum
            return Checksums(footer_checksum(footer), ())
        for place in places:
            if place not in data:
                part = self._part_at[place[0]]
                data[place] = old.read([part])[0] if isinstance(part, tuple) else part
        return Checksums(footer_checksum(footer), tuple(zlib.crc32(data[p]) for p in places))
