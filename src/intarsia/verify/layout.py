"""Checks that no two chunks, and no two indexes, share bytes by the footer's offsets."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from intarsia.errors import FormatError, Where
from intarsia.file.file_footer import ChunkId
from intarsia.file.open_file import OpenedFile
from intarsia.parquet.metadata import ColumnChunk
from intarsia.verify.finding import Finding, error

_CHUNK = "chunk"


class _Place(NamedTuple):
    """Bytes ``[start, stop)`` of a chunk or of one of its indexes."""

    start: int
    stop: int
    chunk: ChunkId
    what: str


def overlapping(file: OpenedFile) -> dict[ChunkId, Finding]:
    """Returns a finding for each chunk that begins, or has an index that begins, within another."""
    findings: dict[ChunkId, Finding] = {}
    before: dict[bool, _Place] = {}
    for place in sorted(_places(file)):
        is_chunk = place.what == _CHUNK
        last = before.get(is_chunk)
        if last is not None and place.start < last.stop:
            findings.setdefault(place.chunk, _finding(file, place, last))
        if last is None or place.stop > last.stop:
            before[is_chunk] = place
    return findings


def _finding(file: OpenedFile, place: _Place, before: _Place) -> Finding:
    group, leaf = place.chunk
    where = Where(file.name, group, file.schema.leaves[leaf].name, offset=place.start)
    subject = "it" if place.what == _CHUNK else f"its {place.what}"
    group, leaf = before.chunk
    column = file.schema.leaves[leaf].name
    return error(
        where, f"{subject} begins within the {before.what} of row group {group}, column {column}"
    )


def _places(file: OpenedFile) -> Iterator[_Place]:
    for group in range(len(file.metadata.row_groups)):
        for leaf in range(len(file.schema.leaves)):
            try:
                chunk = file.column_chunk(group, leaf)
            except FormatError:
                continue  # the check of the chunk reports it
            for what, start, length in _parts(chunk):
                yield _Place(start, start + length, (group, leaf), what)


def _parts(chunk: ColumnChunk) -> Iterator[tuple[str, int, int]]:
    data = chunk.meta_data
    if data is None or chunk.file_path:
        return
    for what, offset, length in (
        (_CHUNK, data.start, data.total_compressed_size if data.num_values else 0),
        ("offset index", chunk.offset_index_offset, chunk.offset_index_length),
        ("column index", chunk.column_index_offset, chunk.column_index_length),
        ("bloom filter", data.bloom_filter_offset, 1),  # some writers state a wrong length
    ):
        if offset is not None and length is not None and length > 0:
            yield what, offset, length
