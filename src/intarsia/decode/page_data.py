"""Bodies of data pages: decompression, and the levels inside.

In a V1 page levels and values are compressed together; in a V2 page the levels come first, as they
are, and only the values may be compressed.
"""

from __future__ import annotations

import io
import struct

import pyarrow as pa

from intarsia import deadline
from intarsia.errors import FormatError, OutOfMemoryError, UnsupportedError
from intarsia.parquet.levels import (
    Levels,
    PageLevels,
    bit_packed_bytes,
    decode_hybrid,
    decode_levels,
)
from intarsia.parquet.metadata import (
    CompressionCodec,
    DataPageHeader,
    DataPageHeaderV2,
    Encoding,
    PageHeader,
    PageType,
)
from intarsia.parquet.schema import Leaf
from intarsia.parquet.value_display import numbered

_BLOCKS: dict[int, str] = {CompressionCodec.SNAPPY: "snappy", CompressionCodec.LZ4_RAW: "lz4_raw"}
_STREAMS: dict[int, str] = {
    CompressionCodec.GZIP: "gzip",
    CompressionCodec.BROTLI: "brotli",
    CompressionCodec.ZSTD: "zstd",
}
_HIGHEST_RATIO: dict[int, int] = {
    CompressionCodec.SNAPPY: 22,
    CompressionCodec.GZIP: 1_032,
    CompressionCodec.LZ4: 256,
    CompressionCodec.LZ4_RAW: 256,
    CompressionCodec.BROTLI: 1 << 20,
    CompressionCodec.ZSTD: 1 << 16,
}
"""What a byte can become at most; a page that claims more is not worth allocating for."""
_SLACK = 1024
_MOST_BYTES_A_LEVEL = 8
"""A run of one level takes a header of up to five bytes, and two. Padding of a last run, which
DuckDB fills up to 256 levels, comes on top."""


def check_size(header: PageHeader, codec: int) -> None:
    """Raise ``FormatError`` where a page claims to be longer than its bytes can be.

    Raises ``UnsupportedError`` for a codec not known here.
    """
    claimed, stored = header.uncompressed_page_size, header.compressed_page_size
    if claimed != stored and not is_known(codec):
        raise unknown_codec(codec)
    if claimed > most_bytes(codec, stored):
        raise FormatError(f"a page of {stored:,} bytes claims to hold {claimed:,}")


def is_known(codec: int) -> bool:
    """Can what is compressed by ``codec`` be decompressed here?"""
    return codec == CompressionCodec.UNCOMPRESSED or codec in _HIGHEST_RATIO


def unknown_codec(codec: int) -> UnsupportedError:
    """What to raise of a codec that is not known here."""
    name = numbered(CompressionCodec, codec)
    return UnsupportedError(f"compression codec {name} is not known here")


def most_bytes(codec: int, stored: int) -> int:
    """What so many bytes can become at most, decompressed."""
    return stored * _HIGHEST_RATIO.get(codec, 1) + _SLACK


def decompress(codec: int, data: memoryview, size: int) -> memoryview:
    """The ``size`` bytes that ``data`` holds compressed.

    Raises ``FormatError`` where it holds more or fewer, ``UnsupportedError`` for a codec not known
    here.
    """
    deadline.check()  # every page that is decoded here comes by
    if codec == CompressionCodec.UNCOMPRESSED:
        found = data
    elif size == 0:
        return memoryview(b"")
    elif codec == CompressionCodec.LZ4:
        found = _lz4(data, size)
    elif codec in _STREAMS:
        found = memoryview(_stream(codec, data).read(size + 1))
    else:
        name = _BLOCKS.get(codec)
        if name is None:
            raise unknown_codec(codec)
        found = _block(name, data, size)
    if found.nbytes != size:
        raise FormatError(f"{found.nbytes:,} bytes or more, decompressed, where {size:,} are due")
    return found


class _Stream:
    """A compressed stream, decompressed as far as it is read."""

    def __init__(self, name: str, data: memoryview) -> None:
        self._stream = pa.CompressedInputStream(pa.BufferReader(pa.py_buffer(data)), name)

    def read(self, size: int) -> bytes:
        """The next bytes, ``size`` at most."""
        try:
            return bytes(self._stream.read(size))
        except (pa.ArrowException, OSError) as error:
            raise _failure(error) from error


def _failure(error: Exception) -> FormatError | OutOfMemoryError:
    kind = OutOfMemoryError if isinstance(error, MemoryError) else FormatError
    return kind(f"cannot decompress: {error}")


def _stream(codec: int, data: memoryview) -> _Stream:
    return _Stream(_STREAMS[codec], data)


def _block(name: str, data: memoryview, size: int) -> memoryview:
    """A block of a codec that has no end of its own, if it holds exactly ``size`` bytes."""
    codec = pa.Codec(name)
    try:
        found = memoryview(codec.decompress(data, size)).cast("B")
    except (pa.ArrowException, OSError) as error:
        raise _failure(error) from error
    # Fewer bytes than asked for are no error to the codec: then they fit into less room as well.
    try:
        codec.decompress(data, size - 1)
    except (pa.ArrowException, OSError):
        return found
    raise FormatError(f"fewer than {size:,} bytes, decompressed")


def _lz4(data: memoryview, size: int) -> memoryview:
    """The deprecated LZ4: Hadoop's frames of raw blocks, else one frame or block of LZ4's own."""
    for undo in (_hadoop_blocks, _lz4_frame, _lz4_block):
        try:
            found = undo(data, size)
        except FormatError:
            continue
        if found.nbytes == size:
            return found
    raise FormatError(f"LZ4 in none of its three framings, or not of {size:,} bytes")


def _lz4_frame(data: memoryview, size: int) -> memoryview:
    return memoryview(_Stream("lz4", data).read(size + 1))


def _lz4_block(data: memoryview, size: int) -> memoryview:
    return _block("lz4_raw", data, size)


def _hadoop_blocks(data: memoryview, size: int) -> memoryview:
    """Blocks that each follow their lengths, whole and stored, as big-endian 32-bit integers."""
    out = bytearray()
    at = 0
    while at + 8 <= data.nbytes:
        whole, stored = struct.unpack(">II", data[at : at + 8])
        at += 8
        if stored > data.nbytes - at or len(out) + whole > size:
            raise FormatError("not in Hadoop's framing")
        out += _lz4_block(data[at : at + stored], whole) if whole else b""
        at += stored
    if at != data.nbytes:
        raise FormatError("not in Hadoop's framing")
    return memoryview(bytes(out))


def page_levels(header: PageHeader, body: memoryview, leaf: Leaf, codec: int) -> PageLevels:
    """The levels of a data page. Raises ``FormatError`` where they cannot be decoded."""
    if header.type == PageType.DATA_PAGE_V2:
        return _levels_v2(header, body, leaf)
    v1 = _header_v1(header)
    if not (leaf.max_repetition_level or leaf.max_definition_level):
        return PageLevels(v1.num_values, None, None)
    source = _start_v1(header, body, codec)
    levels: list[Levels | None] = []
    for encoding, highest in (
        (v1.repetition_level_encoding, leaf.max_repetition_level),
        (v1.definition_level_encoding, leaf.max_definition_level),
    ):
        levels.append(_levels_v1(source, encoding, highest, v1.num_values) if highest else None)
    return PageLevels(v1.num_values, *levels)


def num_rows(header: PageHeader, body: memoryview, leaf: Leaf, codec: int) -> int:
    """Rows of a data page of a repeated leaf, by its repetition levels.

    Raises ``FormatError`` where the page begins within a row, or levels cannot be decoded.
    """
    if header.type == PageType.DATA_PAGE_V2:
        v2, (first, _) = _parts_v2(header, body)
        repetition = decode_hybrid(body[:first], leaf.max_repetition_level, v2.num_values)
        count = v2.num_values
    else:
        v1 = _header_v1(header)
        count, encoding = v1.num_values, v1.repetition_level_encoding
        source = _start_v1(header, body, codec)
        repetition = _levels_v1(source, encoding, leaf.max_repetition_level, count)
    levels = PageLevels(count, repetition, None)
    if not levels.begins_a_row:
        raise FormatError("a page begins within a row")
    return levels.num_rows()


def _header_v1(header: PageHeader) -> DataPageHeader:
    if header.data_page_header is None:
        raise FormatError("a page of type DATA_PAGE without its header")
    return header.data_page_header


def _start_v1(header: PageHeader, body: memoryview, codec: int) -> _Stream | io.BytesIO:
    """A V1 page from its start on, where its levels are."""
    check_size(header, codec)
    if codec in _STREAMS:  # no more than the levels take is decompressed
        return _stream(codec, body)
    return io.BytesIO(decompress(codec, body, header.uncompressed_page_size))


def _levels_v1(
    source: _Stream | io.BytesIO, encoding: int | None, max_level: int, count: int
) -> Levels:
    if encoding == Encoding.BIT_PACKED:
        data = source.read(bit_packed_bytes(max_level, count))
    else:
        data = source.read(4)
        length = int.from_bytes(data, "little")
        if length > _MOST_BYTES_A_LEVEL * (count + 1) + _SLACK:
            raise FormatError(f"{count:,} levels claim {length:,} bytes")
        data += source.read(length)
    return decode_levels(memoryview(data), -1 if encoding is None else encoding, max_level, count)[
        0
    ]


def _parts_v2(header: PageHeader, body: memoryview) -> tuple[DataPageHeaderV2, tuple[int, int]]:
    """The V2 header, and the bytes that repetition and definition levels take."""
    v2 = header.data_page_header_v2
    if v2 is None:
        raise FormatError("a page of type DATA_PAGE_V2 without its header")
    first, second = v2.repetition_levels_byte_length, v2.definition_levels_byte_length
    if first < 0 or second < 0 or first + second > body.nbytes:
        raise FormatError(f"levels claim {first + second:,} bytes of a page of {body.nbytes:,}")
    return v2, (first, second)


def _levels_v2(header: PageHeader, body: memoryview, leaf: Leaf) -> PageLevels:
    v2, (first, second) = _parts_v2(header, body)

    def levels(data: memoryview, max_level: int) -> Levels | None:
        if not max_level:
            return None
        return decode_hybrid(data, max_level, v2.num_values)

    return PageLevels(
        v2.num_values,
        levels(body[:first], leaf.max_repetition_level),
        levels(body[first : first + second], leaf.max_definition_level),
    )
