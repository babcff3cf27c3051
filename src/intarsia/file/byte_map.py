"""Maps the bytes of an opened file: chunks, pages, indexes, footer. Reads no page index."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from intarsia.errors import FormatError
from intarsia.file.open_file import OpenedFile
from intarsia.index.directory import integer_of, json_object
from intarsia.parquet.footer import MAGIC
from intarsia.parquet.footer_cache import FOOTER_KEY
from intarsia.parquet.metadata import ColumnChunk
from intarsia.plan.file_regions import Band, ChunkMap, FileMap, Part


def map_of(file: OpenedFile, leaves: Sequence[int], *, with_indexes: bool) -> FileMap:
    """Returns the map of a file, with the pages of ``leaves`` whose offset indexes are loaded.

    If ``with_indexes``, embedded indexes are parts of their own, and the directory is read if it
    has not been. Otherwise their bytes count as ``Part.OTHER``.
    """
    groups = range(len(file.metadata.row_groups))
    chunks = [chunk for group in groups for leaf in leaves if (chunk := _chunk(file, group, leaf))]
    return FileMap(
        file.source.size,
        file.row_group_starts,
        tuple(chunks),
        tuple(_filled(file, _disjoint(file, _bands(file, with_indexes)), with_indexes)),
    )


def _chunk(file: OpenedFile, row_group: int, leaf: int) -> ChunkMap | None:
    """Returns a chunk's map, or None if its entry is damaged or its data is in another file."""
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
    """Yields the places that the footer and the directory name, in any order."""
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
        if not file.sections.is_in_sidecar(entry):
            yield Band(Part.SECTION, entry.offset, entry.length, None, entry.name)
    pointer = json_object(file.metadata.key_value(FOOTER_KEY) or "{}")
    place = integer_of(pointer, "offset"), integer_of(pointer, "length")
    yield Band(Part.DIRECTORY, *place)


def _bands_of(column: ColumnChunk, group: int, name: str) -> Iterator[Band]:
    """Yields the places of a chunk, its page indexes and its bloom filter."""
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
    """Yields bands in order, cut to the file. Bytes in two bands belong to the first one."""
    at = len(MAGIC)
    for band in sorted(bands, key=lambda band: band.offset):
        start, stop = max(at, band.offset), min(band.offset + band.length, file.source.size)
        if start < stop:
            yield Band(band.part, start, stop - start, band.row_group, band.name)
            at = stop


def _filled(file: OpenedFile, bands: Iterable[Band], with_indexes: bool) -> Iterator[Band]:
    """Yields bands and the gaps between them. The gap before added indexes is the old footer."""
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
