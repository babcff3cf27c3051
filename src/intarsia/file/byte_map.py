"""Where everything is in an opened file. Nothing is read for it but what the caller has fetched."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from intarsia.errors import FormatError
from intarsia.file.open_file import OpenedFile
from intarsia.index.directory import FOOTER_KEY, integer_of, json_object
from intarsia.parquet.footer import MAGIC
from intarsia.parquet.metadata import ColumnChunk
from intarsia.plan.file_regions import Band, ChunkMap, FileMap, Part


def map_of(file: OpenedFile, leaves: Sequence[int], *, with_indexes: bool) -> FileMap:
    """The map of a file, with the pages of ``leaves`` as far as their offset indexes are at hand.

    ``with_indexes`` tells embedded indexes apart, for which the directory is read if it has not
    been; without, they are other bytes.
    """
    groups = range(len(file.metadata.row_groups))
    chunks = [found for group in groups for leaf in leaves if (found := _chunk(file, group, leaf))]
    return FileMap(
        file.source.size,
        file.row_group_starts,
        tuple(chunks),
        tuple(_filled(file, _disjoint(file, _bands(file, with_indexes)), with_indexes)),
    )


def _chunk(file: OpenedFile, row_group: int, leaf: int) -> ChunkMap | None:
    """None for a chunk that cannot be decoded, or is not in this file."""
    try:
        length = file.chunk(row_group, leaf).total_compressed_size
    except FormatError:
        return None
    return ChunkMap(
        row_group,
        leaf,
        file.schema.leaves[leaf].name,
        int(file.row_group_starts[row_group]),
        file.num_rows_in(row_group),
        length,
        file.page_indexes.known_offsets(row_group, leaf),
    )


def _bands(file: OpenedFile, with_indexes: bool) -> Iterator[Band]:
    """What the footer and the directory tell of, in any order."""
    yield Band(Part.FOOTER, file.footer_offset, file.source.size - file.footer_offset)
    for number, group in enumerate(file.metadata.row_groups):
        for leaf in file.schema.leaves:
            try:
                column = group.columns[leaf.index]
            except FormatError:
                continue
            yield from _bands_of(column, number, leaf.name)
    if not with_indexes or file.directory is None:
        return
    for entry in file.sections.entries:
        if not file.sections.is_beside(entry):
            yield Band(Part.SECTION, entry.offset, entry.length, None, entry.name)
    pointer = json_object(file.metadata.key_value(FOOTER_KEY) or "{}")
    place = integer_of(pointer, "offset"), integer_of(pointer, "length")
    yield Band(Part.DIRECTORY, *place)


def _bands_of(column: ColumnChunk, group: int, name: str) -> Iterator[Band]:
    """A chunk, and the format's own indexes of it."""
    places = [
        (Part.PAGE_INDEX, column.column_index_offset, column.column_index_length),
        (Part.PAGE_INDEX, column.offset_index_offset, column.offset_index_length),
    ]
    chunk = column.meta_data
    if chunk is not None and column.file_path is None:
        yield Band(Part.CHUNK, chunk.start, chunk.total_compressed_size, group, name)
        places.append((Part.BLOOM_FILTER, chunk.bloom_filter_offset, chunk.bloom_filter_length))
    for part, offset, length in places:
        if offset is not None and length is not None:
            yield Band(part, offset, length, group, name)


def _disjoint(file: OpenedFile, bands: Iterable[Band]) -> Iterator[Band]:
    """Bands in order, cut to the file; of bytes that two claim, the first has them."""
    at = len(MAGIC)
    for band in sorted(bands, key=lambda band: band.offset):
        start, stop = max(at, band.offset), min(band.offset + band.length, file.source.size)
        if start < stop:
            yield Band(band.part, start, stop - start, band.row_group, band.name)
            at = stop


def _filled(file: OpenedFile, bands: Iterable[Band], with_indexes: bool) -> Iterator[Band]:
    """Bands, and what lies between them: before the file's old length, its old footer."""
    directory = file.directory if with_indexes else None
    base = 0 if directory is None else directory.base_length
    at = len(MAGIC)
    for band in bands:
        if at < base <= band.offset:
            yield Band(Part.OLD_FOOTER, at, base - at)
            at = base
        if at < band.offset:
            yield Band(Part.OTHER, at, band.offset - at)
        yield band
        at = band.offset + band.length
