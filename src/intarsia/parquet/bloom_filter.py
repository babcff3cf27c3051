"""Split-block bloom filters.

Source: the specification's ``BloomFilter.md``. A filter is blocks of eight 32-bit words; a value's
64-bit hash names a block by its high half, and by its low half one bit in each of the block's
words.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from intarsia.errors import FormatError, UnsupportedError, Where
from intarsia.io.source import ByteRange, Source, check_range
from intarsia.parquet.metadata import (
    BloomFilterAlgorithm,
    BloomFilterCompression,
    BloomFilterHash,
    BloomFilterHeader,
    Empty,
)
from intarsia.parquet.thrift import decode, encode
from intarsia.row_ranges import UInt64Array

_SALT = np.array(
    [
        0x47B6137B,
        0x44974D91,
        0x8824AD5B,
        0xA2B7289D,
        0x705495C7,
        0x2DF1424B,
        0x9EFC4947,
        0x5C6BFB31,
    ],
    dtype=np.uint32,
)
_WORDS = len(_SALT)
_BLOCK_BYTES = _WORDS * 4
MAX_BYTES = 128 * 1024 * 1024
_HEADER_BYTES = 64
"""Headers written today take about 16."""
_SMALL_BYTES = 64 * 1024
"""A smaller filter is read as a whole, however few values are looked up."""


class BloomFilter:
    """The blocks of one filter: ``words`` is uint32 of shape ``(blocks, 8)``."""

    def __init__(self, words: NDArray[np.uint32]) -> None:
        self.words = words

    @classmethod
    def sized(cls, distinct: int, fpp: float) -> BloomFilter:
        """An empty filter for ``distinct`` values and a share ``fpp`` of false positives."""
        bits = -_WORDS * max(distinct, 1) / math.log1p(-(fpp ** (1 / _WORDS)))
        size = 1 << max(math.ceil(math.log2(bits / 8)), 0)
        blocks = min(max(size, _BLOCK_BYTES), MAX_BYTES) // _BLOCK_BYTES
        return cls(np.zeros((blocks, _WORDS), dtype=np.uint32))

    @property
    def num_bytes(self) -> int:
        return self.words.nbytes

    def add(self, hashes: UInt64Array) -> None:
        """Add values by their XXH64."""
        blocks, masks = _blocks(hashes, len(self.words)), _masks(hashes)
        for word in range(_WORDS):
            np.bitwise_or.at(self.words[:, word], blocks, masks[:, word])

    def might_contain(self, hashes: UInt64Array) -> NDArray[np.bool_]:
        """For each hash, of shape ``(n,)``: False where no such value was added."""
        blocks, masks = _blocks(hashes, len(self.words)), _masks(hashes)
        found: NDArray[np.bool_] = ((self.words[blocks] & masks) == masks).all(axis=1)
        return found

    def encode(self) -> bytes:
        """Header and blocks, as a file stores them."""
        header = BloomFilterHeader(
            numBytes=self.num_bytes,
            algorithm=BloomFilterAlgorithm(BLOCK=Empty()),
            hash=BloomFilterHash(XXHASH=Empty()),
            compression=BloomFilterCompression(UNCOMPRESSED=Empty()),
        )
        return encode(header) + self.words.astype("<u4").tobytes()


def _blocks(hashes: UInt64Array, count: int) -> NDArray[np.int64]:
    """Which of ``count`` blocks each hash falls into."""
    high = hashes >> np.uint64(32)
    return ((high * np.uint64(count)) >> np.uint64(32)).astype(np.int64)


def _masks(hashes: UInt64Array) -> NDArray[np.uint32]:
    """One bit in each of a block's words, for each hash: shape ``(n, 8)``."""
    bits: NDArray[np.uint32] = (hashes.astype(np.uint32)[:, None] * _SALT) >> np.uint32(27)
    return np.uint32(1) << bits


def read_bloom_filter(source: Source, offset: int, length: int | None) -> BloomFilter:
    """The filter at ``offset``; ``length``, header included, is unknown to older writers.

    Raises ``FormatError`` where there is none, ``UnsupportedError`` for another algorithm.
    """
    header_size, size = _read_headers(source, [(offset, length)])[0]
    data = source.read([(offset + header_size, size)])[0]
    return BloomFilter(np.frombuffer(data, dtype="<u4").reshape(-1, _WORDS))


def filter_bytes(source: Source, offset: int) -> int:
    """Returns the size of a filter without its header. Raises as ``read_bloom_filter`` does."""
    return _read_headers(source, [(offset, None)])[0][1]


def count_missing(source: Source, offset: int, length: int | None, hashes: UInt64Array) -> int:
    """Counts the ``hashes`` that were not added to a filter. Raises as ``read_bloom_filter`` does.

    Reads in proportion to the hashes: several filters may claim the same bytes.
    """
    header_size, size = _read_headers(source, [(offset, length)])[0]
    if size <= _SMALL_BYTES + 2 * _BLOCK_BYTES * len(hashes):
        found = read_bloom_filter(source, offset, length).might_contain(hashes)
        return int(np.count_nonzero(~found))
    blocks, places = np.unique(_blocks(hashes, size // _BLOCK_BYTES), return_inverse=True)
    start = offset + header_size
    ranges = [(start + block * _BLOCK_BYTES, _BLOCK_BYTES) for block in blocks.tolist()]
    words = np.frombuffer(b"".join(source.read(ranges)), dtype="<u4").reshape(-1, _WORDS)
    masks = _masks(hashes)
    return int(np.count_nonzero(~((words[places] & masks) == masks).all(axis=1)))


def filters_might_contain(
    source: Source, places: Sequence[tuple[int, int | None]], hashes: UInt64Array
) -> list[bool]:
    """For each filter, by offset and length: might any of the ``hashes`` have been added?

    Reads headers, then of each filter only the blocks that tell. Raises as ``read_bloom_filter``
    does.
    """
    if not len(hashes):
        return [False] * len(places)
    ranges: list[ByteRange] = []
    for (offset, _), (header_size, size) in zip(places, _read_headers(source, places), strict=True):
        blocks = _blocks(hashes, size // _BLOCK_BYTES)
        start = offset + header_size
        ranges += [(start + block * _BLOCK_BYTES, _BLOCK_BYTES) for block in blocks.tolist()]
    words = np.frombuffer(b"".join(source.read(ranges)), dtype="<u4")
    words = words.reshape(len(places), len(hashes), _WORDS)
    masks = _masks(hashes)
    found: list[bool] = ((words & masks) == masks).all(axis=2).any(axis=1).tolist()
    return found


def _read_headers(
    source: Source, places: Sequence[tuple[int, int | None]]
) -> list[tuple[int, int]]:
    """Sizes of headers and of what follows them, in bytes."""
    sizes = []
    wanted = [(offset, min(_HEADER_BYTES, source.size - offset)) for offset, _ in places]
    for (offset, length), data in zip(places, source.read(wanted), strict=True):
        header, header_size = decode(BloomFilterHeader, data)
        kinds = (header.algorithm.BLOCK, header.hash.XXHASH, header.compression.UNCOMPRESSED)
        if None in kinds:
            raise UnsupportedError("a bloom filter of a kind that is not known here")
        size = header.numBytes
        if size <= 0 or size % _BLOCK_BYTES or size > MAX_BYTES:
            raise FormatError(f"a bloom filter of {size:,} bytes", Where(offset=offset))
        if length is not None and header_size + size > length:
            claim = f"a bloom filter of {size:,} bytes in {length:,}"
            raise FormatError(claim, Where(offset=offset))
        check_range((offset + header_size, size), source.size)
        sizes.append((header_size, size))
    return sizes
