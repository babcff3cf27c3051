"""Split-block bloom filters: building, encoding, reading and probing them.

A filter is a sequence of blocks of eight 32-bit words. The high half of a value's 64-bit hash
selects the block. The low half selects one bit in each of the block's words.

Source: ``BloomFilter.md`` in the Parquet specification.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

import intarsia.memory as memory
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
"""Multipliers that turn a hash into one bit number per word (``BloomFilter.md``, ``salt``)."""
_WORDS_PER_BLOCK = len(_SALT)
_BLOCK_BYTES = _WORDS_PER_BLOCK * 4
MAX_BYTES = 128 * 1024 * 1024
"""Largest filter, without its header, that is written or read."""
_STEP_HASHES = 1 << 16
"""Hashes that are added or probed at a time. Each takes eight words meanwhile."""
_HEADER_READ_BYTES = 64
"""Bytes read to decode a header. Headers written today take about 16."""
_WHOLE_READ_BYTES = 64 * 1024
"""A filter up to this size is read in one range, even for a few hashes."""


class BloomFilter:
    """The blocks of one filter. ``words`` has shape ``(blocks, 8)`` and dtype uint32."""

    def __init__(self, words: NDArray[np.uint32]) -> None:
        self.words = words

    @classmethod
    def sized(cls, distinct: int, fpp: float) -> BloomFilter:
        """Returns an empty filter for ``distinct`` values at a false-positive rate of ``fpp``.

        ``fpp`` is between 0 and 1, both excluded. The size is a power of two, at most
        ``MAX_BYTES`` and a quarter of the memory limit.
        """
        return cls(np.zeros((_num_blocks(distinct, fpp), _WORDS_PER_BLOCK), dtype=np.uint32))

    @property
    def num_bytes(self) -> int:
        return self.words.nbytes

    def add(self, hashes: UInt64Array) -> None:
        """Adds values, given by their XXH64 hashes."""
        for start in range(0, len(hashes), _STEP_HASHES):
            step = hashes[start : start + _STEP_HASHES]
            blocks, masks = _blocks(step, len(self.words)), _masks(step)
            for word in range(_WORDS_PER_BLOCK):
                np.bitwise_or.at(self.words[:, word], blocks, masks[:, word])

    def shrunk(self, fpp: float) -> BloomFilter:
        """Returns a filter of the same values, sized for their estimated number and ``fpp``.

        The number of distinct values is estimated from the bits that are set. A filter does not
        grow. The number of blocks is a power of two: a hash selects a smaller filter's block by
        fewer bits, so that the block is the union of neighbours.
        """
        num_bits = self.words.size * 32
        unset = num_bits - int(np.bitwise_count(self.words).sum(dtype=np.int64))
        if not unset:
            return self
        # A value sets one bit of 32 in one word of each eighth of the filter.
        distinct = round(-math.log(unset / num_bits) * num_bits / _WORDS_PER_BLOCK)
        blocks = _num_blocks(distinct, fpp)
        if blocks >= len(self.words):
            return self
        neighbours = self.words.reshape(blocks, -1, _WORDS_PER_BLOCK)
        return BloomFilter(np.bitwise_or.reduce(neighbours, axis=1))

    def might_contain(self, hashes: UInt64Array) -> NDArray[np.bool_]:
        """Returns, for each of ``n`` hashes, False if its value was certainly not added.

        The result has shape ``(n,)``.
        """
        return _might_contain(self.words, _blocks(hashes, len(self.words)), hashes)

    def encode(self) -> bytes:
        """Returns the header and the blocks, as a file stores them."""
        header = BloomFilterHeader(
            numBytes=self.num_bytes,
            algorithm=BloomFilterAlgorithm(BLOCK=Empty()),
            hash=BloomFilterHash(XXHASH=Empty()),
            compression=BloomFilterCompression(UNCOMPRESSED=Empty()),
        )
        return b"".join((encode(header), self.words.astype("<u4", copy=False).data))


def _num_blocks(distinct: int, fpp: float) -> int:
    """Returns the number of blocks of ``BloomFilter.sized``."""
    root = min(fpp ** (1 / _WORDS_PER_BLOCK), math.nextafter(1, 0))
    bits = -_WORDS_PER_BLOCK * max(distinct, 1) / math.log1p(-root)
    size = 1 << max(math.ceil(math.log2(bits / 8)), 0)
    most = 1 << memory.share(MAX_BYTES, 4).bit_length() - 1
    return min(max(size, _BLOCK_BYTES), most) // _BLOCK_BYTES


def _blocks(hashes: UInt64Array, num_blocks: int) -> NDArray[np.int64]:
    """Returns the block of each hash, in ``[0, num_blocks)``, as ``BloomFilter.md`` selects it."""
    high = hashes >> np.uint64(32)
    return ((high * np.uint64(num_blocks)) >> np.uint64(32)).astype(np.int64)


def _might_contain(
    words: NDArray[np.uint32], blocks: NDArray[np.int64], hashes: UInt64Array
) -> NDArray[np.bool_]:
    """Returns, for each of ``n`` hashes, if its bits are set in its block of ``words``."""
    is_candidate = np.empty(len(hashes), dtype=np.bool_)
    for start in range(0, len(hashes), _STEP_HASHES):
        step = slice(start, start + _STEP_HASHES)
        masks = _masks(hashes[step])
        is_candidate[step] = ((words[blocks[step]] & masks) == masks).all(axis=1)
    return is_candidate


def _masks(hashes: UInt64Array) -> NDArray[np.uint32]:
    """Returns one bit for each word of a block, for each hash: ``mask`` in ``BloomFilter.md``."""
    bits: NDArray[np.uint32] = (hashes.astype(np.uint32)[:, None] * _SALT) >> np.uint32(27)
    return np.uint32(1) << bits


def read_bloom_filter(source: Source, offset: int, length: int | None) -> BloomFilter:
    """Reads the filter at ``offset``, in bytes from the start of the file.

    ``length`` is the size in bytes with the header. It is None for files of older writers, which do
    not store it. Raises ``FormatError`` if there is no valid filter at ``offset``, and
    ``UnsupportedError`` if the filter uses another algorithm, hash or compression.
    """
    header_size, size = _read_headers(source, [(offset, length)])[0]
    data = source.read([(offset + header_size, size)])[0]
    return BloomFilter(np.frombuffer(data, dtype="<u4").reshape(-1, _WORDS_PER_BLOCK))


def filter_bytes(source: Source, offset: int) -> int:
    """Returns a filter's bytes without header. Raises as ``read_bloom_filter`` does."""
    return _read_headers(source, [(offset, None)])[0][1]


def count_missing(source: Source, offset: int, length: int | None, hashes: UInt64Array) -> int:
    """Counts the ``hashes`` whose values were certainly not added to the filter at ``offset``.

    Reads at most 64 KiB plus two blocks per hash, because a damaged footer may point many filters
    at the same bytes. Raises the same errors as ``read_bloom_filter``.
    """
    header_size, size = _read_headers(source, [(offset, length)])[0]
    if size <= _WHOLE_READ_BYTES + 2 * _BLOCK_BYTES * len(hashes):
        is_candidate = read_bloom_filter(source, offset, length).might_contain(hashes)
        return int(np.count_nonzero(~is_candidate))
    blocks, block_positions = np.unique(_blocks(hashes, size // _BLOCK_BYTES), return_inverse=True)
    start = offset + header_size
    ranges = [(start + block * _BLOCK_BYTES, _BLOCK_BYTES) for block in blocks.tolist()]
    words = np.frombuffer(b"".join(source.read(ranges)), dtype="<u4").reshape(-1, _WORDS_PER_BLOCK)
    return int(np.count_nonzero(~_might_contain(words, block_positions, hashes)))


def filters_might_contain(
    source: Source, places: Sequence[tuple[int, int | None]], hashes: UInt64Array
) -> list[bool]:
    """Returns, for each filter, whether any of the ``hashes`` might have been added to it.

    ``places`` holds the offset and the length of each filter, as in ``read_bloom_filter``. Reads
    the headers in one request, then one block per hash and filter in a second request. Raises the
    same errors as ``read_bloom_filter``.
    """
    if not len(hashes):
        return [False] * len(places)
    ranges: list[ByteRange] = []
    for (offset, _), (header_size, size) in zip(places, _read_headers(source, places), strict=True):
        blocks = _blocks(hashes, size // _BLOCK_BYTES)
        start = offset + header_size
        ranges += [(start + block * _BLOCK_BYTES, _BLOCK_BYTES) for block in blocks.tolist()]
    words = np.frombuffer(b"".join(source.read(ranges)), dtype="<u4")
    words = words.reshape(len(places), len(hashes), _WORDS_PER_BLOCK)
    masks = _masks(hashes)
    is_candidate: list[bool] = ((words & masks) == masks).all(axis=2).any(axis=1).tolist()
    return is_candidate


def _read_headers(
    source: Source, places: Sequence[tuple[int, int | None]]
) -> list[tuple[int, int]]:
    """Returns, for each filter, the bytes of its header and the bytes of its blocks."""
    sizes = []
    ranges = [(offset, min(_HEADER_READ_BYTES, source.size - offset)) for offset, _ in places]
    for (offset, length), data in zip(places, source.read(ranges), strict=True):
        header, header_size = decode(BloomFilterHeader, data)
        supported = (header.algorithm.BLOCK, header.hash.XXHASH, header.compression.UNCOMPRESSED)
        if None in supported:
            raise UnsupportedError("a bloom filter uses an unknown algorithm, hash or compression")
        size = header.numBytes
        if size <= 0 or size % _BLOCK_BYTES or size > MAX_BYTES:
            raise FormatError(f"a bloom filter of {size:,} bytes", Where(offset=offset))
        if length is not None and header_size + size > length:
            claim = f"a bloom filter of {size:,} bytes in {length:,}"
            raise FormatError(claim, Where(offset=offset))
        check_range((offset + header_size, size), source.size)
        sizes.append((header_size, size))
    return sizes
