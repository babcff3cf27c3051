"""What a footer says wrongly of a chunk, put right where the chunk's own bytes prove it.

A footer has no checksum in the format. Where pages do not bear out what it says of their chunk,
something else is taken for right if all of this holds:

- whole pages, one behind the other, each with its checksum, hold the rows of the row group;
- they begin where the footer says and end where the next thing begins, or begin where the chunk
  before ends and are as long as the footer says; and no other chunk claims them;
- the footer's codec undoes them all, or else one other does and no third;
- of an encoding that the footer does not name are two pages at least, or its other list names it;
- pyarrow decodes them.

One changed byte of a footer changes one of these witnesses, and leaves the others.
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

_OF_LEVELS = {Encoding.RLE, Encoding.BIT_PACKED}
_DECODED = set(CompressionCodec) - {CompressionCodec.LZO}
_TOLD = (
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
    """A page whose body matches its checksum: ``data`` is all of it, at ``offset`` of its chunk."""

    offset: int
    header: PageHeader
    data: memoryview
    body: memoryview

    @property
    def values(self) -> int | None:
        return num_values(self.header)


def mend(file: OpenedFile, row_group: int, leaf: int) -> bool:
    """Put right what the footer says of a chunk, if that is wrong and can be proven.

    Warns of it, and has the file planned again by whoever goes by it. Only where damage is skipped.
    """
    if not file.options.skips_corrupt or file.trusts_bounds:
        return False
    if (row_group, leaf) in file.unmendable:
        return False
    try:
        chunk = file.chunk(row_group, leaf)
    except FormatError:
        return False
    file.unmendable.add((row_group, leaf))
    for start, stop in dict.fromkeys(_places(file, row_group, leaf, chunk)):
        if not file.layout.is_free(row_group, leaf, start, stop):
            continue
        data = file.source.read([(start, stop - start)])[0]
        found = _proven(file, row_group, file.schema.leaves[leaf], start, data)
        if found is None:
            continue
        wrong = [name for name in _TOLD if getattr(found, name) != getattr(chunk, name)]
        if wrong:
            file.mend_chunk(row_group, leaf, found, wrong)
        return bool(wrong)
    return False


def _places(
    file: OpenedFile, row_group: int, leaf: int, chunk: ColumnMetaData
) -> Iterator[tuple[int, int]]:
    """Where the chunk might be, by all but one of the entries that tell."""
    size = chunk.total_compressed_size
    yield chunk.start, chunk.start + size
    before = file.layout.before(row_group, leaf)
    yield before, before + size
    for start in (chunk.dictionary_page_offset, chunk.data_page_offset):
        if start:
            yield start, file.layout.behind(row_group, leaf, start)


def _proven(
    file: OpenedFile, row_group: int, leaf: Leaf, start: int, data: memoryview
) -> ColumnMetaData | None:
    """What the bytes at ``start`` prove of the chunk; None where they prove nothing."""
    chunk, rows = file.chunk(row_group, leaf.index), file.num_rows_in(row_group)
    try:
        pages = list(_pages(data))
        values = [page for page in pages if page.values is not None]
        codec = _codec(chunk, pages)
        encodings = _with_encodings(chunk, leaf, pages, values)
        if codec is None or encodings is None or not values:
            return None
        found = replace(
            encodings,
            codec=codec,
            num_values=sum(page.values or 0 for page in values),
            total_compressed_size=data.nbytes,
        )
        first = values[0].offset
        if chunk.data_page_offset != start:  # else the footer does not tell the dictionary apart
            dictionary = start if first else None
            found = replace(
                found, data_page_offset=start + first, dictionary_page_offset=dictionary
            )
        if _rows(values, leaf, codec) != rows:
            return None
        if any(check_page(page.data, leaf, found).problem for page in pages):
            return None
        template = file.templates.physical(file.schema, leaf)
        spliced = ChunkBytes(found, None, [data], found.num_values)
        decoded = decode_root(template, [RowGroupBytes(rows, [spliced])])
    except FormatError:
        return None
    return found if len(decoded) == rows else None


def _pages(data: memoryview) -> Iterator[_Page]:
    """The pages that ``data`` is made of. Raises ``FormatError`` where it is of anything else."""
    at = 0
    while at < data.nbytes:
        header, length = read_page_header(data[at:])
        stop = at + length + header.compressed_page_size
        page = _Page(at, header, data[at:stop], data[at + length : stop])
        is_dictionary = header.type == PageType.DICTIONARY_PAGE and at == 0
        is_of_values = page.values is not None and page.values >= 0
        if stop > data.nbytes or not (is_dictionary or is_of_values):
            raise FormatError("no whole page of data")
        if header.crc is None or checksum_problem(header, page.body):
            raise FormatError("not with its checksum")
        yield page
        at = stop


def _codec(chunk: ColumnMetaData, pages: Sequence[_Page]) -> int | None:
    """What undoes all pages: the footer's codec, or else the only other one."""

    def does(codec: int) -> bool:
        return all(undoes(codec, page.header, page.body) for page in pages)

    if all(_is_stored_plain(page.header) for page in pages):
        return chunk.codec if chunk.codec in _DECODED else CompressionCodec.UNCOMPRESSED
    if does(chunk.codec):
        return chunk.codec
    found = [int(codec) for codec in CompressionCodec if does(codec)]
    if CompressionCodec.LZ4_RAW in found:  # the older LZ4 takes raw blocks as well
        found = [codec for codec in found if codec != CompressionCodec.LZ4]
    return found[0] if len(found) == 1 else None


def _is_stored_plain(header: PageHeader) -> bool:
    v2 = header.data_page_header_v2
    return v2 is not None and v2.is_compressed is False


def _with_encodings(
    chunk: ColumnMetaData, leaf: Leaf, pages: Sequence[_Page], values: Sequence[_Page]
) -> ColumnMetaData | None:
    """The chunk with the encodings its pages are in; None where it cannot be told who is right."""
    dictionary = pages[0].header.dictionary_page_header if pages else None
    others = set(chunk.encodings) - _OF_LEVELS - ({dictionary.encoding} if dictionary else set())
    counts = Counter(_encoding(page.header) for page in values)
    unnamed = {encoding for encoding in counts if encoding not in data_encodings(chunk)}
    if any(counts[encoding] < 2 and encoding not in others for encoding in unnamed):
        return None
    levels: Counter[int | None] = Counter()
    for page in values:
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


def _encoding(header: PageHeader) -> int:
    data = header.data_page_header or header.data_page_header_v2
    assert data is not None
    return data.encoding


def _rows(pages: Sequence[_Page], leaf: Leaf, codec: int) -> int:
    """Rows of data pages. Raises ``FormatError`` where one begins within a row."""
    if not leaf.max_repetition_level:
        return sum(page.values or 0 for page in pages)
    return sum(num_rows(page.header, page.body, leaf, codec) for page in pages)
