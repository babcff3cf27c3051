import math
import struct

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from intarsia.deadline import time_limit
from intarsia.errors import FormatError, IntarsiaError, UnsupportedError
from intarsia.file.chunk_reader import Chunk
from intarsia.indexing.parquet_index_build import bloom_hashes
from intarsia.io.source import BufferSource
from intarsia.parquet.bloom_filter import (
    MAX_BYTES,
    BloomFilter,
    count_missing,
    filter_bytes,
    read_bloom_filter,
)
from intarsia.parquet.metadata import (
    BloomFilterAlgorithm,
    BloomFilterCompression,
    BloomFilterHash,
    BloomFilterHeader,
    Empty,
)
from intarsia.parquet.thrift import decode, encode
from intarsia.parquet.xxhash64 import xxh64
from intarsia.scan.parquet_file import open_file

SALT = [
    0x47B6137B,
    0x44974D91,
    0x8824AD5B,
    0xA2B7289D,
    0x705495C7,
    0x2DF1424B,
    0x9EFC4947,
    0x5C6BFB31,
]
HASHES = st.integers(0, 2**64 - 1)


def decoded(chunk):
    """All physical values of a chunk."""
    parts = [part.drop_null() for part in chunk.arrays(list(chunk.pages()))]
    return pa.concat_arrays(parts) if parts else pa.array([])


class SlowFilter:
    """The specification's BloomFilter.md, word by word."""

    def __init__(self, blocks):
        self.blocks = [[0] * 8 for _ in range(blocks)]

    def place(self, hashed):
        block = ((hashed >> 32) * len(self.blocks)) >> 32
        key = hashed & 0xFFFFFFFF
        return block, [1 << (((key * salt) & 0xFFFFFFFF) >> 27) for salt in SALT]

    def add(self, hashed):
        block, mask = self.place(hashed)
        for i in range(8):
            self.blocks[block][i] |= mask[i]

    def might_contain(self, hashed):
        block, mask = self.place(hashed)
        return all(self.blocks[block][i] & mask[i] for i in range(8))

    def stored(self):
        return b"".join(struct.pack("<8I", *block) for block in self.blocks)


def hashes_of(numbers):
    return np.array(numbers, dtype=np.uint64)


def empty_filter(blocks):
    return BloomFilter(np.zeros((blocks, 8), dtype=np.uint32))


@given(
    st.sampled_from([1, 2, 3, 7, 64, 1000]),
    st.lists(HASHES, max_size=60),
    st.lists(HASHES, max_size=60),
)
def test_every_bit_is_where_the_specification_puts_it(blocks, added, probed):
    slow, fast = SlowFilter(blocks), empty_filter(blocks)
    for hashed in added:
        slow.add(hashed)
    fast.add(hashes_of(added))
    assert fast.words.astype("<u4").tobytes() == slow.stored()
    probed = added + probed
    assert fast.might_contain(hashes_of(probed)).tolist() == [slow.might_contain(h) for h in probed]


@given(st.lists(HASHES, max_size=200), st.integers(1, 300), st.floats(0.001, 0.9))
def test_added_values_are_found(added, distinct, fpp):
    made = BloomFilter.sized(distinct, fpp)
    half = len(added) // 2
    made.add(hashes_of(added[:half]))
    made.add(hashes_of(added[half:]))
    assert made.might_contain(hashes_of(added)).all()


@pytest.mark.parametrize("hashed", [0, 2**32 - 1, 2**32, 2**63, 2**64 - 1])
@pytest.mark.parametrize("blocks", [1, 3, 4096])
def test_extreme_hashes_select_valid_blocks(hashed, blocks):
    slow, fast = SlowFilter(blocks), empty_filter(blocks)
    slow.add(hashed)
    fast.add(hashes_of([hashed]))
    assert fast.words.astype("<u4").tobytes() == slow.stored()
    assert int(np.bitwise_count(fast.words).sum()) == 8


def test_an_empty_filter_contains_nothing():
    assert not BloomFilter.sized(100, 0.01).might_contain(hashes_of(range(1000))).any()
    assert len(BloomFilter.sized(1, 0.5).might_contain(hashes_of([]))) == 0


@pytest.mark.parametrize("fpp", [0.2, 0.05, 0.01, 0.001])
@pytest.mark.parametrize("distinct", [100, 3_000, 40_000])
def test_false_positives_are_no_more_than_asked_for(distinct, fpp):
    made = BloomFilter.sized(distinct, fpp)
    random = np.random.default_rng(5)
    added = random.integers(0, 2**64, distinct, dtype=np.uint64)
    probed = random.integers(0, 2**64, 100_000, dtype=np.uint64)
    made.add(added)
    assert made.might_contain(probed).mean() <= fpp * 1.2 + 1e-4


@given(st.integers(0, 10**6), st.floats(0.0001, 0.99))
def test_a_filter_has_the_least_sufficient_power_of_two(distinct, fpp):
    made = BloomFilter.sized(distinct, fpp)
    expected = -8 * max(distinct, 1) / math.log(1 - fpp ** (1 / 8)) / 8
    assert made.num_bytes & (made.num_bytes - 1) == 0
    assert made.num_bytes >= max(32, expected * 0.999)
    assert made.num_bytes == 32 or made.num_bytes / 2 < expected * 1.001


def test_a_filter_grows_to_its_limit_and_not_beyond():
    made = BloomFilter.sized(2**60, 0.01)
    assert made.num_bytes == MAX_BYTES == 128 << 20
    with time_limit(None, "", "256MB"):
        assert BloomFilter.sized(2**60, 0.01).num_bytes == 32 << 20
    assert BloomFilter.sized(100, math.nextafter(1, 0)).num_bytes == 32


@pytest.mark.parametrize("fpp", [0.5, 0.05, 0.01, 0.0001])
@pytest.mark.parametrize("distinct", [0, 1, 3, 50, 700, 9_000, 100_000])
@pytest.mark.parametrize("values", [1, 20, 300_000, 10**7])
def test_a_filter_made_for_more_values_shrinks_to_that_of_fewer(fpp, distinct, values):
    random = np.random.default_rng(distinct)
    added = random.integers(0, 2**64, distinct, dtype=np.uint64)
    made = BloomFilter.sized(values, fpp)
    made.add(added)
    shrunk = made.shrunk(fpp)
    expected = empty_filter(len(shrunk.words))
    expected.add(added)
    assert shrunk.words.tolist() == expected.words.tolist()
    if values < distinct:
        assert len(shrunk.words) == len(made.words)
        return
    least, most = (BloomFilter.sized(int(n), fpp) for n in (distinct * 0.98, distinct * 1.02))
    assert least.num_bytes <= shrunk.num_bytes <= most.num_bytes


# --- stored -------------------------------------------------------------------------------------


def header(size, **changes):
    fields = {
        "algorithm": BloomFilterAlgorithm(BLOCK=Empty()),
        "hash": BloomFilterHash(XXHASH=Empty()),
        "compression": BloomFilterCompression(UNCOMPRESSED=Empty()),
    }
    return encode(BloomFilterHeader(numBytes=size, **(fields | changes)))


@given(
    st.sampled_from([1, 2, 32, 100]),
    st.lists(HASHES, max_size=50),
    st.binary(max_size=80),
    st.binary(max_size=80),
    st.booleans(),
)
def test_a_filter_is_read_back_with_or_without_its_length(blocks, added, before, after, known):
    made = empty_filter(blocks)
    made.add(hashes_of(added))
    stored = made.encode()
    source = BufferSource(before + stored + after)
    actual = read_bloom_filter(source, len(before), len(stored) if known else None)
    assert actual.words.tolist() == made.words.tolist()
    assert actual.num_bytes == blocks * 32
    assert actual.might_contain(hashes_of(added)).all()


def test_a_filter_is_its_header_and_its_blocks():
    made = empty_filter(2)
    made.add(hashes_of([1, 2**63]))
    slow = SlowFilter(2)
    for hashed in (1, 2**63):
        slow.add(hashed)
    assert made.encode() == header(64) + slow.stored()
    assert decode(BloomFilterHeader, made.encode())[0].numBytes == 64


@pytest.mark.parametrize("size", [0, -1, -32, 1, 31, 33, 100, MAX_BYTES + 32, 2**31 - 32, -(2**31)])
@pytest.mark.parametrize("known", [True, False])
def test_impossible_sizes_are_refused(size, known):
    data = header(size) + bytes(200)
    with pytest.raises(FormatError, match="a bloom filter of"):
        read_bloom_filter(BufferSource(data), 0, len(data) if known else None)


@pytest.mark.parametrize("size", [64, 32 * 1000, MAX_BYTES])
@pytest.mark.parametrize("known", [True, False])
def test_a_filter_longer_than_its_file_is_refused(size, known):
    data = header(size) + bytes(32)
    with pytest.raises(FormatError):
        read_bloom_filter(BufferSource(data), 0, len(data) if known else None)


@pytest.mark.parametrize("offset", [-1, 10**6, 2**62])
@pytest.mark.parametrize("length", [None, 0, 40, -5, 2**31 - 1])
def test_a_filter_outside_its_file_is_refused(offset, length):
    with pytest.raises(FormatError):
        read_bloom_filter(BufferSource(empty_filter(1).encode()), offset, length)


@pytest.mark.parametrize("length", [1, 5, 10, -1])
def test_a_length_shorter_than_the_header_is_refused(length):
    with pytest.raises(FormatError):
        read_bloom_filter(BufferSource(empty_filter(4).encode()), 0, length)


@pytest.mark.parametrize("missing", [1, 32, 100])
def test_a_length_shorter_than_the_filter_is_refused(missing):
    stored = empty_filter(4).encode()
    with pytest.raises(FormatError, match="a bloom filter of 128 bytes in"):
        read_bloom_filter(BufferSource(stored), 0, len(stored) - missing)


@pytest.mark.parametrize("more", [1, 32, 10_000])
def test_a_length_beyond_the_filter_does_not_change_it(more):
    made = empty_filter(4)
    made.add(hashes_of([7, 2**64 - 1]))
    stored = made.encode()
    actual = read_bloom_filter(BufferSource(stored + bytes(50)), 0, len(stored) + more)
    assert actual.words.tolist() == made.words.tolist()


@pytest.mark.parametrize("garbage", [b"", b"\x00", b"\xff" * 40, b"PAR1" * 20, bytes(100)])
def test_invalid_bytes_are_refused(garbage):
    with pytest.raises(FormatError):
        read_bloom_filter(BufferSource(garbage), 0, None)


@pytest.mark.parametrize(
    "changes",
    [
        {"algorithm": BloomFilterAlgorithm()},
        {"hash": BloomFilterHash()},
        {"compression": BloomFilterCompression()},
    ],
)
def test_filters_of_another_kind_are_unsupported(changes):
    with pytest.raises(UnsupportedError, match="unknown algorithm"):
        read_bloom_filter(BufferSource(header(32, **changes) + bytes(32)), 0, None)


# --- hashes of what is stored -------------------------------------------------------------------


def test_floats_are_hashed_as_they_are_stored_with_both_zeros_and_the_usual_nan():
    for kind, code in ((pa.float32(), "<f"), (pa.float64(), "<d")):

        def hashed(value, code=code):
            return xxh64(struct.pack(code, value))

        def hashes(cells, kind=kind):
            return set(bloom_hashes(pa.array(cells, kind)).tolist())

        assert hashes([1.5, -2.0]) == {hashed(1.5), hashed(-2.0)}
        for zeros in ([0.0], [-0.0], [0.0, -0.0]):
            assert hashes([*zeros, 1.0]) == {hashed(0.0), hashed(-0.0), hashed(1.0)}
        assert hashed(0.0) != hashed(-0.0)
        assert hashes([math.nan]) == {hashed(math.nan)}
        assert hashes([math.inf, -math.inf]) == {hashed(math.inf), hashed(-math.inf)}
        assert hashes([]) == set()


def test_a_nan_of_other_bits_is_hashed_as_it_is_and_as_the_usual_one():
    odd = np.array([0xFFF8000000000123], dtype=np.uint64)
    hashes = set(bloom_hashes(pa.array(odd.view(np.float64))).tolist())
    assert hashes == {xxh64(odd.tobytes()), xxh64(struct.pack("<d", math.nan))}


@pytest.mark.parametrize(
    ("kind", "cells", "plain"),
    [
        (pa.int32(), [0, -5, 2**31 - 1], lambda v: struct.pack("<i", v)),
        (pa.int64(), [0, -5, 2**63 - 1], lambda v: struct.pack("<q", v)),
        (pa.binary(), [b"", b"a\x00", b"x" * 99], bytes),
        (pa.binary(3), [b"abc", b"\x00\x00\x00"], bytes),
    ],
    ids=["int32", "int64", "binary", "binary(3)"],
)
def test_other_values_are_hashed_over_their_plain_encoding(kind, cells, plain):
    assert bloom_hashes(pa.array(cells, kind)).tolist() == [xxh64(plain(v)) for v in cells]


def test_hashes_of_a_slice_are_those_of_its_values():
    whole = pa.array([1.0, 0.0, math.nan, 2.0])
    assert set(bloom_hashes(whole.slice(3)).tolist()) == {xxh64(struct.pack("<d", 2.0))}


def test_filters_in_the_corpus_contain_every_value_of_their_columns(corpus):
    checked = {}
    for path in sorted((corpus / "files").iterdir()):
        try:
            file = open_file(path)
        except IntarsiaError:
            continue
        for group in range(len(file.metadata.row_groups)):
            for leaf in range(len(file.schema.leaves)):
                bloom_filter = filter_of(file, group, leaf)
                if bloom_filter is None:
                    continue
                chunk = Chunk(file, group, leaf)
                try:
                    values = decoded(chunk)
                except FormatError:
                    continue
                # Hashes the bytes unchanged: a writer does not hash both zeros.
                if pa.types.is_boolean(values.type) or not len(values):
                    continue
                if pa.types.is_floating(values.type):
                    values = values.view(pa.int32() if values.type == pa.float32() else pa.int64())
                where = (path.name, group, chunk.leaf.name)
                checked[where] = bool(bloom_filter.might_contain(bloom_hashes(values)).all())
    assert len(checked) > 10
    assert [where for where, contained in checked.items() if not contained] == []


def filter_of(file, group, leaf):
    try:
        metadata = file.chunk(group, leaf)
        if metadata.bloom_filter_offset is None:
            return None
        return read_bloom_filter(
            file.source, metadata.bloom_filter_offset, metadata.bloom_filter_length
        )
    except FormatError:
        return None


@pytest.mark.parametrize("blocks", [1, 4, 100_000])
@pytest.mark.parametrize("count", [0, 1, 100, 5_000])
def test_values_that_are_missing_from_a_filter_are_counted_by_reading_some_of_it(blocks, count):
    made = empty_filter(blocks)
    made.add(hashes_of(range(0, 10_000, 2)))
    stored = b"before" + made.encode()
    source = ReadBytes(stored)
    probed = hashes_of(range(count))
    expected = int((~made.might_contain(probed)).sum())
    assert count_missing(source, 6, None, probed) == expected
    assert source.count <= 128 * 1024 + 64 * count
    assert filter_bytes(source, 6) == 32 * blocks


class ReadBytes(BufferSource):
    count = 0

    def read(self, ranges):
        self.count += sum(length for _, length in ranges)
        return super().read(ranges)
