"""Bodies of data pages: decompression, and the levels inside.

In a V1 page levels and values are compressed together; in a V2 page the levels come first, as they
are, and only the values may be compressed.
"""

from __future__ import annotations

import struct

import pyarrow as pa

from intarsia.errors import FormatError, UnsupportedError
from intarsia.format.levels import Levels, PageLevels, decode_hybrid, decode_levels
from intarsia.format.metadata import CompressionCodec, PageHeader, PageType
from intarsia.format.schema import Leaf

_CODECS = {
    CompressionCodec.SNAPPY: "snappy",
    CompressionCodec.GZIP: "gzip",
    CompressionCodec.BROTLI: "brotli",
    CompressionCodec.ZSTD: "zstd",
    CompressionCodec.LZ4_RAW: "lz4_raw",
}
_HIGHEST_RATIO = {
    CompressionCodec.SNAPPY: 22,
    CompressionCodec.GZIP: 1_032,
    CompressionCodec.LZ4: 256,
    CompressionCodec.LZ4_RAW: 256,
    CompressionCodec.BROTLI: 1 << 20,
    CompressionCodec.ZSTD: 1 << 16,
}
"""What a byte can become at most; a page that claims more is not worth allocating for."""
_SLACK = 1024
_KNOWN = frozenset(CompressionCodec)


def check_size(header: PageHeader, codec: int) -> None:
    """Raise ``FormatError`` where a page claims to be longer than its bytes can be."""
    claimed, stored = header.uncompressed_page_size, header.compressed_page_size
    ratio = _HIGHEST_RATIO.get(CompressionCodec(codec), 1) if codec in _KNOWN else 1
    if claimed > stored * ratio + _SLACK:
        raise FormatError(f"a page of {stored:,} bytes claims to hold {claimed:,}")


def decompress(codec: int, data: memoryview, size: int) -> memoryview:
    """The ``size`` bytes that ``data`` holds compressed.

    Raises ``FormatError`` where it holds others, ``UnsupportedError`` for a codec not known here.
    """
    if codec == CompressionCodec.UNCOMPRESSED:
        return data
    if size == 0:
        return memoryview(b"")
    try:
        if codec == CompressionCodec.LZ4:
            return _lz4(data, size)
        name = _CODECS.get(CompressionCodec(codec)) if codec in _KNOWN else None
        if name is None:
            raise UnsupportedError(f"compression codec {codec} is not known here")
        return _decompressed(name, data, size)
    except (pa.ArrowException, OSError, ValueError) as error:
        if isinstance(error, FormatError):
            raise
        raise FormatError(f"cannot decompress: {error}") from error


def _decompressed(name: str, data: memoryview, size: int) -> memoryview:
    return memoryview(pa.Codec(name).decompress(data, size)).cast("B")


def _lz4(data: memoryview, size: int) -> memoryview:
    """The deprecated LZ4: Hadoop's frames of raw blocks, else one frame or block of LZ4's own."""
    framed = _hadoop_blocks(data, size)
    if framed is not None:
        return framed
    for name in ("lz4", "lz4_raw"):
        try:
            return _decompressed(name, data, size)
        except (pa.ArrowException, OSError):
            continue
    raise FormatError("LZ4 in none of its three framings")


def _hadoop_blocks(data: memoryview, size: int) -> memoryview | None:
    """Blocks that each follow their lengths, whole and stored, as big-endian 32-bit integers."""
    out = bytearray()
    at = 0
    while at + 8 <= data.nbytes:
        whole, stored = struct.unpack(">II", data[at : at + 8])
        at += 8
        if stored > data.nbytes - at or len(out) + whole > size:
            return None
        try:
            out += _decompressed("lz4_raw", data[at : at + stored], whole)
        except (pa.ArrowException, OSError):
            return None
        at += stored
    return memoryview(bytes(out)) if len(out) == size and at == data.nbytes else None


def page_levels(header: PageHeader, body: memoryview, leaf: Leaf, codec: int) -> PageLevels:
    """The levels of a data page. Raises ``FormatError`` where they cannot be decoded."""
    if header.type == PageType.DATA_PAGE_V2:
        return _levels_v2(header, body, leaf)
    v1 = header.data_page_header
    if v1 is None:
        raise FormatError("a page of type DATA_PAGE without its header")
    if not (leaf.max_repetition_level or leaf.max_definition_level):
        return PageLevels(v1.num_values, None, None)
    check_size(header, codec)
    data = decompress(codec, body, header.uncompressed_page_size)
    repetition = definition = None
    if leaf.max_repetition_level:
        encoding = v1.repetition_level_encoding or 0
        repetition, taken = decode_levels(data, encoding, leaf.max_repetition_level, v1.num_values)
        data = data[taken:]
    if leaf.max_definition_level:
        encoding = v1.definition_level_encoding or 0
        definition, _ = decode_levels(data, encoding, leaf.max_definition_level, v1.num_values)
    return PageLevels(v1.num_values, repetition, definition)


def _levels_v2(header: PageHeader, body: memoryview, leaf: Leaf) -> PageLevels:
    v2 = header.data_page_header_v2
    if v2 is None:
        raise FormatError("a page of type DATA_PAGE_V2 without its header")
    first, second = v2.repetition_levels_byte_length, v2.definition_levels_byte_length
    if first < 0 or second < 0 or first + second > body.nbytes:
        raise FormatError(f"levels claim {first + second:,} bytes of a page of {body.nbytes:,}")

    def levels(data: memoryview, max_level: int) -> Levels | None:
        if not max_level:
            return None
        return decode_hybrid(data, max_level, v2.num_values)

    return PageLevels(
        v2.num_values,
        levels(body[:first], leaf.max_repetition_level),
        levels(body[first : first + second], leaf.max_definition_level),
    )
