"""Split-block bloom filters.

Source: the specification's ``BloomFilter.md``. A filter is blocks of eight 32-bit words; a value's
64-bit hash names a block by its high half, and by its low half one bit in each of the block's
words.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from intarsia.errors import FormatError, UnsupportedError
from intarsia.format.metadata import (
    BloomFilterAlgorithm,
    BloomFilterCompression,
    BloomFilterHash,
    BloomFilterHeader,
    Empty,
)
from intarsia.format.thrift import decode, encode
from intarsia.source import Source

UInt64Array = NDArray[np.uint64]

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
        blocks, masks = self._places(hashes)
        for word in range(_WORDS):
            np.bitwise_or.at(self.words[:, word], blocks, masks[:, word])

    def might_contain(self, hashes: UInt64Array) -> NDArray[np.bool_]:
        """For each hash, of shape ``(n,)``: False where no such value was added."""
        blocks, masks = self._places(hashes)
        found: NDArray[np.bool_] = ((self.words[blocks] & masks) == masks).all(axis=1)
        return found

    def _places(self, hashes: UInt64Array) -> tuple[NDArray[np.int64], NDArray[np.uint32]]:
        high, low = hashes >> np.uint64(32), hashes.astype(np.uint32)
        blocks = ((high * np.uint64(len(self.words))) >> np.uint64(32)).astype(np.int64)
        bits = (low[:, None] * _SALT) >> np.uint32(27)
        return blocks, np.uint32(1) << bits

    def encode(self) -> bytes:
        """Header and blocks, as a file stores them."""
        header = BloomFilterHeader(
            numBytes=self.num_bytes,
            algorithm=BloomFilterAlgorithm(BLOCK=Empty()),
            hash=BloomFilterHash(XXHASH=Empty()),
            compression=BloomFilterCompression(UNCOMPRESSED=Empty()),
        )
        return encode(header) + self.words.astype("<u4").tobytes()


def read_bloom_filter(source: Source, offset: int, length: int | None) -> BloomFilter:
    """The filter at ``offset``; ``length``, header included, is unknown to older writers.

    Raises ``FormatError`` where there is none, ``UnsupportedError`` for another algorithm.
    """
    known = min(length or _HEADER_BYTES, source.size - offset)
    data = source.read([(offset, known)])[0]
    header, header_size = decode(BloomFilterHeader, data)
    if not (header.algorithm.BLOCK and header.hash.XXHASH and header.compression.UNCOMPRESSED):
        raise UnsupportedError("a bloom filter of a kind that is not known here")
    size = header.numBytes
    if size <= 0 or size % _BLOCK_BYTES or size > MAX_BYTES:
        raise FormatError(f"a bloom filter of {size:,} bytes")
    if header_size + size > data.nbytes:
        data = source.read([(offset, header_size + size)])[0]
    blocks = np.frombuffer(data[header_size : header_size + size], dtype="<u4")
    return BloomFilter(blocks.reshape(-1, _WORDS))
