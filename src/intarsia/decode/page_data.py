"""Bodies of data pages: decompression, and the levels inside.

A V1 page compresses levels and values together. In a V2 page the levels come first, uncompressed,
and only the values may be compressed.
"""

from __future__ import annotations

import io
import struct

import pyarrow as pa

import intarsia.deadline as deadline
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

_BLOCK_CODECS: dict[int, str] = {
    CompressionCodec.SNAPPY: "snappy",
    CompressionCodec.LZ4_RAW: "lz4_raw",
}
_STREAM_CODECS: dict[int, str] = {
    CompressionCodec.GZIP: "gzip",
    CompressionCodec.BROTLI: "brotli",
    CompressionCodec.ZSTD: "zstd",
}
_MAX_COMPRESSION_RATIO: dict[int, int] = {
    CompressionCodec.SNAPPY: 22,
    CompressionCodec.GZIP: 1_032,
    CompressionCodec.LZ4: 256,
    CompressionCodec.LZ4_RAW: 256,
    CompressionCodec.BROTLI: 1 << 20,
    CompressionCodec.ZSTD: 1 << 16,
}
"""Most bytes that one compressed byte can become. A page that claims more is rejected before memory
is allocated for it.
"""
_SLACK_BYTES = 1024
"""Bytes that are allowed in addition, for small pages."""
_MAX_BYTES_PER_LEVEL = 8
"""A run of one level takes seven bytes at most: a header of up to five, and two. DuckDB also pads
the last run to 256 levels.
"""


def check_size(header: PageHeader, codec: int) -> None:
    """Raises ``FormatError`` if a page claims more bytes than it can decompress to."""
    claimed_bytes, stored_bytes = header.uncompressed_page_size, header.compressed_page_size
    if claimed_bytes != stored_bytes and not is_known(codec):
        raise unknown_codec(codec)
    if claimed_bytes > most_bytes(codec, stored_bytes):
        raise FormatError(f"a page of {stored_bytes:,} bytes claims to hold {claimed_bytes:,}")


def is_known(codec: int) -> bool:
    """True if Intarsia can decompress ``codec``."""
    return codec == CompressionCodec.UNCOMPRESSED or codec in _MAX_COMPRESSION_RATIO


def unknown_codec(codec: int) -> UnsupportedError:
    """Returns the error for a codec that Intarsia cannot decompress."""
    name = numbered(CompressionCodec, codec)
    return UnsupportedError(f"compression codec {name} is not supported")


def most_bytes(codec: int, stored: int) -> int:
    """Returns the most bytes that ``stored`` compressed bytes can become."""
    return stored * _MAX_COMPRESSION_RATIO.get(codec, 1) + _SLACK_BYTES


def decompress(codec: int, data: memoryview, size: int) -> memoryview:
    """Returns exactly ``size`` bytes. Raises ``FormatError``, or ``UnsupportedError``."""
    deadline.check()  # every decompressed page passes here
    if codec == CompressionCodec.UNCOMPRESSED:
        decompressed = data
    elif size == 0:
        return memoryview(b"")
    elif codec == CompressionCodec.LZ4:
        decompressed = _lz4(data, size)
    elif codec in _STREAM_CODECS:
        decompressed = memoryview(_stream(codec, data).read(size + 1))
    else:
        name = _BLOCK_CODECS.get(codec)
        if name is None:
            raise unknown_codec(codec)
        decompressed = _block(name, data, size)
    if decompressed.nbytes != size:
        raise FormatError(
            f"{decompressed.nbytes:,} bytes or more when decompressed, where {size:,} are expected"
        )
    return decompressed


class _Stream:
    """A compressed stream that decompresses only what is read."""

    def __init__(self, name: str, data: memoryview) -> None:
        self._stream = pa.CompressedInputStream(pa.BufferReader(pa.py_buffer(data)), name)

    def read(self, size: int) -> bytes:
        """Returns the next bytes, at most ``size``."""
        try:
            return bytes(self._stream.read(size))
        except (pa.ArrowException, OSError) as error:
            raise _decompression_error(error) from error


def _decompression_error(error: Exception) -> FormatError | OutOfMemoryError:
    kind = OutOfMemoryError if isinstance(error, MemoryError) else FormatError
    return kind(f"cannot decompress: {error}")


def _stream(codec: int, data: memoryview) -> _Stream:
    return _Stream(_STREAM_CODECS[codec], data)


def _block(name: str, data: memoryview, size: int) -> memoryview:
    """Returns a decompressed block of exactly ``size`` bytes, by a codec without an end mark."""
    codec = pa.Codec(name)
    try:
        decompressed = memoryview(codec.decompress(data, size)).cast("B")
    except (pa.ArrowException, OSError) as error:
        raise _decompression_error(error) from error
    # The codec accepts a block of fewer bytes, which then also fits into a smaller buffer.
    try:
        codec.decompress(data, size - 1)
    except (pa.ArrowException, OSError):
        return decompressed
    raise FormatError(f"fewer than {size:,} bytes after decompression")


def _lz4(data: memoryview, size: int) -> memoryview:
    """Decompresses the deprecated LZ4 codec: Hadoop's framing, an LZ4 frame, or a raw block."""
    for decompress_framing in (_hadoop_blocks, _lz4_frame, _lz4_block):
        try:
            decompressed = decompress_framing(data, size)
        except FormatError:
            continue
        if decompressed.nbytes == size:
            return decompressed
    raise FormatError(f"not LZ4 in any of its three framings, or not of {size:,} bytes")


def _lz4_frame(data: memoryview, size: int) -> memoryview:
    return memoryview(_Stream("lz4", data).read(size + 1))


def _lz4_block(data: memoryview, size: int) -> memoryview:
    return _block("lz4_raw", data, size)


def _hadoop_blocks(data: memoryview, size: int) -> memoryview:
    """Decompresses blocks, each after its two sizes as big-endian 32-bit integers."""
    out = bytearray()
    position = 0
    while position + 8 <= data.nbytes:
        block_size, stored_size = struct.unpack(">II", data[position : position + 8])
        position += 8
        if stored_size > data.nbytes - position or len(out) + block_size > size:
            raise FormatError("not in Hadoop's framing")
        out += (
            _lz4_block(data[position : position + stored_size], block_size) if block_size else b""
        )
        position += stored_size
    if position != data.nbytes:
        raise FormatError("not in Hadoop's framing")
    return memoryview(bytes(out))


def page_levels(header: PageHeader, body: memoryview, leaf: Leaf, codec: int) -> PageLevels:
    """Returns the levels of a data page. Raises ``FormatError`` if they cannot be decoded."""
    if header.type == PageType.DATA_PAGE_V2:
        return _levels_v2(header, body, leaf)
    v1 = _header_v1(header)
    if not (leaf.max_repetition_level or leaf.max_definition_level):
        return PageLevels(v1.num_values, None, None)
    source = _open_v1(header, body, codec)
    levels: list[Levels | None] = []
    for encoding, highest in (
        (v1.repetition_level_encoding, leaf.max_repetition_level),
        (v1.definition_level_encoding, leaf.max_definition_level),
    ):
        levels.append(_levels_v1(source, encoding, highest, v1.num_values) if highest else None)
    return PageLevels(v1.num_values, *levels)


def num_rows(header: PageHeader, body: memoryview, leaf: Leaf, codec: int) -> int:
    """Returns a repeated page's rows. Raises ``FormatError`` if it begins within a row."""
    if header.type == PageType.DATA_PAGE_V2:
        v2, (first, _) = _parts_v2(header, body)
        repetition = decode_hybrid(body[:first], leaf.max_repetition_level, v2.num_values)
        count = v2.num_values
    else:
        v1 = _header_v1(header)
        count, encoding = v1.num_values, v1.repetition_level_encoding
        source = _open_v1(header, body, codec)
        repetition = _levels_v1(source, encoding, leaf.max_repetition_level, count)
    levels = PageLevels(count, repetition, None)
    if not levels.begins_a_row:
        raise FormatError("a page begins within a row")
    return levels.num_rows()


def _header_v1(header: PageHeader) -> DataPageHeader:
    if header.data_page_header is None:
        raise FormatError("a page of type DATA_PAGE without its header")
    return header.data_page_header


def _open_v1(header: PageHeader, body: memoryview, codec: int) -> _Stream | io.BytesIO:
    """Returns a readable V1 page, which starts with its levels."""
    check_size(header, codec)
    if codec in _STREAM_CODECS:  # decompresses only the levels
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
        if length > _MAX_BYTES_PER_LEVEL * (count + 1) + _SLACK_BYTES:
            raise FormatError(f"{count:,} levels claim {length:,} bytes")
        data += source.read(length)
    return decode_levels(memoryview(data), -1 if encoding is None else encoding, max_level, count)[
        0
    ]


def _parts_v2(header: PageHeader, body: memoryview) -> tuple[DataPageHeaderV2, tuple[int, int]]:
    """Returns the V2 header, and the bytes of its repetition and its definition levels."""
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
