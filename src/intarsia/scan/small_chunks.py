"""Yields chunks in order; small ones are decoded many at a time.

Opening a spliced file takes longer than decoding a few values. Chunks with the same physical type
therefore become row groups of one spliced file.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Sequence

from intarsia.decode.page_size_limit import value_bytes
from intarsia.decode.splice import ChunkBytes, RowGroupBytes, decode_root, leaf_array
from intarsia.errors import FormatError
from intarsia.file.chunk_reader import Chunk
from intarsia.file.file_footer import ChunkId
from intarsia.file.open_file import OpenedFile
from intarsia.parquet.metadata import Type
from intarsia.parquet.page_header import PageAt

_MAX_BATCH_CHUNKS = 256
"""Opening the spliced file then takes a hundredth of the time."""
_MAX_STORED_BYTES = 64 * 1024
"""Decoding a larger chunk takes longer than opening a spliced file."""
_MAX_DECODED_BYTES = 128 * 1024
"""Estimated upper limit for a chunk, so that a batch takes at most 32 MiB."""


def chunks_of(
    file: OpenedFile, ids: Iterable[tuple[ChunkId, bool]]
) -> Iterator[Chunk | FormatError]:
    """Yields each chunk of ``ids``, by row group and leaf, or the error of one that has none.

    Each id comes with True if the caller will ask for all values of the chunk. The values of small
    chunks are then decoded ahead.
    """
    batch: list[Chunk | FormatError] = []
    chunks_by_kind: dict[Hashable, list[tuple[Chunk, list[PageAt]]]] = defaultdict(list)
    for chunk_id, has_values in ids:
        try:
            chunk: Chunk | FormatError = Chunk(file, *chunk_id)
        except FormatError as error:
            chunk = error
        batch.append(chunk)
        if has_values and isinstance(chunk, Chunk):
            pages = _pages_of_small(chunk)
            if pages:
                chunks_by_kind[_kind_of(chunk)].append((chunk, pages))
        if len(batch) == _MAX_BATCH_CHUNKS:
            _decode(chunks_by_kind.values())
            yield from batch
            batch.clear()
            chunks_by_kind.clear()
    _decode(chunks_by_kind.values())
    yield from batch


def _kind_of(chunk: Chunk) -> Hashable:
    """Returns a key; chunks with the same key can be decoded as row groups of one column."""
    leaf, elements = chunk.leaf, chunk.file.schema.elements
    nesting = tuple(elements[at].repetition_type for at in leaf.elements)
    return leaf.element.type, leaf.element.type_length, nesting


def _pages_of_small(chunk: Chunk) -> list[PageAt]:
    """Loads a small chunk and returns its pages; returns none if it is large or damaged."""
    metadata, element = chunk.metadata, chunk.leaf.element
    is_small = metadata.num_values and metadata.total_compressed_size <= _MAX_STORED_BYTES
    if not is_small or metadata.type != element.type:
        return []
    try:
        chunk.load()
        pages = list(chunk.pages())
        chunk.check(pages)
    except FormatError:  # decoding the chunk by itself reports it
        return []
    size = sum(page.header.uncompressed_page_size for page in pages)
    width = value_bytes(element) + (size if element.type == Type.BYTE_ARRAY else 0)
    values = sum(page.num_values or 0 for page in pages)
    if size + values * width > _MAX_DECODED_BYTES:
        return []
    first = 1 if pages[0].is_dictionary else 0
    return pages if all(page.num_values for page in pages[first:]) else []


def _decode(chunks_by_kind: Iterable[Sequence[tuple[Chunk, list[PageAt]]]]) -> None:
    """Decodes the chunks of each kind together, if pyarrow can decode all of them."""
    for chunks in chunks_by_kind:
        first_chunk = chunks[0][0]
        groups = []
        for chunk, pages in chunks:
            values = sum(page.num_values or 0 for page in pages)
            data = ChunkBytes(chunk.metadata, None, [chunk.bytes_of(pages)], values)
            groups.append(RowGroupBytes(chunk.num_rows, [data]))
        template = first_chunk.file.templates.physical(first_chunk.file.schema, first_chunk.leaf)
        try:
            rows = decode_root(template, groups)
        except (FormatError, MemoryError):  # decoding each chunk by itself reports the error
            continue
        row = 0
        for chunk, pages in chunks:
            chunk.hold(pages, leaf_array(rows.slice(row, chunk.num_rows).combine_chunks()))
            row += chunk.num_rows
