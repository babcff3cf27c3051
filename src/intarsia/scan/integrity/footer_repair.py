"""Repairs wrong footer entries of a chunk if the chunk's own bytes prove the right ones.

The format has no checksum for the footer. If pages contradict a chunk's footer entry, other values
are used if all of these conditions are met:

- Consecutive complete pages, each matching its checksum, hold the rows of the row group.
- No other chunk claims these bytes. They begin where the footer says, and end where the next
  structure begins. Or they begin where the chunk before ends, and have the size in the footer.
- The footer's codec decompresses all pages, or exactly one other codec does.
- An encoding that the footer does not list is in two pages at least, or in its other list.
- pyarrow decodes the pages.

One wrong byte in a footer changes one of these facts and leaves the others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from intarsia.decode.page_data import num_rows
from intarsia.decode.page_validation import check_page, data_encodings, undoes
from intarsia.decode.splice import ChunkBytes, RowGroupBytes, decode_root
from intarsia.errors import FormatError
from intarsia.file.open_file import OpenedFile
from intarsia.parquet.metadata import (
    ColumnMetaData,
    CompressionCodec,
    Encoding,
    PageHeader,
    PageType,
)
from intarsia.parquet.page_header import checksum_problem, num_values, read_page_header
from intarsia.parquet.schema import Leaf

_LEVEL_ENCODINGS = {Encoding.RLE, Encoding.BIT_PACKED}
_DECODABLE_CODECS = set(CompressionCodec) - {CompressionCodec.LZO}
_REPAIRABLE_FIELDS = (
    "data_page_offset",
    "dictionary_page_offset",
    "total_compressed_size",
    "num_values",
    "codec",
    "encodings",
    "encoding_stats",
)


@dataclass(frozen=True, slots=True)
class _Page:
    """A page that matches its checksum. ``data`` is header and body; ``offset`` is in the chunk."""

    offset: int
    header: PageHeader
    data: memoryview
    body: memoryview

    @property
    def values(self) -> int | None:
        return num_values(self.header)


def repair_footer(file: OpenedFile, row_group: int, leaf: int) -> bool:
    """Repairs the footer entry of a chunk if it is wrong and the right one is proven.

    Returns True if it was repaired; the file warns, and the caller must plan again. Does nothing
    unless damage is skipped (``on_corrupt="skip"``).
    """
    if not file.options.skips_corrupt or file.trusts_bounds:
        return False
    if (row_group, leaf) in file.unrepairable_chunks:
        return False
    try:
        chunk = file.chunk(row_group, leaf)
    except FormatError:
        return False
    file.unrepairable_chunks.add((row_group, leaf))
    for start, stop in dict.fromkeys(_candidate_ranges(file, row_group, leaf, chunk)):
        if not file.layout.is_free(row_group, leaf, start, stop):
            continue
        data = file.source.read([(start, stop - start)])[0]
        proven = _proven_metadata(file, row_group, file.schema.leaves[leaf], start, data)
        if proven is None:
            continue
        wrong = [
            name for name in _REPAIRABLE_FIELDS if getattr(proven, name) != getattr(chunk, name)
        ]
        if wrong:
            file.repair_chunk(row_group, leaf, proven, wrong)
        return bool(wrong)
    return False


def _candidate_ranges(
    file: OpenedFile, row_group: int, leaf: int, chunk: ColumnMetaData
) -> Iterator[tuple[int, int]]:
    """Yields byte ranges of the chunk, each assuming that one footer entry is wrong."""
    size = chunk.total_compressed_size
    yield chunk.start, chunk.start + size
    before = file.layout.before(row_group, leaf)
    yield before, before + size
    for start in (chunk.dictionary_page_offset, chunk.data_page_offset):
        if start:
            yield start, file.layout.behind(row_group, leaf, start)


def _proven_metadata(
    file: OpenedFile, row_group: int, leaf: Leaf, start: int, data: memoryview
) -> ColumnMetaData | None:
    """Returns the metadata that the bytes at ``start`` prove; None if they prove nothing."""
    chunk, rows = file.chunk(row_group, leaf.index), file.num_rows_in(row_group)
    try:
        pages = list(_pages(data))
        data_pages = [page for page in pages if page.values is not None]
        codec = _proven_codec(chunk, pages)
        encodings = _with_encodings(chunk, leaf, pages, data_pages)
        if codec is None or encodings is None or not data_pages:
            return None
        repaired = replace(
            encodings,
            codec=codec,
            num_values=sum(page.values or 0 for page in data_pages),
            total_compressed_size=data.nbytes,
        )
        first = data_pages[0].offset
        if (
            chunk.data_page_offset != start
        ):  # else the footer has no separate offset of the dictionary
            dictionary = start if first else None
            repaired = replace(
                repaired, data_page_offset=start + first, dictionary_page_offset=dictionary
            )
        if _rows(data_pages, leaf, codec) != rows:
            return None
        if any(check_page(page.data, leaf, repaired).problem for page in pages):
            return None
        template = file.templates.physical(file.schema, leaf)
        spliced = ChunkBytes(repaired, None, [data], repaired.num_values)
        decoded = decode_root(template, [RowGroupBytes(rows, [spliced])])
    except FormatError:
        return None
    return repaired if len(decoded) == rows else None


def _pages(data: memoryview) -> Iterator[_Page]:
    """Yields the pages in ``data``. Raises ``FormatError`` if it holds anything else."""
    start = 0
    while start < data.nbytes:
        header, length = read_page_header(data[start:])
        stop = start + length + header.compressed_page_size
        page = _Page(start, header, data[start:stop], data[start + length : stop])
        is_dictionary = header.type == PageType.DICTIONARY_PAGE and start == 0
        has_values = page.values is not None and page.values >= 0
        if stop > data.nbytes or not (is_dictionary or has_values):
            raise FormatError("no whole page of data")
        if header.crc is None or checksum_problem(header, page.body):
            raise FormatError("not with its checksum")
        yield page
        start = stop


def _proven_codec(chunk: ColumnMetaData, pages: Sequence[_Page]) -> int | None:
    """Returns the codec that decompresses all pages: the footer's, or else the only other one."""

    def decompresses(codec: int) -> bool:
        return all(undoes(codec, page.header, page.body) for page in pages)

    if all(_is_stored_plain(page.header) for page in pages):
        return chunk.codec if chunk.codec in _DECODABLE_CODECS else CompressionCodec.UNCOMPRESSED
    if decompresses(chunk.codec):
        return chunk.codec
    codecs = [int(codec) for codec in CompressionCodec if decompresses(codec)]
    if CompressionCodec.LZ4_RAW in codecs:  # the older LZ4 codec decompresses raw blocks too
        codecs = [codec for codec in codecs if codec != CompressionCodec.LZ4]
    return codecs[0] if len(codecs) == 1 else None


def _is_stored_plain(header: PageHeader) -> bool:
    v2 = header.data_page_header_v2
    return v2 is not None and v2.is_compressed is False


def _with_encodings(
    chunk: ColumnMetaData, leaf: Leaf, pages: Sequence[_Page], data_pages: Sequence[_Page]
) -> ColumnMetaData | None:
    """Returns the chunk with the encodings of its pages; None if they are not proven."""
    dictionary = pages[0].header.dictionary_page_header if pages else None
    footer_encodings = (
        set(chunk.encodings) - _LEVEL_ENCODINGS - ({dictionary.encoding} if dictionary else set())
    )
    counts = Counter(_encoding_of(page.header) for page in data_pages)
    unnamed = {encoding for encoding in counts if encoding not in data_encodings(chunk)}
    if any(counts[encoding] < 2 and encoding not in footer_encodings for encoding in unnamed):
        return None
    levels: Counter[int | None] = Counter()
    for page in data_pages:
        v1 = page.header.data_page_header
        if v1 is None:
            continue
        of_levels = {
            *([v1.definition_level_encoding] if leaf.max_definition_level else []),
            *([v1.repetition_level_encoding] if leaf.max_repetition_level else []),
        } - set(chunk.encodings)
        is_twice = v1.definition_level_encoding == v1.repetition_level_encoding
        levels.update(dict.fromkeys(of_levels, 2 if is_twice else 1))
    if None in levels or any(count < 2 for count in levels.values()):
        return None
    if not unnamed and not levels:
        return chunk
    named = {*chunk.encodings, *unnamed, *(level for level in levels if level is not None)}
    stats = None if unnamed else chunk.encoding_stats
    return replace(chunk, encodings=sorted(named), encoding_stats=stats)


def _encoding_of(header: PageHeader) -> int:
    data = header.data_page_header or header.data_page_header_v2
    assert data is not None
    return data.encoding


def _rows(pages: Sequence[_Page], leaf: Leaf, codec: int) -> int:
    """Counts the rows of data pages. Raises ``FormatError`` if a page begins within a row."""
    if not leaf.max_repetition_level:
        return sum(page.values or 0 for page in pages)
    return sum(num_rows(page.header, page.body, leaf, codec) for page in pages)
